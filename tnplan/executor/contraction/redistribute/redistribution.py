"""A change of layout as one value, and where boxes of the whole tensor lie in the shards of its ranks.

Pure arithmetic: knows modes, layouts and the grid; never a device or a communicator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import prod

from tnplan.executor.device.protocols.copy import Copy, make_copy, row_major
from tnplan.executor.device.protocols.device import View
from tnplan.planner.hardware.process_grid import Box, Grid, Layout, box, box_shape, rank_digits, rank_of


@dataclass(frozen=True)
class ShardedTensor:
    """A tensor distributed over the ranks: its modes in storage order, its layout and its partial digits.

    Every rank's shard begins at `offset_bytes` of its arena.
    """

    modes: tuple[int, ...]
    layout: Layout
    partial: tuple[int, ...] = ()
    offset_bytes: int = 0


@dataclass(frozen=True)
class ShardBox:
    """A rank's shard: its box in the whole tensor, strides in elements over the same modes, and flat view."""

    bounds: Box
    strides: tuple[int, ...]
    view: View

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the box."""
        return box_shape(self.bounds)

    def start(self, bounds: Box) -> int:
        """The element at which a box of the whole tensor begins in the shard."""
        return sum(
            (first - lowest) * stride
            for (first, _), (lowest, _), stride in zip(bounds, self.bounds, self.strides, strict=True)
        )


@dataclass(frozen=True)
class Redistribution:
    """A tensor that changes its layout from `source` to `target`, seen from `rank`.

    Digits that are partial in the source and not in the target are summed; no digit becomes partial.
    """

    source: ShardedTensor
    target: ShardedTensor
    extents: Mapping[int, int]
    grid: Grid
    rank: int

    def __post_init__(self) -> None:
        if set(self.target.partial) - set(self.source.partial):
            raise ValueError("a change of layout cannot make a digit partial")

    @cached_property
    def digits(self) -> tuple[int, ...]:
        """The digits of this rank."""
        return rank_digits(self.rank, self.grid)

    @cached_property
    def summed(self) -> tuple[int, ...]:
        """The digits over which terms are summed."""
        return tuple(sorted(set(self.source.partial) - set(self.target.partial)))

    @cached_property
    def moving(self) -> tuple[int, ...]:
        """The digits in which ranks that exchange can differ."""
        before, after = self.source.layout, self.target.layout
        return tuple(
            digit for digit in range(len(self.grid))
            # A digit that was free and takes a mode moves nothing: every rank has that part already and drops
            # the rest.
            if digit in self.summed or (before[digit] is not None and before[digit] != after[digit])
        )  # fmt: skip

    @property
    def n_peers(self) -> int:
        """How many other ranks exchange with this one at most."""
        return prod(self.grid[digit].radix for digit in self.moving) - 1

    def peers(self) -> list[int]:
        """The other ranks that differ from this one in the moving digits at most, in rising order."""
        digits, ranks = list(self.digits), []
        for values in product(*(range(self.grid[digit].radix) for digit in self.moving)):
            for digit, value in zip(self.moving, values, strict=True):
                digits[digit] = value
            ranks.append(rank_of(digits, self.grid))
        return sorted(rank for rank in ranks if rank != self.rank)

    def distance(self, peer: int) -> int:
        """How far a peer is behind this rank in the order of ranks: all begin with the one after them."""
        return (peer - self.rank) % prod(digit.radix for digit in self.grid)

    def shard(self, tensor: ShardedTensor, rank: int | None = None) -> tuple[Box, tuple[int, ...]]:
        """Box and strides of a rank's shard of source or target, over the source's modes."""
        digits = self.digits if rank is None else rank_digits(rank, self.grid)
        modes = self.source.modes
        bounds = box(modes, tensor.layout, self.extents, digits, self.grid)
        shape = dict(zip(modes, box_shape(bounds), strict=True))
        strides = dict(zip(tensor.modes, row_major([shape[mode] for mode in tensor.modes]), strict=True))
        return bounds, tuple(strides[mode] for mode in modes)

    def shard_box(self, tensor: ShardedTensor, rank: int, view_of: Callable[[int], View]) -> ShardBox:
        """A rank's shard in the flat view that `view_of` gives for its number of elements."""
        bounds, strides = self.shard(tensor, rank)
        return ShardBox(bounds, strides, view_of(prod(box_shape(bounds))))

    def shards(self, source: View, target: View) -> tuple[ShardBox, ShardBox]:
        """This rank's shards before and after, in these flat views."""
        return ShardBox(*self.shard(self.source), source), ShardBox(*self.shard(self.target), target)


@lru_cache(maxsize=65536)
def box_copy(
    shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...], n_lead: int = 0
) -> Copy:
    """The copy of a box between two sets of strides, with its first `n_lead` modes as rows."""
    axes = list(zip(shape, strides, target, strict=True))
    return make_copy(axes[n_lead:], axes[:n_lead])

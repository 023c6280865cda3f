"""One side of a copy between shards: where a box of the whole tensor lies in a shard. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tnplan.executor.contraction.redistribute.plan import ShardedTensor
from tnplan.executor.device.protocols.copy import Copy, make_copy, row_major
from tnplan.executor.device.protocols.device import View
from tnplan.planner.hardware.process_grid import Box, Grid, box, box_shape, rank_digits


@dataclass(frozen=True)
class ShardBox:
    """One side of an exchange on this rank: the shard's box, strides over the source's modes, and view."""

    bounds: Box
    strides: tuple[int, ...]
    view: View

    def start(self, bounds: Box) -> int:
        """The element at which a box of the whole tensor begins in the shard."""
        return sum(
            (first - own) * stride
            for (first, _), (own, _), stride in zip(bounds, self.bounds, self.strides, strict=True)
        )


@lru_cache(maxsize=65536)
def piece_copy(
    shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...], n_lead: int
) -> Copy:
    """The copy of a box between two sets of strides, with its first `n_lead` modes as rows."""
    axes = list(zip(shape, strides, target, strict=True))
    return make_copy(axes[n_lead:], axes[:n_lead])


def side_of(
    rank: int, modes: tuple[int, ...], shards: ShardedTensor, extents: Mapping[int, int], grid: Grid
) -> tuple[Box, tuple[int, ...]]:
    """A rank's shard: its box and its strides, over `modes`, which are those of the tensor in any order."""
    bounds = box(modes, shards.layout, extents, rank_digits(rank, grid), grid)
    shape = dict(zip(modes, box_shape(bounds), strict=True))
    strides = dict(zip(shards.modes, row_major([shape[mode] for mode in shards.modes]), strict=True))
    return bounds, tuple(strides[mode] for mode in modes)

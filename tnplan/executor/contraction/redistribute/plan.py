"""Who sends what to whom when a tensor changes its layout. Pure arithmetic, for one rank.
A change of layout is one value, `Redistribution`.

Only the combinations of grid digits in which two layouts differ are visited, never all ranks. A rank takes
data that several ranks hold from the one whose digits equal those of this rank where the source is
replicated, hence from itself where it can. Exchanges run in rounds so that the pieces in flight fit the
workspace; every rank derives the same rounds. Knows no device and no communicator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import prod

from tnplan.executor.device.protocols.copy import Copy, make_copy, row_major
from tnplan.executor.device.protocols.device import View
from tnplan.planner.hardware.process_grid import (
    Box,
    Grid,
    Layout,
    box,
    box_shape,
    intersect,
    largest_part,
    part,
    rank_digits,
    rank_of,
)


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


ROWS_A_PIECE = 16
"""Rows that a piece of a box has at least, where it has so many."""
PIPELINED_ELEMENTS = 1 << 20
"""A round that overlaps with its neighbours sends at least about this many elements to each peer."""
PIPELINED_PIECES = 4
"""The most pieces of a box that rounds which overlap ask for."""


@dataclass(frozen=True)
class BoxTransfer:
    """A box that goes between this rank and `peer`; bounds over the source's modes, in the whole tensor.

    `wave` is the same number at both ends, 0 for data that a rank keeps. `order` holds the values of the
    summed digits at the sending rank.
    """

    peer: int
    bounds: Box
    wave: int
    order: tuple[int, ...]

    @property
    def elements(self) -> int:
        """The number of elements."""
        return prod(box_shape(self.bounds))


@dataclass(frozen=True)
class MessageRounds:
    """Every box goes in `pieces` pieces; `peers_a_wave` peers are served in one round, `waves` in turn.

    Rounds take turns in `turns` equal parts of the workspace: with two, one is packed while another moves.
    """

    pieces: int
    peers_a_wave: int
    waves: int
    turns: int = 1


@dataclass(frozen=True)
class RedistributionPlan:
    """One rank's part of a change of layout; what it keeps is in `receives` alone.

    `receives` with equal bounds are terms of one sum and stand together, by rising `order`.
    """

    change: Redistribution
    sends: tuple[BoxTransfer, ...]
    receives: tuple[BoxTransfer, ...]
    rounds: MessageRounds


@dataclass(frozen=True)
class _DigitChoice:
    """A value of one digit of the peer; it narrows the mode at `position`, unless None, to `bounds`."""

    value: int
    position: int | None = None
    bounds: tuple[int, int] = (0, 0)


def plan_redistribution(change: Redistribution, capacity: int, overlap: bool = False) -> RedistributionPlan:
    """This rank's transfers; `capacity` is the workspace's elements, `overlap` asks for two turns in it."""
    # What a rank receives: its target box cut by the source's parts, one box for each value of the digits
    # that the source spreads. What it sends: the same from the other side.
    # Invariant: sender and receiver derive the same box, wave and pieces by themselves; nothing is
    # negotiated.
    source_bounds, target_bounds = (change.shard(tensor)[0] for tensor in (change.source, change.target))
    rounds = _plan_rounds(change, capacity, overlap)
    digits = change.digits
    receives = []
    for peer_digits, bounds in _combine(_senders(change, target_bounds), target_bounds):
        order = tuple(peer_digits[digit] for digit in change.summed)
        wave = _wave(change, peer_digits, digits, rounds)
        receives.append(BoxTransfer(rank_of(peer_digits, change.grid), bounds, wave, order))
    sends = []
    order = tuple(digits[digit] for digit in change.summed)
    for peer_digits, bounds in _combine(_receivers(change, source_bounds), source_bounds):
        if peer_digits != digits:
            wave = _wave(change, digits, peer_digits, rounds)
            sends.append(BoxTransfer(rank_of(peer_digits, change.grid), bounds, wave, order))
    # Invariant: terms of one sum stand together, by rising digits of their senders, so that every rank adds
    # them in the same order and a run gives the same bits each time.
    receives.sort(key=lambda transfer: (transfer.bounds, transfer.order))
    return RedistributionPlan(change, tuple(sends), tuple(receives), rounds)


def _senders(change: Redistribution, bounds: Box) -> list[list[_DigitChoice]]:
    """For each digit, its values at the ranks that send to this one, whose box of the target is `bounds`."""
    choices = []
    for number, mode in enumerate(change.source.layout):
        radix = change.grid[number].radix
        # Spread in the source: the ranks whose part of the mode meets this box. Summed: every value, a term
        # from each. Replicated: the sender that has this rank's digit, so that no two send the same.
        if mode is not None:
            choices.append(_meeting(change.source.modes, mode, bounds, change.extents, radix))
        elif number in change.summed:
            choices.append([_DigitChoice(value) for value in range(radix)])
        else:
            choices.append([_DigitChoice(change.digits[number])])
    return choices


def _receivers(change: Redistribution, bounds: Box) -> list[list[_DigitChoice]]:
    """For each digit, its values at the ranks that need data of this one, whose source box is `bounds`."""
    choices = []
    for number, mode in enumerate(change.target.layout):
        radix = change.grid[number].radix
        if mode is not None:
            values = _meeting(change.source.modes, mode, bounds, change.extents, radix)
        else:
            values = [_DigitChoice(value) for value in range(radix)]
        if change.source.layout[number] is None and number not in change.summed:
            # The counterpart of the last case in `_senders`: of several holders only the one with the
            # receiver's digit.
            values = [choice for choice in values if choice.value == change.digits[number]]
        choices.append(values)
    return choices


def _meeting(
    modes: Sequence[int], mode: int, bounds: Box, extents: Mapping[int, int], radix: int
) -> list[_DigitChoice]:
    """The parts of a mode, split by `radix`, that meet a box."""
    position = modes.index(mode)
    choices = []
    for value in range(radix):
        common = intersect((bounds[position],), (part(extents[mode], radix, value),))
        if common is not None:
            choices.append(_DigitChoice(value, position, common[0]))
    return choices


def _combine(choices: list[list[_DigitChoice]], whole: Box) -> list[tuple[tuple[int, ...], Box]]:
    """All combinations of the digits' choices: the digits of a rank and the box narrowed by them."""
    if any(start >= stop for start, stop in whole):
        return []
    combined = []
    for combination in product(*choices):
        bounds = list(whole)
        for choice in combination:
            if choice.position is not None:
                bounds[choice.position] = choice.bounds
        combined.append((tuple(choice.value for choice in combination), tuple(bounds)))
    return combined


def _plan_rounds(change: Redistribution, capacity: int, overlap: bool) -> MessageRounds:
    """The rounds of an exchange, from figures that every rank knows.

    A rank has at most one peer each way for each difference of the moving digits, and a box of at most
    `largest` elements for each, so that a round holds at most 2 peers_a_wave piece elements.
    """
    peers = change.n_peers
    largest = _largest_box(change)
    # Two halves of the workspace, each of which holds the pieces of all peers both ways: one is packed while
    # the other moves.
    wanted = min(PIPELINED_PIECES, largest // PIPELINED_ELEMENTS)
    if overlap and peers and wanted > 1 and capacity // 2 >= 2 * peers:
        return MessageRounds(max(wanted, _pieces(largest, capacity // 2 // (2 * peers))), peers, 1, 2)
    if peers == 0 or largest == 0 or 2 * peers * largest <= capacity:
        return MessageRounds(1, max(1, peers), 1)
    # At least one element a peer and way; where there are more peers than that, they are served in waves.
    peers_a_wave = peers if 2 * peers <= capacity else capacity // 2
    if peers_a_wave == 0 or (change.summed and peers_a_wave < peers):
        raise ValueError(f"a workspace of {capacity} elements is too small to exchange with {peers} peers")
    pieces = _pieces(largest, capacity // (2 * peers_a_wave))
    return MessageRounds(pieces, peers_a_wave, -(-peers // peers_a_wave))


def _pieces(largest: int, piece: int) -> int:
    """The pieces of which none exceeds `piece` elements, though they are whole rows."""
    # Pieces are whole rows, and with ROWS_A_PIECE rows or more a piece is at most one sixteenth longer than
    # the even share.
    return 1 if largest <= piece else -(-largest * (ROWS_A_PIECE + 1) // (ROWS_A_PIECE * piece))


def _largest_box(change: Redistribution) -> int:
    largest = 1
    for mode in change.source.modes:
        extent = change.extents[mode]
        for layout in (change.source.layout, change.target.layout):
            if mode in layout:
                radix = change.grid[layout.index(mode)].radix
                extent = min(extent, largest_part(change.extents[mode], radix))
        largest *= extent
    return largest


def _wave(
    change: Redistribution, sender: Sequence[int], receiver: Sequence[int], rounds: MessageRounds
) -> int:
    number = 0
    for digit in change.moving:
        radix = change.grid[digit].radix
        # Differences and not ranks: in a wave every rank sends to one peer and receives from one for each
        # difference, so that load is even and both ends count the same number. 0 is what a rank keeps.
        number = number * radix + (receiver[digit] - sender[digit]) % radix
    return max(0, number - 1) // rounds.peers_a_wave


def leading_modes(shape: Sequence[int], pieces: int) -> int:
    """How many leading modes of a box make up the rows dealt to its pieces: 16 rows a piece or more."""
    wanted = min(prod(shape), ROWS_A_PIECE * pieces) if pieces > 1 else 1
    rows = 1
    for count, extent in enumerate(shape):
        if rows >= wanted:
            return count
        rows *= extent
    return len(shape)

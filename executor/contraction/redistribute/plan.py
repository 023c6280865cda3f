"""Who sends what to whom when a tensor changes its layout. Pure arithmetic, for one rank.

Only the combinations of grid digits in which two layouts differ are visited, never all ranks. A rank takes
data that several ranks hold from the one whose digits equal its own where the source is replicated, hence
from itself where it can. Exchanges run in rounds so that the pieces in flight fit the workspace; every rank
derives the same rounds. Knows no device and no communicator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

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

ROWS_A_PIECE = 16
PIPELINED_ELEMENTS = 1 << 20
"""A round that overlaps with its neighbours sends at least about this many elements to each peer."""
PIPELINED_PIECES = 4


@dataclass(frozen=True)
class ShardedTensor:
    """A tensor spread over the ranks: its modes in storage order, its layout and its partial digits."""

    modes: tuple[int, ...]
    layout: Layout
    partial: tuple[int, ...] = ()


@dataclass(frozen=True)
class BoxTransfer:
    """A box that goes between this rank and `peer`; bounds over the source's modes, in the whole tensor.

    `wave` is the same number at both ends, 0 for a rank's own data. `order` holds the values of the summed
    digits at the sending rank.
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
    """One rank's part of a change of layout; its own data is in `receives` alone.

    `receives` with equal bounds are terms of one sum and stand together, by rising `order`. `moving` are the
    digits in which ranks that exchange can differ.
    """

    sends: tuple[BoxTransfer, ...]
    receives: tuple[BoxTransfer, ...]
    rounds: MessageRounds
    moving: tuple[int, ...]


@dataclass(frozen=True)
class _DigitChoice:
    """A value of one digit of the peer; it narrows the mode at `position`, unless None, to `bounds`."""

    value: int
    position: int | None = None
    bounds: tuple[int, int] = (0, 0)


def plan_redistribution(
    source: ShardedTensor, out: ShardedTensor, extents: Mapping[int, int], grid: Grid, rank: int, capacity: int,
    overlap: bool = False,
) -> RedistributionPlan:  # fmt: skip
    """This rank's transfers; `capacity` is the elements of the workspace, `overlap` asks for two turns in it.

    Digits that are partial in the source and not in `out` are summed; the others must be partial in both.
    """
    digits = rank_digits(rank, grid)
    summed = tuple(sorted(set(source.partial) - set(out.partial)))
    if set(out.partial) - set(source.partial):
        raise ValueError("a change of layout cannot make a digit partial")
    moving = [
        digit for digit in range(len(grid))
        if digit in summed or (source.layout[digit] is not None and source.layout[digit] != out.layout[digit])
    ]  # fmt: skip
    rounds = plan_rounds(source, out, extents, grid, moving, capacity, bool(summed), overlap)
    own_source = box(source.modes, source.layout, extents, digits, grid)
    own_out = box(source.modes, out.layout, extents, digits, grid)
    receives = []
    for peer_digits, bounds in _combine(_senders(source, own_out, extents, grid, digits, summed), own_out):
        order = tuple(peer_digits[digit] for digit in summed)
        wave = _wave(peer_digits, digits, grid, moving, rounds)
        receives.append(BoxTransfer(rank_of(peer_digits, grid), bounds, wave, order))
    sends = []
    order = tuple(digits[digit] for digit in summed)
    for peer_digits, bounds in _combine(
        _receivers(source, out, own_source, extents, grid, digits, summed), own_source
    ):
        if peer_digits != digits:
            wave = _wave(digits, peer_digits, grid, moving, rounds)
            sends.append(BoxTransfer(rank_of(peer_digits, grid), bounds, wave, order))
    receives.sort(key=lambda transfer: (transfer.bounds, transfer.order))
    return RedistributionPlan(tuple(sends), tuple(receives), rounds, tuple(moving))


def _senders(
    source: ShardedTensor,
    own: Box,
    extents: Mapping[int, int],
    grid: Grid,
    digits: Sequence[int],
    summed: Sequence[int],
) -> list[list[_DigitChoice]]:
    """For each digit, its values at the ranks that send to this one, whose box of the result is `own`."""
    choices = []
    for number, mode in enumerate(source.layout):
        if mode is not None:
            choices.append(_meeting(source.modes, mode, own, extents, grid[number].radix))
        elif number in summed:
            choices.append([_DigitChoice(value) for value in range(grid[number].radix)])
        else:
            choices.append([_DigitChoice(digits[number])])
    return choices


def _receivers(
    source: ShardedTensor, out: ShardedTensor, own: Box, extents: Mapping[int, int], grid: Grid, digits: Sequence[int],
    summed: Sequence[int],
) -> list[list[_DigitChoice]]:  # fmt: skip
    """For each digit, its values at the ranks that need data of this one, whose source box is `own`."""
    choices = []
    for number, mode in enumerate(out.layout):
        if mode is not None:
            found = _meeting(source.modes, mode, own, extents, grid[number].radix)
        else:
            found = [_DigitChoice(value) for value in range(grid[number].radix)]
        if source.layout[number] is None and number not in summed:
            found = [choice for choice in found if choice.value == digits[number]]
        choices.append(found)
    return choices


def _meeting(
    modes: Sequence[int], mode: int, own: Box, extents: Mapping[int, int], radix: int
) -> list[_DigitChoice]:
    """The parts of a mode, split by `radix`, that meet the own box."""
    position = modes.index(mode)
    found = []
    for value in range(radix):
        common = intersect((own[position],), (part(extents[mode], radix, value),))
        if common is not None:
            found.append(_DigitChoice(value, position, common[0]))
    return found


def _combine(choices: list[list[_DigitChoice]], own: Box) -> list[tuple[tuple[int, ...], Box]]:
    """All combinations of the digits' choices: the digits of a rank and the box narrowed by them."""
    if any(start >= stop for start, stop in own):
        return []
    combined = []
    for combination in product(*choices):
        bounds = list(own)
        for choice in combination:
            if choice.position is not None:
                bounds[choice.position] = choice.bounds
        combined.append((tuple(choice.value for choice in combination), tuple(bounds)))
    return combined


def plan_rounds(
    source: ShardedTensor, out: ShardedTensor, extents: Mapping[int, int], grid: Grid, moving: Sequence[int], capacity: int,
    summed: bool, overlap: bool = False,
) -> MessageRounds:  # fmt: skip
    """The rounds of an exchange, from figures that every rank knows.

    A rank has at most one peer each way for each difference of the moving digits, and a box of at most
    `largest` elements for each, so that a round holds at most 2 peers_a_wave piece elements.
    """
    peers = prod(grid[digit].radix for digit in moving) - 1
    largest = _largest_box(source, out, extents, grid)
    wanted = min(PIPELINED_PIECES, largest // PIPELINED_ELEMENTS)
    if overlap and peers and wanted > 1 and capacity // 2 >= 2 * peers:
        return MessageRounds(max(wanted, _pieces(largest, capacity // 2 // (2 * peers))), peers, 1, 2)
    if peers == 0 or largest == 0 or 2 * peers * largest <= capacity:
        return MessageRounds(1, max(1, peers), 1)
    peers_a_wave = peers if 2 * peers <= capacity else capacity // 2
    if peers_a_wave == 0 or (summed and peers_a_wave < peers):
        raise ValueError(f"a workspace of {capacity} elements is too small to exchange with {peers} peers")
    pieces = _pieces(largest, capacity // (2 * peers_a_wave))
    return MessageRounds(pieces, peers_a_wave, -(-peers // peers_a_wave))


def _pieces(largest: int, piece: int) -> int:
    """The pieces of which none exceeds `piece` elements, though they are whole rows."""
    return 1 if largest <= piece else -(-largest * (ROWS_A_PIECE + 1) // (ROWS_A_PIECE * piece))


def _largest_box(source: ShardedTensor, out: ShardedTensor, extents: Mapping[int, int], grid: Grid) -> int:
    largest = 1
    for mode in source.modes:
        extent = extents[mode]
        for layout in (source.layout, out.layout):
            if mode in layout:
                extent = min(extent, largest_part(extents[mode], grid[layout.index(mode)].radix))
        largest *= extent
    return largest


def _wave(
    sender: Sequence[int], receiver: Sequence[int], grid: Grid, moving: Sequence[int], rounds: MessageRounds
) -> int:
    number = 0
    for digit in moving:
        radix = grid[digit].radix
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

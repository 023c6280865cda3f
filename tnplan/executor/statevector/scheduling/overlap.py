"""Exchanges that overlap passes: which passes around an exchange are done part by part.

Knows bits; no device.

A pass moves nothing between amplitudes that differ in a bit which its tiles do not hold, an exchange nothing
between those that differ in a bit which it does not swap. Bits that an exchange and passes around it leave
alone so cut the state into parts that go through these steps without each other. The passes before are done
part by part, and each part is exchanged while they go on with others; those after go on with the parts that
have come. Passes before and after may have parts of different bits: then the last of the parts before, a half
or a quarter of them, are exchanged divided by the bits of those after, which begin as these come.
The order of steps of an amplitude stays, so that results have the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate
from tnplan.executor.statevector.scheduling.qubit_cover import QubitExchange
from tnplan.executor.statevector.scheduling.tiled_passes import SHORT_BITS, Pass, Tile, price

MOST_PART_BITS = 4
"""A state is cut into 2^4 parts at most."""
LEAST_TILE_BITS = 13
"""A part has 2^13 tiles or more, so that they are many for each of the CUDA blocks that do them."""
EXCHANGE_COPIES = 5.8
"""An exchange of all amplitudes takes as long as so many copies of them (measured on H200s)."""
SHARES = (1.04, 7.8), (1.07, 6.4), (1.2, 6.0)
"""How much of the device an exchange has while passes run, from less to more.

Passes take so many times as long, and the exchange so many copies.
"""
MOST_PASSES = 4
"""Passes that an exchange overlaps, at most."""
TURNS = (1, 2)
"""How many of the highest bits may tell the last parts, which are divided; see `Overlap.turn`."""

Piece = tuple[Sequence[int], int]
"""The amplitudes in which some bits have a value, bit k of it that of bits[k]; all where there are none."""


@dataclass(frozen=True, eq=False)
class Overlap:
    """Passes done for each value of `bits`, an exchange, and passes done for each value of `after_bits`.

    Bits rise. Where those of passes after are others, `turn` of the highest of `bits` are all 1 in what is
    exchanged last, divided by `after_bits`; else `turn` is 0. `share` is the index in `SHARES` of what the
    exchange has of the device.
    """

    before: tuple[Pass, ...]
    exchange: QubitExchange
    after: tuple[Pass, ...]
    bits: tuple[int, ...]
    after_bits: tuple[int, ...]
    turn: int = 0
    share: int = 0

    @property
    def n_undivided(self) -> int:
        """How many parts of `bits` are exchanged as they are; the others are divided."""
        n_parts = 1 << len(self.bits)
        return n_parts - (n_parts >> self.turn) if self.turn else n_parts

    @property
    def pieces(self) -> list[Piece]:
        """What is exchanged one after another."""
        undivided: list[Piece] = [(self.bits, value) for value in range(self.n_undivided)]
        if not self.turn:
            return undivided
        divided = (*self.bits[-self.turn :], *self.after_bits)
        last = (1 << self.turn) - 1
        return undivided + [
            (divided, last | value << self.turn) for value in range(1 << len(self.after_bits))
        ]

    def overlaps_wide(self, tile_bits: int) -> list[bool]:
        """For each piece whether passes that it overlaps have tiles of more than so many bits."""
        before, after = (
            any(len(item.held_bits) > tile_bits for item in items) for items in (self.before, self.after)
        )
        n_divided = len(self.pieces) - self.n_undivided
        return [before or (after and not self.turn)] * self.n_undivided + [after] * n_divided

    @property
    def begins(self) -> list[range]:
        """The pieces that can be exchanged once a part of the passes before is done, for each part."""
        n_parts, n_pieces = 1 << len(self.bits), len(self.pieces)
        begins = [range(number, number + (number < self.n_undivided)) for number in range(n_parts)]
        begins[-1] = range(min(n_parts - 1, self.n_undivided), n_pieces)
        return begins

    @property
    def awaits(self) -> range:
        """The piece that passes after wait for, for each of their parts."""
        first = self.n_undivided if self.turn else 0
        return range(first, first + (1 << len(self.after_bits)))


def with_overlaps(
    steps: Sequence[Pass | QubitExchange], divisible: Sequence[bool], n_bits: int, tile: Tile,
    least_tile_bits: int = LEAST_TILE_BITS,
) -> list[Pass | QubitExchange | Overlap]:  # fmt: skip
    """Steps on the 2^n_bits amplitudes of a rank, with exchanges that overlap passes where that is faster.

    `divisible` says which of the steps are passes that can be done in parts.
    """
    most_bits = min(MOST_PART_BITS, n_bits - min(n_bits, tile.bits) - least_tile_bits)
    overlapped: list[Pass | QubitExchange | Overlap] = []
    done = 0
    for at, step in enumerate(steps):
        if not isinstance(step, QubitExchange):
            continue
        first = at
        # The passes just before and after the exchange, as far as they can be done in parts and are
        # not in an overlap already.
        while first > done and divisible[first - 1]:
            first -= 1
        end = at + 1
        while end < len(steps) and divisible[end]:
            end += 1
        before, after = (
            [item for item in items if isinstance(item, Pass)]
            for items in (steps[first:at], steps[at + 1 : end])
        )
        overlap = _best(before, step, after, n_bits, most_bits, tile)
        if overlap is not None:
            overlapped += [*steps[done : at - len(overlap.before)], overlap]
            done = at + 1 + len(overlap.after)
    return [*overlapped, *steps[done:]]


def _best(
    before: Sequence[Pass], exchange: QubitExchange, after: Sequence[Pass], n_bits: int, most_bits: int,
    tile: Tile,
) -> Overlap | None:  # fmt: skip
    """The passes next to an exchange that save most when they overlap it; None where none do."""
    moved = 1 - 2.0 ** -len(exchange.pairs)
    best, most = None, 0.0
    for n_before in range(min(len(before), MOST_PASSES) + 1):
        for n_after in range(min(len(after), MOST_PASSES - n_before) + 1):
            sides = tuple(before[len(before) - n_before :]), tuple(after[:n_after])
            for chosen in _divided(*sides, exchange, n_bits, max(0, most_bits)):
                times = tuple(sum(_price(item, tile) for item in items) for items in sides)
                for share in range(len(SHARES)):
                    shared = replace(chosen, share=share)
                    saved = EXCHANGE_COPIES * moved + sum(times) - _time(shared, moved, *times)
                    if saved > most:
                        best, most = shared, saved
    return best


def _price(item: Pass, tile: Tile) -> float:
    n_targets = sum(isinstance(step, MultiplexedGate) and bool(step.targets) for step in item.steps)
    return price(item.held_bits, n_targets, tile)


def _time(chosen: Overlap, moved: float, before: float, after: float) -> float:
    """What an overlap takes, in copies of the state, where its passes take so many before and after.

    Amplitudes exchanged are read and written as in a pass; a part of passes comes before, or after, all else.
    """
    slower, exchange = SHARES[chosen.share]
    exchange *= moved
    n_parts, n_after = 1 << len(chosen.bits), 1 << len(chosen.after_bits)
    slower += moved / (before + after)
    if not chosen.turn:
        return max(slower * (before + after), exchange + (before + after) / n_parts)
    last = exchange / (1 << chosen.turn)
    begun = max(slower * before, before / n_parts + exchange - last)
    return begun + max(last / n_after + slower * after, last + after / n_after)


def _divided(
    before: tuple[Pass, ...], after: tuple[Pass, ...], exchange: QubitExchange, n_bits: int, most_bits: int
) -> list[Overlap]:  # fmt: skip
    """The ways to overlap passes with an exchange: with the same parts on both sides, or with others."""
    common = _free_bits((*before, *after), exchange, n_bits)[:most_bits]
    ways = []
    if common and (before or after):
        ways.append(Overlap(before, exchange, after, tuple(sorted(common)), tuple(sorted(common))))
    bits = sorted(_free_bits(before, exchange, n_bits)[:most_bits])
    for turn in TURNS:
        free = [bit for bit in _free_bits(after, exchange, n_bits) if bit not in bits[-turn:]]
        after_bits = tuple(sorted(free[:most_bits]))
        if before and after and turn <= len(bits) and after_bits:
            ways.append(Overlap(before, exchange, after, tuple(bits), after_bits, turn))
    return ways


def _free_bits(passes: Sequence[Pass], exchange: QubitExchange, n_bits: int) -> list[int]:
    """The bits that no step changes, highest first, but those that make runs too short to exchange."""
    changed = {inside for inside, _ in exchange.pairs}
    changed.update(*(item.held_bits for item in passes))
    return [bit for bit in range(n_bits - 1, SHORT_BITS - 1, -1) if bit not in changed]

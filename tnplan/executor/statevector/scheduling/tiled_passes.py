"""Passes: which gates are done together while a tile of the state is in fast memory. Knows bits, no device.

A tile holds `tile_bits` bits of the index, the lowest `run_bits` always among them, so that it is read and
written in runs of 2^run_bits amplitudes. Targets of the gates of a pass are held; selectors may be anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tnplan.common.errors import InputError
from tnplan.executor.statevector.gates.multiplexed_gate import (
    LARGEST_TARGETS,
    MultiplexedGate,
    WordSum,
    as_swap,
    bits_of,
    mask_of,
)
from tnplan.executor.statevector.gates.phase_polynomial import commute_phases
from tnplan.executor.statevector.gates.rotations import as_rotations
from tnplan.executor.statevector.scheduling.fusion import PassStep, fuse, fuse_in_rounds
from tnplan.executor.statevector.scheduling.qubit_cover import (
    QubitExchange,
    Stage,
    cover,
    forget_covers,
    make_stages,
    sweep,
)

# Which Pauli words are summed over the same tiles of two states. Knows masks of bits; no state.


@dataclass(frozen=True)
class WordGroup:
    """Words, by their numbers and by rising x, that tiles on the bits `held_bits`, rising, have inside.

    All of them have the same bits of x outside of a tile, those of `far_x`.
    """

    held_bits: tuple[int, ...]
    far_x: int
    words: tuple[int, ...]


def word_groups(
    words: Sequence[tuple[int, int]], n_bits: int, tile_bits: int, run_bits: int, most: int
) -> list[WordGroup]:
    """Groups of at most `most` words whose masks are x and z over `n_bits` bits, each word in one of them.

    A tile holds `tile_bits` bits, the lowest `run_bits` among them. Words are taken in turn as long as their
    bits of x fit into a tile; a word that fits into none keeps its upper bits of x outside.
    """
    low = (1 << run_bits) - 1
    most_flips = tile_bits - run_bits
    pending, groups = list(range(len(words))), []
    while pending:
        first = words[pending[0]][0] & ~low
        if first.bit_count() > most_flips:
            # A word that flips more bits than a tile has takes tiles in pairs: its far bits of x
            # lead from one to the other, and the words of the group share them.
            held_mask, far_x = low, first
        else:
            held_mask, far_x = low | first, 0
        chosen: list[int] = []
        for number in pending:
            x = words[number][0] & ~far_x
            is_same = words[number][0] & far_x == far_x
            if len(chosen) < most and is_same and (held_mask | x).bit_count() <= tile_bits:
                held_mask |= x
                chosen.append(number)
        free = (bit for bit in range(n_bits) if not held_mask >> bit & 1)
        while held_mask.bit_count() < tile_bits:
            held_mask |= 1 << next(free)
        bits = tuple(bit for bit in range(n_bits) if held_mask >> bit & 1)
        # Words with the same x beside each other, as they read the same pairs of amplitudes.
        by_x = sorted(chosen, key=lambda number: words[number][0])
        groups.append(WordGroup(bits, far_x & ~held_mask, tuple(by_x)))
        pending = [number for number in pending if number not in set(chosen)]
    return groups


MODES = ("compiled", "stages", "gates")
"""How gates become passes; see `compile_gates`."""
SHORT_BITS = 5
"""An exchange of a bit below this one moves runs that are too short for the links between GPUs."""
MOST_LATER = 3
"""Diagonals a bit that the next pass may do; more of them, all at once, cost as much in any pass."""
EMPTY_PRICE, TARGET_PRICE, SHORT_PRICE = 0.95, 0.0205, 0.2
"""What a pass takes in copies (one H200): an empty one, each of its gates with targets, and runs that are as
short as they may be."""
WIDE_FROM = 26
"""States of fewer bits have no wide tiles: much of them is in a GPU's cache, where runs may be short."""
SEARCH_FROM = 23
"""Passes over a state of fewer bits take less time than the search for fewer of them."""
LEAST_SAVED = 0.25
"""Passes are put off behind an exchange, have wide tiles, or are more and with longer runs, where that saves
as much."""
Group = tuple[tuple[int, ...], list[MultiplexedGate]]
"""The bits and the gates of a pass."""
SWAP = np.eye(4, dtype=np.complex128)[[0, 2, 1, 3]]
"""The matrix that exchanges two bits."""


@dataclass(frozen=True)
class Tile:
    """How many `bits` of the index a tile holds, always the lowest `run_bits`, and a cluster (`width`).

    A device that does a pass in rounds has `register_bits`, the most bits of the targets of a round. There
    runs are made as long as they can be without more time. Where passes become `programs`, phases of many
    bits at once cost little, so that gates are taken apart into them and rotations, and an exchange of two
    bits at the end of a pass costs nothing, so that exchanges between ranks move long runs. Tiles have
    `wide_bits` (0: never) in states of `WIDE_FROM` bits or more where that takes less time. A device that
    has `rotations` takes gates as `as_rotations` gives them, and fuses them itself. The lowest `block_bits`
    are never exchanged between ranks.
    """

    bits: int
    run_bits: int
    width: int
    register_bits: int = 0
    programs: bool = False
    wide_bits: int = 0
    rotations: bool = False
    block_bits: int = 0

    @property
    def wide(self) -> Tile:
        """The wider tile, with runs that are longer than the shortest."""
        return replace(self, bits=self.wide_bits, run_bits=self.run_bits + 1)

    def __post_init__(self) -> None:
        if not 1 <= self.width <= self.bits - self.run_bits or self.run_bits < 0:
            raise InputError(
                "tile", f"has {self.bits} bits, but runs of {self.run_bits} and clusters of {self.width}",
                "let runs and a cluster fit into it",
            )  # fmt: skip
        if self.width > LARGEST_TARGETS:
            raise InputError(
                "tile", f"has clusters of {self.width} bits", f"use {LARGEST_TARGETS} bits or fewer"
            )


@dataclass(frozen=True, eq=False)
class Pass:
    """Steps that are done on every tile in turn; `held_bits` are the bits of a tile, rising."""

    held_bits: tuple[int, ...]
    steps: tuple[PassStep, ...]

    @property
    def has_sums(self) -> bool:
        """Whether it takes sums of words between two states."""
        return any(isinstance(step, WordSum) for step in self.steps)


@dataclass(frozen=True, eq=False)
class PassPlan:
    """Passes and exchanges of bits in turn; qubit q is bit before[q] at the start, after[q] at the end."""

    steps: tuple[Pass | QubitExchange, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes alone."""
        return tuple(step for step in self.steps if isinstance(step, Pass))


def compile_gates(
    gates: Sequence[MultiplexedGate], before: Sequence[int], tile: Tile, mode: str = "compiled",
    n_inside: int | None = None,
) -> PassPlan:  # fmt: skip
    """Passes that apply gates on qubits; qubit q is bit before[q] of the index.

    `compiled` reorders gates that commute, fuses them, and makes exchanges of two qubits a change of names.
    `stages` keeps the order and ends a pass where the target changes (the source's stages); `gates` makes
    every gate a pass. Bits from `n_inside` on (default: none) number the ranks.
    """
    if mode not in MODES:
        raise InputError("mode", f"is {mode!r}", f"use {', '.join(MODES)}")
    # Passes by stages: on several ranks, gates on bits outside a rank wait for an exchange of qubits; within
    # a stage, gates are grouped by the bits of a tile, so that each group is one pass over memory.
    n_bits = len(before)
    n_inside = n_bits if n_inside is None else n_inside
    # Exchanges of qubits cost nothing: they rename.
    placed, after = rename(gates, before) if mode == "compiled" else ([b.on(before) for b in gates], before)
    if mode == "compiled" and tile.rotations:
        placed = as_rotations(placed, n_bits)
    if mode == "compiled" and tile.register_bits:
        placed = commute_phases(placed, n_bits, tile.programs)
    stages, moved = make_stages(placed, n_bits, n_inside, tile.block_bits)
    if mode == "compiled":
        stages = _put_off(stages, n_bits, n_inside, tile)
    steps: list[Pass | QubitExchange] = []
    now = list(range(n_bits))
    """Where each bit of the stages is, since passes exchanged some."""
    for stage, following in zip(stages, (*stages, None)[1:], strict=True):
        if stage.exchange is not None:
            steps.append(stage.exchange.on(now))
        gates = _on(stage.gates, now)
        if mode == "compiled":
            groups = _with_long_runs(gates, n_inside, tile)
        else:
            groups = [(_held_bits(run, n_inside, tile), run) for run in _in_order(gates, mode)]
        is_fused = mode != "gates" and not tile.rotations
        passes = [
            Pass(bits, _fused(run, bits, n_bits, tile) if is_fused else tuple(run)) for bits, run in groups
        ]
        if passes and tile.programs and mode == "compiled" and following and following.exchange:
            leaving = [now[inside] for inside, _ in following.exchange.pairs]
            passes[-1] = _retain_low_bits(passes[-1], leaving, now)
        steps += passes
    forget_covers(len(placed))
    return PassPlan(tuple(steps), tuple(before), tuple(now[moved[bit]] for bit in after))


def _on(gates: Sequence[MultiplexedGate], where: Sequence[int]) -> Sequence[MultiplexedGate]:
    """Gates with bit j renamed to where[j]."""
    unchanged = list(where) == list(range(len(where)))
    return gates if unchanged else [gate.on(where) for gate in gates]


def _put_off(stages: Sequence[Stage], n_bits: int, n_inside: int, tile: Tile) -> tuple[Stage, ...]:
    """The stages, with the last passes of one done after the next exchange where that takes less time.

    What comes after an exchange often fills no tile; passes that target no leaving bit may come there too, as
    few as save most of it.
    """

    def divided(*parts: Sequence[MultiplexedGate]) -> list[Group]:
        return [pass_group for gates in parts for pass_group in _with_long_runs(gates, n_inside, tile)]

    delayed = list(stages)
    for at, following in enumerate(stages[1:]):
        if following.exchange is None:
            continue
        gates = list(delayed[at].gates)
        now_before = _with_long_runs(gates, n_inside, tile)
        now = [*now_before, *divided(following.gates)]
        # Way 0 puts nothing off. Of the ways that take nearly the least time the one that puts off
        # fewest passes is taken.
        ways = [(0, _time(now, tile), gates, list(following.gates))]
        for groups in (now_before, group(gates, n_inside, tile), *_wide(gates, n_inside, tile)):
            for count, earlier, later in _later(groups, following, n_bits):
                if len(groups) - count + len(group(later, n_inside, tile)) < len(now):
                    ways.append((count, _time(divided(earlier, later), tile), earlier, later))
        most = min(time for _, time, _, _ in ways) + LEAST_SAVED
        _, _, earlier, later = min((way for way in ways if way[1] <= most), key=lambda way: way[:2])
        delayed[at] = replace(delayed[at], gates=tuple(earlier))
        delayed[at + 1] = replace(following, gates=tuple(later))
    return tuple(delayed)


def _later(
    groups: Sequence[Group], following: Stage, n_bits: int
) -> Iterator[tuple[int, list[MultiplexedGate], list[MultiplexedGate]]]:  # fmt: skip
    """How many of the last passes come after an exchange, the gates before it and those after it."""
    assert following.exchange is not None
    leaving = mask_of([inside for inside, _ in following.exchange.pairs])
    where = list(range(n_bits))
    for inside, outside in following.exchange.pairs:
        where[inside], where[outside] = outside, inside
    later = list(following.gates)
    for first in range(len(groups) - 1, 0, -1):
        pass_gates = groups[first][1]
        if any(gate.target_mask & leaving for gate in pass_gates):
            return
        later = [*(gate.on(where) for gate in pass_gates), *later]
        yield len(groups) - first, [gate for _, pass_gates in groups[:first] for gate in pass_gates], later


def _retain_low_bits(item: Pass, leaving: Sequence[int], bit_of: list[int]) -> Pass:
    """The pass with exchanges of low bits that leave the rank next with high ones; `bit_of` is changed."""
    high = [bit for bit in item.held_bits if bit >= SHORT_BITS and bit not in leaving]
    swaps = []
    for bit in leaving:
        if bit < SHORT_BITS and bit in item.held_bits and high:
            other = high.pop()
            swaps.append(MultiplexedGate((other, bit), (), SWAP[None]))
            first, second = bit_of.index(bit), bit_of.index(other)
            bit_of[first], bit_of[second] = other, bit
    return replace(item, steps=(*item.steps, *swaps))


def rename(
    gates: Sequence[MultiplexedGate], before: Sequence[int]
) -> tuple[list[MultiplexedGate], tuple[int, ...]]:
    """Gates on bits instead of qubits, without exchanges of qubits, and where the qubits are at the end."""
    where = list(before)
    unchanged = where == list(range(len(where)))
    placed = []
    for gate in gates:
        phases = as_swap(gate)
        if phases is not None:
            i, j = gate.targets
            if not phases.is_identity:
                placed.append(phases.on(where))
            where[i], where[j] = where[j], where[i]
            unchanged = False
        elif not gate.is_identity:
            placed.append(gate if unchanged else gate.on(where))
    return placed, tuple(where)


def group(gates: Sequence[MultiplexedGate], n_bits: int, tile: Tile) -> list[Group]:
    """The bits and the gates of each pass, as few passes as are found."""
    pending = list(gates)
    groups = []
    size = min(n_bits, tile.bits)
    low = mask_of(range(min(n_bits, tile.run_bits)))
    for held_mask in cover(gates, low, size, several=n_bits >= SEARCH_FROM):
        pass_gates, pending = sweep(pending, held_mask)
        if (tile.programs or tile.rotations) and pending:
            needed, later = _needed(pass_gates)
            if tile.rotations or len(later) <= MOST_LATER * n_bits:
                pass_gates, pending = needed, later + pending
        groups.append((_fill(held_mask, n_bits, size), pass_gates))
    return groups


def _needed(gates: Sequence[MultiplexedGate]) -> tuple[list[MultiplexedGate], list[MultiplexedGate]]:
    """Gates without the diagonals that none of them waits for, and these."""
    needed: list[MultiplexedGate] = []
    later: list[MultiplexedGate] = []
    targets = 0
    for gate in reversed(gates):
        (needed if gate.targets or gate.mask & targets else later).append(gate)
        targets |= gate.target_mask
    return needed[::-1], later[::-1]


def _with_long_runs(gates: Sequence[MultiplexedGate], n_bits: int, tile: Tile) -> list[Group]:
    """Like `group`; where a device has rounds, with runs as long as they can be without more time."""
    groups = _lengthened(gates, n_bits, tile, tile)
    for wide in _wide(gates, n_bits, tile):
        if _time(wide, tile) <= _time(groups, tile) - LEAST_SAVED:
            groups = wide
    return groups


def _wide(gates: Sequence[MultiplexedGate], n_bits: int, tile: Tile) -> list[list[Group]]:
    """The passes in wide tiles, if there are such."""
    has = tile.wide_bits and n_bits >= WIDE_FROM
    return [_lengthened(gates, n_bits, tile.wide, tile)] if has else []


def _lengthened(gates: Sequence[MultiplexedGate], n_bits: int, size: Tile, tile: Tile) -> list[Group]:
    """Passes in tiles of a size, with runs as long as they can be; `tile` says what they take."""
    groups = group(gates, n_bits, size)
    if not size.register_bits:
        return groups
    widest = max([tile.width, *(len(gate.targets) for gate in gates)])
    for run_bits in range(size.run_bits + 1, min(n_bits, size.bits) - widest + 1):
        longer = group(gates, n_bits, replace(size, run_bits=run_bits))
        saved = _time(groups, tile) - _time(longer, tile)
        if saved < (LEAST_SAVED if len(longer) > len(groups) else 0):
            break
        groups = longer
    return groups


def _time(groups: Sequence[Group], tile: Tile) -> float:
    """In copies; rounded, so that equal times are equal."""
    times = (price(bits, sum(bool(gate.targets) for gate in pass_gates), tile) for bits, pass_gates in groups)
    return round(sum(times), 6)


def price(held_bits: Sequence[int], n_targets: int, tile: Tile) -> float:
    """What a pass takes that does so many gates with targets, in copies of the state; 1 without rounds."""
    if not tile.register_bits:
        return 1.0
    is_short = tile.run_bits in range(len(held_bits)) and held_bits[tile.run_bits] != tile.run_bits
    return EMPTY_PRICE + TARGET_PRICE * n_targets + SHORT_PRICE * is_short


def _fused(
    gates: Sequence[MultiplexedGate], held_bits: Sequence[int], n_bits: int, tile: Tile
) -> tuple[PassStep, ...]:
    mask = mask_of(held_bits)
    if tile.register_bits and all(len(gate.targets) <= tile.register_bits for gate in gates):
        return fuse_in_rounds(gates, mask, n_bits, tile.width, tile.register_bits, tile.programs)
    return fuse(gates, mask, n_bits, tile.width)


def _fill(held_mask: int, n_bits: int, size: int) -> tuple[int, ...]:
    """The held bits, with the lowest others up to the size of a tile, so that runs are long."""
    bits = bits_of(held_mask)
    free = [bit for bit in range(n_bits) if not held_mask >> bit & 1]
    return tuple(sorted(bits + free[: size - len(bits)]))


def _held_bits(gates: Sequence[MultiplexedGate], n_bits: int, tile: Tile) -> tuple[int, ...]:
    targets = 0
    for gate in gates:
        targets |= gate.target_mask
    low = mask_of(range(min(n_bits, tile.run_bits)))
    return _fill(low | targets, n_bits, min(n_bits, tile.bits))


def _in_order(gates: Sequence[MultiplexedGate], mode: str) -> list[list[MultiplexedGate]]:
    """Gates in their order: one by one, or as long as the targets stay the same."""
    passes: list[list[MultiplexedGate]] = []
    targets = 0
    for gate in gates:
        new = gate.target_mask & ~targets
        if not passes or mode == "gates" or (new and targets):
            passes.append([])
            targets = 0
        passes[-1].append(gate)
        targets |= gate.target_mask
    return passes


# The tiles of passes on a CPU, by the dtype of amplitudes. Knows no state.


TILES = {"complex64": Tile(16, 5, 4, rotations=True), "complex128": Tile(15, 4, 4, rotations=True)}
"""Real and imaginary parts of a tile take 512 KiB, a part of the cache of one core."""

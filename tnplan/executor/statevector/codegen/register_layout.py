"""Which bits of a tile a thread has in registers from round to round, and which threads have to meet between.

Knows bits of an index, and what neighbouring threads should have; no step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.statevector.scheduling.pass_tables import DIAGONAL, GATE, PHASES, PassTables

# The steps of a pass in rounds for a GPU: in a round a thread keeps a few bits' amplitudes in registers.
#
# Steps in a row share a round while their targets are at most `register_bits` bits of the tile; diagonals
# and phase polynomials have none and fit into any. A gate on three targets or more is a round of its own.
# Knows no GPU.


IN_REGISTERS = 2
"""A gate on more targets is a round of its own."""
NO_PHASES = -1
"""What a round has that has no phases."""


@dataclass(frozen=True, eq=False)
class RegisterRounds:
    """What a GPU reads besides the tables of a pass.

    `rounds`, int32 [round, 4 + register_bits]: targets of a wide gate or 0, first step and the one after the
    last, the step of its phases or -1, and the tile bits in registers, rising. `steps`, int32 [step, 11]: a
    row of `PassTables.steps`, then the numbers in the registers of its first and second target, whether all
    its matrices are real, and whether the tile bits of a diagonal are neighbours.
    """

    rounds: Array
    steps: Array


@dataclass
class _Open:
    """A round that still takes steps."""

    begin: int
    bits: frozenset[int]
    phases: int


def register_rounds(tables: PassTables, register_bits: int) -> RegisterRounds:
    """The rounds of a pass; raises ValueError where the tile has fewer bits than the registers."""
    q = len(tables.held_bits)
    if q < register_bits:
        raise ValueError(f"a tile of {q} bits has none for {register_bits} in registers")
    # A GPU thread keeps 2^register_bits amplitudes in registers. Steps are taken while their
    # targets fit among the register bits; phases act on any bits, but one polynomial a round.
    steps, bits_of_steps = tables.steps.tolist(), tables.places.tolist()
    targets_of = [bits_of_steps[step[4] : step[4] + step[1]] if step[0] == GATE else [] for step in steps]
    rounds: list[tuple[int, ...]] = []
    target_registers: list[tuple[int, int]] = []
    now = _Open(0, frozenset(), NO_PHASES)

    def close(end: int) -> None:
        if end > now.begin:
            bits = _padded(now.bits, register_bits)
            rounds.append((0, now.begin, end, now.phases, *bits))
            # Where the targets lie among the register bits of the round; two columns, as larger
            # gates have a round of their own.
            for targets in targets_of[now.begin : end]:
                positions = [bits.index(bit) for bit in targets]
                target_registers.append((*positions, 0, 0)[:2])  # type: ignore[arg-type]

    for number, (step, targets) in enumerate(zip(steps, targets_of, strict=True)):
        if len(targets) > IN_REGISTERS:
            close(number)
            rounds.append((len(targets), number, number + 1, NO_PHASES, *range(register_bits)))
            target_registers.append((0, 0))
            now = _Open(number + 1, frozenset(), NO_PHASES)
            continue
        bits = now.bits | set(targets)
        is_phases = step[0] == PHASES
        if len(bits) > register_bits or (is_phases and now.phases != NO_PHASES):
            close(number)
            now = _Open(number, frozenset(targets), NO_PHASES)
            bits = now.bits
        now = _Open(now.begin, frozenset(bits), number if is_phases else now.phases)
    close(len(steps))
    rows = [
        (*step, *positions, _is_real(tables, step), _in_row(bits_of_steps, step))
        for step, positions in zip(steps, target_registers, strict=True)
    ]
    return RegisterRounds(
        np.array(rounds, np.int32).reshape(-1, 4 + register_bits), np.array(rows, np.int32).reshape(-1, 11)
    )


def _padded(bits: frozenset[int], count: int) -> list[int]:
    """The bits with the lowest others up to a number, rising."""
    free = [bit for bit in range(len(bits) + count) if bit not in bits]
    return sorted([*bits, *free[: count - len(bits)]])


def _is_real(tables: PassTables, step: Sequence[int]) -> bool:
    if step[0] != GATE:
        return False
    first, size = step[5], 1 << (step[2] + step[3] + 2 * step[1])
    return not np.any(tables.values[first : first + size].imag)


def _in_row(bits_of_steps: Sequence[int], step: Sequence[int]) -> bool:
    if step[0] != DIAGONAL or not step[2]:
        return False
    first = bits_of_steps[step[4]]
    return bits_of_steps[step[4] : step[4] + step[2]] == list(range(first, first + step[2]))


LANE_BITS = 5
"""The first of a layout's thread bits number the threads of a warp."""
ALL, WARP = 0, -1
BARRIERS = 16
"""Which threads a barrier between rounds holds back: all, those of a warp, or, from 1 on, groups of warps."""


@dataclass(frozen=True)
class RegisterLayout:
    """Tile bits in registers, rising, and those that number the threads, the first for neighbours."""

    registers: tuple[int, ...]
    threads: tuple[int, ...]

    @property
    def text(self) -> str:
        """As the kernel's macros take it."""
        return f"{_code(self.registers)}, {_code(self.threads)}"

    def on(self, where: Sequence[int]) -> RegisterLayout:
        """The same layout with tile bit k renamed to where[k]."""
        return RegisterLayout(
            tuple(where[bit] for bit in self.registers), tuple(where[bit] for bit in self.threads)
        )


class LayoutChoice:
    """Makes the layouts of a tile of `tile_bits` bits, of amplitudes of `item_bytes`."""

    def __init__(self, tile_bits: int, register_bits: int, item_bytes: int) -> None:
        self.tile_bits, self.register_bits = tile_bits, register_bits
        self.bank_bits = 4 if item_bytes == 8 else 3
        self.close_bits = range(1, 3) if item_bytes == 8 else range(2)
        """Bits that lanes must have while the state is read or written, so that it is in long runs."""

    def first(self, targets: Sequence[int], soon: Sequence[int] = ()) -> RegisterLayout:
        """Targets in registers, filled up with the highest bits; neighbours' bits fall into all banks.

        Bits that are targets `soon` are among the first of a thread, so that few warps exchange amplitudes.
        """
        free = [bit for bit in range(self.tile_bits - 1, -1, -1) if bit not in targets]
        registers = sorted([*targets, *free[: self.register_bits - len(targets)]])
        threads = [bit for bit in range(self.tile_bits) if bit not in registers]
        lanes: list[int] = []
        for bit in threads:
            banks = [lane % self.bank_bits for lane in lanes]
            if len(lanes) < self.bank_bits and bit % self.bank_bits not in banks:
                lanes.append(bit)
        later = sorted((bit for bit in threads if bit not in lanes), key=lambda bit: (bit not in soon, bit))
        return RegisterLayout(tuple(registers), (*lanes, *later))

    def following(self, layout: RegisterLayout, targets: Sequence[int]) -> RegisterLayout:
        """Targets in registers, with bits that are there already; few threads exchange amplitudes."""
        registers_before = layout.registers
        if set(targets) <= set(registers_before):
            return layout
        staying = [bit for bit in sorted(registers_before, reverse=True) if bit not in targets]
        registers = sorted([*targets, *staying[: self.register_bits - len(targets)]])
        return self._swapped(layout, registers) or self.first(targets)

    def last(self, layout: RegisterLayout) -> RegisterLayout:
        """One in which the state is written in long runs, by the threads of a warp if that can be."""
        least = {*self.close_bits, 0}
        for threads in (layout.threads[:LANE_BITS], layout.threads):
            for registers in combinations(threads[::-1], self.register_bits):
                if not least & set(registers):
                    swapped = self._swapped(layout, sorted(registers))
                    if swapped is not None and not self.is_scattered(swapped):
                        return swapped
        return self.first(())

    def _swapped(self, layout: RegisterLayout, registers: Sequence[int]) -> RegisterLayout | None:
        """The layout with other registers, in which every thread bit that stays one keeps its position.

        None where neighbours' bits would not fall into all banks.
        """
        threads = list(layout.threads)
        holes = [k for k, bit in enumerate(threads) if bit in registers]
        leaving = sorted(bit for bit in layout.registers if bit not in registers)
        for bits in permutations(leaving):
            for hole, bit in zip(holes, bits, strict=True):
                threads[hole] = bit
            lanes = threads[: self.bank_bits]
            if len({bit % self.bank_bits for bit in lanes}) == len(lanes):
                return RegisterLayout(tuple(registers), tuple(threads))
        return None

    def is_scattered(self, layout: RegisterLayout) -> bool:
        """Whether the threads of a warp would read and write the state in short runs."""
        near = layout.threads[:LANE_BITS]
        return any(bit not in near for bit in self.close_bits) or 0 not in (*near, *layout.registers)


class Barriers:
    """The barriers between layouts."""

    def __init__(self) -> None:
        self._next = 1

    def between(self, old: RegisterLayout, new: RegisterLayout) -> int:
        """The barrier of the threads that have each other's amplitudes: those equal in thread bits that stay.

        Two groups of warps share no numbered barrier until one of all threads.
        """
        same = [a == b for a, b in zip(old.threads, new.threads, strict=True)][LANE_BITS:]
        if all(same):
            return WARP
        first, count = self._next, 1 << sum(same)
        if count == 1 or first + count > BARRIERS:
            self._next = 1
            return ALL
        self._next += count
        return first


def _code(bits: Sequence[int]) -> str:
    return f"{sum(bit << (4 * k) for k, bit in enumerate(bits)):#x}ull"

"""The steps of a pass in rounds for a GPU: in a round a thread keeps a few bits' amplitudes in registers.

Steps in a row share a round while their targets are at most `register_bits` bits of the tile; diagonals and
phase polynomials have none and fit into any. A gate on three targets or more is a round of its own. Knows no
GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.statevector.scheduling.pass_tables import DIAGONAL, GATE, PHASES, PassTables

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
    q = len(tables.held)
    if q < register_bits:
        raise ValueError(f"a tile of {q} bits has none for {register_bits} in registers")
    # A GPU thread keeps 2^register_bits amplitudes in registers. Steps are taken while their
    # targets fit among the register bits; phases act on any bits, but one polynomial a round.
    steps, held_places = tables.steps.tolist(), tables.places.tolist()
    targets_of = [held_places[step[4] : step[4] + step[1]] if step[0] == GATE else [] for step in steps]
    rounds: list[tuple[int, ...]] = []
    places: list[tuple[int, int]] = []
    now = _Open(0, frozenset(), NO_PHASES)

    def close(end: int) -> None:
        if end > now.begin:
            bits = _padded(now.bits, register_bits)
            rounds.append((0, now.begin, end, now.phases, *bits))
            # Where the targets lie among the register bits of the round; two columns, as larger
            # gates have a round of their own.
            for targets in targets_of[now.begin : end]:
                positions = [bits.index(bit) for bit in targets]
                places.append((*positions, 0, 0)[:2])  # type: ignore[arg-type]

    for number, (step, targets) in enumerate(zip(steps, targets_of, strict=True)):
        if len(targets) > IN_REGISTERS:
            close(number)
            rounds.append((len(targets), number, number + 1, NO_PHASES, *range(register_bits)))
            places.append((0, 0))
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
        (*step, *positions, _is_real(tables, step), _in_row(held_places, step))
        for step, positions in zip(steps, places, strict=True)
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


def _in_row(places: Sequence[int], step: Sequence[int]) -> bool:
    if step[0] != DIAGONAL or not step[2]:
        return False
    first = places[step[4]]
    return places[step[4] : step[4] + step[2]] == list(range(first, first + step[2]))

"""Gates that do the same with fewer multiplications: phases move on to later gates. Knows matrices and bits.

A phase of one bit commutes with all diagonals, so that it may wait until a target on that bit comes and be
multiplied into it. A unitary matrix of one bit, freed of the phases of its rows, has two equal elements,
which become 1 when it is divided by them; freed of those of its columns too it is a real rotation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tnplan.executor.statevector.gates.multiplexed_gate import EXACT, MultiplexedGate
from tnplan.executor.statevector.gates.phase_polynomial import diagonal_gate, is_phase_gate
from tnplan.executor.statevector.gates.word_sum import WordSum
from tnplan.planner.common.arrays import Array

UNITS = (1, -1, 1j, -1j)
"""Elements that cost no multiplication."""
ROTATION = 4
"""What a real rotation costs."""
LEAST = 2.0**-10
"""Rotations divide by their cosine, which has to be larger."""
NOTHING = MultiplexedGate((), (), np.ones((1, 1, 1), np.complex128))
"""The gate on no bit."""


def commute_phases(
    gates: Sequence[MultiplexedGate], n_bits: int, rotations: bool = False
) -> list[MultiplexedGate]:
    """The same product; what phases are left over are the last gates.

    With `rotations` a unitary matrix of one bit becomes a gate with the phases of its columns, then a real
    rotation: on many bits at once such phases cost little.
    """
    waiting = np.ones((n_bits, 2), np.complex128)
    made: list[MultiplexedGate] = []
    latest = [-1] * n_bits
    """The last gate on each bit."""
    now: MultiplexedGate
    for gate in gates:
        if isinstance(gate, WordSum):
            for bit in gate.targets:
                made += _unless_one(bit, waiting[bit])
                waiting[bit] = 1
            now = gate
        elif is_phase_gate(gate):
            pair = _taken_apart(gate, waiting)
            if abs(pair - 1) <= EXACT:
                continue
            values = np.array([1, 1, 1, pair]).reshape(4, 1, 1)
            now = MultiplexedGate((), gate.selectors, values)
        elif gate.targets:
            now = replace(gate, matrices=gate.matrices * _columns(gate, waiting))
            waiting[list(gate.targets)] = 1
        else:
            now = gate
        if len(now.targets) == 1 and not now.selectors and not isinstance(now, WordSum):
            (bit,) = now.targets
            matrix = now.matrices[0]
            while latest[bit] >= 0 and _acts_alone(made[latest[bit]], bit):
                before = made[latest[bit]]
                matrix = matrix @ (
                    before.matrices[0] if before.targets else np.diag(before.matrices[:, 0, 0])
                )
                made[latest[bit]] = NOTHING
                latest[bit] -= 1
            columns, now, waiting[bit] = _split(matrix, bit, rotations)
            made += columns
        for bit in (*now.targets, *now.selectors):
            latest[bit] = len(made)
        made.append(now)
    last = [phases for bit, values in enumerate(waiting) for phases in _unless_one(bit, values)]
    return [gate for gate in made if gate.mask] + last


def _acts_alone(gate: MultiplexedGate, bit: int) -> bool:
    """Whether a gate is a matrix or phases of one bit alone."""
    return gate.mask == 1 << bit and not isinstance(gate, WordSum)


def _unless_one(bit: int, values: Array) -> list[MultiplexedGate]:
    """The gate with phases that wait on a bit; none where they are 1."""
    return [diagonal_gate((bit,), values.copy())] if np.any(np.abs(values - 1) > EXACT) else []


def _taken_apart(gate: MultiplexedGate, waiting: Array) -> complex:
    """Multiply a diagonal's phases of single bits into those that wait; gives what is left: that of both."""
    values = gate.matrices[:, 0, 0]
    first = gate.selectors[0]
    if len(values) == 2:
        waiting[first] *= values
        return 1
    second = gate.selectors[1]
    waiting[first] *= (values[0], values[2])
    waiting[second] *= (1, values[1] / values[0])
    return complex(values[3] * values[0] / (values[1] * values[2]))


def _columns(gate: MultiplexedGate, waiting: Array) -> Array:
    """The phases that wait on the targets, by column of a gate's matrices."""
    columns = np.ones(1, np.complex128)
    for bit in gate.targets:
        columns = np.kron(columns, waiting[bit])
    return columns


def _split(matrix: Array, bit: int, rotations: bool) -> tuple[list[MultiplexedGate], MultiplexedGate, Array]:
    """Phases of the columns, if any, the matrix without them, and phases of the rows, which come after it."""
    rows, freed = _freed_rows(matrix)
    if rotations and cost(freed) > ROTATION:
        found = _rotation(matrix)
        if found is not None:
            column, rotation, rows = found
            before = diagonal_gate((bit,), np.array([1, column]))
            return [before], MultiplexedGate((bit,), (), rotation[None]), rows
    return [], MultiplexedGate((bit,), (), freed[None]), rows


def _freed_rows(matrix: Array) -> tuple[Array, Array]:
    """Phases of the rows, and the matrix without them; phases of 1 where they make it no cheaper."""
    columns = (0, 1) if abs(matrix[0, 0]) >= abs(matrix[0, 1]) else (1, 0)
    chosen = matrix[(0, 1), columns]
    if np.any(np.abs(chosen) <= EXACT):
        return np.ones(2), matrix
    phases = chosen / np.abs(chosen)
    freed = matrix / phases[:, None]
    return (phases, freed) if cost(freed) < cost(matrix) else (np.ones(2), matrix)


def _rotation(matrix: Array) -> tuple[complex, Array, Array] | None:
    """The phase of the second column, a multiple of a real rotation, and the phases of the rows.

    None for what is no such product, or has an element that is too small for a phase.
    """
    if np.any(np.abs(matrix) <= LEAST * np.abs(matrix).max()):
        return None
    phases = matrix / np.abs(matrix)
    column = -phases[0, 1] / phases[0, 0]
    rows = np.array([phases[0, 0], phases[1, 0]])
    rotation = matrix / (rows[:, None] * np.array([1, column]))
    cosine, sine = np.abs(matrix[0])
    exact = np.array([[cosine, -sine], [sine, cosine]])
    return (complex(column), exact + 0j, rows) if np.all(np.abs(rotation - exact) <= EXACT) else None


def is_rotation(matrix: Array) -> bool:
    """Whether a matrix is a multiple of a real rotation that can be divided by its cosine."""
    real = len(matrix) == 2 and not np.any(matrix.imag)
    return bool(
        real and matrix[0, 0] == matrix[1, 1] and matrix[0, 1] == -matrix[1, 0]
        and abs(matrix[0, 0]) > LEAST * abs(matrix[0, 1])
    )  # fmt: skip


def cost(matrix: Array) -> int:
    """Multiply-adds of a GPU for a matrix of one bit, divided by its largest element."""
    scaled = matrix / matrix.flat[np.argmax(np.abs(matrix) > np.abs(matrix).max() - EXACT)]
    total = 0
    for row in scaled:
        units = [any(abs(element - unit) <= EXACT for unit in UNITS) for element in row]
        for element, is_unit in zip(row, units, strict=True):
            parts = int(np.count_nonzero(np.abs((element.real, element.imag)) > EXACT))
            total += 2 if is_unit else 2 * parts
        total -= 2 * any(units)
    return total

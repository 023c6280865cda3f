"""Gates that do the same with fewer multiplications: phases move on to later gates. Knows matrices and bits.

A phase of one bit commutes with all diagonals, so that it may wait until a target on that bit comes and be
multiplied into it. A unitary matrix of one bit, freed of the phases of its rows, has two equal elements,
which become 1 when it is divided by them; freed of those of its columns too it is a real rotation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.statevector.gates.multiplexed_gate import EXACT, MultiplexedGate
from tnplan.executor.statevector.gates.one_bit import (
    Elements,
    OneBitGate,
    diagonal_of,
    elements_of,
    is_real,
    product,
)
from tnplan.executor.statevector.gates.phase_polynomial import is_phase_gate
from tnplan.executor.statevector.gates.word_sum import WordSum

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
    # Each bit has a diagonal matrix that waits, diag(waiting[0], waiting[1]). Diagonals commute
    # with diagonals, so it moves past them, and becomes part of the next matrix on the bit.
    waiting: list[list[complex]] = [[1, 1] for _ in range(n_bits)]
    """For both values of each bit."""
    made: list[MultiplexedGate] = []
    latest = [-1] * n_bits
    """The last gate on each bit."""
    now: MultiplexedGate
    for gate in gates:
        if isinstance(gate, WordSum):
            for bit in gate.targets:
                made += _unless_one(bit, waiting[bit])
                waiting[bit] = [1, 1]
            now = gate
        # diag(1, 1, 1, pair) is what is left of a phase gate when the phases of single bits wait:
        # one multiplication for a quarter of the amplitudes.
        elif is_phase_gate(gate):
            pair = _taken_apart(gate, waiting)
            if abs(pair - 1) <= EXACT:
                continue
            now = MultiplexedGate((), gate.selectors, np.array([1, 1, 1, pair]).reshape(4, 1, 1))
        elif len(gate.targets) == 1 and not gate.selectors:
            (bit,) = gate.targets
            matrix = product(elements_of(gate), (waiting[bit][0], 0, 0, waiting[bit][1]))
            # Matrices of one bit in a row are one product. Invariant: latest[bit] is the last gate
            # with this bit, so between it and now no gate touches the bit.
            while latest[bit] >= 0 and _acts_alone(made[latest[bit]], bit):
                matrix = product(matrix, elements_of(made[latest[bit]]))
                made[latest[bit]] = NOTHING
                latest[bit] -= 1
            columns, now, waiting[bit] = _split(matrix, bit, rotations)
            made += columns
        elif gate.targets:
            matrices = gate.matrices * _columns(gate, waiting)
            now = MultiplexedGate(gate.targets, gate.selectors, matrices)
            for bit in gate.targets:
                waiting[bit] = [1, 1]
        else:
            now = gate
        for bit in (*now.targets, *now.selectors):
            latest[bit] = len(made)
        made.append(now)
    last = [phases for bit, values in enumerate(waiting) for phases in _unless_one(bit, values)]
    return [gate for gate in made if gate.mask] + last


def _acts_alone(gate: MultiplexedGate, bit: int) -> bool:
    """Whether a gate is a matrix or phases of one bit alone."""
    return gate.mask == 1 << bit and not isinstance(gate, WordSum)


def _unless_one(bit: int, values: Sequence[complex]) -> list[MultiplexedGate]:
    """The gate with phases that wait on a bit; none where they are 1."""
    is_one = all(abs(value - 1) <= EXACT for value in values)
    return [] if is_one else [diagonal_of(bit, *values)]


def _taken_apart(gate: MultiplexedGate, waiting: list[list[complex]]) -> complex:
    """Multiply a diagonal's phases of single bits into those that wait; gives what is left: that of both."""
    values = gate.flat_elements()
    first = waiting[gate.selectors[0]]
    first[0] *= values[0]
    if len(values) == 2:
        first[1] *= values[1]
        return 1
    first[1] *= values[2]
    waiting[gate.selectors[1]][1] *= values[1] / values[0]
    return values[3] * values[0] / (values[1] * values[2])


def _columns(gate: MultiplexedGate, waiting: list[list[complex]]) -> Array:
    """The phases that wait on the targets, by column of a gate's matrices."""
    columns: Array = np.ones(1, np.complex128)
    for bit in gate.targets:
        columns = np.kron(columns, np.array(waiting[bit], np.complex128))
    return columns


def _split(
    matrix: Elements, bit: int, rotations: bool
) -> tuple[list[MultiplexedGate], MultiplexedGate, list[complex]]:  # fmt: skip
    """Phases of the columns, if any, the matrix without them, and phases of the rows, which come after it."""
    rows, freed = _freed_rows(matrix)
    if rotations and cost(freed) > ROTATION:
        found = _rotation(matrix)
        if found is not None:
            column, rotation, rows = found
            return [diagonal_of(bit, 1, column)], OneBitGate(bit, rotation), rows
    return [], OneBitGate(bit, freed), rows


def _freed_rows(matrix: Elements) -> tuple[list[complex], Elements]:
    """Phases of the rows, and the matrix without them; phases of 1 where they make it no cheaper."""
    a, b, c, d = matrix
    chosen = (a, d) if abs(a) >= abs(b) - EXACT else (b, c)
    if min(map(abs, chosen)) <= EXACT:
        return [1, 1], matrix
    upper, lower = (value / abs(value) for value in chosen)
    freed = a / upper, b / upper, c / lower, d / lower
    return ([upper, lower], freed) if cost(freed) < cost(matrix) else ([1, 1], matrix)


def _rotation(matrix: Elements) -> tuple[complex, Elements, list[complex]] | None:
    """The phase of the second column, a multiple of a real rotation, and the phases of the rows.

    None for what is no such product, or has an element that is too small for a phase.
    """
    sizes = [abs(element) for element in matrix]
    if min(sizes) <= LEAST * max(sizes):
        return None
    a, b, c, d = matrix
    upper, lower = a / sizes[0], c / sizes[2]
    column = -b / (sizes[1] * upper)
    rotation = a / upper, b / (upper * column), c / lower, d / (lower * column)
    cosine, sine = sizes[0], sizes[1]
    exact = cosine, -sine, sine, cosine
    is_one = all(abs(one - other) <= EXACT for one, other in zip(rotation, exact, strict=True))
    return (column, exact, [upper, lower]) if is_one else None


def is_rotation(matrix: Array) -> bool:
    """Whether a matrix is a multiple of a real rotation that can be divided by its cosine."""
    if len(matrix) != 2:
        return False
    a, b, c, d = matrix.ravel().tolist()
    return is_real((a, b, c, d)) and a == d and b == -c and abs(a) > LEAST * abs(b)


def cost(elements: Sequence[complex]) -> int:
    """Multiply-adds of a GPU for a matrix of one bit, divided by its largest element; 1, -1, i and -i cost
    none."""
    largest = max(map(abs, elements))
    pivot = next(element for element in elements if abs(element) > largest - EXACT)
    total = 0
    for first in (0, 2):
        has_unit = False
        for element in elements[first : first + 2]:
            scaled = element / pivot
            real, imaginary = abs(scaled.real), abs(scaled.imag)
            parts = (real > EXACT) + (imaginary > EXACT)
            has_unit = has_unit or (parts == 1 and abs(real + imaginary - 1) <= 2 * EXACT)
            total += 2 * parts
        total -= 2 * has_unit
    return total

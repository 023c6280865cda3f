"""Gates as real rotations, phases, and matrices of several bits. Knows matrices and bits.

A unitary matrix of one bit is a real matrix between phases of its rows and of its columns. The phases of the
rows commute with all diagonals and move on to the next matrix on this bit. A gate that one bit controls is a
diagonal in another basis of its target. So circuits become few multiplications an amplitude.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tnplan.executor.statevector.gates.multiplexed_gate import EXACT, MultiplexedGate
from tnplan.planner.common.arrays import Array

ROUNDING = 1e-13
"""How far a matrix may be from its product of phases and a real matrix, in parts of its largest element."""
BASES_KEPT = 4096
"""Distinct controlled gates whose bases are remembered."""
ONE = np.eye(2, dtype=np.complex128)


def as_rotations(gates: Sequence[MultiplexedGate], n_bits: int) -> list[MultiplexedGate]:
    """The same product of diagonals, real matrices of one bit, and what cannot be taken apart.

    Matrices of one bit that follow each other are one. Those before a matrix of several bits are part of it.
    """
    waiting = [ONE] * n_bits
    made: list[MultiplexedGate] = []

    def settle(bit: int) -> None:
        """What waits on a bit acts now, but for phases of its rows."""
        column, matrix, rows = real_between_phases(waiting[bit])
        if abs(column - 1) > EXACT:
            made.append(phases_of_bit(bit, 1, column))
        if matrix is not None:
            made.append(MultiplexedGate((bit,), (), matrix[None]))
        waiting[bit] = np.diag(rows)

    def act(gate: MultiplexedGate) -> None:
        for bit in gate.selectors:
            settle(bit)
        if gate.targets:
            columns: Array = np.ones((1, 1), np.complex128)
            for bit in gate.targets:
                columns = np.kron(columns, waiting[bit])
                waiting[bit] = ONE
            gate = replace(gate, matrices=gate.matrices @ columns)
        made.append(gate)

    for gate in gates:
        bits = (*gate.targets, *gate.selectors)
        if len(bits) == 1:
            own = gate.matrices[0] if gate.targets else np.diag(gate.matrices[:, 0, 0])
            waiting[bits[0]] = own @ waiting[bits[0]]
        elif len(gate.targets) == len(gate.selectors) == 1:
            found = diagonal_in_a_basis(gate.matrices.tobytes())
            if found is None:
                act(gate)
                continue
            before, diagonal, after = found
            waiting[gate.targets[0]] = before @ waiting[gate.targets[0]]
            act(MultiplexedGate((), (*gate.selectors, *gate.targets), diagonal))
            waiting[gate.targets[0]] = after @ waiting[gate.targets[0]]
        else:
            act(gate)
    for bit in range(n_bits):
        settle(bit)
        if np.any(np.abs(waiting[bit] - ONE) > EXACT):
            made.append(phases_of_bit(bit, waiting[bit][0, 0], waiting[bit][1, 1]))
    return made


def phases_of_bit(bit: int, zero: complex, one: complex) -> MultiplexedGate:
    """The diagonal of one bit."""
    return MultiplexedGate((), (bit,), np.array([zero, one], np.complex128).reshape(2, 1, 1))


def real_between_phases(matrix: Array) -> tuple[complex, Array | None, tuple[complex, complex]]:
    """The phase of the second column, a real matrix, and the phases of the rows, which come after it.

    The matrix is None where there are phases alone, and `matrix` itself where it is no such product.
    """
    (a, b), (c, d) = matrix.tolist()
    most = max(abs(a), abs(b), abs(c), abs(d))
    if max(abs(b), abs(c)) <= EXACT * most:
        return 1, None, (a, d)
    if max(abs(value.imag) for value in (a, b, c, d)) <= EXACT * most:
        return 1, matrix.real + 0j, (1, 1)
    if abs(a) >= abs(b):
        first = _phase(a)
        second = _phase(c) if abs(c) > EXACT * most else _phase(d)
        column = _phase(d) / second
        sine = -abs(c) if abs(c) > EXACT * most else 0.0
        real = (abs(a), sine, -sine, abs(d))
    else:
        second = _phase(c)
        first = _phase(a) if abs(a) > EXACT * most else 1
        column = _phase(b) / first
        turned = d / (second * column)
        real = (abs(a) if abs(a) > EXACT * most else 0.0, abs(b), abs(c), math.copysign(abs(d), turned.real))
    error = max(
        abs(first * real[0] - a), abs(first * real[1] * column - b),
        abs(second * real[2] - c), abs(second * real[3] * column - d),
    )  # fmt: skip
    if error > ROUNDING * most:
        return 1, matrix, (1, 1)
    return column, np.array(real, np.complex128).reshape(2, 2), (first, second)


def _phase(value: complex) -> complex:
    return cmath.rect(1, cmath.phase(value))


@lru_cache(BASES_KEPT)
def diagonal_in_a_basis(matrices: bytes) -> tuple[Array, Array, Array] | None:
    """For a bit that chooses one of two unitary matrices: a matrix before, a diagonal [4, 1, 1], one after.

    The bit that chooses is the first of the diagonal, the target its second. None for other matrices.
    """
    first, second = np.frombuffer(matrices, np.complex128).reshape(2, 2, 2)
    relative = second @ first.conj().T
    for one in (first, second):
        if np.any(np.abs(one @ one.conj().T - ONE) > ROUNDING):
            return None
    special = relative / cmath.sqrt(np.linalg.det(relative))
    _, basis = np.linalg.eigh((special - special.conj().T) / 2j)
    values = np.diag(basis.conj().T @ relative @ basis)
    values = values / np.abs(values)
    return basis.conj().T @ first, np.array([1, 1, *values]).reshape(4, 1, 1), basis

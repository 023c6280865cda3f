"""Matrices of one bit as four numbers of Python: arrays so small take ten times as long. Knows no states."""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence

import numpy as np

from tnplan.executor.statevector.gates.multiplexed_gate import EXACT, MultiplexedGate

Elements = tuple[complex, complex, complex, complex]
"""A matrix, row by row."""
ONE: Elements = (1, 0, 0, 1)
ROUNDING = 1e-13
"""How far a matrix may be from its product of phases and a real matrix, in parts of its largest element."""


def elements_of(gate: MultiplexedGate) -> Elements:
    """Those of a gate on one bit alone, a matrix or a diagonal."""
    values = gate.matrices.ravel().tolist()
    return tuple(values) if gate.targets else (values[0], 0, 0, values[1])


def gate_of(bit: int, matrix: Elements) -> MultiplexedGate:
    """The gate on a bit."""
    return MultiplexedGate((bit,), (), np.array(matrix, np.complex128).reshape(1, 2, 2))


def product(first: Elements, second: Elements) -> Elements:
    """The matrix product."""
    a, b, c, d = first
    e, f, g, h = second
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


def is_real(matrix: Sequence[complex]) -> bool:
    """Whether no element has an imaginary part."""
    a, b, c, d = matrix
    return not (a.imag or b.imag or c.imag or d.imag)


def real_between_phases(matrix: Elements) -> tuple[complex, Elements | None, tuple[complex, complex]]:
    """The phase of the second column, a real matrix, and the phases of the rows, which come after it.

    The matrix is None where there are phases alone, and `matrix` itself where it is no such product.
    """
    a, b, c, d = matrix
    most = max(abs(a), abs(b), abs(c), abs(d))
    if max(abs(b), abs(c)) <= EXACT * most:
        return 1, None, (a, d)
    if max(abs(a.imag), abs(b.imag), abs(c.imag), abs(d.imag)) <= EXACT * most:
        return 1, (a.real, b.real, c.real, d.real), (1, 1)
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
    return (column, real, (first, second)) if error <= ROUNDING * most else (1, matrix, (1, 1))


def _phase(value: complex) -> complex:
    return cmath.rect(1, cmath.phase(value))

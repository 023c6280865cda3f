"""Matrices of one bit as four numbers of Python: arrays so small take ten times as long. Knows no states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.statevector.gates.multiplexed_gate import EXACT, MultiplexedGate

Elements = tuple[complex, complex, complex, complex]
"""A matrix, row by row."""
ONE: Elements = (1, 0, 0, 1)
ROUNDING = 1e-13
"""How far a matrix may be from its product of phases and a real matrix, in parts of its largest element."""


class OneBitGate(MultiplexedGate):
    """A matrix of one bit, or its diagonal; the array is made when it is first used."""

    def __init__(self, bit: int, elements: Elements, is_diagonal: bool = False) -> None:
        bits, mask = (bit,), 1 << bit
        self.__dict__.update(
            targets=() if is_diagonal else bits, selectors=bits if is_diagonal else (),
            target_mask=0 if is_diagonal else mask, mask=mask, facts={"elements": elements},
        )  # fmt: skip

    @cached_property
    def matrices(self) -> Array:
        """complex128 [1, 2, 2], or [2, 1, 1] of a diagonal."""
        return np.array(self.flat_elements(), np.complex128).reshape((1, 2, 2) if self.targets else (2, 1, 1))

    def flat_elements(self) -> list[complex]:
        """The elements of the matrix, row by row, or those on the diagonal."""
        elements: Elements = self.facts["elements"]
        return [*elements] if self.targets else [elements[0], elements[3]]


def elements_of(gate: MultiplexedGate) -> Elements:
    """Those of a gate on one bit alone, a matrix or a diagonal."""
    if "elements" not in gate.facts:
        values = gate.flat_elements()
        gate.facts["elements"] = tuple(values) if gate.targets else (values[0], 0, 0, values[1])
    elements: Elements = gate.facts["elements"]
    return elements


def diagonal_of(bit: int, upper: complex, lower: complex) -> MultiplexedGate:
    """The diagonal gate on a bit."""
    return OneBitGate(bit, (upper, 0, 0, lower), is_diagonal=True)


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
    sizes = abs(a), abs(b), abs(c), abs(d)
    size_a, size_b, size_c, size_d = sizes
    # U = diag(first, second) R diag(1, column): for a unitary matrix |a| = |d| and |b| = |c|, and
    # the phases fulfil arg a + arg d = arg b + arg c + pi, which is what makes R real.
    most = max(sizes)
    small = EXACT * most
    if size_b <= small and size_c <= small:
        return 1, None, (a, d)
    if abs(a.imag) <= small and abs(b.imag) <= small and abs(c.imag) <= small and abs(d.imag) <= small:
        return 1, (a.real, b.real, c.real, d.real), (1, 1)
    # The larger pair of elements gives the phases, so that no phase is that of rounding errors.
    if size_a >= size_b:
        first, sine = _phase(a, size_a), -size_c if size_c > small else 0.0
        second = _phase(c, size_c) if sine else _phase(d, size_d)
        column = _phase(d, size_d) / second
        real = (size_a, sine, -sine, size_d)
    else:
        second = _phase(c, size_c)
        first = _phase(a, size_a) if size_a > small else 1
        column = _phase(b, size_b) / first
        turned = d / (second * column)
        real = (size_a if size_a > small else 0.0, size_b, size_c, math.copysign(size_d, turned.real))
    # Tested on the product itself: matrices need not be unitary (Kraus operators), and then it may fail.
    error = max(
        abs(first * real[0] - a), abs(first * real[1] * column - b),
        abs(second * real[2] - c), abs(second * real[3] * column - d),
    )  # fmt: skip
    return (column, real, (first, second)) if error <= ROUNDING * most else (1, matrix, (1, 1))


def _phase(value: complex, size: float) -> complex:
    """The phase factor of a number of this modulus; that of 0 is 1, as matrices need not be unitary."""
    return value / size if size else 1

"""Phase polynomials: sums of phases of single bits and of pairs of bits. Knows no state, no pass, no device.

A diagonal gate on bits i, j with elements of modulus 1 is exp(i (c + a b_i + a' b_j + w b_i b_j)); products
of such gates are exp(i p) with a quadratic polynomial p of the bits, a `PhasePolynomial`.
"""

from __future__ import annotations

from cmath import phase
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.statevector.gates.multiplexed_gate import EXACT, MultiplexedGate, WordSum, mask_of
from tnplan.executor.statevector.gates.one_bit import (
    Elements,
    OneBitGate,
    diagonal_of,
    elements_of,
    is_real,
    product,
)

UNIT = 1e-12
"""Elements whose modulus is nearer than this to 1 are phases: the rounding of products of gates."""


@dataclass(frozen=True, eq=False)
class PhasePolynomial:
    """constant + sum_j linear[j] b_j + sum_{j<k} pairs[j, k] b_j b_k on all bits b of an index, in radians.

    `linear` is float64 [n], `pairs` float64 [n, n], symmetric, its diagonal 0.
    """

    constant: float
    linear: Array
    pairs: Array

    @staticmethod
    def zero(n_bits: int) -> PhasePolynomial:
        """No phase on so many bits."""
        return PhasePolynomial(0.0, np.zeros(n_bits), np.zeros((n_bits, n_bits)))

    @property
    def is_constant(self) -> bool:
        """Whether no bit and no pair has a phase."""
        return not (self.linear.any() or self.pairs.any())

    @property
    def n_terms(self) -> int:
        """How many bits and pairs have a phase."""
        return int(np.count_nonzero(self.linear) + np.count_nonzero(self.pairs) // 2)

    def reaches(self, bits: Sequence[int]) -> bool:
        """Whether any of some bits has a phase."""
        chosen = list(bits)
        return bool(np.any(self.linear[chosen]) or np.any(self.pairs[chosen]))

    def within(self, bits: Sequence[int], with_linear: bool) -> PhasePolynomial:
        """The phases of pairs of some bits, and their own ones if wanted; no constant."""
        chosen = list(bits)
        linear, pairs, inside = np.zeros_like(self.linear), np.zeros_like(self.pairs), np.ix_(chosen, chosen)
        if with_linear:
            linear[chosen] = self.linear[chosen]
        pairs[inside] = self.pairs[inside]
        return PhasePolynomial(0.0, linear, pairs)

    def without(self, removed: PhasePolynomial) -> PhasePolynomial:
        """What is left without a part."""
        linear = np.where(removed.linear != 0, 0, self.linear)
        return PhasePolynomial(self.constant, linear, np.where(removed.pairs != 0, 0, self.pairs))

    def plus(self, other: PhasePolynomial) -> PhasePolynomial:
        """The sum of both."""
        return PhasePolynomial(
            self.constant + other.constant, self.linear + other.linear, self.pairs + other.pairs
        )

    def reduced(self) -> PhasePolynomial:
        """The same phases from -pi to pi, exactly 0 where they are 0 but for rounding."""
        linear, pairs = np.zeros_like(self.linear), np.zeros_like(self.pairs)
        alone, (first, second) = np.flatnonzero(self.linear), self.pairs_present()
        angles = _angles(np.concatenate([self.linear[alone], self.pairs[first, second], [self.constant]]))
        linear[alone] = angles[: len(alone)]
        pairs[first, second] = pairs[second, first] = angles[len(alone) : -1]
        return PhasePolynomial(float(angles[-1]), linear, pairs)

    def pairs_present(self) -> tuple[Array, Array]:
        """The lower bits and the higher bits of the pairs that have a phase."""
        first, second = np.nonzero(self.pairs)
        return first[first < second], second[first < second]

    def gates(self) -> list[MultiplexedGate]:
        """Diagonal gates on one and two bits, whose product is exp(i phase) but for the constant."""
        singles = [((bit,), self.linear[bit]) for bit in np.flatnonzero(self.linear).tolist()]
        first, second = self.pairs_present()
        doubles = [((j, k), self.pairs[j, k]) for j, k in zip(first.tolist(), second.tolist(), strict=True)]
        return [
            diagonal_gate(bits, np.array([*[1] * (2 ** len(bits) - 1), np.exp(1j * angle)]))
            for bits, angle in (*singles, *doubles)
        ]

    def phase(self, values: Mapping[int, Any], constant: Any = 0.0) -> Any:
        """The phase with that constant, for values of bits, numbers or arrays; other bits are 0."""
        bits, angle = list(values), constant
        for k, bit in enumerate(bits):
            inner = self.linear[bit] + sum(self.pairs[bit, other] * values[other] for other in bits[:k])
            angle = angle + values[bit] * inner
        return angle

    def factor(self, values: Mapping[int, Any]) -> Any:
        """exp(i phase) without the constant, for values of bits, numbers or arrays; other bits are 0."""
        return np.exp(1j * self.phase(values))

    def elements(self, bits: Sequence[int]) -> Array:
        """exp(i phase), complex128 [2^m], of every value of `bits`, the first most significant.

        Other bits are 0. There is a row for each value of the first half of the bits. Each bit of the second
        half doubles the length of the rows: where it is 1, a row is multiplied by one factor.
        """
        # 2^m elements with 2^(m/2) exponentials: exp(i p(h, l)) = exp(i p(h)) exp(i p(l)) prod over
        # low bits l_k = 1 of exp(i sum_j pairs[h_j, l_k] h_j).
        high, low = list(bits[: len(bits) // 2]), list(bits[len(bits) // 2 :])
        factors = np.exp(1j * (_values(len(high)) @ self.pairs[np.ix_(high, low)]))
        elements = self._few_elements(high, self.constant)[:, None]
        for number in reversed(range(len(low))):
            elements = np.concatenate([elements, elements * factors[:, number, None]], axis=1)
        elements *= self._few_elements(low, 0.0)
        return elements.ravel()

    def _few_elements(self, bits: list[int], constant: float) -> Array:
        """The same of few bits, with another constant."""
        values = _values(len(bits))
        inner = self.linear[bits] + values @ self.pairs[np.ix_(bits, bits)] / 2
        elements: Array = np.exp(1j * ((values * inner).sum(axis=1) + constant))
        return elements


@cache
def _values(n_bits: int) -> Array:
    """Every value of some bits, float64 [2^n_bits, n_bits], the first bit most significant."""
    return (np.arange(2**n_bits)[:, None] >> np.arange(n_bits - 1, -1, -1) & 1).astype(np.float64)


class PhaseTable(MultiplexedGate):
    """The diagonal gate of the phases of some bits, the first most significant.

    Its elements are made when they are first used: compiled passes never do.
    """

    phases: PhasePolynomial

    def __init__(self, bits: tuple[int, ...], phases: PhasePolynomial) -> None:
        mask = mask_of(bits)
        self.__dict__.update(targets=(), selectors=bits, target_mask=0, mask=mask, phases=phases, facts={})

    @cached_property
    def matrices(self) -> Array:
        """complex128 [2^bits, 1, 1]."""
        return self.phases.elements(self.selectors).reshape(-1, 1, 1)


def diagonal_gate(selectors: tuple[int, ...], elements: Array) -> MultiplexedGate:
    """The diagonal gate with these elements [2^selectors]."""
    return MultiplexedGate((), selectors, elements.reshape(-1, 1, 1))


def angles_of(gate: MultiplexedGate) -> list[float] | None:
    """The phases of a diagonal on one or two bits, in radians; None of a gate that is no such product."""
    if gate.targets or not 1 <= len(gate.selectors) <= 2:
        return None
    if "angles" not in gate.facts:
        values = gate.flat_elements()
        are_phases = all(abs(abs(value) - 1) <= UNIT for value in values)
        gate.facts["angles"] = [phase(value) for value in values] if are_phases else None
    angles: list[float] | None = gate.facts["angles"]
    return angles


def is_phase_gate(gate: MultiplexedGate) -> bool:
    """Whether a gate is a diagonal on one or two bits whose elements have modulus 1."""
    return angles_of(gate) is not None


def phases_of(gates: Sequence[MultiplexedGate], n_bits: int) -> PhasePolynomial:
    """The phases of a product of gates for all of which `is_phase_gate` holds."""
    constant, linear, pairs = 0.0, np.zeros(n_bits), np.zeros((n_bits, n_bits))
    for gate in gates:
        phases = angles_of(gate)
        assert phases is not None
        constant += phases[0]
        if len(gate.selectors) == 1:
            linear[gate.selectors[0]] += phases[1] - phases[0]
            continue
        i, j = gate.selectors
        linear[j] += phases[1] - phases[0]
        linear[i] += phases[2] - phases[0]
        pairs[i, j] += phases[3] - phases[2] - phases[1] + phases[0]
        pairs[j, i] = pairs[i, j]
    return PhasePolynomial(constant, linear, pairs)


def split(phases: PhasePolynomial, held_mask: int) -> tuple[MultiplexedGate | None, PhasePolynomial | None]:
    """The part on held bits alone as a diagonal gate, and the rest; None for a part that is 1.

    The constant goes with the gate where there is one.
    """
    in_tile = np.array([bool(held_mask >> bit & 1) for bit in range(len(phases.linear))])
    inside = in_tile[:, None] & in_tile
    pairs = np.where(inside, phases.pairs, 0.0)
    if not pairs.any():
        return None, _unless_zero(phases)
    linear = np.where(in_tile, phases.linear, 0.0)
    used = np.flatnonzero(pairs.any(axis=0) | (linear != 0))
    near = PhasePolynomial(phases.constant, linear, pairs).reduced()
    outer = PhasePolynomial(0.0, np.where(in_tile, 0.0, phases.linear), np.where(inside, 0.0, phases.pairs))
    return PhaseTable(tuple(used[::-1].tolist()), near), _unless_zero(outer)


def _unless_zero(phases: PhasePolynomial) -> PhasePolynomial | None:
    return phases if np.any(phases.linear) or np.any(phases.pairs) or phases.constant else None


def phases_of_diagonal(gate: MultiplexedGate, n_bits: int) -> PhasePolynomial | None:
    """The phases that a diagonal gate is, on an index of `n_bits`; None where it is no such sum."""
    if isinstance(gate, PhaseTable):
        return gate.phases
    if np.any(np.abs(np.abs(gate.matrices) - 1) > UNIT):
        return None
    values = gate.flat_elements()
    # A quadratic form is known from its values at no bit, one bit and two bits: second differences
    # of the phases. Whether all other values agree is tested.
    bits = gate.selectors[::-1]
    linear, pairs = np.zeros(n_bits), np.zeros((n_bits, n_bits))
    for k, bit in enumerate(bits):
        linear[bit] = _angle(values[1 << k] / values[0])
        for m, other in enumerate(bits[:k]):
            both = values[1 << k | 1 << m] * values[0] / (values[1 << k] * values[1 << m])
            pairs[bit, other] = pairs[other, bit] = _angle(both)
    form = PhasePolynomial(_angle(values[0]), linear, pairs)
    if len(bits) <= 2:
        return form
    numbers = np.arange(len(values))
    products = form.factor({bit: numbers >> k & 1 for k, bit in enumerate(bits)}) * values[0]
    return form if np.all(np.abs(products - values) <= len(bits) * UNIT) else None


def _angles(phases: Array) -> Array:
    """Phases from -pi to pi, exactly 0 where they are 0 but for rounding."""
    factors = np.exp(1j * phases)
    angles: Array = np.where(np.abs(factors - 1) <= EXACT, 0.0, np.angle(factors))
    return angles


def _angle(value: complex) -> float:
    """The angle of a number, exactly 0 for 1."""
    return 0.0 if abs(value - 1) <= EXACT else phase(value)


# Gates that do the same with fewer multiplications: phases move on to later gates. Knows matrices and bits.
#
# A phase of one bit commutes with all diagonals, so that it may wait until a target on that bit comes and be
# multiplied into it. A unitary matrix of one bit, freed of the phases of its rows, has two equal elements,
# which become 1 when it is divided by them; freed of those of its columns too it is a real rotation.


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
    commuted: list[MultiplexedGate] = []
    latest = [-1] * n_bits
    """The last gate on each bit."""
    replacement: MultiplexedGate
    for gate in gates:
        if isinstance(gate, WordSum):
            for bit in gate.targets:
                commuted += _unless_one(bit, waiting[bit])
                waiting[bit] = [1, 1]
            replacement = gate
        # diag(1, 1, 1, pair) is what is left of a phase gate when the phases of single bits wait:
        # one multiplication for a quarter of the amplitudes.
        elif is_phase_gate(gate):
            pair = _factored_out(gate, waiting)
            if abs(pair - 1) <= EXACT:
                continue
            replacement = MultiplexedGate((), gate.selectors, np.array([1, 1, 1, pair]).reshape(4, 1, 1))
        elif len(gate.targets) == 1 and not gate.selectors:
            (bit,) = gate.targets
            matrix = product(elements_of(gate), (waiting[bit][0], 0, 0, waiting[bit][1]))
            # Matrices of one bit in a row are one product. Invariant: latest[bit] is the last gate
            # with this bit, so between it and now no gate touches the bit.
            while latest[bit] >= 0 and _acts_alone(commuted[latest[bit]], bit):
                matrix = product(matrix, elements_of(commuted[latest[bit]]))
                commuted[latest[bit]] = NOTHING
                latest[bit] -= 1
            columns, replacement, waiting[bit] = _split(matrix, bit, rotations)
            commuted += columns
        elif gate.targets:
            matrices = gate.matrices * _columns(gate, waiting)
            replacement = MultiplexedGate(gate.targets, gate.selectors, matrices)
            for bit in gate.targets:
                waiting[bit] = [1, 1]
        else:
            replacement = gate
        for bit in (*replacement.targets, *replacement.selectors):
            latest[bit] = len(commuted)
        commuted.append(replacement)
    last = [phases for bit, values in enumerate(waiting) for phases in _unless_one(bit, values)]
    return [gate for gate in commuted if gate.mask] + last


def _acts_alone(gate: MultiplexedGate, bit: int) -> bool:
    """Whether a gate is a matrix or phases of one bit alone."""
    return gate.mask == 1 << bit and not isinstance(gate, WordSum)


def _unless_one(bit: int, values: Sequence[complex]) -> list[MultiplexedGate]:
    """The gate with phases that wait on a bit; none where they are 1."""
    is_one = all(abs(value - 1) <= EXACT for value in values)
    return [] if is_one else [diagonal_of(bit, *values)]


def _factored_out(gate: MultiplexedGate, waiting: list[list[complex]]) -> complex:
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
        factors = _rotation(matrix)
        if factors is not None:
            column, rotation, rows = factors
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
    is_exact = all(abs(scaled - other) <= EXACT for scaled, other in zip(rotation, exact, strict=True))
    return (column, exact, [upper, lower]) if is_exact else None


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

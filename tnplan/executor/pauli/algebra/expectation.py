"""Values of sums of words: in |0...0>, in computational and product states, and against another sum.
And how far a value may be from the true one, of which something was dropped.

Words are not divided by anything: the identity has the expectation value 1 in every state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tnplan.circuits.pauli_sum import PauliSum, bit_counts, pack, pauli_sum
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra.gates import Clifford, PauliStep, Rotation, TransferMatrix
from tnplan.executor.pauli.terms.ledger import Dropped

# The Schroedinger picture as the Heisenberg picture of other steps. Knows no sum of words.


def forward(steps: Sequence[PauliStep]) -> tuple[PauliStep, ...]:
    """Steps through which `propagate` takes a sum A to U A U^dagger, or a state through its channels.

    A density matrix evolves as the sum of its words; see `expectation.product_state`. Nothing is divided by
    2^n on the way: the value of O in the state A / 2^n is `expectation.overlap(A, O)`.
    """
    return tuple(adjoint(step) for step in reversed(steps))


def adjoint(step: PauliStep) -> PauliStep:
    """The step whose map of words is the transpose of this one's."""
    if isinstance(step, Rotation):
        return Rotation(step.x, step.z, -step.angle)
    if isinstance(step, Clifford):
        sources = np.argsort(step.images)
        return Clifford(step.qubits, sources, step.signs[sources])
    return TransferMatrix(step.qubits, np.ascontiguousarray(step.matrix.T))


ONE = np.uint64(1)
BLOCH_ROUNDING = 1e-12
"""How far the length of a Bloch vector may be past 1."""
MOST_WORDS = 1 << 20
"""Words that a product state may have."""


def value_in(terms: PauliSum, state: Any = None) -> complex:
    """The value of a sum in a state, as `state_values` takes it; a float for real coefficients and values."""
    return _number((terms.coefficients * state_values(terms, state)).sum())


def bit_values(terms: PauliSum, bits: str | None = None) -> Array:
    """The value of every word, without its coefficient, in a computational state: 0, 1 or -1, float64."""
    values = np.where(np.any(terms.x, axis=1), 0.0, 1.0)
    if bits is not None:
        if not isinstance(bits, str) or len(bits) != terms.n_qubits or set(bits) - {"0", "1"}:
            raise InputError(
                "--state",
                f"{str(bits)[:40]!r} is not a state",
                f"give 0 or 1 for each of {terms.n_qubits} qubits",
            )
        row = pack(0, int(bits[::-1], 2), terms.n_qubits)
        values *= 1 - 2.0 * (bit_counts(terms.keys & row) & 1)
    return values


def product_values(terms: PauliSum, bloch: Array) -> Array:
    """The value of every word, without its coefficient, in a product state; float64."""
    return key_products(terms.keys, _checked(bloch, terms.n_qubits))


def key_products(keys: Array, bloch: Array, xp: Any = np) -> Array:
    """The same of packed words, uint64 [n, 2 W], of `xp`, NumPy or CuPy, the library of the keys."""
    values, half = xp.ones(len(keys)), keys.shape[1] // 2
    for qubit, (x, y, z) in enumerate(bloch):
        w, bit = qubit // 64, np.uint64(qubit % 64)
        word = (keys[:, w] >> bit & ONE) + 2 * (keys[:, half + w] >> bit & ONE)
        values *= xp.asarray([1.0, x, z, y])[word.astype(np.int64)]
    return values


def state_values(terms: PauliSum, state: Any) -> Array:
    """The value of every word in a state: bits, None for all 0, Bloch vectors [qubit, 3], or a `State`."""
    if isinstance(state, np.ndarray):
        return product_values(terms, state)
    if state is None or isinstance(state, str):
        return bit_values(terms, state)
    return np.asarray(state.values(terms))


def product_state(bloch: Array, max_weight: int | None = None) -> tuple[PauliSum, Dropped]:
    """2^n times the density matrix of a product state, as far as it has words of at most `max_weight`.

    Returns also what was left out: norms past all numbers are infinite. Raises InputError for more than
    MOST_WORDS words.
    """
    bloch = _checked(bloch, len(bloch))
    terms: list[tuple[int, int, float, int]] = [(0, 0, 1.0, 0)]
    for qubit, (x, y, z) in enumerate(bloch.tolist()):
        letters = ((1, 0, x), (1, 1, y), (0, 1, z))
        terms += [
            (old_x | has_x << qubit, old_z | has_z << qubit, c * value, weight + 1)
            for old_x, old_z, c, weight in terms
            for has_x, has_z, value in letters
            if value and (max_weight is None or weight < max_weight)
        ]
        if len(terms) > MOST_WORDS:
            raise InputError(
                "state", f"has more than {MOST_WORDS} words", "bound their weight with a smaller --max-weight"
            )
    dropped = _heavier(bloch, len(bloch) if max_weight is None else max_weight, len(terms))
    return pauli_sum([(x, z, c) for x, z, c, _ in terms], len(bloch)), dropped


def bits_bloch(bits: str) -> Array:
    """The Bloch vectors of a computational state."""
    return np.array([[0.0, 0.0, 1.0 - 2.0 * (bit == "1")] for bit in bits])


def overlap(first: PauliSum, second: PauliSum) -> complex:
    """tr(first^dagger second) / 2^n: the sum over equal words of conj(a) b."""
    if first.n_qubits != second.n_qubits:
        raise InputError(
            "overlap",
            f"is of {first.n_qubits} and {second.n_qubits} qubits",
            "give sums on the same number of qubits",
        )
    return _number(np.vdot(coefficients_of(first, second.keys), second.coefficients))


def coefficients_of(terms: PauliSum, keys: Array) -> Array:
    """The coefficients that words have in a sum: 0 for those that are not in it."""
    rows, numbers = np.unique(np.concatenate([terms.keys, keys]), axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    dense = np.zeros(len(rows), terms.coefficients.dtype)
    dense[numbers[: terms.n_terms]] = terms.coefficients
    return dense[numbers[terms.n_terms :]]


def _heavier(bloch: Array, max_weight: int, n_lighter: int) -> Dropped:
    """What a product state has in words on more than `max_weight` qubits; it has `n_lighter` others."""
    n_all = math.prod(1 + n for n in np.count_nonzero(bloch, axis=1).tolist())
    if n_all == n_lighter:
        return Dropped(0.0, 0.0, 0)
    l1, squares = (_products(powers.sum(axis=1), max_weight) for powers in (np.abs(bloch), bloch**2))
    norm = min(l1, math.sqrt(squares))
    return Dropped(l1, norm, n_all - n_lighter, norm)


def _products(factors: Array, max_factors: int) -> float:
    """The products of more than `max_factors` different factors, all of them added up."""
    sums, beyond = np.zeros(max_factors + 1), 0.0
    sums[0] = 1.0
    with np.errstate(over="ignore"):
        for factor in factors[factors > 0].tolist():
            beyond += factor * (beyond + float(sums[-1]))
            sums[1:] += factor * sums[:-1]
    return beyond


def _checked(bloch: Array, n_qubits: int) -> Array:
    bloch = np.asarray(bloch, dtype=np.float64)
    if bloch.shape != (n_qubits, 3) or not np.all(np.linalg.norm(bloch, axis=1) <= 1 + BLOCH_ROUNDING):
        raise InputError(
            "product state", "has no Bloch vector for each qubit", "give [qubit, 3] with lengths 1 at most"
        )
    return bloch


def _number(value: Any) -> complex:
    return complex(value) if np.iscomplexobj(value) else float(value)


@dataclass(frozen=True)
class ErrorOfValue:
    """A rigorous bound of the error but for rounding, whether it says nothing, and an estimate.

    `is_vacuous`: no value that the observable can have is farther away than `bound`. `estimate` is the norm
    of what was dropped, as if all of it were orthogonal: the error in a random state.
    """

    bound: float
    is_vacuous: bool
    estimate: float


def error_in_state(dropped: Dropped, observable: PauliSum, value: complex) -> ErrorOfValue:
    """The error of the value of an observable, taken backwards, in any state."""
    return _capped(dropped.l1, dropped.norm, farthest(observable, value))


def farthest(observable: PauliSum, value: complex) -> float:
    """How far a value that the observable can have in a state may be from another one at most."""
    return abs(value) + norms(observable)[0]


def error_of_overlap(
    dropped: Dropped, observable: PauliSum, other: PauliSum, value: complex, *, is_unital: bool
) -> ErrorOfValue:
    """The error of the overlap of an observable, taken backwards, with another sum.

    tr(B E) / 2^n is at most the product of normalized Frobenius norms, which no unital channel enlarges; with
    others that of the L1 norm of E, since a word becomes no operator of a larger norm than 1.
    """
    largest, norm = norms(observable)
    other_norm = norms(other)[1]
    max_error = abs(value) + (norm if is_unital else largest) * other_norm
    if not other_norm:
        return ErrorOfValue(0.0, False, 0.0)
    bound = (dropped.l2 if is_unital else dropped.l1) * other_norm
    return _capped(bound, dropped.norm * other_norm, max_error)


def norms(terms: PauliSum) -> tuple[float, float]:
    """The sum of the magnitudes of coefficients, and the root of the sum of their squares."""
    sizes = np.abs(terms.coefficients).astype(np.float64)
    largest = float(sizes.sum())
    return (largest, largest * float(np.linalg.norm(sizes / largest))) if largest else (0.0, 0.0)


def _capped(bound: float, estimate: float, max_error: float) -> ErrorOfValue:
    return ErrorOfValue(min(bound, max_error), bound >= max_error > 0, min(estimate, max_error))


def error_of_state(
    dropped: Dropped, observable: PauliSum, value: complex, *, is_unital: bool
) -> ErrorOfValue:
    """The error of the overlap of `observable` with a state of which `dropped` was left out.

    `dropped` is what was left out at the start and in the propagation of the state. With X left out,
    |tr(X O)| / 2^n is at most the product of normalized Frobenius norms, which no channel enlarges that
    `is_unital`; with others at most that of the L1 norms of coefficients. No value is past the L1 norm of O.
    """
    largest, norm = norms(observable)
    if not largest:
        return ErrorOfValue(0.0, False, 0.0)
    bound = dropped.l2 * norm if is_unital else dropped.l1 * largest
    return _capped(bound, dropped.norm * norm, abs(value) + largest)

"""How far a value may be from the true one, of which something was dropped: a bound and an estimate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tnplan.circuits.pauli_sum import PauliSum
from tnplan.executor.pauli.terms.ledger import Dropped


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

"""The gradient of an expectation value with respect to the angles of rotations, in one reverse sweep.

The value is linear in the coefficients at every step. Backwards along the tape go the derivatives of the
value with respect to them: from term to term by the transpose of what the step did. What truncations dropped
stays dropped: the result is the gradient of the truncated value, with the set of dropped terms kept fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tnplan.executor.observables.pauli_sum import PauliSum
from tnplan.executor.pauli.algebra.expectation import state_values
from tnplan.executor.pauli.algebra.gates import PauliStep, Rotation, TransferMatrix, simple_steps
from tnplan.executor.pauli.algebra.tableau import absorb
from tnplan.executor.pauli.propagate import Propagator, check_room, check_steps
from tnplan.executor.pauli.terms.ledger import Dropped
from tnplan.executor.pauli.terms.tape import TapedMap, TapedRotation, TapedTerms
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.errors import InputError


@dataclass(frozen=True, eq=False)
class Gradient:
    """The value, and `derivatives`, float64 or complex128 [step]: 0 for steps that are not `wanted`."""

    value: complex
    derivatives: Array
    dropped: Dropped


def gradient(
    steps: Sequence[PauliStep],
    observable: PauliSum,
    truncation: Truncation | None = None,
    *,
    state: Any = None,
    wanted: Sequence[int] | None = None,
) -> Gradient:
    """The expectation value of `observable` after `steps`, and its derivatives by the angles of rotations.

    `state` is a bit string, Bloch vectors [qubit, 3], a `State`, or None for all 0. `wanted` are
    the numbers of the rotations (default: all); the others cost nothing where they are Cliffords. Takes one
    thread, in fp64, and memory for every term that a rotation splits.
    """
    chosen = {k for k, step in enumerate(steps) if isinstance(step, Rotation)}
    if wanted is not None:
        if not set(wanted) <= chosen:
            raise InputError("wanted", f"names {sorted(set(wanted) - chosen)[0]}", "name rotations")
        chosen = set(wanted)
    taped = _taped(steps, observable, truncation or Truncation(), state, chosen)
    terms, slopes = taped.terms, taped.slopes
    derivatives = np.zeros(len(steps), slopes.dtype)
    rotations = [k for k, step in enumerate(taped.steps) if isinstance(step, Rotation)]
    for entry in reversed(terms.tape):
        derivative = _back(entry, slopes)
        if isinstance(entry, TapedRotation):
            number = rotations.pop(0)
            derivatives[taped.origins[number]] = taped.signs[number] * derivative
    derivatives[sorted(set(range(len(steps))) - chosen)] = 0
    return Gradient(taped.value, derivatives, terms.ledger.dropped())


def value_of_terms(
    steps: Sequence[PauliStep],
    observable: PauliSum,
    truncation: Truncation | None = None,
    *,
    state: Any = None,
) -> Array:
    """The value of every word of `observable` after `steps`, without its coefficient: [term].

    They are the derivatives of the value by the coefficients; times these they add up to it. With a
    truncation the set of dropped terms is that of the whole sum.
    """
    taped = _taped(steps, observable, truncation or Truncation(), state, set())
    for entry in reversed(taped.terms.tape):
        _back(entry, taped.slopes)
    return np.asarray(taped.slopes[taped.places] * taped.term_signs)


@dataclass(frozen=True, eq=False)
class _Taped:
    """A run with its tape, and `slopes`: the derivatives of the value by the final coefficients.

    The other fields are those of `Absorbed`, where nothing was absorbed the same of the steps themselves.
    """

    terms: TapedTerms
    slopes: Array
    value: complex
    steps: Sequence[PauliStep]
    origins: Sequence[int]
    signs: Sequence[int]
    places: Array
    term_signs: Array


def _taped(
    steps: Sequence[PauliStep], observable: PauliSum, limits: Truncation, state: Any, chosen: set[int]
) -> _Taped:
    """Run forward with a tape; Cliffords are absorbed where nothing is against it, but the steps chosen."""
    check_steps(steps, observable.n_qubits)
    check_room(observable, limits, None)
    state_values(observable, state)
    simple = simple_steps(steps)
    todo: Sequence[PauliStep] = [step if k in chosen else simple[k] for k, step in enumerate(steps)]
    start, n = observable, observable.n_terms
    rest: tuple[Any, ...] = (range(len(todo)), (1,) * len(todo), np.arange(n), np.ones(n, np.int64))
    if not limits.needs_letters and not any(isinstance(step, TransferMatrix) for step in todo):
        absorbed = absorb(todo, observable, chosen)
        todo, start = absorbed.rotations, absorbed.observable
        rest = absorbed.origins, absorbed.signs, absorbed.places, absorbed.term_signs
    terms = TapedTerms(start)
    Propagator(terms, limits).run(todo)
    final = terms.terms.rows()
    weights = state_values(final, state)
    slopes = np.zeros(terms.n_numbers, np.result_type(final.coefficients, weights))
    slopes[terms.numbers] = weights
    return _Taped(terms, slopes, (weights * final.coefficients).sum().item(), todo, *rest)


def _back(entry: TapedRotation | TapedMap, slopes: Array) -> Any:
    """Take the slopes from after a step to before it; the derivative by its angle, if it is a rotation."""
    after = slopes[entry.terms]
    if isinstance(entry, TapedMap):
        before = entry.factors * after
        for places, weights, targets in entry.sent:
            before[places] += weights * slopes[targets]
        slopes[entry.terms] = before
        return 0.0
    arriving = entry.signs * slopes[entry.targets]
    before, change = entry.cosine * after, -entry.sine * after
    before[entry.places] += entry.sine * arriving
    change[entry.places] += entry.cosine * arriving
    slopes[entry.terms] = before
    return entry.coefficients @ change

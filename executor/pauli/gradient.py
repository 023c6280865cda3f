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
    state: str | Array | None = None,
    wanted: Sequence[int] | None = None,
) -> Gradient:
    """The expectation value of `observable` after `steps`, and its derivatives by the angles of rotations.

    `state` is a bit string, the Bloch vectors [qubit, 3] of a product state, or None for all 0. `wanted` are
    the numbers of the rotations (default: all); the others cost nothing where they are Cliffords. Takes one
    thread, in fp64, and memory for every term that a rotation splits.
    """
    limits = truncation or Truncation()
    check_steps(steps, observable.n_qubits)
    check_room(observable, limits, None)
    chosen = {k for k, step in enumerate(steps) if isinstance(step, Rotation)}
    if wanted is not None:
        if not set(wanted) <= chosen:
            raise InputError("wanted", f"names {sorted(set(wanted) - chosen)[0]}", "name rotations")
        chosen = set(wanted)
    state_values(observable, state)
    simple = simple_steps(steps)
    todo: Sequence[PauliStep] = [step if k in chosen else simple[k] for k, step in enumerate(steps)]
    start, origins, signs = observable, tuple(range(len(todo))), (1,) * len(todo)
    if not limits.needs_letters and not any(isinstance(step, TransferMatrix) for step in todo):
        absorbed = absorb(todo, observable, chosen)
        todo, start = absorbed.rotations, absorbed.observable
        origins, signs = absorbed.origins, absorbed.signs
    terms = TapedTerms(start)
    Propagator(terms, limits).run(todo)
    final = terms.terms.rows()
    weights = state_values(final, state)
    slopes = np.zeros(terms.n_numbers, final.coefficients.dtype)
    slopes[terms.numbers] = weights
    derivatives = np.zeros(len(steps), final.coefficients.dtype)
    rotations = [k for k, step in enumerate(todo) if isinstance(step, Rotation)]
    for entry in reversed(terms.tape):
        derivative = _back(entry, slopes)
        if isinstance(entry, TapedRotation):
            number = rotations.pop(0)
            derivatives[origins[number]] = signs[number] * derivative
    derivatives[sorted(set(range(len(steps))) - chosen)] = 0
    return Gradient((weights * final.coefficients).sum().item(), derivatives, terms.ledger.dropped())


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

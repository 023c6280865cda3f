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

from tnplan.executor.device.protocols.communicator import agree
from tnplan.executor.observables.pauli_sum import PauliSum
from tnplan.executor.pauli.algebra.expectation import state_values
from tnplan.executor.pauli.algebra.gates import PauliStep, Rotation, TransferMatrix, simple_steps
from tnplan.executor.pauli.algebra.tableau import absorb
from tnplan.executor.pauli.propagate import Propagator, check_room, check_steps
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.terms.ledger import Dropped, total
from tnplan.executor.pauli.terms.tape import TapedStep, TapedTerms
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.errors import InputError

TERMS_SHARE = 0.25
"""The share of the memory that terms may take; the rest is for the tape."""


@dataclass(frozen=True, eq=False)
class Gradient:
    """The value, and `derivatives`, float64 or complex128 [step]: 0 for steps that are not `wanted`.

    `n_terms` are the terms at the end, `tape_bytes` what the tape of this rank takes.
    """

    value: complex
    derivatives: Array
    dropped: Dropped
    n_terms: int
    tape_bytes: int


def gradient(
    steps: Sequence[PauliStep],
    observable: PauliSum,
    truncation: Truncation | None = None,
    resources: Resources | None = None,
    *,
    state: Any = None,
    wanted: Sequence[int] | None = None,
) -> Gradient:
    """The expectation value of `observable` after `steps`, and its derivatives by the angles of rotations.

    `state` is a bit string, Bloch vectors [qubit, 3], a `State`, or None for all 0. `wanted` are
    the numbers of the rotations (default: all); the others cost nothing where they are Cliffords. Runs on the
    CPU, on threads and ranks, and takes memory for every term that a rotation splits. With ranks the call is
    collective.

    Raises
    ------
    InputError
        For what cannot be done, or where terms and tape outgrow the memory.
    """
    chosen = {k for k, step in enumerate(steps) if isinstance(step, Rotation)}
    if wanted is not None:
        if not set(wanted) <= chosen:
            raise InputError("wanted", f"names {sorted(set(wanted) - chosen)[0]}", "name rotations")
        chosen = set(wanted)
    use = resources or Resources()
    taped = _taped(steps, observable, truncation or Truncation(), use, state, chosen)
    terms, slopes = taped.terms, taped.slopes
    derivatives = np.zeros(len(steps), slopes.dtype)
    rotations = [k for k, step in enumerate(taped.steps) if isinstance(step, Rotation)]
    for entry in reversed(terms.tape):
        derivative = _back(entry, terms, slopes)
        if entry.turn is not None:
            number = rotations.pop(0)
            derivatives[taped.origins[number]] = taped.signs[number] * derivative
    derivatives = np.asarray(terms.all_ranks(derivatives))  # type: ignore[type-var]
    derivatives[sorted(set(range(len(steps))) - chosen)] = 0
    ledgers = [terms.ledger] if use.ranks is None else use.ranks.gather_objects(terms.ledger)
    return Gradient(
        taped.value, derivatives, total(ledgers).dropped(), terms.all_ranks(terms.n), terms.tape_bytes
    )


def value_of_terms(
    steps: Sequence[PauliStep],
    observable: PauliSum,
    truncation: Truncation | None = None,
    resources: Resources | None = None,
    *,
    state: Any = None,
) -> Array:
    """The value of every word of `observable` after `steps`, without its coefficient: [term].

    They are the derivatives of the value by the coefficients; times these they add up to it. With a
    truncation the set of dropped terms is that of the whole sum.
    """
    use = resources or Resources()
    taped = _taped(steps, observable, truncation or Truncation(), use, state, set())
    terms = taped.terms
    for entry in reversed(terms.tape):
        _back(entry, terms, taped.slopes)
    values = terms.start_values(taped.slopes, taped.n_start)
    return np.asarray(values[taped.places] * taped.term_signs)


@dataclass(frozen=True, eq=False)
class _Taped:
    """A run with its tape, and `slopes`: the derivatives of the value by the final coefficients of this rank.

    `n_start` terms were there at the start. The other fields are those of `Absorbed`, where nothing was
    absorbed the same of the steps themselves.
    """

    terms: TapedTerms
    slopes: Array
    value: complex
    n_start: int
    steps: Sequence[PauliStep]
    origins: Sequence[int]
    signs: Sequence[int]
    places: Array
    term_signs: Array


def _taped(
    steps: Sequence[PauliStep], observable: PauliSum, limits: Truncation, use: Resources, state: Any,
    chosen: set[int],
) -> _Taped:  # fmt: skip
    """Run forward with a tape; Cliffords are absorbed where nothing is against it, but the steps chosen."""

    def check() -> int | None:
        if use.device != "cpu":
            raise InputError("gradient", "of Pauli words is computed on the CPU alone", "give --device cpu")
        check_steps(steps, observable.n_qubits)
        check_room(observable, limits, None)
        state_values(observable, state)
        terms_alone = use.with_memory(TERMS_SHARE)
        return terms_alone.room(use.converted(observable))

    room = check() if use.ranks is None else agree(use.ranks, check)
    simple = simple_steps(steps)
    todo: Sequence[PauliStep] = [step if k in chosen else simple[k] for k, step in enumerate(steps)]
    start, n = observable, observable.n_terms
    rest: tuple[Any, ...] = (range(len(todo)), (1,) * len(todo), np.arange(n), np.ones(n, np.int64))
    if not limits.needs_letters and not any(isinstance(step, TransferMatrix) for step in todo):
        absorbed = absorb(todo, observable, chosen)
        todo, start = absorbed.rotations, absorbed.observable
        rest = absorbed.origins, absorbed.signs, absorbed.places, absorbed.term_signs
    terms = TapedTerms(use.converted(start), use.threads, use.ranks, use.memory_bytes)
    try:
        Propagator(terms, limits, room=room, when_full=use.when_full).run(todo)
    finally:
        terms.close()
    parts = [shard.rows() for shard in terms.shards]
    weights = [state_values(part, state) for part in parts]
    own = sum((w * part.coefficients).sum().item() for w, part in zip(weights, parts, strict=True))
    slopes = np.zeros(terms.n_numbers, np.result_type(np.float64, parts[0].coefficients, *weights))
    for numbers, values in zip(terms.numbers, weights, strict=True):
        slopes[numbers] = values
    return _Taped(terms, slopes, terms.all_ranks(own), start.n_terms, todo, *rest)


def _back(step: TapedStep, terms: TapedTerms, slopes: Array) -> Any:
    """Take the slopes from after a step to before it; this rank's part of the derivative by its angle.

    All slopes are read before any is written: a term may send to one that is scaled too.
    """
    after = [slopes[one.terms] for one in step.splits]
    arrived = [terms.returned(sent, slopes) for sent in step.sent]
    derivative: Any = 0.0
    for s, (one, values) in enumerate(zip(step.splits, after, strict=True)):
        before = one.factors * values
        for sent, lists in zip(step.sent, arrived, strict=True):
            before[sent.places[s]] += sent.scale * sent.weights[s] * lists[s]
        if step.turn is not None and one.coefficients is not None:
            (cosine, sine), places = step.turn, step.sent[0].places[s]
            met = step.sent[0].weights[s] * arrived[0][s]
            derivative += cosine * (one.coefficients[places] @ met) - sine * (one.coefficients @ values)
        slopes[one.terms] = before
    return derivative

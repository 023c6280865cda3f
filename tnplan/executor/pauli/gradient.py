"""The gradient of an expectation value with respect to the angles of rotations, in one reverse sweep.

The value is linear in the coefficients at every step. Backwards along the tape go the derivatives of the
value with respect to them: from term to term by the transpose of what the step did. What truncations dropped
stays dropped: the result is the gradient of the truncated value, with the set of dropped terms fixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tnplan.circuits.pauli_sum import PauliSum
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.device.protocols.communicator import agree
from tnplan.executor.pauli.algebra.expectation import state_values
from tnplan.executor.pauli.algebra.gates import PauliStep, Rotation, TransferMatrix, simple_steps
from tnplan.executor.pauli.algebra.tableau import absorb
from tnplan.executor.pauli.propagate import Propagator, check_steps, check_term_limits
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.terms.ledger import Dropped, total
from tnplan.executor.pauli.terms.protocol import Terms
from tnplan.executor.pauli.terms.tape import TapedTerms
from tnplan.executor.pauli.terms.truncation import Truncation

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
    steps: Sequence[PauliStep], observable: PauliSum, truncation: Truncation | None = None,
    resources: Resources | None = None, *, state: Any = None, wanted: Sequence[int] | None = None,
) -> Gradient:  # fmt: skip
    """The expectation value of `observable` after `steps`, and its derivatives by the angles of rotations.

    `state` is a bit string, Bloch vectors [qubit, 3], a `State`, or None for all 0. `wanted` are
    the numbers of the rotations (default: all); the others cost nothing where they are Cliffords. Runs on the
    CPU, on threads and ranks, and on one GPU where `on_cpu_alone` has nothing against it. Takes memory for
    every term that a rotation splits. With ranks the call is collective.

    Raises InputError for what cannot be done, or where terms and tape outgrow the memory.
    """
    rotations = {k for k, step in enumerate(steps) if isinstance(step, Rotation)}
    if wanted is not None:
        if not set(wanted) <= rotations:
            raise InputError("wanted", f"names {sorted(set(wanted) - rotations)[0]}", "name rotations")
        rotations = set(wanted)
    allowed = resources or Resources()
    with _taped(steps, observable, truncation or Truncation(), allowed, state, rotations) as taped:
        terms, n_terms, tape_bytes = taped.terms, taped.terms.all_ranks(taped.terms.n), taped.terms.tape_bytes
        of_rotations = terms.back()
        derivatives = np.zeros(len(steps), of_rotations.dtype)
        derivatives[list(taped.origins)] = np.array(taped.signs, np.float64) * of_rotations
        derivatives = np.asarray(terms.all_ranks(derivatives))  # type: ignore[type-var]
        derivatives[sorted(set(range(len(steps))) - rotations)] = 0
        ledgers = [terms.ledger] if allowed.ranks is None else allowed.ranks.gather_objects(terms.ledger)
        return Gradient(taped.value, derivatives, total(ledgers).dropped(), n_terms, tape_bytes)


def value_of_terms(
    steps: Sequence[PauliStep], observable: PauliSum, truncation: Truncation | None = None,
    resources: Resources | None = None, *, state: Any = None,
) -> Array:  # fmt: skip
    """The value of every word of `observable` after `steps`, without its coefficient: [term].

    They are the derivatives of the value by the coefficients; times these they add up to it. With a
    truncation the set of dropped terms is that of the whole sum.
    """
    allowed = resources or Resources()
    with _taped(steps, observable, truncation or Truncation(), allowed, state, set()) as taped:
        taped.terms.back()
        values = taped.terms.start_values(taped.n_start)
        return np.asarray(values[taped.term_indices] * taped.term_signs)


class TapeOfTerms(Terms, Protocol):
    """Terms with a tape of their steps, and the backward pass along it: the derivatives of the value by their
    coefficients."""

    @property
    def tape_bytes(self) -> int:
        """What the tape of this rank takes."""

    def weigh(self, state: Any) -> Any:
        """Begin the backward pass with the value of each word in a state; this rank's part of the value."""

    def back(self) -> Array:
        """Take the derivatives back to before all steps; those by the angles of rotations, in the order of
        the steps, of which every rank has a part."""

    def start_values(self, n_terms: int) -> Array:
        """The derivatives by the coefficients of the start, after the backward pass; collective."""


@dataclass(frozen=True, eq=False)
class _Taped:
    """A run with its tape, at the beginning of the backward pass.

    `n_start` terms were there at the start, `origins` and `signs` are of the rotations. The other fields are
    those of `Absorbed`, where nothing was absorbed the same of the steps themselves.
    """

    terms: TapeOfTerms
    value: complex
    n_start: int
    origins: Sequence[int]
    signs: Sequence[int]
    term_indices: Array
    term_signs: Array


def on_cpu_alone(steps: Sequence[PauliStep], sums: Sequence[PauliSum], n_ranks: int) -> str:
    """What a gradient of sums has that a GPU cannot do; empty where it can."""
    if any(isinstance(step, TransferMatrix) for step in steps):
        return "gradients through channels, and through gates that are neither rotations nor Cliffords,"
    if n_ranks > 1:
        return "gradients of Pauli sums on several ranks"
    if any(np.iscomplexobj(terms.coefficients) for terms in sums):
        return "gradients of sums with complex coefficients"
    return ""


@contextmanager
def _taped(
    steps: Sequence[PauliStep], observable: PauliSum, limits: Truncation, allowed: Resources, state: Any,
    with_derivatives: set[int],
) -> Iterator[_Taped]:  # fmt: skip
    """Run forward with a tape; Cliffords are absorbed where nothing is against it, but `with_derivatives`."""

    def check() -> int | None:
        # What a GPU cannot do is refused before memory is taken.
        n_ranks = 1 if allowed.ranks is None else allowed.ranks.size
        refused = on_cpu_alone(steps, [observable], n_ranks) if allowed.device == "gpu" else ""
        if refused:
            raise InputError("--device", f"{refused} run only on a CPU", "choose --device cpu", topic="GPUs")
        check_steps(steps, observable.n_qubits)
        check_term_limits(observable, limits, None)
        state_values(observable, state)
        share_of_terms = allowed.with_memory(TERMS_SHARE)
        return share_of_terms.max_terms(allowed.converted(observable))

    # All ranks, before the tape takes memory.
    memory_terms = check() if allowed.ranks is None else agree(allowed.ranks, check)
    # Rotations by multiples of pi/2 are Cliffords and are absorbed, but not those whose derivative is wanted.
    simple = simple_steps(steps)
    taped_steps: Sequence[PauliStep] = [
        step if k in with_derivatives else simple[k] for k, step in enumerate(steps)
    ]
    start, n = observable, observable.n_terms
    origins: Sequence[int] = range(len(taped_steps))
    signs: Sequence[int] = (1,) * len(taped_steps)
    term_indices, term_signs = np.arange(n), np.ones(n, np.int64)
    if not limits.needs_letters and not any(isinstance(step, TransferMatrix) for step in taped_steps):
        absorbed = absorb(taped_steps, observable, with_derivatives)
        taped_steps, start = absorbed.rotations, absorbed.observable
        origins, signs = absorbed.origins, absorbed.signs
        term_indices, term_signs = absorbed.term_indices, absorbed.term_signs
    rotations = [k for k, step in enumerate(taped_steps) if isinstance(step, Rotation)]
    terms = _open(allowed.converted(start), allowed)
    try:
        Propagator(terms, limits, memory_terms=memory_terms, when_full=allowed.when_full).run(taped_steps)
        value = terms.all_ranks(terms.weigh(state))
        yield _Taped(
            terms, value, start.n_terms, [origins[k] for k in rotations], [signs[k] for k in rotations],
            term_indices, term_signs,
        )  # fmt: skip
    finally:
        terms.close()


def _open(start: PauliSum, allowed: Resources) -> TapeOfTerms:
    """The store of terms with a tape."""
    if allowed.device == "gpu":
        from tnplan.executor.pauli.cuda.taped_terms import GpuTapedTerms

        return GpuTapedTerms(start, allowed.memory_bytes)
    return TapedTerms(start, allowed.threads, allowed.ranks, allowed.memory_bytes)

"""What Pauli propagation does for a question: the sums that it takes through a circuit's steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tnplan.circuits.observables.pauli_sum import PauliSum, pauli_sum
from tnplan.executor.pauli.algebra.gates import PauliStep, circuit_steps, word_masks
from tnplan.executor.pauli.algebra.states import AfterOperator, OverlapWith, State
from tnplan.questions.engines.pauli_job import program_steps
from tnplan.questions.questions import (
    AskedCircuit,
    ExpectationValues,
    Probabilities,
    ReducedDensityMatrix,
    Trace,
)


@dataclass(frozen=True, eq=False)
class PauliWork:
    """The steps of a circuit, the sums that are taken through them, and what their values are measured in."""

    steps: tuple[PauliStep, ...]
    sums: tuple[PauliSum, ...]
    state: str | State | None


def planned_sums(asked: AskedCircuit) -> PauliWork:
    """The steps, and the sums whose values the question needs."""
    gates, question, n = asked.circuit_gates, asked.question, asked.n_qubits
    steps = program_steps(asked.circuit_operations) if gates is None else circuit_steps(gates)
    state = None if asked.start is None else asked.start.measured
    if isinstance(question, ExpectationValues):
        return PauliWork(steps, question.sums, state)
    if isinstance(question, Trace):
        return PauliWork(steps, (question.b,), _measured_in(question.a, state))
    assert isinstance(question, Probabilities | ReducedDensityMatrix)
    words = [word_masks(question.qubits, word) for word in words_of(question)]
    return PauliWork(steps, tuple(pauli_sum([(x, z, 1.0)], n) for x, z in words), state)


def _measured_in(a: PauliSum, state: str | State | None) -> State:
    """What gives words W the values Tr(A W) / 2^n; in a state those of A W."""
    if state is not None:
        return AfterOperator(a, state)
    return OverlapWith(PauliSum(a.n_qubits, a.keys, np.conj(a.coefficients)))


def words_of(question: Probabilities | ReducedDensityMatrix) -> list[int]:
    """The local words that the question needs: of Z alone, or all."""
    words = range(4 ** len(question.qubits))
    if isinstance(question, ReducedDensityMatrix):
        return [*words]
    has_x = sum(1 << 2 * k for k in range(len(question.qubits)))
    return [word for word in words if not word & has_x]

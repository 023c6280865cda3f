"""Questions answered by Pauli propagation: all are values of words taken backwards through the circuit.

Noise, measurements and resets without conditions are channels, so that values are no means of runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tnplan.api.circuits.engines.outcome import EXACT, TRUNCATION, Outcome
from tnplan.api.circuits.engines.pauli_gradient import gradients_by_pauli
from tnplan.api.circuits.engines.pauli_job import check_power_of_two, pauli_needs, program_steps, resources_of
from tnplan.api.circuits.engines.task_list import Rows, TaskCheckpoint, tasks_together
from tnplan.api.circuits.options import QuestionOptions
from tnplan.api.circuits.questions import (
    AskedCircuit,
    ExpectationValues,
    Probabilities,
    ReducedDensityMatrix,
    Trace,
)
from tnplan.api.jobs.job import Job, Rank, run_job
from tnplan.executor.observables.pauli_sum import PauliSum, pauli_sum
from tnplan.executor.pauli.algebra.expectation import in_words, overlap
from tnplan.executor.pauli.algebra.gates import PauliStep, circuit_steps, local_words, word_masks
from tnplan.executor.pauli.propagate import Progress, Propagation, propagate
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.units import size_text


@dataclass(frozen=True, eq=False)
class _PauliWork:
    """The steps of a circuit, and the sums that are taken through them, each with all of its words or not."""

    n_qubits: int
    steps: tuple[PauliStep, ...]
    sums: tuple[PauliSum, ...]
    keeps_words: bool


def answer_by_pauli(asked: AskedCircuit, options: QuestionOptions, kept: TaskCheckpoint | None) -> Outcome:
    """The answer by Pauli propagation; collective under mpirun."""
    if asked.has_gradient:
        return gradients_by_pauli(asked, options)
    truncation = options.truncation or Truncation()

    def work(rank: Rank, given: tuple[_PauliWork, Rows]) -> Outcome:
        planned, done = given
        use = resources_of(rank, options.precision)
        last: list[Propagation] = []

        def one(number: int) -> Array:
            last[:] = [_propagated(rank, planned, number, truncation, use)]
            return _row(last[0])

        with rank.on_stream():
            rows = tasks_together(rank, len(planned.sums), one, done, kept, None)
        question, table = asked.question, np.array(rows)
        value, error = _traced(question, last[0]) if isinstance(question, Trace) else _finished(asked, table)
        return Outcome(
            value, error if options.truncation else 0.0, TRUNCATION if options.truncation else EXACT,
            {
                "device": rank.device.name, "ranks": rank.world.size,
                "terms": int(table[:, 3].max()), "largest_terms": int(table[:, 4].max()),
            },
        )  # fmt: skip

    job = Job(
        prepare=lambda: _with_done(_planned(asked), kept), work=work,
        needs=lambda given, n_ranks, threads: pauli_needs(given[0].sums),
        check_ranks=lambda _, n_ranks: check_power_of_two(n_ranks),
    )  # fmt: skip
    return run_job(job, options.job)


def _with_done(planned: _PauliWork, kept: TaskCheckpoint | None) -> tuple[_PauliWork, Rows]:
    """The work with the rows that an interrupted job has left of it."""
    return planned, {} if kept is None else kept.read([ROW] * len(planned.sums))


def planned_sums(asked: AskedCircuit) -> tuple[tuple[PauliStep, ...], tuple[PauliSum, ...]]:
    """The steps of a circuit, and the sums that are taken through them."""
    planned = _planned(asked)
    return planned.steps, planned.sums


def _planned(asked: AskedCircuit) -> _PauliWork:
    """The steps, and the sums whose values the question needs."""
    steps = program_steps(asked.program.operations) if asked.gates is None else circuit_steps(asked.gates)
    question, n = asked.question, asked.n_qubits
    if isinstance(question, ExpectationValues):
        return _PauliWork(n, steps, question.sums, False)
    if isinstance(question, Trace):
        return _PauliWork(n, steps, (question.b,), True)
    assert isinstance(question, Probabilities | ReducedDensityMatrix)
    words = [word_masks(question.qubits, word) for word in _words(question)]
    return _PauliWork(n, steps, tuple(pauli_sum([(x, z, 1.0)], n) for x, z in words), False)


def _words(question: Probabilities | ReducedDensityMatrix) -> list[int]:
    """The local words that the question needs: of Z alone, or all."""
    words = range(4 ** len(question.qubits))
    if isinstance(question, ReducedDensityMatrix):
        return [*words]
    has_x = sum(1 << 2 * k for k in range(len(question.qubits)))
    return [word for word in words if not word & has_x]


ROW = 5
"""The numbers of `_row`."""


def _row(found: Propagation) -> Array:
    """The numbers of a propagation: its value, the bound of its error, its terms and the most of them."""
    value = complex(found.value)
    return np.array([value.real, value.imag, found.dropped.l1, found.n_terms, found.largest])


def _finished(asked: AskedCircuit, table: Array) -> tuple[Any, Any]:
    """The value and the bound of its error, from the numbers of all propagations."""
    question = asked.question
    values, bounds = table[:, 0], table[:, 2]
    if isinstance(question, ExpectationValues):
        if any(np.iscomplexobj(one.coefficients) for one in question.sums):
            values = values + 1j * table[:, 1]
        return (values[0].item(), float(bounds[0])) if question.is_single else (values, bounds)
    assert isinstance(question, Probabilities | ReducedDensityMatrix)
    m = len(question.qubits)
    matrices = local_words(m)[_words(question)]
    density = np.einsum("w,wij->ij", values, matrices) / 2**m
    bound = float(bounds.sum()) / 2**m
    if isinstance(question, Probabilities):
        return np.diag(density).real.reshape((2,) * m), bound
    return density, bound


def _traced(question: Trace, found: Propagation) -> tuple[complex, float]:
    """The trace with A, or the value in an input, with a bound of what was dropped."""
    sizes = np.abs(question.a.coefficients)
    if question.state is None:
        a = PauliSum(question.a.n_qubits, question.a.keys, np.conj(question.a.coefficients))
        return complex(overlap(a, found.result)), float(found.dropped.l1 * sizes.max(initial=0.0))
    value = sum(c * in_words(found.result, x, z, question.state) for x, z, c in question.a.masks())
    return complex(value), float(found.dropped.l1 * sizes.sum())


def _propagated(
    rank: Rank, planned: _PauliWork, number: int, truncation: Truncation, use: Resources
) -> Propagation:
    """One sum, taken through all steps."""

    def heard(at: Progress) -> None:
        text = f"sum {number + 1} of {len(planned.sums)}: {at.terms} terms, {size_text(at.size_bytes)}"
        rank.say(number * at.steps + at.step, len(planned.sums) * at.steps, text)

    return propagate(
        planned.steps, planned.sums[number], truncation, use, keep="all" if planned.keeps_words else "none",
        progress=heard,
    )  # fmt: skip

"""Questions answered by Pauli propagation: all are values of words taken backwards through the circuit.

Noise, measurements and resets without conditions are channels, so that values are no means of runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.units import size_text
from tnplan.executor.pauli.algebra.errors import farthest
from tnplan.executor.pauli.algebra.gates import local_words
from tnplan.executor.pauli.propagate import Progress, Propagation, propagate
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.jobs.job import Job, Rank, run_job
from tnplan.questions.engines.outcome import EXACT, TRUNCATION, Outcome
from tnplan.questions.engines.pauli_gradient import gradients_by_pauli
from tnplan.questions.engines.pauli_job import check_power_of_two, pauli_needs, resources_of
from tnplan.questions.engines.pauli_monte_carlo import estimates_by_pauli
from tnplan.questions.engines.pauli_work import PauliWork, planned_sums, words_of
from tnplan.questions.engines.task_list import Rows, TaskCheckpoint, tasks_together
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import (
    AskedCircuit,
    ExpectationValues,
    Probabilities,
    ReducedDensityMatrix,
    Trace,
)


def answer_by_pauli(asked: AskedCircuit, options: QuestionOptions, kept: TaskCheckpoint | None) -> Outcome:
    """The answer by Pauli propagation; collective under mpirun."""
    if asked.has_gradient:
        return gradients_by_pauli(asked, options)
    if options.monte_carlo is not None:
        return estimates_by_pauli(asked, options, kept)
    truncation = options.truncation or Truncation()

    def work(rank: Rank, given: tuple[PauliWork, Rows]) -> Outcome:
        planned, done = given
        use = resources_of(rank, options.precision)

        def one(number: int) -> Array:
            return _row(_propagated(rank, planned, number, truncation, use))

        with rank.on_stream():
            rows = tasks_together(rank, len(planned.sums), one, done, kept, None)
        table = np.array(rows)
        value, error = _finished(asked, table)
        details = {
            "device": rank.device.name, "ranks": rank.world.size,
            "terms": int(table[:, 3].max()), "largest_terms": int(table[:, 4].max()),
        }  # fmt: skip
        if not options.truncation:
            return Outcome(value, 0.0, EXACT, details)
        error, is_vacuous = _capped(asked, value, error)
        return Outcome(value, error, TRUNCATION, {**details, "error_bound_is_vacuous": is_vacuous})

    job = Job(
        prepare=lambda: _with_done(planned_sums(asked), kept, options.resume), work=work,
        needs=lambda given, n_ranks, threads: pauli_needs(given[0].sums),
        check_ranks=lambda _, n_ranks: check_power_of_two(n_ranks),
    )  # fmt: skip
    return run_job(job, options)


def _with_done(planned: PauliWork, kept: TaskCheckpoint | None, resume: bool) -> tuple[PauliWork, Rows]:
    """The work with the rows that an interrupted job has left of it."""
    return planned, {} if kept is None else kept.rows([ROW] * len(planned.sums), resume)


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
    if isinstance(question, Trace):
        sizes = np.abs(question.a.coefficients)
        size = sizes.max(initial=0.0) if asked.start is None else sizes.sum()
        return complex(values[0], table[0, 1]), float(bounds[0] * size)
    if isinstance(question, ExpectationValues):
        if any(np.iscomplexobj(one.coefficients) for one in question.sums):
            values = values + 1j * table[:, 1]
        return (values[0].item(), float(bounds[0])) if question.is_single else (values, bounds)
    assert isinstance(question, Probabilities | ReducedDensityMatrix)
    m = len(question.qubits)
    matrices = local_words(m)[words_of(question)]
    density = np.einsum("w,wij->ij", values, matrices) / 2**m
    bound = float(bounds.sum()) / 2**m
    if isinstance(question, Probabilities):
        return np.diag(density).real.reshape((2,) * m), bound
    return density, bound


def _capped(asked: AskedCircuit, value: Any, bound: Any) -> tuple[Any, bool]:
    """The bound as far as a value can be wrong at all, and whether it says nothing of any value."""
    question = asked.question
    if not isinstance(question, ExpectationValues):
        return bound, False
    most = [farthest(one, at) for one, at in zip(question.sums, np.atleast_1d(value), strict=True)]
    capped = np.minimum(bound, most)
    is_vacuous = bool(np.all((np.atleast_1d(bound) >= most) & (np.array(most) > 0)))
    return (capped[0].item() if question.is_single else capped), is_vacuous


def _propagated(
    rank: Rank, planned: PauliWork, number: int, truncation: Truncation, use: Resources
) -> Propagation:
    """One sum, taken through all steps."""

    def heard(at: Progress) -> None:
        text = f"sum {number + 1} of {len(planned.sums)}: {at.terms} terms, {size_text(at.size_bytes)}"
        rank.say(number * at.steps + at.step, len(planned.sums) * at.steps, text)

    return propagate(
        planned.steps, planned.sums[number], truncation, use, state=planned.state, keep="none",
        progress=heard,
    )  # fmt: skip

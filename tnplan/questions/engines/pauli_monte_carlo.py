"""Expectation values and traces by Monte Carlo propagation: repetitions for each sum, and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.pauli.resources import Resources
from tnplan.executor.pauli.sampling.estimate import Estimate
from tnplan.executor.pauli.sampling.repetitions import check_sampling
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.jobs.job import Job, Needs, Rank, run_job
from tnplan.jobs.pauli.sampling import SampledValue, estimate_of_values, sample, sampling_needs
from tnplan.questions.engines.outcome import BIASED, EXACT, STATISTICAL, Outcome
from tnplan.questions.engines.pauli_work import PauliWork, planned_sums
from tnplan.questions.engines.task_list import Rows, TaskCheckpoint, tasks_together
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import AskedCircuit, ExpectationValues, Trace

Given = tuple[tuple[SampledValue, ...], Rows]


def estimates_by_pauli(
    asked: AskedCircuit, options: QuestionOptions, kept: TaskCheckpoint | None
) -> Outcome:  # fmt: skip
    """The means of repetitions with their standard errors; collective under mpirun.

    Repetition r of every sum has the same random numbers, those of `propagate` with the same `MonteCarlo`.
    """
    plan, truncation = options.monte_carlo, options.truncation or Truncation()
    assert plan is not None

    def prepare() -> Given:
        sampled = sampled_values(asked, planned_sums(asked), options)
        widths = [2 + plan.repetitions] * len(sampled)
        done = {} if kept is None else kept.rows(widths, options.resume)
        return sampled, done

    def needs(given: Given, n_ranks: int, threads: int) -> Needs:
        return sampling_needs(max(given[0], key=lambda one: one.terms.n_terms), threads, options.device)

    def work(rank: Rank, given: Given) -> Outcome:
        sampled, done = given
        use = Resources(
            device=rank.device.name, threads=rank.threads, precision=options.precision,
            ranks=rank.world if rank.world.size > 1 else None,
        )  # fmt: skip

        def one(number: int) -> Array:
            def say(repetition: int, n: int) -> None:
                text = f"sum {number + 1} of {len(sampled)}: repetition {repetition} of {n}"
                rank.say(number * n + repetition, len(sampled) * n, text)

            estimate, figures = sample(rank, sampled[number], use, None, say)
            values = np.broadcast_to(estimate.values, plan.repetitions)
            return np.concatenate([[figures["resampled"], figures["largest_terms"]], values])

        with rank.on_stream():
            rows = tasks_together(rank, len(sampled), one, done, kept, None)
        estimates = [
            estimate_of_values(row[2:].tolist(), row[0] > 0, one)
            for row, one in zip(rows, sampled, strict=True)
        ]
        return _outcome(asked, estimates, {
            "device": rank.device.name, "ranks": rank.world.size, "terms": truncation.max_terms,
            "largest_terms": int(max(row[1] for row in rows)), "monte_carlo": asdict(plan),
            "estimates": [asdict(one) for one in estimates],
        })  # fmt: skip

    return run_job(Job(prepare=prepare, work=work, needs=needs), options)


def sampled_values(
    asked: AskedCircuit, planned: PauliWork, options: QuestionOptions
) -> tuple[SampledValue, ...]:  # fmt: skip
    """What is estimated; refuses sums and truncations that cannot be resampled."""
    plan, truncation = options.monte_carlo, options.truncation or Truncation()
    assert plan is not None
    if isinstance(asked.question, Trace):
        check_sampling(asked.question.a, truncation)
    return tuple(SampledValue(planned.steps, one, planned.state, plan, truncation) for one in planned.sums)


def _outcome(asked: AskedCircuit, estimates: Sequence[Estimate], details: dict[str, Any]) -> Outcome:
    """The means and their standard errors; exact where nothing was resampled, biased where a mean is not."""
    question = asked.question
    values = np.array([one.value for one in estimates])
    errors = np.array([one.standard_error for one in estimates])
    kinds = {one.kind for one in estimates}
    kind = EXACT if kinds == {"exact"} else BIASED if BIASED in kinds else STATISTICAL
    if isinstance(question, ExpectationValues) and not question.is_single:
        return Outcome(values, 0.0 if kind == EXACT else errors, kind, details)
    value = complex(values[0]) if isinstance(question, Trace) else float(values[0])
    return Outcome(value, float(errors[0]), kind, details)

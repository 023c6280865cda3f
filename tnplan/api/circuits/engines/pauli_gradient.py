"""Expectation values with their derivatives by parameters, by Pauli propagation: a sweep back for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tnplan.api.circuits.engines.outcome import EXACT, TRUNCATION, Outcome
from tnplan.api.circuits.engines.pauli import check_power_of_two, pauli_needs, program_steps, resources_of
from tnplan.api.circuits.options import QuestionOptions
from tnplan.api.circuits.questions import AskedCircuit, ExpectationValues
from tnplan.api.jobs.job import Job, Rank, run_job
from tnplan.executor.pauli.algebra.gates import PauliStep, Rotation
from tnplan.executor.pauli.gradient import gradient
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.planner.common.arrays import Array
from tnplan.planner.networks.circuits.derivatives.dual_number import slopes_of

GRADIENTS = "gradients by Pauli propagation"


@dataclass(frozen=True, eq=False)
class _Planned:
    """The steps, of which rotations carry the slopes of their angles, and the rotations that have some."""

    steps: tuple[PauliStep, ...]
    wanted: tuple[int, ...]


def gradients_by_pauli(asked: AskedCircuit, options: QuestionOptions) -> Outcome:
    """The values and their derivatives; collective under mpirun.

    With a truncation they are the derivatives of the truncated value: what was dropped stays dropped.
    """
    question, truncation = asked.question, options.truncation or Truncation()
    assert isinstance(question, ExpectationValues)

    def prepare() -> _Planned:
        steps = program_steps(asked.program.operations)
        wanted = [k for k, step in enumerate(steps) if isinstance(step, Rotation) and slopes_of(step.angle)]
        return _Planned(steps, tuple(wanted))

    def work(rank: Rank, planned: _Planned) -> Outcome:
        use = resources_of(rank, options.precision)
        found = []
        for number, one in enumerate(question.sums, 1):
            found.append(gradient(planned.steps, one, truncation, use, wanted=planned.wanted))
            rank.say(number, len(question.sums), f"sum {number} of {len(question.sums)}")
        values = np.array([one.value.real for one in found])
        bounds = np.array([one.dropped.l1 for one in found])
        rows = [_by_parameters(planned, one.derivatives, question.names) for one in found]
        value, error = (values[0].item(), float(bounds[0])) if question.is_single else (values, bounds)
        is_cut = options.truncation is not None
        details = {
            "device": rank.device.name, "ranks": rank.world.size,
            "terms": max(one.n_terms for one in found),
            "tape_bytes": max(one.tape_bytes for one in found),
        }  # fmt: skip
        kind = TRUNCATION if is_cut else EXACT
        return Outcome(value, error if is_cut else 0.0, kind, details, np.array(rows))

    job = Job(
        prepare=prepare, work=work,
        needs=lambda _, n_ranks, threads: replace(pauli_needs(question.sums), cpu_only=GRADIENTS),
        check_ranks=lambda _, n_ranks: check_power_of_two(n_ranks),
    )  # fmt: skip
    return run_job(job, options.job)


def _by_parameters(planned: _Planned, derivatives: Array, names: Sequence[str]) -> Array:
    """The derivatives by parameters, float64 [parameter], from those by the angles of rotations."""
    row, places = np.zeros(len(names)), {name: place for place, name in enumerate(names)}
    for number in planned.wanted:
        step = planned.steps[number]
        assert isinstance(step, Rotation)
        for name, slope in slopes_of(step.angle).items():
            row[places[name]] += slope * derivatives[number].real
    return row

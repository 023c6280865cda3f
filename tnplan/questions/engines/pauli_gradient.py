"""Expectation values with their derivatives by parameters, by Pauli propagation: a sweep back for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tnplan.circuits.derivatives.dual_number import slopes_of
from tnplan.circuits.derivatives.varied_gate import VariedGate
from tnplan.circuits.program import without_final_measurements
from tnplan.common.arrays import Array
from tnplan.executor.pauli.algebra.gates import PauliStep, named_rotations
from tnplan.executor.pauli.gradient import gradient, on_cpu_alone
from tnplan.executor.pauli.terms.truncation import Truncation
from tnplan.jobs.job import Job, Rank, run_job
from tnplan.questions.engines.outcome import EXACT, TRUNCATION, Outcome
from tnplan.questions.engines.pauli_job import (
    check_power_of_two,
    operation_steps,
    pauli_needs,
    resources_of,
)
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import AskedCircuit, ExpectationValues


@dataclass(frozen=True, eq=False)
class _Planned:
    """The steps, and by the number of a rotation the slopes of its angle, where it has some."""

    steps: tuple[PauliStep, ...]
    slopes: dict[int, Mapping[str, float]]


def gradients_by_pauli(asked: AskedCircuit, options: QuestionOptions) -> Outcome:
    """The values and their derivatives; collective under mpirun.

    With a truncation they are the derivatives of the truncated value: what was dropped stays dropped.
    """
    question, truncation = asked.question, options.truncation or Truncation()
    assert isinstance(question, ExpectationValues)
    state = None if asked.start is None else asked.start.measured

    def prepare() -> _Planned:
        steps: list[PauliStep] = []
        slopes: dict[int, Mapping[str, float]] = {}
        kept, _ = without_final_measurements(asked.circuit_operations)
        for number, one in enumerate(kept):
            if not isinstance(one, VariedGate):
                steps += operation_steps(one, number)
                continue
            for turn in named_rotations(one):
                if slopes_of(turn.angle):
                    slopes[len(steps)] = slopes_of(turn.angle)
                steps.append(replace(turn, angle=float(turn.angle)))
        return _Planned(tuple(steps), slopes)

    def work(rank: Rank, planned: _Planned) -> Outcome:
        found = []
        with rank.on_stream():
            use = resources_of(rank, options.precision)
            for number, one in enumerate(question.sums, 1):
                found.append(gradient(
                    planned.steps, one, truncation, use, state=state, wanted=[*planned.slopes]
                ))  # fmt: skip
                if len(question.sums) > 1:
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
        needs=lambda planned, n_ranks, threads: replace(
            pauli_needs(question.sums), cpu_only=on_cpu_alone(planned.steps, question.sums, n_ranks)
        ),
        check_ranks=lambda _, n_ranks: check_power_of_two(n_ranks),
    )  # fmt: skip
    return run_job(job, options)


def _by_parameters(planned: _Planned, derivatives: Array, names: Sequence[str]) -> Array:
    """The derivatives by parameters, float64 [parameter], from those by the angles of rotations."""
    row, places = np.zeros(len(names)), {name: place for place, name in enumerate(names)}
    for number, slopes in planned.slopes.items():
        for name, slope in slopes.items():
            row[places[name]] += slope * derivatives[number].real
    return row

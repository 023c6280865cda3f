"""Expectation values with their derivatives by parameters, from the state vector: one sweep back for
as many observables as the memory holds states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.derivatives.dual_number import slopes_of
from tnplan.common.arrays import Array
from tnplan.common.kernels.ahead import compile_soon
from tnplan.executor.statevector.adjoint.sweep import Derivative, adjoint_gradients
from tnplan.executor.statevector.memory_estimate import GRADIENT_STATES, observables_at_once
from tnplan.executor.statevector.prepared_program import prepare_program
from tnplan.executor.statevector.scheduling.cover_samples import COVERS
from tnplan.executor.statevector.simulator import Simulator
from tnplan.jobs.job import Job, Needs, Rank, run_job
from tnplan.jobs.statevector.state import check_state_ranks, end_state, open_state, state_needs
from tnplan.questions.engines.outcome import EXACT, Outcome
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import AskedCircuit, ExpectationValues

NO_BITS = np.zeros(0, np.uint8)


def gradients_by_state(asked: AskedCircuit, options: QuestionOptions) -> Outcome:
    """The values and their derivatives; collective under mpirun."""
    question, gates, n = asked.question, asked.gates, asked.n_qubits
    assert isinstance(question, ExpectationValues)
    assert gates is not None

    def prepare() -> None:
        compile_soon([COVERS])

    def needs(_: None, n_ranks: int, threads: int) -> Needs:
        return state_needs(n, options.dtype, n_ranks, threads, GRADIENT_STATES)

    def work(rank: Rank, _: None) -> Outcome:
        values, rows, sums = [], [], question.sums
        room = rank.memory_bytes - needs(None, rank.world.size, rank.threads).cpu_bytes
        fitting = observables_at_once(len(sums), room, n, options.dtype, rank.world.size)
        together = min(rank.world.gather_objects(fitting))
        with rank.on_stream():
            state = open_state(rank, n, options.dtype, gates.gates, gradient=True)
            simulator = Simulator(state, n, seed=0)
            simulator.run(prepare_program(gates.gates), NO_BITS)
            for first in range(0, len(sums), together):
                some = sums[first : first + together]
                values += [simulator.expectation(one).real for one in some]
                found = adjoint_gradients(simulator, gates.gates, some)
                rows += [by_parameters(one, gates.gates, question.names) for one in found]
                if len(sums) > 1:
                    rank.say(len(rows), len(sums), f"{len(rows)} of {len(sums)} observables")
        end_state(rank, state)
        details = {"device": rank.device.name, "ranks": rank.world.size}
        value = values[0] if question.is_single else np.array(values)
        return Outcome(value, 0.0, EXACT, details, np.array(rows))

    job = Job(
        prepare=prepare, work=work, needs=needs,
        check_ranks=lambda _, n_ranks: check_state_ranks(n_ranks, n),
    )  # fmt: skip
    return run_job(job, options)


def by_parameters(found: Sequence[Derivative], gates: Sequence[Gate], names: Sequence[str]) -> Array:
    """The derivatives by parameters, float64 [parameter], from those by the angles of gates."""
    row, places = np.zeros(len(names)), {name: place for place, name in enumerate(names)}
    for one in found:
        for name, slope in slopes_of(gates[one.gate].params[one.parameter]).items():
            row[places[name]] += slope * one.derivative
    return row

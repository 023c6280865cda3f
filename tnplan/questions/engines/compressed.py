"""State vectors that do not fit into the memory as they are: which questions take them compressed, with how
many bits, and what their rounding may have changed. jobs/compressed_state.py has the states.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np

from tnplan.circuits.program import gates_of
from tnplan.common.errors import InputError
from tnplan.common.system_calls import cores
from tnplan.executor.device.comm.heartbeat import world_communicator
from tnplan.executor.device.cpu.host_memory import ranks_here
from tnplan.executor.statevector.memory_estimate import LARGEST
from tnplan.executor.statevector.packed_error import predicted_fidelity
from tnplan.executor.statevector.simulator import StateVector
from tnplan.jobs.compressed_state import fidelity_report, most_bits, open_compressed, planned_passes
from tnplan.jobs.job import Rank
from tnplan.jobs.statevector import state_needs
from tnplan.jobs.this_machine import this_machine
from tnplan.planner.hardware.profile import Profile
from tnplan.questions.engines.task_list import ROUNDING, Outcome
from tnplan.questions.estimates.cost import is_gpu, room_bytes
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import (
    Amplitudes,
    CircuitQuery,
    ExpectationValues,
    OpenAmplitudes,
    Probabilities,
    Sample,
)


def may_be_compressed(query: CircuitQuery, options: QuestionOptions) -> bool:
    """Whether a question has an answer from a compressed state."""
    kinds = Amplitudes | ExpectationValues | OpenAmplitudes | Probabilities | Sample
    is_of_gates = isinstance(query.question, kinds) and not (query.is_random or query.has_gradient)
    return is_of_gates and options.state_fidelity != 1


def bits_of_state(
    query: CircuitQuery, options: QuestionOptions, profile: Profile, devices: int = 1
) -> int | None:  # fmt: skip
    """The most bits with which a state fits on devices; None where it is not compressed, or does not fit."""
    n, threads, free_bytes = query.n_qubits, options.threads or cores(), room_bytes(profile)
    if not may_be_compressed(query, options) or devices & (devices - 1):
        return None
    if state_needs(n, options.dtype, devices, threads).cpu_bytes <= free_bytes:
        return None
    return most_bits(n, options.dtype, threads, is_gpu(profile), free_bytes, devices)


def bits_here(query: CircuitQuery, options: QuestionOptions) -> int | None:
    """The same on the ranks of this job, as all of them agree; collective under mpirun."""
    if not may_be_compressed(query, options):  # then ranks may have devices that are not looked at here
        return None
    world = world_communicator()
    if world is None:
        return bits_of_state(query, options, this_machine(options), options.ranks or 1)
    profiles = world.gather_objects(this_machine(replace(options, ranks=ranks_here(world))))
    # A rank's memory is the least of all, and where any has a GPU, all are taken to have one.
    profile = min(profiles, key=lambda each: (not is_gpu(each), room_bytes(each)))
    return world.broadcast_object(bits_of_state(query, options, profile, world.size), 0)


def largest_compressed(options: QuestionOptions, profile: Profile, devices: int) -> int:
    """The most qubits of a compressed state that fits on devices; 0 where none does."""
    threads, free_bytes, gpu = options.threads or cores(), room_bytes(profile), is_gpu(profile)
    fits = (
        n for n in range(LARGEST, 0, -1) if most_bits(n, options.dtype, threads, gpu, free_bytes, devices)
    )
    return next(fits, 0)


def opened(rank: Rank, query: CircuitQuery, options: QuestionOptions, bits: int, seed: int) -> StateVector:
    """A compressed state in |0...0>; refused where its fidelity is predicted to be too low."""
    gates, on_gpu = gates_of(query.program).gates, rank.device.name == "gpu"
    n_passes = planned_passes(gates, query.n_qubits, options.dtype, on_gpu, n_ranks=rank.world.size)
    _check(predicted_fidelity(bits, n_passes), options, bits, "is predicted to have about")
    return open_compressed(rank, query.program, options.dtype, bits, seed)


def _check(fidelity: float, options: QuestionOptions, bits: int, has: str) -> None:
    least = options.least_fidelity
    if fidelity < least:
        raise InputError(
            "--state-fidelity", f"is {least!r}, and a state of {bits} bits a part {has} {fidelity:.10g}",
            "ask for a lower fidelity, or allow more memory", topic="memory",
        )  # fmt: skip


def as_rounded(outcome: Outcome, query: CircuitQuery, options: QuestionOptions, state: Any) -> Outcome:
    """A value with the bound of what rounding changed, where the state is compressed.

    Refused where the fidelity of the state is estimated to be too low. Let F be the fidelity's bound. Pure
    states of this fidelity have a trace distance of sqrt(1 - F): no probability, and no distribution of
    samples, is farther off; a value of A is off by 2 |A| sqrt(1 - F) at most. The angle between the stored
    state and the exact one, with their phases, has a sine of at most sqrt(1 - F), since that is a bound of
    a distance (`packed_error`). So no amplitude is off by more than twice the sine of half the angle; where
    the bound is 0, the angle may be any.
    """
    question = query.question
    report = fidelity_report(state)
    if not report:
        return outcome
    _check(report["fidelity_estimate"], options, report["bits"], "has about")
    # One less a small number is rounded: by half of 2^-52 at most.
    lost = min(1.0, 1 - report["fidelity_bound"] + 2.0**-52)
    error: Any = sqrt(lost)
    if isinstance(question, ExpectationValues):
        error = 2 * error * np.array([np.abs(each.coefficients).sum() for each in question.sums])
        error = error[0].item() if question.is_single else error
    elif isinstance(question, Amplitudes | OpenAmplitudes):
        error = 2.0 if lost == 1 else error * sqrt(2 / (1 + sqrt(1 - lost)))
    details = {**outcome.details, **report, "error_bound_is_vacuous": lost == 1}
    return replace(outcome, error=error, error_kind=ROUNDING, details=details)

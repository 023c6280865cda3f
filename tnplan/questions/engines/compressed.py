"""State vectors that do not fit into the memory as they are: which questions take them compressed, with how many
bits, and what their rounding may have changed.

jobs/compressed_state.py has the states.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np

from tnplan.common.errors import InputError
from tnplan.executor.device.comm.launcher import launched_size
from tnplan.executor.device.cpu.host_memory import cores
from tnplan.executor.statevector.memory_estimate import LARGEST
from tnplan.executor.statevector.packed_error import predicted_fidelity
from tnplan.jobs.compressed_state import fidelity_report, most_bits, planned_passes
from tnplan.jobs.statevector import state_needs
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
    Question,
    Sample,
)


def may_be_compressed(query: CircuitQuery, options: QuestionOptions) -> bool:
    """Whether a question has an answer from a compressed state, on one rank."""
    kinds = Amplitudes | ExpectationValues | OpenAmplitudes | Probabilities | Sample
    is_of_gates = isinstance(query.question, kinds) and not (query.is_random or query.has_gradient)
    return is_of_gates and options.state_fidelity != 1 and (options.ranks or launched_size()) == 1


def bits_of_state(query: CircuitQuery, options: QuestionOptions, profile: Profile) -> int | None:
    """The most bits with which the state fits on a device; None where it is not compressed, or fits with none."""
    if not may_be_compressed(query, options):
        return None
    threads, room = options.threads or cores(), room_bytes(profile)
    if state_needs(query.n_qubits, options.dtype, 1, threads).cpu_bytes <= room:
        return None
    return most_bits(query.n_qubits, options.dtype, threads, is_gpu(profile), room)


def largest_compressed(options: QuestionOptions, profile: Profile) -> int:
    """The most qubits of a compressed state that fits on a device."""
    threads, room, gpu = options.threads or cores(), room_bytes(profile), is_gpu(profile)
    fits = (n for n in range(LARGEST, 0, -1) if most_bits(n, options.dtype, threads, gpu, room))
    return next(fits, 0)


def check_predicted(query: CircuitQuery, options: QuestionOptions, bits: int, on_gpu: bool) -> None:
    """Refuse a state that is predicted to have too low a fidelity, before it is made."""
    assert query.gates is not None
    n_passes = planned_passes(query.gates.gates, query.n_qubits, options.dtype, on_gpu)
    _check(predicted_fidelity(bits, n_passes), options, bits, "is predicted to have")


def check_reached(state: Any, options: QuestionOptions) -> None:
    """Refuse a compressed state whose estimate is too low."""
    _check(state.errors.fidelity_estimate, options, state.bits, "has")


def _check(fidelity: float, options: QuestionOptions, bits: int, has: str) -> None:
    if fidelity < options.least_fidelity:
        raise InputError(
            "--state-fidelity",
            f"is {options.least_fidelity!r}, and the state with {bits} bits a part {has} about {fidelity:.10g}",
            "ask for less, or have more memory", topic="memory",
        )  # fmt: skip


def as_rounded(outcome: Outcome, question: Question, state: Any) -> Outcome:
    """A value with the bound of what rounding changed, where the state is compressed.

    Let F be the fidelity's bound. Pure states of this fidelity have a trace distance of sqrt(1 - F): no
    probability, and no distribution of samples, is farther off; a value of A is off by 2 |A| sqrt(1 - F) at
    most. The stored state has the exact one's phase but for an angle whose sine is sqrt(1 - F) at most
    (`packed_error`: 1 - F is the square of a distance), so that no amplitude is off by more than twice the
    sine of half the angle.
    """
    report = fidelity_report(state)
    if not report:
        return outcome
    lost = 1 - report["fidelity_bound"]
    error: Any = sqrt(lost)
    if isinstance(question, ExpectationValues):
        error = 2 * error * np.array([np.abs(each.coefficients).sum() for each in question.sums])
        error = error[0].item() if question.is_single else error
    elif isinstance(question, Amplitudes | OpenAmplitudes):
        error *= sqrt(2 / (1 + sqrt(1 - lost)))
    details = {**outcome.details, **report, "error_bound_is_vacuous": lost == 1}
    return replace(outcome, error=error, error_kind=ROUNDING, details=details)

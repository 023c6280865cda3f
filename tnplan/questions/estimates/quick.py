"""What a method takes, for the choice of `method="auto"`: from bounds, greedy paths and short pilots."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from tnplan.common.system_calls import cores
from tnplan.planner.hardware.profile import Profile
from tnplan.questions.engines.compressed import bits_of_state
from tnplan.questions.estimates.chain_cost import chain_cost
from tnplan.questions.estimates.contraction_cost import quick_contraction_cost
from tnplan.questions.estimates.cost import Cost, is_gpu, of_threads, room_bytes, slowness
from tnplan.questions.estimates.pauli_pilot import PILOT_FACTOR, pauli_cost
from tnplan.questions.estimates.state_cost import (
    compressed_cost,
    least_devices,
    profile_of_state,
    state_cost,
)
from tnplan.questions.options import QuestionOptions
from tnplan.questions.questions import CircuitQuery

PILOT = "mps by a pilot"
"""Matrix product states again, by applying the gates for a limited time."""
PILOTS = 4
"""The time of all runs of a pilot, longer and longer ones, in that of the last."""
ONE_SUM_TIMES = 2.0
"""What other sums may take, in the time of the one with a pilot."""
PREPARE_GATE_S = 1e-4
"""Seconds to prepare a gate for Pauli propagation, where `slowness` is 1."""
PLANNED_GATES = 200
"""Gates of a state vector that are planned to predict the time of all."""


@dataclass(frozen=True)
class LookBudget:
    """What a look at a method may take: `best_s` seconds are what the best other method takes; a pilot may
    take `limit_s`, with its preparation where another method answers."""

    best_s: float
    limit_s: float


def quick_cost(
    method: str, query: CircuitQuery, options: QuestionOptions, profile: Profile, devices: int,
    budget: LookBudget,
) -> Cost | None:  # fmt: skip
    """The cost on a number of devices; None where the method does not fit or cannot be the best."""
    cost = _whole_cost(method, query, options, profile, devices, budget)
    return cost and cost.of_circuits(query.circuits_of("mps" if method == PILOT else method))


def _whole_cost(
    method: str, query: CircuitQuery, options: QuestionOptions, profile: Profile, devices: int,
    budget: LookBudget,
) -> Cost | None:  # fmt: skip
    """The same for the whole circuit once."""
    best_s, limit_s = budget.best_s, budget.limit_s
    if method == "statevector":
        profile = profile_of_state(query, profile, options, devices)
    threads = 1 if is_gpu(profile) else options.threads or cores()
    if method == "statevector":
        least = least_devices(query, profile, options.precision, threads)
        if least is None or least > devices:
            bits = bits_of_state(query, options, profile, devices)
            if bits is None:
                return None
            cost = compressed_cost(query, profile, options, bits, PLANNED_GATES, devices)
            return cost if cost and cost.fidelity and cost.fidelity >= options.least_fidelity else None
        return state_cost(query, profile, options, devices, threads, PLANNED_GATES)
    if method == "contraction":
        shared = of_threads(profile, threads)
        return quick_contraction_cost(query, shared, options.precision, best_s, limit_s)
    if method == "mps":
        return chain_cost(query, profile, options, 0.0)
    if method == PILOT:
        return chain_cost(query, profile, options, limit_s)
    if best_s < inf and slowness() * PREPARE_GATE_S * len(query.program.operations) > limit_s:
        return None
    cost = pauli_cost(query, profile, options, threads, limit_s / PILOTS, 1)
    # Growth beyond the pilot counts at the upper end of its range: other sums may grow faster.
    growth = ONE_SUM_TIMES * cost.factor / PILOT_FACTOR
    if growth * cost.memory_bytes > room_bytes(profile) * devices:
        return None
    return replace(cost, time_s=growth * cost.time_s)

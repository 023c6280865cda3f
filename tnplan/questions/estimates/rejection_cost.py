"""The cost of samples by rejection: the candidates of each round, and the one contraction that a round is.

A random circuit's probabilities have the mean 2^-n, so that one candidate in `BOUND` is taken on average.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil
from time import perf_counter

import numpy as np

from tnplan.circuits.circuit import GateSequence
from tnplan.common.errors import InputError
from tnplan.common.memory import ITEM_BYTES
from tnplan.executor.contraction.sparse_state import peak_elements
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.hardware.profile import Profile, load_profile
from tnplan.planner.sparse_state import SHORTEST_SEARCH_S, distinct_strings, worth_searching_s
from tnplan.questions.estimates.cost import SAMPLES_FACTOR, Cost, is_gpu, room_bytes
from tnplan.questions.methods import LARGEST_OF_SAMPLES
from tnplan.questions.questions import Sample
from tnplan.questions.tensor_networks.sample import expected_rounds, random_candidates
from tnplan.questions.tensor_networks.sparse_state import SparseState, batch_s

LONG_SEARCH_S = 2 * SHORTEST_SEARCH_S


def rejection_cost(
    circuit: GateSequence, question: Sample, profile: Profile, precision: str, devices: Sequence[int]
) -> dict[int, Cost]:
    """What samples by rejection take on each number of devices on which a round fits; they share the shots.

    Rounds run on CPUs, on a machine with GPUs too.
    """
    here = load_profile("cpu") if is_gpu(profile) else profile
    costs = {}
    for count in devices:
        shots = ceil(question.shots / count)
        # Candidates come in rounds, and rounds of one size cost the same.
        rounds = Counter(expected_rounds(shots))
        costs_of_rounds = [
            (times, cost) for size, times in rounds.items()
            if (cost := _round(circuit, question, size, here, precision))
        ]  # fmt: skip
        if len(costs_of_rounds) < len(rounds):
            continue
        memory = max(size_bytes for _, (size_bytes, _) in costs_of_rounds)
        seconds = sum(times * round_s for times, (_, round_s) in costs_of_rounds)
        # The exact probabilities of the samples.
        if question.fidelity < 1 and circuit.n_qubits <= LARGEST_OF_SAMPLES:
            exact = _round(circuit, Sample(shots, "rejection"), shots, here, precision)
            seconds += exact[1] if exact else 0.0
        costs[count] = Cost(count, memory, seconds, SAMPLES_FACTOR)
    return costs


def _round(
    circuit: GateSequence, question: Sample, size: int, profile: Profile, precision: str
) -> tuple[float, float] | None:
    """Bytes and seconds of a round of so many candidates: its search, and its contraction.

    None where it does not fit under the memory.
    """
    n_qubits = circuit.n_qubits
    n_open = min(question.open_qubits, n_qubits)
    strings = random_candidates(size, n_qubits, n_open, np.random.default_rng(0))
    options = ContractionOptions(
        device="cpu", hardware=profile, memory=float(room_bytes(profile)), precision=precision
    )
    search_s = 0.0
    for _ in range(2):  # the first loads kernels, if any
        begin = perf_counter()
        try:
            state = SparseState(circuit, distinct_strings(strings)[0], options, SHORTEST_SEARCH_S)
        except InputError:
            return None
        if question.fidelity < 1:
            state.slice_more(ceil(1 / question.fidelity))
        search_s = perf_counter() - begin
        if search_s < LONG_SEARCH_S:
            break
    search_s += worth_searching_s(state.plan, state.products_per_s)
    # Fidelity f is the share of slices that are summed, at least one (Markov et al., arXiv
    # 1807.10749).
    share = max(1, round(question.fidelity * state.plan.n_slices)) / state.plan.n_slices
    size_bytes = ITEM_BYTES[state.dtype] * peak_elements(state.plan)
    return size_bytes, search_s + share * batch_s(state.plan, state.products_per_s, state.dtype, profile)

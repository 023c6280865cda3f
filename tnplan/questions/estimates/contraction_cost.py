"""The cost of contraction: the networks of a question, a short search, and the planner's projection.

Samples by rejection: the candidates of each round, and the one contraction that a round is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import ceil, inf, prod
from time import perf_counter
from typing import Any

import numpy as np

from tnplan.circuits.bond_bounds import log2_cuts
from tnplan.circuits.circuit import GateSequence
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.arrays.planning import batched_network, find_path
from tnplan.jobs.statevector import DTYPES
from tnplan.planner.hardware.cost import FLOPS_PER_PRODUCT, ITEM_BYTES
from tnplan.planner.hardware.profile import Profile, load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.importers.subscripts import EinsumCall
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.of_circuits.amplitude_network import (
    circuit_network,
    overlap_network,
    trace_network,
)
from tnplan.planner.networks.of_circuits.sandwich import density_network, marginal_network, sandwich
from tnplan.planner.networks.of_circuits.steps import Step, steps_of
from tnplan.planner.networks.of_circuits.wires import OpenNetwork, Support, by_support, support_of
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.projection.projection import project
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_in_proportion import (
    ANNEALING_FROM_S,
    LONGER,
    ORDERS_TENSOR_S,
    TRIALS_FROM_S,
    SearchLimit,
    greedy_or_orders,
    predicted_s,
    search_share_s,
)
from tnplan.planner.search.search_options import TENSORS_AT_ONCE
from tnplan.planner.search.sparse_state import SHORTEST_SEARCH_S, distinct_strings, worth_searching_s
from tnplan.questions.estimates.cost import (
    CONTRACTION_FACTOR,
    GRADIENT_TIME,
    SAMPLES_FACTOR,
    Cost,
    first_use_s,
    is_gpu,
    room_bytes,
    slowness,
)
from tnplan.questions.methods import LARGEST_OF_SAMPLES
from tnplan.questions.questions import (
    Amplitudes,
    CircuitQuery,
    ExpectationValues,
    InputState,
    OpenAmplitudes,
    Overlap,
    Probabilities,
    ReducedDensityMatrix,
    Sample,
    Trace,
)
from tnplan.questions.tensor_networks.amplitudes import pairs_of_trace
from tnplan.questions.tensor_networks.expectation import word_network
from tnplan.questions.tensor_networks.networks import START_S, closed_by_leaves, preparing_s
from tnplan.questions.tensor_networks.sample import expected_rounds, random_candidates
from tnplan.questions.tensor_networks.samples_by_gates import (
    GROUP,
    MOST_CHANGED,
    WAYS,
    Maker,
    cheaper_way,
    networks_by_gates,
    networks_of_chain,
    why_not_by_gates,
)
from tnplan.questions.tensor_networks.samples_by_xeb import plan_bunches
from tnplan.questions.tensor_networks.sparse_state import SparseState, batch_s

GRADIENT_MEMORY = 3
"""The memory of a reverse schedule that keeps its values, in that of the schedule of the value alone."""
REAL_DTYPES = {"fp64": "float64", "fp32": "float32"}
CHAIN_PRODUCTS = 8.0
"""Multiply-adds of a gate for each pair of bonds of ket and bra."""
STRINGS_POWER = 0.6
"""Amplitudes of many strings share work: they take about this power of their number, in the time of one."""
LONGEST_IN_ALL_S = 10.0
"""Seconds of all searches of an estimate, where no time is stated."""
MOST_NETWORKS = 8
"""Networks that are searched; of more, some stand for all."""
LEAST_SHARE = 0.01
"""Smaller networks are left out where all of them together are below this share of the time."""
QUICK_NETWORKS = 1
"""The same where a method is chosen."""
NO_TIME = 0.5
"""Operations that take less than this share of what preparing a network does need no path."""
QUICK_TENSOR_S, STRINGS_S, STRING_S = 9e-5, 1e-4, 4e-7
"""Seconds to make a network and a greedy path, for each of its gates; and for each qubit those of several
strings instead of one, and of a string; where `slowness` is 1."""
SEARCH_S = 0.5
"""Seconds of the search that a contraction makes above the greedy path's `ANNEALING_FROM_S`."""
GREEDY_FACTOR = 4.0
"""By how much the time by a greedy path may be off."""
MOST_SLICING = 2.0**40
"""How much larger than the memory the largest tensor of a greedy path may be: a search makes it smaller, and
slices the rest."""


@dataclass(frozen=True)
class _Repeated:
    """A network that is contracted `count` times; it had `n_tensors` before it was simplified.

    A `batch` is contracted at once, in which only the inputs from number `n_fixed` on differ.
    """

    network: Network
    count: int
    n_tensors: int
    batch: int = 1
    n_fixed: int = 0
    is_real: bool = False

    @property
    def changing(self) -> range:
        """The numbers of the inputs that differ within a batch."""
        return range(self.n_fixed, len(self.network.inputs))

    def batched(self, batch: int) -> Network:
        """The network of so many of the batch at once."""
        return self.network if batch == 1 else batched_network(self.network, batch, self.changing)

    def start_s(self, path: ContractionPath, has_gradient: bool) -> float:
        """Seconds to make, simplify, plan and bind it, where `slowness` is 1."""
        run_s = inf if has_gradient else self.batch * predicted_s(path, load_profile("cpu"))
        return preparing_s(self.n_tensors, len(self.network.inputs), run_s)


def contraction_cost(
    query: CircuitQuery, profile: Profile, precision: str, devices: Sequence[int], search_s: float | None
) -> tuple[dict[int, Cost], bool]:
    """What a question takes on each number of devices on which it fits; whether a longer search may cut it.

    `search_s` is for each path; None: in proportion, as a contraction searches, up to `LONGEST_IN_ALL_S`.
    """
    question = query.question
    if isinstance(question, Sample) and question.sampling == "rejection":
        assert query.gates is not None
        return rejection_cost(query.gates, question, profile, precision, devices), False
    if isinstance(question, Sample):
        query = query.deferred
    if isinstance(question, Sample) and question.sampling == "auto":
        steps = steps_of(query.circuit, "circuit")
        way = cheaper_way(steps, query.n_qubits, question.shots, query.n_drawn)
        query = replace(query, question=replace(question, sampling=way))
    dtypes, (chosen, share) = _dtypes(precision), _representatives(query, MOST_NETWORKS)
    costs, slow = dict.fromkeys(devices, (0.0, 0.0)), slowness()
    left_s, is_cut = LONGEST_IN_ALL_S, False
    # Of samples the later networks are larger: from the last on, until those that are left do not count.
    for n_left, repeated in reversed([*enumerate(chosen)]):
        limit = SearchLimit(left_s / (n_left + 1))
        left_s -= limit.left_s
        try:
            path = _path(repeated, profile, dtypes[repeated.is_real], search_s, limit)
            of_count = _of_batch(repeated, path, profile, devices)
        except InputError:  # a repeated of ours: no path fits under the memory
            return {}, False
        left_s += limit.left_s
        is_cut |= limit.is_cut
        others_matter = False
        # Memory is the largest of all networks, time their sum; a number of devices drops out with
        # the first repeated that does not fit.
        for count, (memory, time_s) in [*costs.items()]:
            if count not in of_count:
                del costs[count]
                continue
            its_memory, its_time_s = of_count[count]
            whole_s = slow * repeated.start_s(path, query.has_gradient) + repeated.count * its_time_s
            costs[count] = max(memory, its_memory), time_s + share * whole_s
            others_matter |= n_left * share * whole_s >= LEAST_SHARE * costs[count][1]
        if isinstance(question, Sample) and not others_matter:
            break
    time, space = (GRADIENT_TIME, GRADIENT_MEMORY) if query.has_gradient else (1, 1)
    factor = SAMPLES_FACTOR if isinstance(question, Sample) else CONTRACTION_FACTOR
    found_costs = {
        count: Cost(count, space * memory, time * (time_s + first_use_s(memory, profile)), factor)
        for count, (memory, time_s) in costs.items()
    }
    return found_costs, is_cut


def _dtypes(precision: str) -> dict[bool, str]:
    """The dtype of networks that are complex, and of those that are real."""
    return {False: DTYPES[precision], True: REAL_DTYPES[precision]}


def _representatives(query: CircuitQuery, most: int) -> tuple[list[_Repeated], float]:
    """Some of the networks of a question, and how many each stands for: neighbours are alike."""
    makers = _networks(query)
    step = -(-len(makers) // most) if makers else 1
    # Of samples the later networks are larger.
    first = 3 * step // 4 if isinstance(query.question, Sample) else step // 2
    chosen = makers[first::step]
    return [make() for make in chosen], len(makers) / max(1, len(chosen))


def quick_contraction_cost(
    query: CircuitQuery, profile: Profile, precision: str, best_s: float, limit_s: float
) -> Cost | None:
    """What a question takes on one device, from greedy paths of some networks; None where none fits.

    `best_s` is what the best other method takes. No network is built where preparing all of them takes longer
    than that, or where building one takes longer than `limit_s`.
    """
    question = query.question
    if isinstance(question, Sample) and question.sampling == "rejection":
        assert query.gates is not None
        return rejection_cost(query.gates, question, profile, precision, (1,)).get(1)
    if isinstance(question, Sample):
        query = query.deferred
    if isinstance(question, Sample) and question.sampling == "auto":
        of_both = [
            quick_contraction_cost(
                replace(query, question=replace(question, sampling=way)),
                profile,
                precision,
                best_s,
                limit_s / len(WAYS),
            )
            for way in (("chain",) if why_not_by_gates(steps_of(query.circuit, "circuit")) else WAYS)
        ]
        return min((cost for cost in of_both if cost), key=lambda cost: cost.time_s, default=None)
    # First without a network: an order that needs no search bounds the time from above, and preparing all
    # networks from below. Only where these leave the choice open are some networks built and searched.
    slow, n_networks = slowness(), _count(query)
    n_steps, products = _cheap_order(query)
    each_s = slow * (START_S + QUICK_TENSOR_S * n_steps)
    bound_s = products * FLOPS_PER_PRODUCT["complex128"] / profile.rate(DTYPES[precision], precision)
    is_built = n_networks * each_s <= best_s and (best_s == inf or QUICK_NETWORKS * each_s <= limit_s)
    if bound_s < NO_TIME * each_s or (bound_s < inf and not is_built):
        strings = len(question.bits) if isinstance(question, Amplitudes) else 0
        strings_s = query.n_qubits * (STRINGS_S * (strings > 1) + STRING_S * strings)
        time_s = n_networks * (each_s + bound_s) + slow * strings_s
        return Cost(1, 0.0, time_s, GREEDY_FACTOR)
    if not is_built:
        return None
    chosen, share = _representatives(query, QUICK_NETWORKS)
    total_s = memory = 0.0
    for repeated in chosen:
        dtype = _dtypes(precision)[repeated.is_real]
        if ITEM_BYTES[dtype] * _least_elements(repeated.network) > room_bytes(profile):
            return None
        path = ContractionPath(repeated.network, greedy_or_orders(repeated.network, dtype), (), dtype)
        time_s = predicted_s(path, profile)
        memory = max(memory, TENSORS_AT_ONCE * ITEM_BYTES[dtype] * 2.0 ** path_cost(path).log2_largest)
        orders_s = ORDERS_TENSOR_S * len(repeated.network.inputs)
        # A path that takes less time than other orders would to be tried is contracted as it is.
        is_greedy = time_s < max(TRIALS_FROM_S, orders_s)
        search_s = 0.0 if is_greedy else orders_s if time_s < ANNEALING_FROM_S else SEARCH_S
        whole_s = slow * repeated.start_s(path, query.has_gradient) + search_s
        total_s += share * (whole_s + repeated.count * repeated.batch * time_s)
    if memory > room_bytes(profile) * MOST_SLICING:
        return None
    time = GRADIENT_TIME if query.has_gradient else 1.0
    return Cost(1, min(memory, room_bytes(profile)), time * total_s, GREEDY_FACTOR)


def _least_elements(network: Network) -> int:
    """The elements that no slicing makes fewer: those of the inputs and of the output."""
    size = network.size_dict
    return sum(prod(size[mode] for mode in modes) for modes in (*network.inputs, network.output))


def _count(query: CircuitQuery) -> int:
    """How many networks a question has, at least."""
    question = query.question
    if isinstance(question, ExpectationValues):
        return len({x | z for observable in question.sums for x, z, _ in observable.masks()})
    if not isinstance(question, Sample):
        return 1
    if question.sampling == "gates":
        return -(-query.n_qubits // MOST_CHANGED)
    return -(-query.n_drawn // GROUP)


def _cheap_order(query: CircuitQuery) -> tuple[int, float]:
    """The operations of a network, and an estimate of the multiply-adds of an order that needs no search;
    infinite where none is known.

    An expectation value takes two state vectors of the qubits in a middle light cone, or goes from end to end
    of a chain through all that crosses each of its bonds, twice; amplitudes go through once.
    """
    question, operations = query.question, query.program.operations
    if isinstance(question, ExpectationValues):
        words = [x | z for observable in question.sums for x, z, _ in observable.masks()]
        cone, count = words[len(words) // 2], 0
        for operation in reversed(operations):
            mask = sum(1 << qubit for qubit in getattr(operation, "qubits", ()))
            if mask & cone:
                cone |= mask
                count += 1
        products = 2.0 * count * 2.0 ** min(cone.bit_count(), 300)
        if query.gates is not None and not query.stops:
            chains = _through_chain(query, 4.0)
            products = min(products, CHAIN_PRODUCTS * (1 + count / query.n_qubits) * chains)
        return count, products
    if isinstance(question, Amplitudes) and query.gates is not None:
        n_gates = 1 + len(operations) / query.n_qubits
        return len(operations), len(question.bits) * n_gates * _through_chain(query, 2.0)
    return len(operations), inf


def _through_chain(query: CircuitQuery, base: float) -> float:
    """The sum over the bonds of a chain of base^(what crosses it in bits)."""
    return float((base ** np.minimum(log2_cuts(query.acting, query.chain[0]), 300)).sum())


def _of_batch(
    repeated: _Repeated, path: ContractionPath, profile: Profile, devices: Sequence[int]
) -> dict[int, tuple[float, float]]:
    """Bytes a device and seconds of a whole batch, or of as large a half, quarter, ... of it as fits."""

    def of_part(size: int) -> dict[int, tuple[float, float]]:
        costs = _project(replace(path, network=repeated.batched(size)), profile, devices)
        times = -(-repeated.batch // size)
        return {count: (memory, times * time_s) for count, (memory, time_s) in costs.items()}

    sizes = [repeated.batch]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // 2))
    # The whole batch fits nearly always; otherwise a bisection, since what fits does so in smaller parts too.
    best: dict[int, tuple[float, float]] = {}
    first, last, number = 0, len(sizes) - 1, 0
    while first <= last:
        try:
            costs = of_part(sizes[number])
        except InputError:
            if sizes[number] == 1:
                raise
            costs = {}
        if costs:
            best, last = costs, number - 1
        else:
            first = number + 1
        number = (first + last) // 2
    return best


def _path(
    repeated: _Repeated, profile: Profile, dtype: str, search_s: float | None, limit: SearchLimit
) -> ContractionPath:  # fmt: skip
    """The path that a contraction takes; or that of a search of `search_s` where it would search for long."""
    network = repeated.network
    options = ContractionOptions(
        optimize="greedy", hardware=profile, device="cpu", memory=float(room_bytes(profile)),
        calls=repeated.batch, changing=tuple(repeated.changing) if repeated.batch > 1 else None,
    )  # fmt: skip
    operands = tuple(network.shape(number) for number in range(len(network.inputs)))
    request = EinsumCall(network.inputs, network.output, network.size_dict, operands)
    if search_s is None:
        return find_path(request, dtype, replace(options, optimize="auto", search_limit=limit))
    # A greedy path first. Where it is short, a contraction's own search is too, and is made as it
    # would be; otherwise the search has a limit of time.
    path = find_path(request, dtype, options)
    needed = TENSORS_AT_ONCE * ITEM_BYTES[dtype] * 2 ** path_cost(path).log2_largest
    is_short = predicted_s(path, profile) < ANNEALING_FROM_S and needed < room_bytes(profile)
    path = find_path(
        request, dtype, replace(options, optimize="auto", search_s=None if is_short else search_s)
    )
    whole_s = repeated.batch * predicted_s(path, profile)
    limit.is_cut = not is_short and search_share_s(whole_s) > LONGER * search_s
    return path


def _project(
    path: ContractionPath, profile: Profile, devices: Sequence[int]
) -> dict[int, tuple[float, float]]:
    """Bytes a device and seconds, for each number of devices that the path fits on."""
    if not path.ssa_path:
        return dict.fromkeys(devices, (0.0, 0.0))
    rows = project([path], profile, devices).rows
    return {row.devices: (row.peak_bytes, row.time_s) for row in rows}


def _networks(query: CircuitQuery) -> list[Callable[[], _Repeated]]:
    """What makes each of the networks that are contracted."""
    question, n = query.question, query.n_qubits
    circuit: Any = query.circuit
    steps = () if isinstance(question, Amplitudes | OpenAmplitudes) else steps_of(circuit, "circuit")
    if isinstance(question, Amplitudes | OpenAmplitudes):
        opened, count = getattr(question, "open_qubits", ()), len(getattr(question, "bits", (0,)))
        text = "".join("." if q in opened else "0" for q in range(n))
        return [lambda: _simple(*circuit_network(circuit, text), round(count**STRINGS_POWER))]
    if isinstance(question, ExpectationValues):
        supports = by_support(word for observable in question.sums for word in observable.masks()).items()
        of_words = partial(_of_words, steps, query.has_gradient)
        return [partial(of_words, support, [*words]) for support, words in supports if support.qubits]
    if isinstance(question, Sample):
        by_gates = question.sampling == "gates"
        networks: Any = networks_by_gates if by_gates else networks_of_chain
        n = n if by_gates else query.n_drawn
        return [partial(_of_samples, make) for make in networks(steps, n, question.shots)]
    if isinstance(question, Probabilities):
        return [lambda: _closed(marginal_network(steps, question.qubits))]
    if isinstance(question, ReducedDensityMatrix):
        return [lambda: _simple(*density_network(steps, question.qubits))]
    if isinstance(question, Overlap):
        return [lambda: _simple(*overlap_network(circuit.gates, question.other.gates, n))]
    assert isinstance(question, Trace)
    return _of_trace(circuit, question, query.start)


def _of_words(
    steps: Sequence[Step], has_gradient: bool, support: Support, words: Sequence[tuple[int, int]]
) -> _Repeated:
    """The network of the words on a support, which differ in the tensors at its end: a batch."""
    if has_gradient:  # which goes through a network with ket and bra
        return _closed(sandwich(steps, support), len(words))
    opened = word_network(steps, support, words)
    is_real = not any(map(np.iscomplexobj, opened.arrays))
    return _Repeated(opened.network, len(words), opened.n_tensors, is_real=is_real)


def _of_samples(make: Maker) -> _Repeated:
    """A network of samples, with the most strings that close it."""
    opened, count = make()
    return _closed(opened, batch=count)


def _of_trace(
    circuit: GateSequence, question: Trace, start: InputState | None
) -> list[Callable[[], _Repeated]]:
    """A network for each pair of words of A and B."""
    if start is not None:
        preparation = start.circuit(circuit.n_qubits)
        pairs = pairs_of_trace(circuit, question.a, question.b, preparation)
        return [
            lambda ket=ket, bra=bra: _simple(*overlap_network(ket.gates, bra.gates, circuit.n_qubits))  # type: ignore[misc]
            for _, ket, bra in pairs
        ]

    def of_pair(x: int, z: int, u: int, v: int) -> _Repeated:
        return _closed(trace_network(circuit.gates, support_of(x, z), support_of(u, v))[0])

    return [
        partial(of_pair, x, z, u, v)
        for (x, z, _), (u, v, _) in product(question.a.masks(), question.b.masks())
    ]


def _simple(network: Network, arrays: Sequence[Any], count: int = 1) -> _Repeated:
    return _Repeated(simplify(network, arrays)[0], count, len(arrays))


def _closed(opened: OpenNetwork, count: int = 1, batch: int = 1) -> _Repeated:
    """A network with its further tensors, which differ within a batch."""
    network = simplify(opened.network, opened.arrays)[0]
    return _Repeated(closed_by_leaves(network, opened), count, len(opened.arrays), batch, len(network.inputs))


def rejection_cost(
    circuit: GateSequence, question: Sample, profile: Profile, precision: str, devices: Sequence[int]
) -> dict[int, Cost]:
    """What samples by rejection take on each number of devices, which share the shots, if a round fits."""
    costs = {}
    for count in devices:
        shots = ceil(question.shots / count)
        if question.xeb is not None:
            bunches = _bunches(circuit, shots, question.xeb, profile, precision)
            if bunches is not None:
                costs[count] = Cost(count, *bunches, SAMPLES_FACTOR)
                continue
        # Candidates come in rounds, and rounds of one size cost the same.
        rounds = Counter(expected_rounds(shots))
        costs_of_rounds = [
            (times, cost) for size, times in rounds.items()
            if (cost := _round(circuit, question, size, profile, precision))
        ]  # fmt: skip
        if len(costs_of_rounds) < len(rounds):
            continue
        memory = max(size_bytes for _, (size_bytes, _) in costs_of_rounds)
        seconds = sum(times * round_s for times, (_, round_s) in costs_of_rounds)
        # The exact probabilities of the samples.
        if question.fidelity < 1 and circuit.n_qubits <= LARGEST_OF_SAMPLES:
            exact = _round(circuit, Sample(shots, "rejection"), shots, profile, precision)
            seconds += exact[1] if exact else 0.0
        costs[count] = Cost(count, memory, seconds, SAMPLES_FACTOR)
    return costs


def _of_strings(profile: Profile, precision: str) -> ContractionOptions:
    """How many strings at once are contracted on a device of a profile."""
    return ContractionOptions(
        device="gpu" if is_gpu(profile) else "cpu", hardware=profile, memory=float(room_bytes(profile)),
        precision=precision,
    )  # fmt: skip


def _bunches(
    circuit: GateSequence, shots: int, xeb: float, profile: Profile, precision: str
) -> tuple[float, float] | None:
    """Bytes and seconds of samples of a linear cross-entropy; None where rejection draws them."""
    options = _of_strings(profile, precision)
    begin = perf_counter()
    plan = plan_bunches(circuit, shots, xeb, np.random.default_rng(0), options)
    if plan is None:
        return None
    return plan.state.needed_bytes, perf_counter() - begin + plan.time_s


def _round(
    circuit: GateSequence, question: Sample, size: int, profile: Profile, precision: str
) -> tuple[float, float] | None:
    """Bytes and seconds of a round of so many candidates: its search, and its contraction.

    None where it does not fit under the memory.
    """
    n_qubits = circuit.n_qubits
    n_open = min(question.open_qubits, n_qubits)
    strings = random_candidates(size, n_qubits, n_open, np.random.default_rng(0))
    options = _of_strings(profile, precision)
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
        if search_s < 2 * SHORTEST_SEARCH_S:
            break
    search_s += worth_searching_s(state.plan, state.products_per_s)
    # Fidelity f is the share of slices that are summed, at least one (Markov et al., arXiv 1807.10749).
    share = max(1, round(question.fidelity * state.plan.n_slices)) / state.plan.n_slices
    if state.device == "gpu":
        return state.needed_bytes, search_s + share * state.predicted_s
    once_s = batch_s(state.plan, state.products_per_s, state.dtype, profile)
    return state.needed_bytes, search_s + share * once_s

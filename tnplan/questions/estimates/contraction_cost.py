"""The cost of contraction: the networks of a question, a short search, and the planner's projection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from tnplan.circuits.circuit import GateSequence
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.arrays.planning import batched_network, find_path
from tnplan.jobs.statevector.state import DTYPES
from tnplan.planner.hardware.cost import ITEM_BYTES
from tnplan.planner.hardware.profile import Profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.importers.subscripts import EinsumCall
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.of_circuits.amplitude_network import (
    circuit_network,
    overlap_network,
    trace_network,
)
from tnplan.planner.networks.of_circuits.sandwich import (
    density_network,
    marginal_network,
    sandwich,
)
from tnplan.planner.networks.of_circuits.steps import steps_of
from tnplan.planner.networks.of_circuits.wires import OpenNetwork, by_support, support_of
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.projection.projection import project
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_in_proportion import ANNEALING_FROM_S, predicted_s
from tnplan.planner.search.search_options import TENSORS_AT_ONCE
from tnplan.questions.estimates.cost import (
    EXACT_FACTOR,
    GRADIENT_TIME,
    SAMPLES_FACTOR,
    Cost,
    first_use_s,
    room_bytes,
    slowness,
)
from tnplan.questions.estimates.rejection_cost import rejection_cost
from tnplan.questions.questions import (
    Amplitudes,
    AskedCircuit,
    ExpectationValues,
    InputState,
    OpenAmplitudes,
    Overlap,
    Probabilities,
    ReducedDensityMatrix,
    Sample,
    Trace,
)
from tnplan.questions.tensor_networks.expectation import word_network
from tnplan.questions.tensor_networks.networks import closed_by_leaves
from tnplan.questions.tensor_networks.overlap import pairs_of_trace
from tnplan.questions.tensor_networks.sample import chain_groups

START_S, TENSOR_S = 0.0012, 3.2e-5
"""Seconds to make and simplify a network, and for each of its tensors, where `slowness` is 1."""
PLAN_S, PLANNED_TENSOR_S = 0.003, 3.8e-4
"""The same to plan and bind what is left of it, its path being known, and for each tensor there."""
GRADIENT_MEMORY = 3
"""The memory of a reverse schedule that keeps its values, in that of the schedule of the value alone."""
REAL_DTYPES = {"fp64": "float64", "fp32": "float32"}
MOST_NETWORKS = 8
"""Networks that are searched; of more, some stand for all."""


@dataclass(frozen=True)
class _Asked:
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

    @property
    def start_s(self) -> float:
        """Seconds to make, simplify, plan and bind it, where `slowness` is 1."""
        made_s, n_left = START_S + TENSOR_S * self.n_tensors, len(self.network.inputs)
        return made_s if n_left == 1 else made_s + PLAN_S + PLANNED_TENSOR_S * n_left


def contraction_cost(
    asked: AskedCircuit, profile: Profile, precision: str, devices: Sequence[int], search_s: float
) -> dict[int, Cost]:
    """What a question takes on each number of devices on which it fits."""
    question = asked.question
    if isinstance(question, Sample) and question.sampling == "rejection":
        assert asked.gates is not None
        return rejection_cost(asked.gates, question, profile, precision, devices)
    dtypes, networks = {False: DTYPES[precision], True: REAL_DTYPES[precision]}, [*_networks(asked)]
    # Every k-th network stands for k: neighbours in the order of cones are alike.
    chosen = networks[:: -(-len(networks) // MOST_NETWORKS)]
    share = len(networks) / len(chosen)
    costs, slow = dict.fromkeys(devices, (0.0, 0.0)), slowness()
    for one in chosen:
        try:
            found = _of_batch(one, _path(one, profile, dtypes[one.is_real], search_s), profile, devices)
        except InputError:  # a network of ours: no path fits under the memory
            return {}
        # Memory is the largest of all networks, time their sum; a number of devices drops out with
        # the first network that does not fit.
        for count, (memory, time_s) in [*costs.items()]:
            if count not in found:
                del costs[count]
                continue
            its_memory, its_time_s = found[count]
            whole_s = slow * one.start_s + one.count * its_time_s
            costs[count] = max(memory, its_memory), time_s + share * whole_s
    time, space = (GRADIENT_TIME, GRADIENT_MEMORY) if asked.has_gradient else (1, 1)
    factor = SAMPLES_FACTOR if isinstance(question, Sample) else EXACT_FACTOR
    return {
        count: Cost(count, space * memory, time * (time_s + first_use_s(memory, profile)), factor)
        for count, (memory, time_s) in costs.items()
    }


def _of_batch(
    one: _Asked, path: ContractionPath, profile: Profile, devices: Sequence[int]
) -> dict[int, tuple[float, float]]:
    """Bytes a device and seconds of a whole batch, or of halves, quarters, ... in turn where that fits."""
    batch = one.batch
    while True:
        try:
            found = _project(replace(path, network=one.batched(batch)), profile, devices)
        except InputError:
            if batch == 1:
                raise
            found = {}
        if found or batch == 1:
            times = -(-one.batch // batch)
            return {count: (memory, times * time_s) for count, (memory, time_s) in found.items()}
        batch = -(-batch // 2)


def _path(one: _Asked, profile: Profile, dtype: str, search_s: float) -> ContractionPath:
    """The path that a contraction takes; a search of its own where that would search for long."""
    network = one.network
    # A greedy path first. Where it is short, a contraction's own search is too, and is made as it
    # would be; otherwise the search has a limit of time.
    options = ContractionOptions(
        optimize="greedy", hardware=profile, device="cpu", memory=float(room_bytes(profile)),
        calls=one.batch, changing=tuple(one.changing) if one.batch > 1 else None,
    )  # fmt: skip
    operands = tuple(network.shape(number) for number in range(len(network.inputs)))
    request = EinsumCall(network.inputs, network.output, network.size_dict, operands)
    path = find_path(request, dtype, options)
    needed = TENSORS_AT_ONCE * ITEM_BYTES[dtype] * 2 ** path_cost(path).log2_largest
    is_short = predicted_s(path, profile) < ANNEALING_FROM_S and needed < room_bytes(profile)
    options = replace(options, optimize="auto", search_s=None if is_short else search_s)
    return find_path(request, dtype, options)


def _project(
    path: ContractionPath, profile: Profile, devices: Sequence[int]
) -> dict[int, tuple[float, float]]:
    """Bytes a device and seconds, for each number of devices that the path fits on."""
    if not path.ssa_path:
        return dict.fromkeys(devices, (0.0, 0.0))
    rows = project([path], profile, devices).rows
    return {row.devices: (row.peak_bytes, row.time_s) for row in rows}


def _networks(asked: AskedCircuit) -> Iterator[_Asked]:
    """The networks that are contracted, and how often each."""
    question, n = asked.question, asked.n_qubits
    circuit: Any = asked.circuit
    steps = () if isinstance(question, Amplitudes | OpenAmplitudes) else steps_of(circuit, "circuit")
    if isinstance(question, Amplitudes | OpenAmplitudes):
        opened, count = getattr(question, "open_qubits", ()), len(getattr(question, "bits", (0,)))
        text = "".join("." if q in opened else "0" for q in range(n))
        yield _simple(*circuit_network(circuit, text), count)
    elif isinstance(question, ExpectationValues):
        for support, words in by_support(word for one in question.sums for word in one.masks()).items():
            if support.qubits:
                if asked.has_gradient:  # which goes through a network with ket and bra
                    yield _closed(sandwich(steps, support), len(words))
                    continue
                # Words on one support share a network and differ in the tensors at its end: a
                # batch.
                found = word_network(steps, support, [*words])
                is_real = not any(map(np.iscomplexobj, found.arrays))
                yield _Asked(found.network, len(words), found.n_tensors, is_real=is_real)
    elif isinstance(question, Sample):
        for group in chain_groups(n):
            # The chain of conditional marginals: a group given all qubits before it, at most once
            # for each of their values.
            known = range(group[0])
            yield _closed(marginal_network(steps, group, known), batch=min(question.shots, 2 ** len(known)))
    elif isinstance(question, Probabilities):
        yield _closed(marginal_network(steps, question.qubits))
    elif isinstance(question, ReducedDensityMatrix):
        yield _simple(*density_network(steps, question.qubits))
    elif isinstance(question, Overlap):
        yield _simple(*overlap_network(circuit.gates, question.other.gates, n))
    elif isinstance(question, Trace):
        yield from _of_trace(circuit, question, asked.start)


def _of_trace(circuit: GateSequence, question: Trace, start: InputState | None) -> Iterator[_Asked]:
    """A network for each pair of words of A and B."""
    if start is not None:
        made = start.circuit(circuit.n_qubits)
        for _, ket, bra in pairs_of_trace(circuit, question.a, question.b, made):
            yield _simple(*overlap_network(ket.gates, bra.gates, circuit.n_qubits))
        return
    for (x, z, _), (u, v, _) in product(question.a.masks(), question.b.masks()):
        opened, _ = trace_network(circuit.gates, support_of(x, z), support_of(u, v))
        yield _closed(opened)


def _simple(network: Network, arrays: Sequence[Any], count: int = 1) -> _Asked:
    return _Asked(simplify(network, arrays)[0], count, len(arrays))


def _closed(opened: OpenNetwork, count: int = 1, batch: int = 1) -> _Asked:
    """A network with its further tensors, which differ within a batch."""
    network = simplify(opened.network, opened.arrays)[0]
    return _Asked(closed_by_leaves(network, opened), count, len(opened.arrays), batch, len(network.inputs))

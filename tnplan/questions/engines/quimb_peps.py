"""PEPS of quimb: the final state of a circuit, and states to begin with.

quimb keeps a state of the simple update as a `TensorNetworkGenVector` and a dict of gauges: the weights of
each bond by the name of its index. The state is the product of all tensors and weights; ours are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.common.errors import InputError
from tnplan.executor.peps.levels import Pair, levels_of
from tnplan.executor.peps.state import PepsState
from tnplan.jobs.job import Job, Rank, run_job
from tnplan.questions.engines.peps import check_ranks, evolve, library_of, whole
from tnplan.questions.options import QuestionOptions

PLACE = "start"
GAUGING, GAUGED = 1000, 1e-12
"""Sweeps of quimb that find the gauges of a network without any, and the change that ends them."""


class QuimbPeps(NamedTuple):
    """A state as quimb has it, and what cuts left of it.

    Parameters
    ----------
    network : quimb.tensor.TensorNetworkGenVector
        Site q is qubit q, with the open index `k{q}` and the tag `I{q}`.
    gauges : dict of str to array
        The weights of each bond by its index, falling, of norm 1.
    fidelity_estimate : float
        The product of what cuts left of the squared norm, an estimate.
    """

    network: Any
    gauges: dict[str, Any]
    fidelity_estimate: float = 1.0


class _Start(NamedTuple):
    """A state to begin with, as that of a `PepsState` with these edges, on the host."""

    edges: list[Pair]
    tensors: list[Any]
    weights: dict[Pair, Any]


def final_peps(n_qubits: int, gates: Sequence[Gate], start: Any, options: QuestionOptions) -> QuimbPeps:
    """The state after the gates, from |0...0> or from a state of quimb, on the host."""
    levels = levels_of([(gate.qubits, gate.matrix) for gate in gates])
    pairs = [pair for level in levels for pair in level.pairs]

    def prepare() -> _Start | None:
        return None if start is None else _of_quimb(n_qubits, pairs, start, options.dtype)

    def work(rank: Rank, given: _Start | None) -> QuimbPeps:
        with rank.on_stream():
            xp, edges = library_of(rank), pairs if given is None else given.edges
            state = PepsState(n_qubits, edges, options.dtype, xp, rank.connected())
            if given is not None:
                state.tensors = [xp.asarray(tensor) for tensor in given.tensors]
                state.weights = {edge: xp.asarray(weights) for edge, weights in given.weights.items()}
                state.leave_to_owners()
            evolve(state, levels, options, options.max_bond, rank)
            return _to_quimb(whole(state, {}, options.precision, rank.memory_bytes)[0])

    return run_job(
        Job(prepare=prepare, work=work, check_ranks=lambda _, ranks: check_ranks(n_qubits, ranks)), options
    )


def _to_quimb(state: PepsState) -> QuimbPeps:
    import quimb.tensor as qtn

    def host(array: Any) -> Any:
        return array.get() if hasattr(array, "get") else np.array(array)

    names = {edge: f"b{edge[0]},{edge[1]}" for edge in state.weights}
    tensors = [
        qtn.Tensor(
            host(tensor), [*(names[min(q, end), max(q, end)] for end in ends), f"k{q}"], tags=[f"I{q}"]
        )
        for q, (tensor, ends) in enumerate(zip(state.tensors, state.neighbours, strict=True))
    ]
    network = qtn.TensorNetwork(tensors).view_as_(
        qtn.TensorNetworkGenVector, sites=tuple(range(len(tensors))), site_tag_id="I{}", site_ind_id="k{}"
    )
    gauges = {names[edge]: host(weights) for edge, weights in state.weights.items()}
    return QuimbPeps(network, gauges, state.fidelity)


def _of_quimb(n_qubits: int, pairs: Sequence[Pair], start: Any, dtype: str) -> _Start:
    """The state of a network of quimb, with its gauges or with those that quimb finds."""
    network, gauges = (start[0], start[1]) if isinstance(start, tuple) else (start, None)
    if not hasattr(network, "site_ind") or not isinstance(gauges, Mapping | None):
        problem = f"is of type {type(start).__name__}"
        remedy = "give a PEPS or a TensorNetworkGenVector of quimb, or a pair with gauges"
        raise InputError(PLACE, problem, remedy)
    if gauges is None:
        network, gauges = network.copy(), {}
        network.gauge_all_simple_(GAUGING, GAUGED, gauges=gauges)
    sites = list(network.sites)
    tensors = _tensors(network, sites)
    if len(sites) != n_qubits:
        raise InputError(PLACE, f"has {len(sites)} sites for {n_qubits} qubits", "give one site per qubit")
    holders: dict[str, list[int]] = {}
    for q, (site, tensor) in enumerate(zip(sites, tensors, strict=True)):
        for index in tensor.inds:
            if index != network.site_ind(site):
                holders.setdefault(index, []).append(q)
    edges = {index: (ends[0], ends[1]) for index, ends in holders.items() if len(ends) == 2}
    if len(edges) < len(holders) or len(set(edges.values())) < len(edges):
        problem = "has a bond of one tensor or of three, or two bonds between two tensors"
        raise InputError(PLACE, problem, "call fuse_multibonds_ of quimb, and sum other indices")
    state = PepsState(n_qubits, [*edges.values(), *pairs], dtype)
    for q, (site, tensor) in enumerate(zip(sites, tensors, strict=True)):
        bonds = {end: index for index, ends in edges.items() if q in ends for end in ends if end != q}
        array = np.asarray(tensor.transpose(*bonds.values(), network.site_ind(site)).data, np.complex128)
        for axis, index in enumerate(bonds.values()):
            weights = _weights(gauges, index, array.shape[axis])
            array = np.take(array, np.argsort(-weights, kind="stable"), axis)
            if edges[index][0] == q:  # weights have norm 1: the first end has the rest
                array = array * np.linalg.norm(weights)
        places = [list(bonds).index(end) if end in bonds else None for end in state.neighbours[q]]
        order = [place for place in places if place is not None]
        shape = [1 if place is None else array.shape[place] for place in places]
        array = array.transpose(*order, array.ndim - 1).reshape(*shape, 2)
        state.tensors[q] = np.ascontiguousarray(array, dtype)
    for index, (a, b) in edges.items():
        weights = -np.sort(-_weights(gauges, index, network.ind_size(index)))
        state.weights[min(a, b), max(a, b)] = weights / np.linalg.norm(weights)
    return _Start([*edges.values(), *pairs], state.tensors, state.weights)


def _tensors(network: Any, sites: Sequence[Any]) -> list[Any]:
    """The tensor of each site, with one open index of extent 2."""
    of_sites = [
        [network.tensor_map[tid] for tid in network.ind_map.get(network.site_ind(s), ())] for s in sites
    ]
    if len(network.tensor_map) != len(sites) or any(len(of_site) != 1 for of_site in of_sites):
        raise InputError(PLACE, "has not one tensor per site", "contract the tensors of each site")
    for site in sites:
        if (extent := network.ind_size(network.site_ind(site))) != 2:
            raise InputError(PLACE, f"has {extent} values at site {site}", "give qubits, with 2")
    return [tensors[0] for tensors in of_sites]


def _weights(gauges: Mapping[str, Any], index: str, extent: int) -> np.ndarray:
    """The weights of a bond, 1 where it has none."""
    weights = np.asarray(gauges.get(index, np.ones(extent)), np.float64)
    if weights.shape != (extent,) or not (np.isfinite(weights) & (weights > 0)).all():
        raise InputError(PLACE, f"has no positive weights of bond {index}", f"give {extent} numbers above 0")
    return weights

"""MaxCut-QAOA energies on random regular graphs: one edge's light cone, or the whole expected cut.

The state is prod_t exp(-i beta_t sum_v X_v) exp(-i gamma_t C) |+...+>, t ascending, with the cut
C = sum over edges (1 - Z_u Z_v) / 2 (Farhi et al., arXiv 1411.4028); edges have weight one. Assumed: graphs
are uniform over the simple regular ones, and angles not given are uniform, gamma over 2 pi and beta over pi.
Knows no path and no device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, pi

import numpy as np

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.common.checks import check_count
from tnplan.common.errors import InputError
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.workloads.mixed import LARGEST_DEGREE, regular_graph

Edge = tuple[int, int]

EDGE_INDEX = "edge"


def maxcut_graph(n_vertices: int, degree: int, seed: int) -> list[Edge]:
    """The edges of a random regular graph without loops and double edges, ascending, each pair ascending."""
    check_count("--degree", degree, 1, LARGEST_DEGREE)
    if n_vertices <= degree or n_vertices * degree % 2:
        raise InputError(
            "--degree",
            f"{degree} on {n_vertices} vertices makes no graph",
            "make degree times vertices even, and the degree less than the vertices",
        )
    check_count("--seed", seed, 0)
    return regular_graph(n_vertices, degree, np.random.default_rng(seed))


def random_angles(layers: int, seed: int) -> tuple[list[float], list[float]]:
    """The angles gamma and beta of each layer, in radians, drawn from a stream apart from the graph's."""
    check_count("--layers", layers)
    gammas, betas = np.random.default_rng((seed, 1)).uniform(0, ((2 * pi,), (pi,)), size=(2, layers))
    return gammas.tolist(), betas.tolist()


def edge_network(
    edges: Sequence[Edge], edge: int, gammas: Sequence[float], betas: Sequence[float]
) -> tuple[Network, list[np.ndarray]]:
    """The network of <Z_u Z_v> for edge number `edge`, its tensors in complex128; the result is real.

    Only gates of the edge's light cone are in it: the others cancel against their conjugates. A vertex is a
    hyper-index between its mixers, and that after its last one is shared by ket and bra.
    """
    _check_edges(edges)
    _check_angles(gammas, betas)
    if not 0 <= edge < len(edges):
        raise InputError("--edge", f"is {edge}", f"give 0 to {len(edges) - 1}")
    distances = light_cone(edges, edge, len(gammas))
    number = {vertex: qubit for qubit, vertex in enumerate(sorted(distances))}
    ket = _ket(edges, distances, number, gammas, betas)
    observable = [gate("z", (number[vertex],)) for vertex in edges[edge]]
    return circuit_network(GateSequence(len(number), (*ket, *observable, *_inverse(ket))))


def cut_network(
    edges: Sequence[Edge], gammas: Sequence[float], betas: Sequence[float]
) -> tuple[Network, list[np.ndarray]]:
    """The network of the expected cut <C> over all edges, its tensors in complex128; the result is real.

    One index runs over the edges and, last, over the constant term. It sits on a tensor of each vertex, which
    holds the signs of Z_v where the edge has v and ones elsewhere, and on the vector of the terms' factors;
    a slice of it is one edge. The circuit is whole, without light cones.
    """
    _check_edges(edges)
    _check_angles(gammas, betas)
    number = {vertex: position for position, vertex in enumerate(sorted({v for pair in edges for v in pair}))}
    ket = _ket(edges, dict.fromkeys(number, 0), number, gammas, betas)
    places = [gate("id1", (qubit,)) for qubit in number.values()]
    network, arrays = circuit_network(GateSequence(len(number), (*ket, *places, *_inverse(ket))))
    inputs = list(network.inputs)
    # circuit_network gives the tensors of the starting states first, then one a gate.
    first = len(number) + len(ket)
    for vertex, qubit in number.items():
        signs = np.ones((len(edges) + 1, 2), dtype=np.complex128)
        signs[[position for position, pair in enumerate(edges) if vertex in pair], 1] = -1
        inputs[first + qubit] = (EDGE_INDEX, *inputs[first + qubit])
        arrays[first + qubit] = signs
    factors = np.full(len(edges) + 1, -0.5, dtype=np.complex128)
    factors[-1] = len(edges) / 2
    sizes = {**network.size_dict, EDGE_INDEX: len(edges) + 1}
    return Network((*inputs, (EDGE_INDEX,)), (), sizes), [*arrays, factors]


def light_cone(edges: Sequence[Edge], edge: int, layers: int) -> dict[int, int]:
    """The vertices at most `layers` edges away from the ends of edge number `edge`, with their distances."""
    distances = dict.fromkeys(edges[edge], 0)
    for distance in range(1, layers + 1):
        beside = {v for pair in edges for v in pair if distances.keys() & pair} - distances.keys()
        distances.update(dict.fromkeys(sorted(beside), distance))
    return distances


def _ket(
    edges: Sequence[Edge], distances: Mapping[int, int], number: Mapping[int, int], gammas: Sequence[float],
    betas: Sequence[float],
) -> list[Gate]:  # fmt: skip
    """The gates that the observable sees: in layer t those that touch a distance of layers - 1 - t or less.

    `number` gives the qubit of each vertex in `distances`; every other vertex is farther than that.
    """
    gates = [gate("h", (qubit,)) for qubit in number.values()]
    for layer, (gamma, beta) in enumerate(zip(gammas, betas, strict=True)):
        reach = len(gammas) - 1 - layer
        near = {vertex for vertex, distance in distances.items() if distance <= reach}
        gates += [_cost((number[u], number[v]), gamma) for u, v in edges if u in near or v in near]
        gates += [gate("rx", (number[vertex],), (2 * beta,)) for vertex in sorted(near)]
    return gates


def _cost(pair: Edge, gamma: float) -> Gate:
    """exp(-i gamma (1 - Z Z) / 2): the phase of an edge that is cut."""
    phase = np.exp(-1j * gamma)
    return Gate("cost", pair, np.diag(np.array([1, phase, phase, 1], dtype=np.complex128)), (gamma,))


def _inverse(gates: Sequence[Gate]) -> list[Gate]:
    return [Gate(item.name, item.qubits, item.matrix.conj().T, item.params) for item in reversed(gates)]


def _check_edges(edges: Sequence[Edge]) -> None:
    if not edges:
        raise InputError("graph", "has no edges", "give one edge or more")
    for first, second in edges:
        if first == second:
            raise InputError(f"edge {(first, second)}", "is a self-loop", "join two different vertices")


def _check_angles(gammas: Sequence[float], betas: Sequence[float]) -> None:
    if not gammas or len(gammas) != len(betas):
        raise InputError(
            "--gamma and --beta",
            f"are {len(gammas)} and {len(betas)}",
            "give one angle of each kind for every layer",
        )
    for place, angles in (("--gamma", gammas), ("--beta", betas)):
        for angle in angles:
            if not isfinite(angle):
                raise InputError(place, f"is {angle}", "give a finite angle in radians")

"""Values of networks with many hyper-indices, for tests of the workloads: a greedy path and einsum."""

from __future__ import annotations

from collections.abc import Sequence

import cotengra
import numpy as np

from tnplan.planner.networks.network import Network
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.workloads.qaoa import (
    Edge,
)


def greedy_ssa_path(network: Network) -> tuple[tuple[int, int], ...]:
    """A path of pairs in static single assignment."""
    steps = cotengra.array_contract_path(
        network.inputs, network.output, network.size_dict, optimize="greedy", canonicalize=False
    )
    live, path = list(range(len(network.inputs))), []
    for number, (first, second) in enumerate(map(sorted, steps), start=len(live)):
        path.append((live.pop(second), live.pop(first)))
        live.append(number)
    return tuple(path)


def closed_value(network: Network, arrays: Sequence[np.ndarray]) -> complex:
    """The scalar that a network without open indices stands for, simplified and contracted pair by pair."""
    network, values = simplify(network, arrays)
    terms = list(network.inputs)
    live = set(range(len(terms)))
    path = greedy_ssa_path(network) if len(terms) > 1 else ()
    for first, second in path:
        live -= {first, second}
        needed = {index for number in live for index in terms[number]}
        both = dict.fromkeys(terms[first] + terms[second])
        letters = {index: letter for letter, index in enumerate(both)}
        kept = tuple(index for index in both if index in needed)
        operands = [
            item
            for number in (first, second)
            for item in (values[number], [letters[index] for index in terms[number]])
        ]
        values.append(np.einsum(*operands, [letters[index] for index in kept]))
        live.add(len(terms))
        terms.append(kept)
    return complex(values[-1])


def dense_terms(n_vertices: int, edges: list[Edge], gammas: list[float], betas: list[float]) -> np.ndarray:
    """<Z_u Z_v> of every edge in the state vector, all gates on all vertices; vertex v is bit v."""
    bits = (np.arange(2**n_vertices)[:, None] >> np.arange(n_vertices)) & 1
    signs = np.array([(1 - 2 * bits[:, u]) * (1 - 2 * bits[:, v]) for u, v in edges])
    cut = ((1 - signs) / 2).sum(0)
    state = np.full(2**n_vertices, 2 ** (-n_vertices / 2), complex)
    for gamma, beta in zip(gammas, betas, strict=True):
        state = state * np.exp(-1j * gamma * cut)
        for vertex in range(n_vertices):
            flipped = state[np.arange(2**n_vertices) ^ (1 << vertex)]
            state = np.cos(beta) * state - 1j * np.sin(beta) * flipped
    return np.asarray(signs @ np.abs(state) ** 2)

"""What others find on a network: cotengra's hyper-optimizer, and METIS's nested dissection with min-fill."""

from __future__ import annotations

import random
import time

import numpy as np

from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.search.path_cost import path_cost

DTYPE = "complex64"
MOST_EDGES = 5_000_000
"""Of a line graph that is written down."""
METHODS = ("greedy", "random-greedy", "labels", "kahypar")


def cotengra(network: Network, seconds: float, seed: int) -> float | None:
    """log10 of the multiply-adds of cotengra's best tree, None where no trial ends well."""
    from cotengra import HyperOptimizer, get_symbol

    symbols = {index: get_symbol(number) for number, index in enumerate(network.size_dict)}
    terms = [tuple(symbols[index] for index in dict.fromkeys(term)) for term in network.inputs]
    sizes = {symbols[index]: size for index, size in network.size_dict.items()}
    random.seed(seed)
    optimizer = HyperOptimizer(
        methods=list(METHODS), minimize="flops", max_time=seconds, max_repeats=1_000_000, parallel=False,
        optlib="optuna", on_trial_error="ignore", reconf_opts={},
    )  # fmt: skip
    try:
        tree = optimizer.search(terms, tuple(symbols[index] for index in network.output), sizes)
    except (KeyError, RuntimeError, ValueError, OverflowError, TypeError) as error:
        print(f"cotengra: {error}", flush=True)
        return None
    steps = tuple(tuple(map(int, step)) for step in tree.get_ssa_path())
    return path_cost(ContractionPath(network, steps, (), DTYPE)).log10_mnk_all_slices


def dissection(network: Network, seconds: float, seed: int) -> float | None:
    """The same of METIS's order, and of min-fill among its first indices, the best in the time."""
    from pymetis import nested_dissection

    from tnplan.planner.search.orders.elimination_kernel import FILL, Rule, eliminate
    from tnplan.planner.search.orders.hypergraph import make_hypergraph

    counts = np.unique([i for term in network.inputs for i in set(term)], return_counts=True)
    shared = {str(index) for index, count in zip(*counts, strict=True) if count > 1}
    terms = [[index for index in term if index in shared] for term in network.inputs]
    graph = make_hypergraph(terms, network.output, network.size_dict)
    beside: list[set[int]] = [set() for _ in graph.weights]
    for tensor in range(graph.n_tensors):
        row = graph.indices[graph.tensor_starts[tensor] : graph.tensor_starts[tensor + 1]].tolist()
        for index in row:
            beside[index].update(row)
    if sum(map(len, beside)) > MOST_EDGES:
        return None
    draw = random.Random(seed)
    ends, best = time.monotonic() + seconds, None
    while best is None or time.monotonic() < ends:
        # A relabelled graph makes METIS start elsewhere.
        order = list(range(len(beside)))
        draw.shuffle(order)
        names = {old: new for new, old in enumerate(order)}
        _, places = nested_dissection(adjacency=[[names[o] for o in beside[i] if o != i] for i in order])
        rank = np.empty(len(order), np.int64)
        rank[order] = np.array(places)
        inside = int(draw.choice((0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)) * len(order))
        stages = np.maximum(rank - inside, 0)
        pairs = eliminate(graph, stages, Rule(FILL, 0.0, 1e-6), draw.getrandbits(31))
        steps = tuple((int(a), int(b)) for a, b in pairs.T)
        cost = path_cost(ContractionPath(network, steps, (), DTYPE)).log10_mnk_all_slices
        best = cost if best is None else min(best, cost)
    return best

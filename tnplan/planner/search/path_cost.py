"""What a contraction path costs: operations and the largest tensor. Plain counting, no search, no machine."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf, log2, log10

from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.passes.tree.build import build
from tnplan.planner.passes.tree.loop_nest import InvariantHoisting
from tnplan.planner.search.orders.hypergraph import Floats, Hypergraph

MANY_STEPS = 5000
"""From so many steps on they are counted by a kernel, which rounds to about twelve digits."""
MOST_PLACES = 300_000
"""Sliced indices times steps, up to which an order of the loops is looked for."""


@dataclass(frozen=True)
class PathCost:
    """Multiply-adds (m n k of every step, all slices), and the elements of a slice's largest tensor."""

    log10_mnk_all_slices: float
    log2_largest: float
    n_slices: int

    def document(self) -> dict[str, float]:
        """The figures as they stand in the `meta` of a path.json."""
        return {
            "log10_mnk_all_slices": round(self.log10_mnk_all_slices, 4),
            "log2_largest": round(self.log2_largest, 4),
        }


def path_cost(path: ContractionPath) -> PathCost:
    """Count a path. An index leaves a tensor as soon as no other tensor and not the output carries it."""
    network = path.network
    sizes = {**network.size_dict, **dict.fromkeys(path.sliced_inds, 1)}
    if len(path.ssa_path) >= MANY_STEPS and all(len(step) == 2 for step in path.ssa_path):
        return _rounded_cost(path, sizes)
    terms: dict[int, frozenset[str]] = {i: frozenset(term) for i, term in enumerate(network.inputs)}
    left = Counter(index for term in terms.values() for index in term)
    left.update(network.output)
    operations = 0
    largest = max(_size(term, sizes) for term in terms.values())
    for number, step in enumerate(path.ssa_path):
        result = terms.pop(step[0])
        for other in step[1:]:
            term = terms.pop(other)
            operations += _size(result | term, sizes)
            left.subtract(result & term)
            result = frozenset(index for index in result | term if left[index] > 1)
            largest = max(largest, _size(result, sizes))
        terms[len(network.inputs) + number] = result
    return PathCost(log10(max(operations, 1) * path.n_slices), log2(largest), path.n_slices)


def _rounded_cost(path: ContractionPath, sizes: dict[str, int]) -> PathCost:
    """The same of a path of pairs, counted by a kernel in floating point."""
    from tnplan.planner.search.orders.hypergraph import make_hypergraph

    network = path.network
    graph = make_hypergraph([tuple(dict.fromkeys(term)) for term in network.inputs], network.output, sizes)
    return counted_cost(path, graph, graph.weights)


def counted_cost(path: ContractionPath, graph: Hypergraph, weights: Floats) -> PathCost:
    """The cost of a path of pairs in a network as arrays, `weights` 0 for what is sliced."""
    from tnplan.planner.search.annealer.anneal_state import tree_of
    from tnplan.planner.search.subtrees.measure_kernel import tree_cost

    left, right, _ = tree_of(path.ssa_path, len(path.network.inputs))
    bits, largest, _ = tree_cost(graph, weights, left, right, 0.0)
    return PathCost(bits * log10(2) + log10(path.n_slices), largest, path.n_slices)


def log10_mnk_planned(path: ContractionPath) -> float:
    """The multiply-adds of all slices as they are planned, where memory is no limit: what slices share counts
    once, and what is summed early as often as that sum needs it.

    Without slices, or with so many that such an order is not looked for, these are all of all slices.
    """
    if not path.sliced_inds or len(path.sliced_inds) * len(path.ssa_path) > MOST_PLACES:
        return path_cost(path).log10_mnk_all_slices
    tree = build(path)
    loop_nest = InvariantHoisting(tree, path.sliced_inds, path.network.size_dict).loop_nest(inf)
    operations = 0
    for number, (left, right) in enumerate(tree.children):
        level = loop_nest.level_of[tree.n_leaves + number]
        runs = loop_nest.n_slices // loop_nest.serves[level] * loop_nest.repeats[level]
        operations += runs * tree.extent(tuple({*tree.legs[left], *tree.legs[right]}))
    return log10(max(operations, 1))


def _size(term: frozenset[str], sizes: dict[str, int]) -> int:
    size = 1
    for index in term:
        size *= sizes[index]
    return size

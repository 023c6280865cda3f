"""What a contraction path costs: operations, elements, memory. Plain counting, no search, no machine."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import inf, log2, log10

from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.passes.tree.build import build
from tnplan.planner.passes.tree.loop_nest import InvariantHoisting
from tnplan.planner.search.annealing import PRICES
from tnplan.planner.search.orders.hypergraph import Floats, Hypergraph

MANY_STEPS = 5000
"""From so many steps on they are counted by a kernel, which rounds to about twelve digits."""
MOST_PLACES = 300_000
"""Sliced indices times steps, up to which an order of the loops is looked for."""


@dataclass(frozen=True)
class PathCost:
    """Multiply-adds (m n k of every step, all slices), the elements of a slice's largest tensor, and those of
    all products of all slices."""

    log10_mnk_all_slices: float
    log2_largest: float
    n_slices: int
    log10_written_all_slices: float

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
    operations, written = 0, 0
    largest = max(_size(term, sizes) for term in terms.values())
    for number, step in enumerate(path.ssa_path):
        result = terms.pop(step[0])
        for other in step[1:]:
            term = terms.pop(other)
            operations += _size(result | term, sizes)
            left.subtract(result & term)
            result = frozenset(index for index in result | term if left[index] > 1)
            elements = _size(result, sizes)
            written += elements
            largest = max(largest, elements)
        terms[len(network.inputs) + number] = result
    mnk, all_written = (log10(max(count, 1) * path.n_slices) for count in (operations, written))
    return PathCost(mnk, log2(largest), path.n_slices, all_written)


def _rounded_cost(path: ContractionPath, sizes: dict[str, int]) -> PathCost:
    """The same of a path of pairs, counted by a kernel in floating point."""
    from tnplan.planner.search.orders.hypergraph import make_hypergraph

    network = path.network
    graph = make_hypergraph([tuple(dict.fromkeys(term)) for term in network.inputs], network.output, sizes)
    return counted_cost(path, graph, graph.weights)


def counted_cost(path: ContractionPath, graph: Hypergraph, weights: Floats) -> PathCost:
    """The cost of a path of pairs in a network as arrays, `weights` 0 for what is sliced."""
    from tnplan.planner.search.annealer.anneal_state import Price, tree_of
    from tnplan.planner.search.subtrees.measure_kernel import tree_cost

    left, right, _ = tree_of(path.ssa_path, len(path.network.inputs))

    def count(price: Price) -> tuple[float, float]:
        bits, largest, _ = tree_cost(graph, weights, left, right, price)
        return bits * log10(2) + log10(path.n_slices), largest

    (mnk, largest), (written, _) = count(Price()), count(Price(0.0, 1.0))
    return PathCost(mnk, largest, path.n_slices, written)


def log10_mnk_planned(path: ContractionPath) -> float:
    """The multiply-adds of all slices as they are planned, where memory is no limit: what slices share counts
    once, and what is summed early as often as that sum needs it.

    Without slices, or with so many that such an order is not looked for, these are all of all slices.
    """
    if not path.sliced_inds or len(path.sliced_inds) * len(path.ssa_path) > MOST_PLACES:
        return path_cost(path).log10_mnk_all_slices
    return log10(max(planned_count(path, 0), 1))


def planned_count(path: ContractionPath, written: int) -> int:
    """The same, no logarithm, with `written` more for each element of a result."""
    tree = build(path)
    loop_nest = InvariantHoisting(tree, path.sliced_inds, path.network.size_dict).loop_nest(inf)
    count = 0
    for node, (left, right) in enumerate(tree.children, tree.n_leaves):
        level = loop_nest.level_of[node]
        runs = loop_nest.n_slices // loop_nest.serves[level] * loop_nest.repeats[level]
        products = tree.extent(tuple({*tree.legs[left], *tree.legs[right]}))
        count += runs * (products + written * tree.sizes[node])
    return count


def in_least_memory(path: ContractionPath) -> tuple[float, ContractionPath]:
    """log2 of the most elements that a slice has in memory at once, and the path in the order for that.

    Inputs are there from the start and go where they are taken; both operands and the result are there in a
    step. Of all orders that finish one operand before the other begins, this one needs the least.
    """
    n, tree = len(path.network.inputs), build(path)
    sizes, pairs = tree.sizes, tree.children
    # What a sub-tree adds at most to what is there before it, and what it leaves added: its result in place
    # of its inputs (Liu, 1986, for trees with inputs in memory).
    most, left = [0] * n, [0] * n
    first: list[tuple[int, int]] = []
    for number, (a, b) in enumerate(pairs):
        result = sizes[n + number]
        peak, order = min(
            (max(most[x], left[x] + most[y], left[x] + left[y] + result), (x, y)) for x, y in ((a, b), (b, a))
        )
        first.append(order)
        most.append(peak)
        left.append(left[a] + left[b] + result - sizes[a] - sizes[b])
    names, todo = {v: v for v in range(n)}, [tree.root]
    steps: list[tuple[int, int]] = []
    while todo:
        v = todo[-1]
        missing = [child for child in first[v - n] if child not in names] if v >= n else []
        if missing:
            todo.append(missing[0])
            continue
        if v >= n:
            names[v] = n + len(steps)
            steps.append((names[pairs[v - n][0]], names[pairs[v - n][1]]))
        todo.pop()
    return log2(sum(sizes[:n]) + most[tree.root]), replace(path, ssa_path=tuple(steps))


def objective_log2(path: ContractionPath, minimize: str) -> float:
    """log2 of what an objective other than time counts, of all slices; each is counted in full."""
    cost = path_cost(path)
    if minimize in ("size", "peak"):
        elements = cost.log2_largest if minimize == "size" else in_least_memory(path)[0]
        return elements + log2(cost.n_slices)
    products, written = PRICES.get(minimize, (1.0, 0.0))
    terms = ((products, cost.log10_mnk_all_slices), (written, cost.log10_written_all_slices))
    most = max(log10_count for weight, log10_count in terms if weight)
    total = sum(weight * 10.0 ** (log10_count - most) for weight, log10_count in terms if weight)
    return (most + log10(total)) * log2(10.0)


def _size(term: frozenset[str], sizes: dict[str, int]) -> int:
    size = 1
    for index in term:
        size *= sizes[index]
    return size

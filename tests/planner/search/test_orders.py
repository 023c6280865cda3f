"""Trees of orders: paths of the same value, no better than the best there is, and on small graphs near it."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest

from tests.support.hypernetworks import hypernetwork, least_cost, legs_of, task_of, tree_cost, treewidth
from tests.support.slow import slow_after
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.tensors import random_tensors
from tnplan.planner.search.orders.core import core_of
from tnplan.planner.search.orders.dissection_kernel import Cuts, dissect
from tnplan.planner.search.orders.elimination_kernel import DEGREE, FILL, GROWTH, Rule, eliminate
from tnplan.planner.search.orders.front_kernel import OBLIQUE, SIDEWAYS, TO_RESULT, grow
from tnplan.planner.search.orders.hypergraph import Hypergraph, index_names, make_hypergraph
from tnplan.planner.search.orders.starts import OrderStarts, rooted
from tnplan.planner.workloads.kings import independent_set_network, kings_edges, kings_sites

CUTS = Cuts(3, 0.3, 10, 2, 1.0)


def orders(graph: Hypergraph, seed: int) -> dict[str, np.ndarray]:
    """The pairs of all kinds of orders."""
    none = np.zeros(len(graph.weights), np.int64)
    return {
        "degree": eliminate(graph, none, Rule(DEGREE, 0.0, 1e-6), seed),
        "fill": eliminate(graph, none, Rule(FILL, 0.0, 1e-6), seed),
        "growth": eliminate(graph, none, Rule(GROWTH, 0.8, 1e-3), seed),
        "dissection": eliminate(graph, dissect(graph, CUTS, seed), Rule(FILL, 0.0, 1e-6), seed),
        "front": grow(graph, 0.5, (OBLIQUE, SIDEWAYS, TO_RESULT)[seed % 3], 0.3, seed),
    }


def einsum(network: Network, arrays: list[np.ndarray], pairs: Any) -> np.ndarray:
    """The value along a path, and without pairs that of NumPy's own order."""
    names = {index: number for number, index in enumerate(sorted(network.size_dict))}
    held = {t: (term, array) for t, (term, array) in enumerate(zip(network.inputs, arrays, strict=True))}
    for number, (a, b) in enumerate(pairs):
        (first, x), (second, y) = held.pop(a), held.pop(b)
        wanted = {index for term, _ in held.values() for index in term} | set(network.output)
        legs = tuple(index for index in dict.fromkeys(first + second) if index in wanted)
        subscripts = [[names[index] for index in term] for term in (first, second, legs)]
        value = np.einsum(x, subscripts[0], y, subscripts[1], subscripts[2])
        held[len(network.inputs) + number] = legs, value
    operands: list[Any] = []
    for term, array in held.values():
        operands += [array, [names[index] for index in term]]
    return np.asarray(np.einsum(*operands, [names[index] for index in network.output], optimize=True))


@pytest.mark.parametrize("seed", slow_after(12, range(24)))
def test_every_order_is_a_path_of_the_same_value(seed: int) -> None:
    network = hypernetwork(seed)
    task = task_of(network)
    arrays = random_tensors(network, "float64", seed)
    expected = einsum(network, arrays, ())
    graph = make_hypergraph(task.inputs, task.output, task.sizes)
    if len(graph.weights) == 0:
        pytest.skip("no index of extent above 1")
    least = least_cost(task)
    for kind, pairs in orders(graph, seed).items():
        path = ContractionPath(network, tuple(rooted(pairs, len(network.inputs))))
        assert np.allclose(einsum(network, arrays, path.ssa_path), expected, rtol=1e-10), kind
        assert tree_cost(task, path.ssa_path) >= least


@pytest.mark.parametrize("seed", range(12))
def test_starts_cost_what_they_say_and_the_best_is_near_the_optimum(seed: int) -> None:
    task = task_of(hypernetwork(seed), seed=seed)
    starts = OrderStarts(task)
    trees = [starts.tree(number) for number in range(6)]
    for tree in trees:
        assert 2**tree.score == pytest.approx(tree_cost(task, tree.ssa_path), rel=1e-9)
    least = least_cost(task)
    assert least <= 2 ** min(tree.score for tree in trees) * (1 + 1e-9) <= 2 * least
    assert starts.tree(3) == OrderStarts(task).tree(3)


def cliques(task: Any) -> list[frozenset[str]]:
    return [frozenset(i for i in term if task.sizes[i] > 1) for term in (*task.inputs, task.output) if term]


def width_of(task: Any, pairs: Any) -> int:
    """The most indices of a step, less one."""
    sets = {t: frozenset((t,)) for t in range(len(task.inputs))}
    most = 0
    for number, (a, b) in enumerate(pairs):
        first, second = sets.pop(a), sets.pop(b)
        bag = legs_of(task, first) | legs_of(task, second)
        most = max(most, sum(task.sizes[index] > 1 for index in bag))
        sets[len(task.inputs) + number] = first | second
    return most - 1


@pytest.mark.parametrize("seed", range(10))
def test_no_order_is_below_the_treewidth_and_the_best_reaches_it(seed: int) -> None:
    """A contraction tree is a tree decomposition of the line graph (Markov and Shi, 2008)."""
    task = task_of(hypernetwork(seed, 10, 9))
    graph = make_hypergraph(task.inputs, task.output, task.sizes)
    exact = treewidth(cliques(task))
    widths = [
        width_of(task, rooted(pairs, len(task.inputs)))
        for trial in range(4)
        for pairs in orders(graph, trial).values()
    ]
    assert min(widths) == exact


@pytest.mark.parametrize("seed", range(16))
def test_the_core_keeps_the_treewidth_and_the_value(seed: int) -> None:
    network = hypernetwork(seed, 12, 10)
    task = task_of(network)
    core = core_of(task.inputs, task.output, task.sizes, math.inf)
    output = tuple(index for index in task.output if task.sizes[index] > 1)
    inner = task_of(Network(core.inputs, output, dict(task.sizes)))
    whole, rest = treewidth(cliques(task)), treewidth(cliques(inner)) if any(core.inputs) else -1
    assert rest <= whole <= max(rest, width_of(task, core.pairs))
    path = ContractionPath(network, core.whole(_anyhow(len(core.inputs))))
    arrays = random_tensors(network, "float64", seed)
    assert np.allclose(einsum(network, arrays, path.ssa_path), einsum(network, arrays, ()), rtol=1e-10)


def _anyhow(n: int) -> list[tuple[int, int]]:
    """A path of a chain."""
    last = 0
    pairs = []
    for tensor in range(1, n):
        pairs.append((last, tensor))
        last = n + len(pairs) - 1
    return pairs


def test_a_core_does_no_step_above_its_limit() -> None:
    task = task_of(hypernetwork(3, 14, 12))
    for bits in (-math.inf, 1.0, 3.0, 6.0):
        core = core_of(task.inputs, task.output, task.sizes, bits)
        sets = {t: frozenset((t,)) for t in range(len(task.inputs))}
        for number, (a, b) in enumerate(core.pairs):
            union = legs_of(task, sets[a]) | legs_of(task, sets[b])
            assert sum(math.log2(task.sizes[index]) for index in union) <= bits + 1e-6
            sets[len(task.inputs) + number] = sets[a] | sets[b]
    assert not core_of(task.inputs, task.output, task.sizes, -math.inf).pairs


def test_edges_and_vertices_of_a_kings_graph_become_cliques() -> None:
    sites = kings_sites(6, 6, 1.0, 0)
    network = independent_set_network(len(sites), kings_edges(sites))[0]
    core = core_of(network.inputs, (), network.size_dict, 12.0)
    assert len(network.inputs) == 36 + 110
    assert len(core.inputs) <= 25


def lattice(rows: int, columns: int) -> Network:
    """Sites row by row, with bonds of extent 2."""
    terms: dict[tuple[int, int], list[str]] = {}
    for r, c in np.ndindex(rows, columns):
        for name, site in ((f"h{r},{c}", (r, c + 1)), (f"v{r},{c}", (r + 1, c))):
            if site[0] < rows and site[1] < columns:
                terms.setdefault((r, c), []).append(name)
                terms.setdefault(site, []).append(name)
    inputs = tuple(tuple(terms[site]) for site in sorted(terms))
    return Network(inputs, (), {index: 2 for term in inputs for index in term})


@pytest.mark.parametrize("side", [6, 12])
def test_a_lattice_is_cut_in_two_by_its_side(side: int) -> None:
    """Two halves of a square lattice share `side` bonds; of all balanced parts none share fewer."""
    network = lattice(side, side)
    graph = make_hypergraph(network.inputs, (), network.size_dict)
    sizes = []
    for seed in range(6):
        cut = dissect(graph, Cuts(side, 0.1, 1, 1, 0.0), seed) > 0
        sizes.append(int(cut.sum()))
        assert largest_part(network, cut) <= 0.55 * side**2
    assert min(sizes) == side


def largest_part(network: Network, cut: Any) -> int:
    """The most tensors that hang together without the indices that are cut."""
    kept = {name for name, is_cut in zip(names_of(network), cut, strict=True) if not is_cut}
    waiting, most = set(range(len(network.inputs))), 0
    while waiting:
        part, todo = set[int](), [waiting.pop()]
        while todo:
            part.add(tensor := todo.pop())
            near = {t for t in waiting if kept & {*network.inputs[t]} & {*network.inputs[tensor]}}
            waiting -= near
            todo += near
        most = max(most, len(part))
    return most


def names_of(network: Network) -> list[str]:
    return index_names(network.inputs, network.output, network.size_dict)


@pytest.mark.parametrize("seed", range(3))
def test_a_front_is_parallel_to_a_side(seed: int) -> None:
    """Row by row a lattice of 12 x 12 sites has fronts of 13 bonds at most, where an oblique one has 22."""
    task = task_of(lattice(12, 12))
    pairs = rooted(grow(make_hypergraph(task.inputs, (), task.sizes), 1.0, SIDEWAYS, 1e-6, seed), 144)
    assert width_of(task, pairs) <= 15


@pytest.mark.parametrize("seed", range(3))
def test_a_front_goes_along_a_strip(seed: int) -> None:
    """One of 3 x 40 sites has fronts of 3 or 4 bonds, and steps of two more."""
    task = task_of(lattice(3, 40))
    pairs = rooted(grow(make_hypergraph(task.inputs, (), task.sizes), 0.0, OBLIQUE, 1e-6, seed), 120)
    assert width_of(task, pairs) <= 5


@pytest.mark.parametrize("side", [12, 16])
def test_a_front_comes_to_an_open_side(side: int) -> None:
    """Row by row a step of a square lattice with an open side has a leg for each column and two more. A front
    that takes the result before it has the last row joins a row and a half at once."""
    closed = lattice(side, side)
    last = range(side * (side - 1), side * side)
    inputs = tuple((*term, f"o{t}") if t in last else term for t, term in enumerate(closed.inputs))
    opened = tuple(f"o{t}" for t in last)
    network = Network(inputs, opened, {**closed.size_dict, **dict.fromkeys(opened, 2)})
    best = min(OrderStarts(task_of(network)).tree(number).score for number in range(5))
    assert best <= side + 2 + math.log2(side * side) + 0.6


def test_an_elimination_ends_with_its_time() -> None:
    """That of a large graph is given up, whose tensors soon have thousands of legs; small ones do not ask."""
    graphs = {}
    for n in (100, 10_000):
        terms: list[list[str]] = [[] for _ in range(n)]
        for number, edge in enumerate(nx.random_regular_graph(3, n, seed=1).edges):
            for vertex in edge:
                terms[vertex].append(str(number))
        graphs[n] = make_hypergraph(tuple(map(tuple, terms)), (), {str(k): 2.0 for k in range(3 * n // 2)})
    rule = Rule(FILL, 0.0, 1e-6)
    assert eliminate(graphs[100], np.zeros(150, np.int64), rule, 0, ends=-math.inf) is not None
    assert eliminate(graphs[10_000], np.zeros(15_000, np.int64), rule, 0, ends=-math.inf) is None
    whole = eliminate(graphs[10_000], np.zeros(15_000, np.int64), rule, 0)
    assert np.array_equal(np.sort(whole.ravel()), np.arange(2 * 10_000 - 2))

"""Trees measured with few legs in memory: as those counted by sets, and memory that follows the network."""

from __future__ import annotations

import math
import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.hypernetworks import hypernetwork, legs_of, task_of, tree_cost
from tests.support.search import chain_path
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.search import path_cost as costs
from tnplan.planner.search.annealer.anneal_state import Heat, tree_of
from tnplan.planner.search.annealing import Task
from tnplan.planner.search.orders import elimination_kernel, starts
from tnplan.planner.search.orders.hypergraph import index_names, make_hypergraph
from tnplan.planner.search.orders.starts import OrderStarts, path_of, rooted
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.subtrees import measure_kernel, regions
from tnplan.planner.search.subtrees.measure_kernel import kept_legs, measured
from tnplan.planner.search.subtrees.regions import LargeTree
from tnplan.planner.workloads.mixed import peps_network, regular_network


def tensors_below(pairs: Any, n: int) -> list[frozenset[int]]:
    """The tensors under each node."""
    sets = [frozenset((t,)) for t in range(n)]
    for a, b in pairs:
        sets.append(sets[a] | sets[b])
    return sets


@pytest.mark.parametrize("seed", range(16))
def test_sizes_steps_legs_and_shares_are_those_of_sets(seed: int) -> None:
    network = hypernetwork(seed, 14, 20)
    task, n = task_of(network), 14
    pairs = chain_path(network, seed)
    graph = make_hypergraph(task.inputs, task.output, task.sizes)
    names = index_names(task.inputs, task.output, task.sizes)
    left, right, _ = tree_of(pairs, n)
    sizes = measured(graph, graph.weights, left, right)
    nodes = np.arange(0, 2 * n - 1, 2)
    kept = kept_legs(graph, graph.weights, left, right, sizes, nodes, shares=True)
    legs = [{i for i in legs_of(task, below) if task.sizes[i] > 1} for below in tensors_below(pairs, n)]
    share = dict.fromkeys(names, 0.0)
    for node, own in enumerate(legs):
        assert sizes.length[node] == len(own)
        assert sizes.size[node] == pytest.approx(bits_of(task, own), abs=1e-9)
        if node in nodes:
            row = kept.indices[kept.first[node] : kept.first[node] + len(own)]
            assert {names[number] for number in row} == own
        if node >= n:
            union = legs[left[node]] | legs[right[node]]
            assert sizes.span[node] == pytest.approx(bits_of(task, union), abs=1e-9)
            for index in union:
                share[index] += 2 ** (bits_of(task, union) - sizes.span.max())
    assert [share[name] for name in names] == pytest.approx(list(kept.share), rel=1e-9)
    assert tree_cost(task, path_of(left, right)) == tree_cost(task, pairs)


def bits_of(task: Task, indices: set[str]) -> float:
    return sum(math.log2(task.sizes[index]) for index in indices)


@pytest.mark.parametrize("seed", range(8))
def test_paths_of_many_steps_cost_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    network = hypernetwork(seed, 14, 20)
    closed = sorted(set(network.size_dict) & {i for term in network.inputs for i in term} - {*network.output})
    path = ContractionPath(network, chain_path(network, seed), tuple(closed[:3]))
    exact = path_cost(path)
    monkeypatch.setattr(costs, "MANY_STEPS", 1)
    counted = path_cost(path)
    assert counted.log10_mnk_all_slices == pytest.approx(exact.log10_mnk_all_slices, abs=1e-9)
    assert counted.log2_largest == pytest.approx(exact.log2_largest, abs=1e-9)
    assert counted.n_slices == exact.n_slices


def peak_bytes(call: Callable[[], Any]) -> int:
    """The most bytes of arrays and objects that a call holds."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("limit", [None, 2**77])
def test_memory_follows_the_network(limit: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """All legs of a front over 80 x 80 sites are twenty times those of its tensors; they are never held."""
    for module in (starts, regions):
        monkeypatch.setattr(module, "MOST_LEGS", 0)
    monkeypatch.setattr(measure_kernel, "LEGS_AT_ONCE", 1000)
    network = peps_network(80, 80, 0, extents=(2, 2), n_open=0)
    task = task_of(network, limit)
    orders = OrderStarts(replace(task, limit=None))
    first = orders.tree(0)
    left, right, _ = tree_of(first.ssa_path, 6400)
    all_bytes = 16 * measured(orders.graph, orders.graph.weights, left, right).length.sum()
    assert all_bytes > 16 * 20 * orders.graph.indices.size
    trees: list[LargeTree] = []
    assert peak_bytes(lambda: trees.append(LargeTree(task, first))) < all_bytes / 2
    tree = trees[0]
    assert tree.fits
    assert (tree.weights == 0.0).any() == (limit is not None)
    assert peak_bytes(lambda: measured(tree.graph, tree.weights, left, right)) < all_bytes / 4
    before = tree.scored().score
    tree.improve(Heat(8.0, 0.3, 0.02, 1.0), 60_000, math.inf, random.Random(0))
    assert tree.scored().score < before


def test_a_front_of_too_many_legs_gives_way_to_a_dissection(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(regular_network(60, 0))
    fronts = [OrderStarts(task).tree(number) for number in (0, 2)]
    monkeypatch.setattr(starts, "MOST_FRONT_LEGS", 0)
    others = [OrderStarts(task).tree(number) for number in (0, 2)]
    for front, other in zip(fronts, others, strict=True):
        assert front.ssa_path != other.ssa_path
        assert 2**other.score == pytest.approx(tree_cost(task, other.ssa_path), rel=1e-9)


def test_an_order_of_a_tensor_with_thousands_of_indices_takes_all_tensors_once() -> None:
    """Its indices wait as they did before it was made."""
    n = elimination_kernel.MOST_KEYED // 2 + 50
    terms = [tuple(f"a{i}" for i in range(n)), tuple(f"b{i}" for i in range(n))]
    terms += [(f"a{i}", f"b{i}", f"c{i % 7}") for i in range(n)]
    network = Network(tuple(terms), (), {index: 2 for term in terms for index in term})
    graph = make_hypergraph(network.inputs, (), network.size_dict)
    rule = elimination_kernel.Rule(elimination_kernel.DEGREE, 0.0, 1e-6)
    pairs = elimination_kernel.eliminate(graph, np.zeros(len(graph.weights), np.int64), rule, 0)
    assert len(ContractionPath(network, tuple(rooted(pairs, len(terms)))).ssa_path) == n + 1


def random_tree(n: int, chance: random.Random) -> tuple[Any, Any]:
    """A tree, a chain now and then, whose products are numbered in any order."""
    live, pairs = list(range(n)), []
    is_chain = chance.random() < 0.3
    while len(live) > 1:
        a = live.pop() if is_chain and pairs else live.pop(chance.randrange(len(live)))
        b = live.pop(chance.randrange(len(live)))
        pairs.append((a, b)[:: chance.choice((1, -1))])
        live.append(n + len(pairs) - 1)
    left, right, _ = tree_of(pairs, n)
    # Annealing leaves the root as the last node, and others where they are.
    new = np.concatenate([np.arange(n), n + np.array(chance.sample(range(n - 2), n - 2), int), [2 * n - 2]])
    turned = [np.zeros_like(left), np.zeros_like(right)]
    for side, own in zip(turned, (left, right), strict=True):
        side[new[n:]] = new[own[n:]]
    return turned[0], turned[1]


@pytest.mark.parametrize("seed", range(60))
def test_a_large_tree_is_measured_without_its_legs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    n = chance.choice((4, 14, 40))
    if chance.random() < 0.5:
        network = hypernetwork(seed, n, chance.choice((n, 2 * n)))
    else:
        network = regular_network(max(n, 14) // 2 * 2, seed, extents=(2, 3), n_open=chance.choice((0, 3)))
    n = len(network.inputs)
    graph = make_hypergraph(network.inputs, network.output, network.size_dict)
    weights = graph.weights * np.array([chance.random() < 0.8 for _ in graph.weights])  # others are sliced
    left, right = random_tree(n, chance)
    slowly = measured(graph, weights, left, right)
    monkeypatch.setattr(measure_kernel, "MANY_NODES", 0)
    monkeypatch.setattr(measure_kernel, "run_measure", None)  # which goes through the legs
    for quick, slow in zip(measured(graph, weights, left, right), slowly, strict=True):
        np.testing.assert_allclose(quick, slow, atol=1e-11)

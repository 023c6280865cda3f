"""Parts of trees in a better order: the optimum of small ones, costs that stay right, limits that hold."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from tests.support.hypernetworks import hypernetwork, least_cost, task_of, tree_cost
from tests.support.search import chain_path
from tnplan.planner.search.annealer.anneal_state import Heat, Price, tree_of
from tnplan.planner.search.annealing import ScoredTree
from tnplan.planner.search.orders.hypergraph import make_hypergraph
from tnplan.planner.search.orders.starts import OrderStarts, path_of
from tnplan.planner.search.subtrees import regions
from tnplan.planner.search.subtrees.measure_kernel import measured
from tnplan.planner.search.subtrees.optimal_kernel import sweep
from tnplan.planner.search.subtrees.regions import LargeTree
from tnplan.planner.workloads.mixed import peps_network


@pytest.mark.parametrize("minimize", ["flops", "write", "combo"])
@pytest.mark.parametrize("seed", range(10))
def test_a_whole_small_tree_becomes_the_best_of_all(seed: int, minimize: str) -> None:
    network = hypernetwork(seed, 7, 10)
    task = replace(task_of(network), minimize=minimize)
    left, right, _ = tree_of(chain_path(network, seed), 7)
    graph = make_hypergraph(task.inputs, task.output, task.sizes)
    sweep(graph, graph.weights, left, right, 12, 7, math.inf, task.price)
    assert tree_cost(task, path_of(left, right)) == least_cost(task)


@pytest.mark.parametrize("seed", range(8))
def test_parts_never_make_a_tree_worse(seed: int) -> None:
    network = hypernetwork(seed, 24, 40)
    task = task_of(network)
    path = chain_path(network, seed)
    before = tree_cost(task, path)
    left, right, _ = tree_of(path, 24)
    graph = make_hypergraph(task.inputs, task.output, task.sizes)
    for most in (4, 6, 8):
        better = sweep(graph, graph.weights, left, right, 46, most, math.inf, Price())
        after = tree_cost(task, path_of(left, right))
        assert after <= before
        assert (after < before) == (better > 0) or after == before
        before = after


@pytest.mark.parametrize("limit", [64, 4096])
def test_slices_of_a_large_tree_keep_the_limit_and_its_score_is_the_cost(limit: int) -> None:
    task = task_of(peps_network(5, 5, 1, extents=(2, 3)), limit)
    tree = LargeTree(task, OrderStarts(replace(task, limit=None)).tree(0))
    tree.improve(Heat(8.0, 0.3, 0.02, 1.0), 50_000, math.inf, random.Random(0))
    found = tree.scored()
    assert tree.fits
    assert not set(found.sliced) & set(task.output)
    sizes = {**task.sizes, **dict.fromkeys(found.sliced, 1)}
    slices = math.prod(int(task.sizes[index]) for index in found.sliced)
    assert 2**found.score == pytest.approx(slices * tree_cost(replace(task, sizes=sizes), found.ssa_path))
    sizes_of_nodes = measured(tree.graph, tree.weights, tree.left, tree.right).size
    assert sizes_of_nodes.max() <= math.log2(limit) + 1e-9


def test_regions_make_a_bad_tree_much_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """As good as annealing of the whole, from random pairs, with regions of a part of it."""
    monkeypatch.setattr(regions, "REGIONS", (10, 25))
    network = peps_network(6, 6, 1, extents=(2, 2), n_open=1, n_hyper=1)
    task = task_of(network)
    tree = LargeTree(task, ScoredTree(0.0, chain_path(network, 1), ()))
    before = tree.scored().score
    tree.improve(Heat(8.0, 0.3, 0.02, 1.0), 400_000, math.inf, random.Random(0))
    found = tree.scored()
    assert 2**found.score == pytest.approx(tree_cost(task, found.ssa_path))
    assert found.score < before - 15
    assert found.score < min(OrderStarts(task).tree(number).score for number in range(4)) + 1
    assert np.array_equal(np.sort(np.concatenate([tree.left[36:], tree.right[36:]])), np.arange(70))

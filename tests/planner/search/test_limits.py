"""Limits below a tree's width: what slices save is counted right, and wide networks cost little more."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.support.hypernetworks import task_of
from tests.support.search import cost_of, odd_network, prepared, search_path
from tests.support.slow import slow_after
from tnplan.planner.networks.network import Network
from tnplan.planner.search.annealer import slices_kernel
from tnplan.planner.search.annealer.anneal_state import Price
from tnplan.planner.search.annealer.annealed import Annealed
from tnplan.planner.search.annealing import Effort, ScoredTree, Task
from tnplan.planner.search.driver import carry_out
from tnplan.planner.search.orders.starts import OrderStarts
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.round_policy import ElitePool, Pools
from tnplan.planner.workloads.mixed import regular_network


@pytest.mark.parametrize("price", [Price(), Price(1.0, 64.0), Price(0.0, 1.0)])
@pytest.mark.parametrize("seed", range(8))
def test_what_a_slice_saves_is_what_slicing_it_saves(seed: int, price: Price) -> None:
    network = odd_network(seed)
    problem, state, _ = prepared(Network(network.inputs, (), network.size_dict), 12.0, price, seed)
    slices_kernel.toggle(problem, state, int(np.flatnonzero(problem.extents > 1.0)[seed]))
    node = int(np.argmax(state.size))
    slices_kernel.weigh_bits(problem, state, node)
    energy = state.weighed[slices_kernel.ENERGY].copy()
    bits = np.flatnonzero(energy < math.inf)
    assert len(bits) >= 2
    for bit in bits:
        slices_kernel.toggle(problem, state, int(bit))
        cost, over = state.totals[:2]
        counted = math.log2(problem.extents[bit]) + math.log2(cost) + math.log2(1 + over)
        assert energy[bit] == pytest.approx(counted, rel=1e-9)
        slices_kernel.toggle(problem, state, int(bit))


@pytest.mark.parametrize("extent", [2, 3])
def test_sizes_beyond_whole_numbers_come_back_after_slices(extent: int) -> None:
    """Above 2^53 a size times a power of two keeps all its digits; others are taken afresh."""
    network = regular_network(60, 1, extents=(extent, extent))
    problem, state, _ = prepared(network, 2.0**20, 0.0, 0)
    before = state.size.copy(), state.span.copy()
    assert before[0].max() > 2.0**53
    bits = np.flatnonzero(problem.extents > 1.0)[:30]
    for bit in (*bits, *bits[::-1]):
        slices_kernel.toggle(problem, state, int(bit))
    assert np.array_equal(before[0], state.size)
    assert np.array_equal(before[1], state.span)


@pytest.mark.parametrize("bits", slow_after(1, [10, 4]))
def test_some_bits_less_than_the_width_cost_at_most_those(bits: int) -> None:
    """The first round has no limit, and its tree is over it in few tensors."""
    network = regular_network(240, 3, extents=(2, 2), n_open=0, n_hyper=0)
    options = {"methods": ("joint",), "minimize": "flops", "effort": Effort(8.0, 1, 1)}
    free = search_path(network, "complex64", **options)  # type: ignore[arg-type]
    limit = round(path_cost(free).log2_largest) - bits
    found = search_path(network, "complex64", max_tensor_elements=2**limit, **options)  # type: ignore[arg-type]
    assert path_cost(found).log2_largest <= limit
    assert cost_of(found, 0.0) <= cost_of(free, 0.0) * 2.0**bits


def test_rounds_without_the_limit_are_those_of_a_search_without_one() -> None:
    """The same first trees, the same rounds, the same costs; then the tree is sliced."""
    network = regular_network(120, 2, extents=(2, 2), n_open=0, n_hyper=0)
    task = replace(task_of(network), limit=2**8)
    free = ElitePool(task.seed, *_first(replace(task, limit=None)))
    pools = Pools(ElitePool(task.seed, *_first(task)), replace(free, pool=list(free.pool)))
    given, alone = pools.next(1e9, False), free.next(1e9, False)
    assert given.unlimited
    outcome = carry_out(task, given, 40_000.0, math.inf, None)
    found = carry_out(replace(task, limit=None), alone, 40_000.0, math.inf, None).tree
    assert found is not None
    assert outcome.tree == found
    assert found.sliced == ()
    sliced = outcome.sliced
    assert sliced is not None
    assert sliced.sliced
    assert Annealed(task, sliced, 0).given == sliced
    pools.take(given, outcome.tree, sliced)
    assert sliced in pools.limited.pool
    assert found in pools.unlimited.pool if pools.unlimited else False


def test_a_round_in_which_time_is_up_gives_no_tree() -> None:
    task = replace(task_of(regular_network(60, 2, extents=(2, 2), n_open=0, n_hyper=0)), limit=2**8)
    pool, free = (ElitePool(task.seed, *_first(one)) for one in (task, replace(task, limit=None)))
    pools = Pools(pool, free)
    given = pools.next(1e9, False)
    outcome = carry_out(task, given, 40_000.0, -math.inf, None)
    assert (outcome.tree, outcome.sliced, outcome.moves) == (None, None, 0)
    best = pools.best
    assert not pools.take(given, outcome.tree, outcome.sliced)
    assert pools.best is best


def test_the_pool_that_leads_to_better_trees_has_more_of_the_rounds() -> None:
    first, tree = ScoredTree(300.0, ((0, 1),), ("a",)), ScoredTree(90.0, ((0, 1),), ())

    def seen(limited: float, sliced: float) -> list[bool]:
        pools = Pools(ElitePool(3, first, [first]), ElitePool(3, tree, [tree], power=0.5))
        twin = Pools(ElitePool(3, first, [first]), ElitePool(3, tree, [tree], power=0.5))
        rounds = []
        for number in range(200):
            given = pools.next(1e9, False)
            assert given == twin.next(1e9, False)
            assert pools.number == number + 1
            assert given.power == (0.5 if given.unlimited else 1.0)
            if given.kind == "first":
                assert given.source is (tree if given.unlimited else first)
            score = sliced if given.unlimited else limited
            found = ScoredTree(score - number % 3, ((1, 0),), (str(number),))
            wide = ScoredTree(85.0, ((1, 0),), ())
            trees = (wide, found) if given.unlimited else (found,)
            better = found.score < pools.best.score
            assert pools.take(given, *trees) == twin.take(given, *trees) == better
            rounds.append(given.unlimited)
        return rounds

    behind, ahead = seen(95.0, 130.0), seen(130.0, 95.0)
    assert behind[:2] == ahead[:2] == [True, False]
    assert 0 < sum(behind) < 60 < 140 < sum(ahead) < 200


def test_ranking_and_a_search_without_a_limit_have_one_pool() -> None:
    tree = ScoredTree(90.0, ((0, 1),), ())
    alone = Pools(ElitePool(3, tree, [tree]))
    assert not any(alone.next(1e9, False).unlimited for _ in range(50))
    both = Pools(ElitePool(3, tree, [tree]), ElitePool(3, tree, [tree]))
    assert not any(both.next(1e9, True).unlimited for _ in range(50))


def _first(task: Task) -> tuple[ScoredTree, list[ScoredTree]]:
    tree = OrderStarts(task).tree(1)
    within = Annealed(task, tree, 0).sliced()
    return within, [within]

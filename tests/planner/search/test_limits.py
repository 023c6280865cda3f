"""Limits below a tree's width: what slices save is counted right, and wide networks cost little more."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.support.hypernetworks import task_of
from tests.support.search import cost_of, odd_network, prepared, search_path
from tnplan.planner.networks.network import Network
from tnplan.planner.search.annealer import slices_kernel
from tnplan.planner.search.annealer.anneal_state import Heat
from tnplan.planner.search.annealer.annealed import Annealed
from tnplan.planner.search.annealing import Effort, Found
from tnplan.planner.search.orders.starts import OrderStarts
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.round_policy import POOL, ElitePool, Round
from tnplan.planner.workloads.mixed import regular_network

HEAT = Heat(40.0, 0.4, 0.02, 1.0)


@pytest.mark.parametrize("seed", range(8))
def test_what_a_slice_saves_is_what_slicing_it_saves(seed: int) -> None:
    network = odd_network(seed)
    problem, state, _ = prepared(Network(network.inputs, (), network.size_dict), 12.0, 0.0, seed)
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


@pytest.mark.parametrize("bits", [4, 10])
def test_some_bits_less_than_the_width_cost_at_most_those(bits: int) -> None:
    """The first round is the same without a limit, whose tree is over it in few tensors."""
    network = regular_network(240, 3, extents=(2, 2), n_open=0, n_hyper=0)
    options = {"methods": ("joint",), "minimize": "flops", "effort": Effort(8.0, 1, 1)}
    free = search_path(network, "complex64", **options)  # type: ignore[arg-type]
    limit = round(path_cost(free).log2_largest) - bits
    found = search_path(network, "complex64", max_tensor_elements=2**limit, **options)  # type: ignore[arg-type]
    assert path_cost(found).log2_largest <= limit
    assert cost_of(found, 0.0) <= cost_of(free, 0.0) * 2.0**bits


@pytest.mark.parametrize("moves", [0.0, 30_000.0])
def test_a_descent_ends_within_the_limit_and_never_above_slicing_at_once(moves: float) -> None:
    task = replace(task_of(regular_network(60, 2, extents=(2, 2), n_open=0, n_hyper=0)), limit=2**8)
    tree = OrderStarts(replace(task, limit=None)).tree(1)
    at_once = Annealed(task, tree, 0).sliced()
    annealed = Annealed(task, tree, 0)
    assert annealed.descend(HEAT, moves, math.inf) >= moves
    found = annealed.best_found()
    assert found is not None
    assert found.score <= at_once.score
    assert Annealed(task, found, 0).given == found


def test_rounds_that_descend_come_first_and_as_often_as_they_pay() -> None:
    first, wide = Found(300.0, ((0, 1),), ("a",)), Found(90.0, ((0, 1),), ())

    def seen(direct: float, descent: float) -> list[bool]:
        ladder = ElitePool(3, first, [first], wide=[wide], wide_first=wide)
        rounds = []
        for number in range(200):
            given = ladder.next(1e9, False)
            rounds.append(given.descends)
            if given.kind == "first":
                assert given.source is (wide if given.descends else first)
            if given.kind == "warm":
                assert given.source in (ladder.wide if given.descends else ladder.pool)
            score = descent if given.descends else direct
            tree = Found(85.0, ((1, 0),), (f"w{number}",)) if given.descends else None
            ladder.take(given, Found(score, ((1, 0),), (str(number),)), tree)
            assert len(ladder.wide) <= POOL
        return rounds

    behind, ahead = seen(95.0, 130.0), seen(130.0, 95.0)
    assert behind[0]
    assert ahead[0]
    assert 0 < sum(behind) < 60 < 140 < sum(ahead) < 200


def test_without_wide_trees_nothing_descends() -> None:
    first = Found(90.0, ((0, 1),), ())
    ladder = ElitePool(3, first, [first])
    assert not any(ladder.next(1e9, False).descends for _ in range(50))


def test_a_wide_tree_takes_the_place_of_the_one_it_began_at() -> None:
    first, wide, other = (Found(90.0, ((0, 1),), (name,)) for name in ("a", "", "b"))
    ladder = ElitePool(3, first, [first], wide=[wide, other], wide_first=wide)
    better = Found(80.0, ((1, 0),), ())
    ladder.take(Round(0, "warm", wide, HEAT, descends=True), None, better)
    assert ladder.wide == [better, other]
    assert ladder.pool == [first]

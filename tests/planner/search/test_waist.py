"""The waist of the joint search: moves of the root, the best edge of all, sides that a recount confirms."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.search import odd_network, prepared, recount
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.network import Network
from tnplan.planner.search.annealer import anneal_kernel as kernel
from tnplan.planner.search.annealer import waist_kernel as waist
from tnplan.planner.search.annealer.anneal_state import (
    HELD,
    WAIST,
    AnnealState,
    Best,
    Heat,
    Price,
    bits_of,
    make_problem,
    new_state,
    pairs_of,
    sliced_bits,
    tree_of,
)  # fmt: skip
from tnplan.planner.search.annealer.annealed import act
from tnplan.planner.search.ranking import SearchedNetwork, Target

FIELDS = ("left", "right", "parent", "legs", "size", "span", "cost", "unsliced", "side", "totals")


def closed(network: Network) -> Network:
    return Network(network.inputs, (), network.size_dict)


def shaken(network: Network, seed: int, waist_limit: float = math.inf) -> tuple[Any, AnnealState, set[str]]:
    """A state after random moves, its problem and what is sliced in it, its totals fresh."""
    problem, state, _ = prepared(network, 24.0, 3.5, seed, waist_limit)
    for _ in range(400):
        kernel.rotate(problem, state, 5.0, 1.0, 50.0)
        kernel.change_slices(problem, state, 1.0, 50.0)
    for bit in bits_of(network.size_dict).values():
        if state.counts[0] < 3 and state.position[bit] < 0 and _may_be_sliced(problem, bit):
            kernel.toggle(problem, state, bit)
    waist.add_up(problem, state)
    bits = bits_of(network.size_dict)
    return problem, state, {name for name, bit in bits.items() if state.position[bit] >= 0}


def _may_be_sliced(problem: Any, bit: int) -> bool:
    return bool(int(problem.sliceable[bit // 64]) >> bit % 64 & 1)


def fresh(problem: Any, state: AnnealState, n: int) -> AnnealState:
    """A state of the same tree and slices that has made no moves."""
    other = new_state(problem, n, 0)
    act(kernel.RESTORE, problem, other, as_best(state))
    return other


def as_best(state: AnnealState) -> Best:
    return Best(state.left, state.right, state.parent, state.unsliced, np.full(1, math.inf))


def held_at_waist(network: Network, tree: Any, sliced: set[str]) -> int:
    """The elements of a slice's tensor at the waist; 0 where nothing is summed inside of a side."""
    n = len(network.inputs)
    root = int(np.argmin(tree.parent))

    def indices(v: int) -> set[str]:
        return set(network.inputs[v]) if v < n else indices(int(tree.left[v])) | indices(int(tree.right[v]))

    sides = [indices(int(v)) for v in (tree.left[root], tree.right[root])]
    if not any(network.size_dict[name] > 1 for name in sliced & (sides[0] ^ sides[1])):
        return 0
    return math.prod(network.size_dict[name] for name in (sides[0] & sides[1]) - sliced)


def everywhere(network: Network, state: AnnealState, sliced: set[str]) -> list[tuple[float, int]]:
    """What all slices cost with the root at each edge in turn, and what is held there."""
    n = len(network.inputs)
    root = int(np.argmin(state.parent))
    beside: dict[int, list[int]] = {v: [] for v in range(2 * n - 1) if v != root}
    for v in range(2 * n - 1):
        if v != root and state.parent[v] != root:
            beside[v].append(int(state.parent[v]))
            beside[int(state.parent[v])].append(v)
    tops = int(state.left[root]), int(state.right[root])
    beside[tops[0]].append(tops[1])
    beside[tops[1]].append(tops[0])

    def pairs(v: int, above: int, made: list[tuple[int, int]]) -> int:
        if v < n:
            return v
        a, b = (pairs(u, v, made) for u in beside[v] if u != above)
        made.append((a, b))
        return n + len(made) - 1

    costs = []
    for v, u in [(here, there) for here in beside for there in beside[here] if here < there]:
        made: list[tuple[int, int]] = []
        made.append((pairs(v, u, made), pairs(u, v, made)))
        left, right, parent = tree_of(made, n)
        tree = Best(left, right, parent, state.unsliced, np.zeros(1))
        costs.append((recount(network, tree, sliced, 3.5)[0], held_at_waist(network, tree, sliced)))
    return costs


@pytest.mark.parametrize("seed", range(8))
def test_it_settles_at_the_best_of_all_edges(seed: int) -> None:
    """And the state there is that of the tree, to the last bit."""
    network = closed(odd_network(seed))
    problem, state, sliced = shaken(network, seed)
    assert sliced
    slices = math.prod(network.size_dict[name] for name in sliced)
    act(kernel.SETTLE, problem, state, as_best(state))
    assert state.totals[0] * slices == pytest.approx(min(everywhere(network, state, sliced))[0], rel=1e-9)
    other = fresh(problem, state, len(network.inputs))
    for name in FIELDS:
        assert np.array_equal(getattr(state, name), getattr(other, name)), name


@pytest.mark.parametrize("seed", range(8))
def test_it_settles_where_there_is_room(seed: int) -> None:
    """At the best of the edges at which little is held, wherever it was before."""
    network, most = closed(odd_network(seed)), 4
    problem, state, sliced = shaken(network, seed, most)
    slices = math.prod(network.size_dict[name] for name in sliced)
    for _ in range(40):
        kernel.rotate(problem, state, 5.0, 1.0, 50.0)
        over = max(held_at_waist(network, state, sliced) / problem.waist_limit - 1, 0)
        assert state.totals[HELD] == pytest.approx(over)
    act(kernel.SETTLE, problem, state, as_best(state))
    least = min(cost for cost, held in everywhere(network, state, sliced) if held <= problem.waist_limit)
    assert state.totals[0] * slices == pytest.approx(least, rel=1e-9)
    assert state.totals[HELD] == 0.0


@pytest.mark.parametrize("seed", range(6))
def test_the_best_holds_little_at_the_waist(seed: int) -> None:
    network = closed(odd_network(seed))
    problem, state, best = prepared(network, 40.0, 3.5, seed, 8.0)
    act(kernel.SLICE, problem, state, best)
    assert math.isfinite(best.score[0])
    act(kernel.ANNEAL, problem, state, best, Heat(8.0, 0.4, 0.02, 1.0), (0, 20, 20))
    names = {bit: name for name, bit in bits_of(network.size_dict).items()}
    sliced = {names[bit] for bit in sliced_bits(best)}
    left, right, parent = tree_of(pairs_of(best), len(network.inputs))
    tree = Best(left, right, parent, best.unsliced, best.score)
    assert held_at_waist(network, tree, sliced) <= problem.waist_limit
    assert best.score[0] == pytest.approx(math.log2(recount(network, tree, sliced, 3.5)[0]))


def test_room_at_the_waist() -> None:
    """Under 136 GiB for each device: tensors of 128 GiB on one leave 72 beside half of one, those of 64 more
    than any tensor may have."""
    network = odd_network(0)
    target = Target(
        SearchedNetwork(network, "complex64", {}, frozenset()), load_profile("h200-nvlink"), 1, None
    )
    assert 2**33 < target.waist_limit(2**34) < 2**33.5
    assert target.waist_limit(2**33) > 2**33
    assert 2**34 < replace(target, devices=2).waist_limit(2**35) < 2**34.5
    assert target.waist_limit(None) == math.inf
    smallest = min(math.prod(network.size_dict[name] for name in term) for term in network.inputs)
    for output, expected in ((), smallest), (network.output, math.inf):
        problem = make_problem(
            network.inputs, output, network.size_dict, 24.0, Price(moved=3.5), target.waist_limit(2**40)
        )
        assert problem.waist_limit == expected


def test_open_indices_and_whole_networks_keep_their_root() -> None:
    for network, unsliced in ((odd_network(1), False), (closed(odd_network(1)), True)):
        problem, state, _ = shaken(network, 1)
        while unsliced and state.counts[0]:
            kernel.toggle(problem, state, int(state.sliced[0]))
        before = state.left.copy()
        act(kernel.SETTLE, problem, state, as_best(state))
        assert np.array_equal(before, state.left)
        assert (WAIST in state.side) != unsliced


@pytest.mark.parametrize("seed", range(6))
def test_a_waist_that_moves_back_leaves_nothing(seed: int) -> None:
    network = odd_network(seed)
    problem, state, sliced = shaken(network, seed)
    assert sliced
    before = {name: getattr(state, name).copy() for name in FIELDS}
    root = int(np.argmin(state.parent))
    n = len(network.inputs)
    for x in (int(state.left[root]), int(state.right[root])):
        c = int(state.left[root]) + int(state.right[root]) - x
        for a, b in (state.left[x], state.right[x]), (state.right[x], state.left[x]):
            if x >= n:
                kernel.move_waist(
                    problem, state, x, root, int(a), int(b), c, (5.0, 7.0, 9.0), 2.0, 1, 1.0, -1e9
                )
                for name in FIELDS:
                    assert np.array_equal(before[name], getattr(state, name)), name


@pytest.mark.parametrize("tensors", [3, 4, 5])
@pytest.mark.parametrize("seed", range(3))
def test_small_networks(seed: int, tensors: int) -> None:
    """The best of a round costs what its pairs and slices say."""
    network = odd_network(seed, tensors, 9)
    problem, state, best = prepared(network, 40.0, 3.5, seed)
    act(kernel.SLICE, problem, state, best)
    act(kernel.ANNEAL, problem, state, best, Heat(8.0, 0.4, 0.02, 1.0), (0, 5, 5))
    names = {bit: name for name, bit in bits_of(network.size_dict).items()}
    sliced = {names[bit] for bit in sliced_bits(best)}
    left, right, parent = tree_of(pairs_of(best), tensors)
    cost, largest = recount(network, Best(left, right, parent, best.unsliced, best.score), sliced, 3.5)
    assert largest <= 40
    assert best.score[0] == pytest.approx(math.log2(cost))

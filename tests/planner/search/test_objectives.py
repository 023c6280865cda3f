"""Objectives of the joint search: figures that cotengra and a replay confirm, and paths that are no worse."""

from __future__ import annotations

import random
from functools import cache

import pytest

from tests.support.search import odd_network, search_path
from tests.support.slow import slow_unless
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.search import driver
from tnplan.planner.search.annealing import Effort
from tnplan.planner.search.path_cost import in_least_memory, objective_log2
from tnplan.planner.workloads.mixed import peps_network, regular_network

NETWORKS = {
    "regular": (regular_network(40, 11, extents=(2, 3), n_open=0, n_hyper=0), 2**7),
    "open": (regular_network(30, 12, extents=(2, 4), n_open=3, n_hyper=2), 2**9),
    "lattice": (peps_network(6, 6, 13, extents=(2, 3)), 2**9),
    "odd": (odd_network(14, 24, 40), 2**9),
}


@cache
def found(name: str, minimize: str, is_limited: bool) -> ContractionPath:
    network, limit = NETWORKS[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "MOVES_PER_TENSOR", 10_000)
        # Rounds end it, long before the time is up: the same path on any machine.
        return search_path(
            network, "complex64", max_tensor_elements=limit if is_limited else None, methods=("joint",),
            minimize=minimize, effort=Effort(600.0, 4, 20),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "way"),
    slow_unless(
        lambda name, way: name % 3 == 0,
        [*NETWORKS], [("write", False), ("size", True), ("combo", False)],
    ),
)  # fmt: skip
def test_a_path_is_no_worse_than_that_of_fewest_operations(name: str, way: tuple[str, bool]) -> None:
    minimize, is_limited = way
    path, other = found(name, minimize, is_limited), found(name, "flops", is_limited)
    assert objective_log2(path, minimize) <= objective_log2(other, minimize) + 1e-9
    assert path.meta["objective"] == minimize
    if is_limited:
        assert path.meta["log2_largest"] <= path.meta["log2_limit"]


@pytest.mark.parametrize("seed", range(4))
def test_what_objectives_count_is_what_cotengra_counts(seed: int) -> None:
    draw = random.Random(seed)
    path = random_tree(odd_network(seed), draw)
    tree = path.to_cotengra()
    assert 2 ** objective_log2(path, "flops") == pytest.approx(tree.total_flops())
    assert 2 ** objective_log2(path, "write") == pytest.approx(tree.total_write())
    assert 2 ** objective_log2(path, "combo") == pytest.approx(tree.combo_cost(64))
    assert 2 ** objective_log2(path, "size") == pytest.approx(tree.max_size() * path.n_slices)


@pytest.mark.parametrize("seed", range(8))
def test_no_order_needs_less_memory_than_the_one_of_least_memory(seed: int) -> None:
    """Of all that finish one operand before the other; the order given has what is said of it."""
    path = random_tree(odd_network(seed, 7, 10), random.Random(seed))
    least, ordered = in_least_memory(path)
    assert 2**least == pytest.approx(memory(ordered))
    assert memory(ordered) == min(map(memory, orders_of(path)))
    assert sorted(sets_of(ordered)) == sorted(sets_of(path))


def random_tree(network: Network, draw: random.Random) -> ContractionPath:
    """A path of random pairs, two of its summed indices of extent above 1 sliced."""
    left = list(range(len(network.inputs)))
    pairs = []
    while len(left) > 1:
        pairs.append(tuple(left.pop(draw.randrange(len(left))) for _ in range(2)))
        left.append(len(network.inputs) + len(pairs) - 1)
    summed = [i for i, size in network.size_dict.items() if i not in network.output and size > 1]
    used = {i for term in network.inputs for i in term}
    return ContractionPath(network, tuple(pairs), tuple(draw.sample([i for i in summed if i in used], 2)))


def sets_of(path: ContractionPath) -> list[list[int]]:
    """The inputs below each product."""
    sets = [[number] for number in range(len(path.network.inputs))]
    for a, b in path.ssa_path:
        sets.append(sorted(sets[a] + sets[b]))
    return sets


def memory(path: ContractionPath) -> int:
    """The most elements at once when the steps are done in their order."""
    network = path.network
    sizes = {**network.size_dict, **dict.fromkeys(path.sliced_inds, 1)}
    n = len(network.inputs)

    def size(tensors: list[int]) -> int:
        others = {i for t in set(range(n)) - {*tensors} for i in network.inputs[t]} | {*network.output}
        total = 1
        for index in {i for t in tensors for i in network.inputs[t]} & others:
            total *= sizes[index]
        return total

    elements = [size(tensors) for tensors in sets_of(path)]
    now = most = sum(elements[:n])
    for number, (a, b) in enumerate(path.ssa_path):
        now += elements[n + number]
        most = max(most, now)
        now -= elements[a] + elements[b]
    return most


def orders_of(path: ContractionPath) -> list[ContractionPath]:
    """The path with the operands of its steps made in either order."""
    n = len(path.network.inputs)

    def orders(v: int) -> list[list[int]]:
        if v < n:
            return [[]]
        a, b = path.ssa_path[v - n]
        return [
            [*x, *y, v] for first, second in ((a, b), (b, a)) for x in orders(first) for y in orders(second)
        ]

    paths = []
    for order in orders(n + len(path.ssa_path) - 1):
        names = {v: v for v in range(n)} | {v: n + number for number, v in enumerate(order)}
        steps = tuple(tuple(names[child] for child in path.ssa_path[v - n]) for v in order)
        paths.append(ContractionPath(path.network, steps, path.sliced_inds))
    return paths

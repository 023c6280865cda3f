"""The first trees of a search: none that is far above the best, and few where time is up."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.support.hypernetworks import task_of
from tnplan.planner.networks.network import Network
from tnplan.planner.search.annealing import Effort, ScoredTree
from tnplan.planner.search.driver import search_joint
from tnplan.planner.search.orders.starts import (
    FAR_BITS,
    QUICK_KINDS,
    QUICK_TENSORS,
    OrderStarts,
    first_trees,
    load_kernels,
)


def cylinder(rows: int, columns: int) -> Network:
    """A lattice that is closed around its columns."""
    terms: list[list[str]] = [[] for _ in range(rows * columns)]
    for site in range(rows * columns):
        row, column = divmod(site, columns)
        for name, other in (
            (f"h{site}", row * columns + (column + 1) % columns),
            (f"v{site}", site + columns),
        ):
            if other < rows * columns:
                terms[site].append(name)
                terms[other].append(name)
    return Network(tuple(map(tuple, terms)), (), {index: 2 for term in terms for index in term})


@pytest.mark.parametrize("bits", [8, 14])
def test_trees_far_above_the_best_are_dropped(bits: int) -> None:
    """Of a cylinder some orders need hundreds of slices under a limit, and others some ten."""
    task = replace(task_of(cylinder(24, 24)), limit=2**bits, effort=Effort(20.0, 1, 1))
    drawn = [OrderStarts(task).tree(number).score for number in range(5)]
    trees = first_trees(task, lambda _: None)
    scores = [tree.score for tree in trees]
    assert max(drawn) > min(scores) + FAR_BITS
    assert max(scores) <= min(scores) + FAR_BITS


def test_of_a_large_network_there_are_few_trees_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []
    tree = OrderStarts.tree

    def counted(starts: OrderStarts, number: int) -> ScoredTree:
        numbers.append(number)
        return tree(starts, number)

    load_kernels()  # makes trees too, once in a process
    monkeypatch.setattr(OrderStarts, "tree", counted)
    task = replace(task_of(cylinder(2, QUICK_TENSORS // 2 + 2)), effort=Effort(60.0, 1, 1))
    first_trees(task, lambda _: None, time.monotonic() - 1.0)
    assert numbers == [0]
    first_trees(task, lambda _: None)
    assert len(numbers) > 2 * len(QUICK_KINDS)


def test_a_search_whose_time_is_up_ends_with_a_tree_within_the_limit() -> None:
    task = replace(task_of(cylinder(8, 12)), limit=2**6, effort=Effort(1.0, 4, 10))
    found = search_joint(task, began=time.monotonic() - 2.0)
    assert len(found.ssa_path) == len(task.inputs) - 1
    assert found.sliced

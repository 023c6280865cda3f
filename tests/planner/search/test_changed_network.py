"""Paths of networks that differ a little from one whose path is known."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import pytest

from tests.support.search import CHANGES, changed, odd_network
from tests.support.slow import slow_after
from tnplan.calls.search import search
from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.search.changed_network import path_of_changed
from tnplan.planner.search.path_cost import log10_mnk_planned, path_cost
from tnplan.planner.workloads.mixed import regular_network

LIMIT = 2**14


def in_turn(network: Network) -> list[tuple[int, int]]:
    """The path that takes one tensor after another."""
    n = len(network.inputs)
    return [(0, 1), *((n + i, i + 2) for i in range(n - 2))]


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("seed", range(6))
def test_every_changed_network_has_a_path(seed: int, how: str) -> None:
    """Of hyper-indices, extents of 1, open indices; what is sliced may be. Steps that stay are the same."""
    network = odd_network(seed)
    path = ContractionPath(network, tuple(in_turn(network)), ("i7",))
    other = changed(network, how, seed)
    # A contraction path refuses what is none.
    assert path_of_changed(path, other).network == other
    assert path_of_changed(path, network) is path


@cache
def known(seed: int) -> ContractionPath:
    network = regular_network(60, seed, extents=(2, 3))
    return search(network, max_tensor=LIMIT, rounds=10, minimize="flops")


@pytest.mark.parametrize("case", slow_after(0, product(range(3), CHANGES)))
def test_a_tenth_of_the_rounds_comes_close_to_a_new_search(case: tuple[int, str]) -> None:
    seed, how = case
    network = changed(known(seed).network, how, seed)
    options: dict[str, Any] = {"max_tensor": LIMIT, "minimize": "flops"}
    short = search(network, rounds=1, start=[known(seed)], **options)
    new = search(network, rounds=10, seed=1, **options)
    assert path_cost(short).log2_largest <= 14 + 1e-9
    assert log10_mnk_planned(short) <= log10_mnk_planned(new) + 0.3


def test_another_network_is_refused() -> None:
    other = regular_network(20, 0, extents=(2, 3))
    path = ContractionPath(other, tuple(in_turn(other)))
    renamed = Network(
        tuple(tuple(f"x{index}" for index in term) for term in other.inputs),
        tuple(f"x{index}" for index in other.output), {f"x{i}": size for i, size in other.size_dict.items()},
    )  # fmt: skip
    with pytest.raises(InputError, match="start: is a path of another network"):
        path_of_changed(path, renamed)

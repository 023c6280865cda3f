"""A search as long as it is worth: of networks on which greedy trees are hopeless too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_cache import FOLDER_VARIABLE
from tnplan.planner.search import search_in_proportion as proportion
from tnplan.planner.search.orders import first_trees
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.workloads.kings import independent_set_network, kings_edges, kings_sites


@pytest.fixture(autouse=True)
def unhurried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of earlier searches, and the first orders are tried however slow the machine is."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(first_trees, "FIRST_ORDERS_S", 300.0)


def independent_sets(side: int) -> Network:
    """With a tensor for each edge: a greedy tree costs 10^4 times what an order does."""
    sites = kings_sites(side, side, 0.8, 0)
    return independent_set_network(len(sites), kings_edges(sites))[0]


def test_no_annealing_where_an_order_is_good() -> None:
    network, profile = independent_sets(28), load_profile("cpu")
    path = proportion.search_in_proportion(network, "float64", profile)
    assert path_cost(path).log10_mnk_all_slices < 9
    assert proportion.worthwhile_s(network, "float64", profile) == proportion.SHORTEST_SEARCH_S


def test_limits_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proportion, "SHORTEST_SEARCH_S", 0.5)
    monkeypatch.setattr(proportion, "LONGEST_SEARCH_S", 0.5)
    limited = proportion.search_in_proportion(
        independent_sets(20), "float64", load_profile("cpu"), max_elements=2**12
    )
    assert path_cost(limited).log2_largest <= 12

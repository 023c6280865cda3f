"""A search as long as it is worth: of networks on which greedy trees are hopeless too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.path_cache import FOLDER_VARIABLE
from tnplan.planner.search import search_in_proportion as proportion
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.workloads.kings import independent_set_network, kings_edges, kings_sites


def test_no_annealing_where_an_order_is_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Independent sets with a tensor for each edge: a greedy tree costs 10^4 times what an order does."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    sites = kings_sites(28, 28, 0.8, 0)
    network = independent_set_network(len(sites), kings_edges(sites))[0]
    profile = load_profile("cpu")
    path = proportion.search_in_proportion(network, "float64", profile)
    assert path_cost(path).log10_mnk_all_slices < 9
    assert proportion.worthwhile_s(network, "float64", profile) == proportion.SHORTEST_SEARCH_S
    limited = proportion.search_in_proportion(network, "float64", profile, max_elements=2**16)
    assert path_cost(limited).log2_largest <= 16
    assert path_cost(limited).log10_mnk_all_slices < 10

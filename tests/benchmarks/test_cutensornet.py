"""The benchmark against cuTensorNet, without a GPU: orders as the library takes and reads them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.root import ROOT
from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath, ssa_from_linear
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import load_path
from tnplan.planner.search.path_cost import path_cost

FILES = ("sycamore_n53_m10_b22_flops", "regular_84_3_b22_flops", "zuchongzhi_n60_m24_b32_fused")


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "contraction"))


@pytest.mark.parametrize("name", FILES)
def test_pairs_are_the_order_of_the_path(name: str) -> None:
    from cutensornet_calls import linear_pairs

    path = load_path(ROOT / "paths" / f"{name}.json")
    found = ssa_from_linear(linear_pairs(path), len(path.network.inputs))
    assert [sorted(step) for step in found] == [sorted(step) for step in path.ssa_path]


def test_steps_of_one_and_of_three_tensors_become_pairs() -> None:
    from cutensornet_calls import linear_pairs

    network = Network((("a",), ("a", "b"), ("b", "c"), ("c",)), (), {"a": 2, "b": 2, "c": 2})
    path = ContractionPath(network, ((1,), (0, 3, 2), (4, 5)))
    # Live tensors: 0 1 2 3, then 1 2 03, then 1 032, which the last step joins.
    assert linear_pairs(path) == [(0, 3), (1, 2), (0, 1)]


@pytest.mark.parametrize("name", FILES)
def test_the_library_reads_our_slices_and_order(name: str) -> None:
    from cutensornet_calls import SlicedNetwork, library

    try:
        library()
    except InputError as error:
        pytest.skip(str(error))
    path = load_path(ROOT / "paths" / f"{name}.json")
    figures = path_cost(path)
    network = SlicedNetwork(path, "fp32", constant=True)
    assert network.n_slices == path.n_slices
    assert np.log2(network.largest) == pytest.approx(figures.log2_largest)
    # The library counts a multiplication and an addition, and some single tensors' slices beside them.
    assert network.flops == pytest.approx(2 * 10**figures.log10_mnk_all_slices, rel=1e-2)

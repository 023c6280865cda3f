"""The searches of an estimate: in proportion up to a limit, and a remark where a longer one is worth it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tnplan
from tests.support.circuits import random_circuit
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_cache import FOLDER_VARIABLE
from tnplan.planner.search import search_in_proportion as proportion
from tnplan.planner.search.search_options import SearchOptions
from tnplan.questions.estimates import contraction_cost
from tnplan.questions.estimates.estimate import SEARCH_IS_CUT


@pytest.fixture
def searches_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of all searches, which a clock counts; each finds a greedy path."""
    seconds: list[float] = []

    def found(network: Network, dtype: str, options: SearchOptions, _: object = None) -> ContractionPath:
        seconds.append(options.effort.time_s or 0.0)
        return ContractionPath(network, proportion.greedy_path(network), (), dtype)

    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(proportion, "are_compiled", lambda: True)
    monkeypatch.setattr(proportion, "search_path", found)
    monkeypatch.setattr(proportion, "monotonic", lambda: sum(seconds))
    return seconds


def estimate(search_time: float | None = None) -> tnplan.MethodEstimate:
    """The row of contraction of three words, each in a light cone of its own."""
    circuit = tnplan.Circuit(random_circuit(8, 120, 1))
    found = circuit.estimate(
        expectation=["Z0", "X3", "Y6 Z7"], method="contraction", hardware=load_profile("cpu"),
        search_time=search_time,
    )  # fmt: skip
    (row,) = found.rows
    assert ("a longer search may cut this" in str(found)) == (row.remark == SEARCH_IS_CUT)
    assert found.document["rows"][0]["remark"] == row.remark
    return row


@pytest.mark.parametrize(("predicted_s", "longest_s"), [(0.5, 0.0), (1.2, 1.2), (30.0, 10.0), (1e6, 10.0)])
def test_searches_are_in_proportion_up_to_a_limit(
    predicted_s: float, longest_s: float, searches_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three networks whose paths are predicted so, each of them worth 0.3 of that in searches."""
    monkeypatch.setattr(proportion, "predicted_s", lambda *_: predicted_s)
    row = estimate()
    assert sum(searches_s) == pytest.approx(longest_s)
    assert row.remark == (SEARCH_IS_CUT if predicted_s > 2 else "")


@pytest.mark.parametrize(("search_time", "remark"), [(0.1, SEARCH_IS_CUT), (10.0, "")])
def test_a_stated_time_may_be_short_too(
    search_time: float, remark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths that are predicted 20 s are worth 6 s of search."""
    monkeypatch.setattr(contraction_cost, "predicted_s", lambda *_: 20.0)
    monkeypatch.setattr("tnplan.jobs.arrays.planning.search_jointly", greedily)
    assert estimate(search_time).remark == remark


def greedily(network: Network, dtype: str, *_: object) -> ContractionPath:
    """The path that a search would find."""
    return ContractionPath(network, proportion.greedy_path(network), (), dtype)

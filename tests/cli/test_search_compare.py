"""`tnplan search --compare`: every method has a row, and the last one is the path that is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tnplan.cli.main import cli
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import load_path, save_network
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.search.search_options import METHODS
from tnplan.planner.workloads.mixed import peps_network


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    save_network(peps_network(4, 4, 0), "n.json", dtype="complex64")
    return "n.json"


def test_methods_stand_beside_each_other(network: str) -> None:
    done = CliRunner().invoke(
        cli, ["search", network, "--unlimited", "--time", "0.3", "--compare", "-o", "p.json"]
    )
    assert done.exit_code == 0, done.output
    rows = [line.split(" | ") for line in done.output.splitlines() if line.startswith("| ")][1:]
    assert [row[0].removeprefix("| ") for row in rows][: len(METHODS)] == list(METHODS)
    cost = path_cost(load_path("p.json"))
    assert rows[-1][0] == "| joint"
    assert rows[-1][1] == f"{cost.log10_mnk_all_slices:.3f}"
    assert rows[-1][3] == f"{cost.log2_largest:.2f}"


def test_the_same_as_json(network: str) -> None:
    arguments = ["--max-tensor", "2^9", "--time", "0.3", "--compare", "-o", "p.json", "--json"]
    done = CliRunner().invoke(cli, ["search", network, *arguments])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert {*METHODS, "joint"} <= figures["compared"].keys()
    assert figures["compared"]["joint"]["log10_mnk_all_slices"] == figures["log10_mnk_all_slices"]


def test_a_log_begins_before_the_first_path(network: str) -> None:
    done = CliRunner().invoke(cli, ["search", network, "--unlimited", "--time", "0.3", "-o", "p.json"])
    assert done.exit_code == 0, done.output
    lines = done.stderr.splitlines()
    assert lines[0] == "searching: first trees"
    assert "multiply-adds, largest" in lines[1]


@pytest.mark.parametrize(("limit", "is_said"), [("8", True), ("16", False)])
def test_a_limit_below_an_input_is_said(limit: str, is_said: bool, tmp_path: Path) -> None:
    network = Network((("x", "y"), ("y", "z"), ("z", "x")), (), {"x": 4, "y": 4, "z": 2})
    save_network(network, tmp_path / "n.json", dtype="float64")
    given, target = str(tmp_path / "n.json"), str(tmp_path / "p.json")
    done = CliRunner().invoke(cli, ["search", given, "--max-tensor", limit, "--time", "0", "-o", target])
    assert done.exit_code == 0, done.output
    assert ("An input is larger than the limit" in done.output) == is_said

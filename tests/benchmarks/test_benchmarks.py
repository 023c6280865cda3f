"""The GPU benchmarks on the CPU with small cases: they run, and their figures are what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from math import inf, prod
from pathlib import Path
from typing import Any

import numpy as np
import opt_einsum
import pytest

from tests.support.root import ROOT
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath, ssa_from_linear
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.networks.path_file import load_path, save_path
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.networks.tensors import random_tensors, save_tensors
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.workloads.lattice import lattice_circuit

PATH = ROOT / "paths" / "sycamore_n53_m10_b22_flops.json"


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "contraction"))


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, cwd=ROOT, timeout=300, check=False
    )


SCRIPTS: dict[str, list[str]] = {}
for _script in sorted((ROOT / "benchmarks").rglob("*.py")):
    if "__main__" in _script.read_text():
        SCRIPTS.setdefault(_script.parent.name, []).append(str(_script))
ASK = """
import io, json, runpy, sys
from contextlib import redirect_stdout
from pathlib import Path
sys.path[0] = str(Path(sys.argv[1]).parent)
for script in sys.argv[1:]:
    sys.argv, status = [script, "--help"], "did not end"
    with redirect_stdout(io.StringIO()) as said:
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            status = end.code
    print(json.dumps([status, said.getvalue()[:7]]), flush=True)
"""


def test_scripts_find_what_they_share_with_tests() -> None:
    """Python takes another folder named tests where the root is not first in its path."""
    texts = {path.name: path.read_text() for path in (ROOT / "benchmarks").rglob("*.py")}
    scripts = {name: text for name, text in texts.items() if "from tests." in text}
    assert scripts
    inserts = "sys.path.insert(0, str(Path(__file__)"
    assert [name for name, text in scripts.items() if inserts not in text] == []


@pytest.mark.slow
@pytest.mark.parametrize("folder", SCRIPTS)
def test_every_script_says_how_to_use_it(folder: str, tmp_path: Path) -> None:
    """The scripts of a folder in one process, which loads the libraries once."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, *SCRIPTS[folder]], capture_output=True, text=True, cwd=tmp_path,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert said == [[0, "usage: "] for _ in SCRIPTS[folder]]


def test_steps_runs_on_the_cpu(tmp_path: Path) -> None:
    output = tmp_path / "steps.json"
    done = run(
        "benchmarks/contraction/steps.py", PATH, "--device", "cpu", "--least", "1MiB", "--memory", "4MiB",
        "--seconds", "2", "--seconds-each", "0.001", "--output", output,
    )  # fmt: skip
    assert done.stderr == ""
    assert "goals: 1.25" in done.stdout
    document = json.loads(output.read_text())
    assert 1 <= document["units"] <= document["units_found"]
    assert document["rows"]
    for row in document["rows"]:
        assert row["over_floor"] == pytest.approx(row["ours_s"] / row["floor_s"])
        assert row["floor_s"] >= row["bytes"] / document["copy_bytes_per_s"] * (1 - 1e-9)
        assert row["floor_s"] >= row["flops"] / document["flop_per_s"] * (1 - 1e-9)
        assert row["bytes"] <= 4 << 20 or row["kind"] == "step"


def test_closing_runs_on_the_cpu(tmp_path: Path) -> None:
    output = tmp_path / "closing.json"
    done = run(
        "benchmarks/contraction/closing.py", "--rank", "16", "--device", "cpu",
        "--seconds", "0.001", "-o", output,
    )  # fmt: skip
    assert done.stderr == ""
    rows = json.loads(output.read_text())["rows"]
    assert [row["branches"] for row in rows] == [1, 3, 5]
    assert all(row["apart"] < 1e-6 and row["closing_s"] > 0 for row in rows)


def test_searches_are_compared(tmp_path: Path) -> None:
    output = tmp_path / "search.json"
    effort = ("--seconds", "1", "--workers", "1", "--seeds", "1", "--rival-seeds", "1")
    files = ("--paths", tmp_path, "-o", output)
    done = run("benchmarks/planning/search.py", "--case", "kings_12x12", *effort, *files)
    assert done.stderr == ""
    row = json.loads(output.read_text())["rows"][0]
    assert row["network"] == "kings_12x12"
    ours, theirs = row["joint_log10_mnk"][0], row["cotengra_log10_mnk"][0]
    assert row["factor"] == pytest.approx(10 ** (theirs - ours))
    assert ours <= theirs + 0.02
    assert done.returncode == int(row["factor"] < row["factor_goal"])
    kept = load_path(tmp_path / "kings_12x12_b10_flops.json")
    assert path_cost(kept).log10_mnk_all_slices == pytest.approx(ours)


def test_tiers_are_counted(tmp_path: Path) -> None:
    output = tmp_path / "tiers.json"
    done = run("benchmarks/planning/tiers.py", PATH, "--devices", "16", "-o", output)
    assert done.returncode == 0, done.stderr
    rows = json.loads(output.read_text())["rows"]
    assert len(rows) == 2
    for row in rows:
        assert row["ratio"] is None or row["two tiers GB"] == pytest.approx(row["ratio"] * row["one tier GB"])


@pytest.mark.slow
def test_replay_runs_on_the_cpu(tmp_path: Path) -> None:
    output = tmp_path / "replay.json"
    for ranks in ("1", "2"):
        done = run(
            "benchmarks/contraction/replay.py", PATH, "--device", "cpu", "--ranks", ranks,
            "--seconds", "0.001", "--output", output,
        )  # fmt: skip
        assert done.stderr == ""
    document = json.loads(output.read_text())
    assert [row["devices"] for row in document["rows"]] == [1, 2]
    for row in document["rows"]:
        assert row["not_finite"] == 0
        assert row["slices"] == 16
        assert row["time_s"] == pytest.approx(row["once_s"] + 16 // row["devices"] * row["slice_s"])
        assert row["peak_over_predicted"] == pytest.approx(1, rel=0.02)
    assert [entry["devices"] for entry in document["summary"]] == [1, 2]


def test_whole_runs_on_the_cpu(tmp_path: Path) -> None:
    """Two paths of one small circuit: the run and its check agree, in one call or in two."""
    network, arrays = simplify(*circuit_network(lattice_circuit("rectangular", 3, 3, 8, 0)))
    save_tensors([array.astype("complex64") for array in arrays], tmp_path / "t.npz")
    terms = [set(term) for term in network.inputs]
    files = []
    greedy = opt_einsum.paths.greedy(terms, set(), network.size_dict)
    in_order = [(0, 1), *((0, len(terms) - 2 - step) for step in range(len(terms) - 2))]
    for number, linear in enumerate((greedy, in_order)):
        sliced = tuple(sorted(network.size_dict)[number : number + 2])
        ssa = ssa_from_linear(linear, len(terms))
        files.append(tmp_path / f"p{number}.json")
        save_path(ContractionPath(network, ssa, sliced, tensors="t.npz"), files[-1])
    output = tmp_path / "whole.json"
    for only in (("--only", "run"), ("--only", "check"), ()):
        done = run(
            "benchmarks/contraction/whole.py", "--path", files[0], "--check-path", files[1],
            "--device", "cpu", "--ranks", "2", "--output", output, *only,
        )  # fmt: skip
        assert done.stderr == ""
        assert done.returncode == 0
    document = json.loads(output.read_text())
    assert document["difference"] < 1e-5
    assert "one device holds it" in document["run"]["one_device"]
    assert (document["run"]["dtype"], document["check"]["dtype"]) == ("complex64", "complex128")


def test_units_keep_what_makes_a_step(root: Path) -> None:
    """Dropped modes leave batch, n and k as they are, and every tensor of a unit fits."""
    from units import count, large_units

    schedule = plan(
        load_path(root / "paths/zuchongzhi_n60_m24_b32_time.json"), load_profile("h200-nvlink"),
        memory_bytes=inf,
    )  # fmt: skip
    whole, none_left = large_units(schedule, 1 << 30, 1 << 50, inf)
    small, misfits = large_units(schedule, 1 << 30, 1 << 30, inf)
    assert none_left == 0
    assert len(whole) > 20
    assert len(small) + misfits >= len(whole) // 2
    by_steps = {tuple(one.number for one in unit.singles): unit for unit in whole}
    for unit in small:
        assert unit.held * 8 <= 1 << 30
        origin = by_steps.get(tuple(one.number for one in unit.singles))
        for own, real in zip(unit.singles, origin.singles if origin else (), strict=False):
            sizes = [[count(part) for part in one.parts] for one in (own, real)]
            batch, _, _, k = sizes[0]
            assert (batch, k) == (sizes[1][0], sizes[1][3])
            assert min(sizes[0][1:3]) == min(sizes[1][1:3])
            assert prod(sizes[1][1:3]) == unit.dropped * prod(sizes[0][1:3])


def test_floors_of_one_rank_count_every_tensor_once(root: Path) -> None:
    from roofline import Roof, floors_s, local_bytes

    path = load_path(root / "paths/zuchongzhi_n60_m24_b35_flops.json")
    profile = load_profile("h200-nvlink")
    alone, shared = (plan(path, profile, devices=n, ranks_per_group=n, memory_bytes=inf) for n in (1, 4))
    bytes_bound, flops_bound = Roof(1.0, inf), Roof(inf, 1.0)
    for step in alone.steps:
        elements = sum(
            prod(alone.extents[mode] for mode in modes)
            for modes in (step.a_modes, step.b_modes, step.c_modes)
        )
        assert local_bytes(alone, step) == 8 * elements
    assert floors_s(alone, flops_bound)[1] == pytest.approx(alone.predicted.slice_flops)
    assert floors_s(shared, bytes_bound)[1] < 0.3 * floors_s(alone, bytes_bound)[1]


def row(**changes: Any) -> dict[str, Any]:
    """A row of replay.py."""
    return {
        "case": "c", "precision": "fp32", "device": "gpu", "engine": "native", "devices": 1, "path": "p",
        "time_s": 100.0, "complexity": 1e15, "flop_per_s_a_gpu": 4e13, "floor_share": 0.9, **changes,
    }  # fmt: skip


def test_speedups_are_against_the_least_time_of_one_device() -> None:
    from replay import compared

    rows = [
        row(), row(path="slow", time_s=150.0),
        row(devices=4, time_s=20.0, complexity=8e14), row(devices=4, path="q", time_s=30.0),
        row(devices=4, engine="cutensormp", time_s=50.0),
        row(devices=4, engine="cutensormp", policy="paper", time_s=40.0),
    ]  # fmt: skip
    alone, four = compared(rows)
    assert (alone["S"], alone["captured"]) == (1, 1)
    assert (four["S"], four["E"], four["R"]) == (5, 1.25, 1.25)
    assert four["captured"] == pytest.approx(1)
    assert four["over_native"] == 2


def test_rows_measured_again_replace_the_earlier_ones(tmp_path: Path) -> None:
    from replay import kept

    file = tmp_path / "replay.json"
    first = [row(policy="ours", ranks_per_group=1), row(policy="paper", ranks_per_group=1)]
    file.write_text(json.dumps({"rows": first}))
    again = row(policy="ours", ranks_per_group=1, time_s=5.0)
    assert kept(file, [again]) == [first[1], again]


@pytest.mark.parametrize("wrong", [False, True])
def test_the_check_of_the_demo_can_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: bool
) -> None:
    from cotengra_check import check

    network = Network((("a", "b"), ("b", "c"), ("c", "a")), (), {"a": 4, "b": 3, "c": 5})
    path = ContractionPath(network, ((0, 1), (3, 2)), ("b",), "complex64", "ring", "t.npz")
    arrays = random_tensors(network, path.dtype, 2)
    save_path(path, tmp_path / "ring.json")
    save_tensors(arrays, tmp_path / "t.npz")
    np.save(tmp_path / "result.npy", np.einsum("ab,bc,ca->", *arrays) * (1 + 3e-5 * wrong))
    with pytest.raises(SystemExit, match="the two differ") if wrong else nullcontext():
        check(tmp_path / "ring.json", tmp_path / "result.npy")
    assert "relative difference" in capsys.readouterr().out

"""The comparison of pipelines, and the tensors that codecs are measured on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.kernels.compress_arrays import make_array
from tests.support.root import ROOT
from tests.support.workloads import dense_terms
from tnplan.cli.main import run
from tnplan.common.errors import InputError
from tnplan.planner.workloads.qaoa import edge_network, maxcut_graph, random_angles


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    np.save(tmp_path / "t.npy", make_array("mirrored", 1 << 14, "complex128", 1))
    return tmp_path / "t.npy"


def test_a_table_and_a_plot_of_all_pipelines(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = saved.with_suffix(".svg")
    assert run(["compress", "--compare", str(saved), "--bound", "1e-2", "--plot", str(plot)]) == 0
    table = capsys.readouterr().out
    for name in ("cuSZ+grouping+2L", "cuSZx+integrated", "tnplan fast", "tnplan small"):
        assert name in table
    assert plot.read_text().count("<svg") == 1
    assert sorted(path.name for path in saved.parent.iterdir()) == ["t.npy", "t.svg"]


def test_figures_of_the_comparison(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compress", "--compare", str(saved), "--threshold", "0.02", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert len(rows) == 11
    for name, row in rows.items():
        assert row["array_bytes"] == 8 << 14
        assert row["ratio"] == pytest.approx(row["array_bytes"] / row["stream_bytes"])
        # A threshold of 20 times the bound is the error of what it cuts.
        assert (row["worst_error"] > 2e-3) == (
            "grouping" in name or "threshold" in name or "integrated" in name
        )
        assert row["worst_error"] <= 1.001e-3 or row["worst_error"] == pytest.approx(0.02, rel=0.1)
    for name in ("tnplan fast", "tnplan small"):
        assert rows[name]["worst_error"] <= 1e-3
        assert rows[name]["ratio"] > 2 * rows["cuSZx"]["ratio"]


def test_what_cannot_be_compared_is_refused(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, wanted in (
        (["--bound", "0"], "t.npy: bound: is 0; give one above 0"),
        (["--bound", "-1"], "t.npy: bound: is -1.0; give a finite number above 0 (see "),
        (["--threshold", "nan"], "t.npy: threshold: is nan; give a finite number of 0 or more (see "),
        (["--threshold", "-1"], "t.npy: threshold: is -1.0; give a finite number of 0 or more (see "),
        (["--setting", "fast"], "--compare takes --bound"),
        (["-o", "x"], "--compare takes --bound"),
        (["--plot", str(saved)], "is an input and would be replaced"),
    ):
        assert run(["compress", "--compare", str(saved), *arguments]) == 2
        assert wanted in capsys.readouterr().err
    assert run(["compress", str(saved), "--threshold", "1e-3"]) == 2
    assert "--threshold and --plot go with --compare" in capsys.readouterr().err
    for array, wanted in (
        (np.array([1, 2]), "has dtype int64"), (np.array([1.0, np.nan]), "holds NaN or infinities"),
        (np.zeros(0), "is empty"),
        (np.array([1e200, 0.0]), r"has values beyond single precision \(3.4e\+38\)"),
        (np.array([1j, 1e39]), "has values beyond single precision"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=f"array: {wanted}"):
            tnplan.compare_codecs(array)
    for given in ({"bound": "much"}, {"bound": None}, {"threshold": "much"}, {"threshold": [1]}):
        with pytest.raises(InputError, match=r"^array: \w+: is .*; give a"):
            tnplan.compare_codecs(np.ones(9), **given)  # type: ignore[arg-type]


def test_bucket_elimination_gives_the_energies_of_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "codecs"))
    from bucket_elimination import eliminate, elimination_order

    for n_vertices, layers, seed in ((8, 1, 1), (10, 2, 2), (10, 3, 3)):
        edges = maxcut_graph(n_vertices, 3, seed)
        angles = random_angles(layers, seed)
        wanted = dense_terms(n_vertices, edges, *angles)
        for edge in (0, 7):
            network, arrays = edge_network(edges, edge, *angles)
            order, width = elimination_order(network, 5, seed)
            ranks = []

            def see(rank: int, values: np.ndarray, ranks: list[int] = ranks) -> np.ndarray:
                ranks.append(rank)
                assert values.shape == (1 << rank,)
                return values

            value = eliminate(network, arrays, order, see)
            assert value is not None
            assert abs(value - wanted[edge]) < 1e-13
            assert max(ranks) == width
    assert eliminate(network, arrays, order, lambda rank, values: None) is None


def test_the_benchmark_measures_what_its_goals_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "codecs"))
    import tensor_codecs

    half = np.random.default_rng(1).normal(size=(1 << 11, 2)).astype(np.float32).view(np.complex64)[:, 0] ** 3
    array = np.concatenate([half, half[::-1]])
    row = tensor_codecs.measure("case", 12, array, 1e-2)
    assert row["fast"]["worst_over_bound"] <= 1
    assert row["small"]["ratio"] > row["seed_cuszx"] > 1
    goals = tensor_codecs.verdict(row)
    assert goals["small / 3 seed"] == pytest.approx(row["small"]["ratio"] / row["seed_cuszx"] / 3)
    assert "case" in tensor_codecs.line(row)
    # One block of 32 in each part: whole numbers 1 and 3 of steps are 1 and 2 planes.
    values = np.zeros(32, np.complex64)
    values[0], values[1], values[2:4] = 1 + 1j, 3 + 0j, (3j, 0)
    assert tensor_codecs.cuszp_bytes(values, 1 / 6) == 2 * (1 + 4 + 8)

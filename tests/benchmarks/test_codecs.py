"""The comparison of pipelines, and the tensors that codecs are measured on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.kernels.compress_arrays import make_array
from tests.support.root import ROOT
from tests.support.workloads import dense_terms
from tnplan.common.errors import InputError
from tnplan.planner.workloads.qaoa import edge_network, maxcut_graph, random_angles


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "codecs"))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    np.save(tmp_path / "t.npy", make_array("mirrored", 1 << 14, "complex128", 1))
    return tmp_path / "t.npy"


def compared(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> None:
    """Run the script in this process."""
    from compare_codecs import main

    monkeypatch.setattr(sys, "argv", ["compare_codecs.py", *map(str, words)])
    main()


def test_a_table_and_a_plot_of_all_pipelines(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = saved.with_suffix(".svg")
    compared(monkeypatch, saved, "--bound", "1e-2", "--plot", plot)
    table = capsys.readouterr().out
    for name in ("cuSZ+grouping+2L", "cuSZx+integrated", "tnplan fast", "tnplan small"):
        assert name in table
    assert plot.read_text().count("<svg") == 1


def test_figures_of_the_comparison(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compared(monkeypatch, saved, "--threshold", "0.02", "--json")
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


def test_what_cannot_be_compared_is_refused(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from compare_codecs import compare_codecs

    for words, wanted in (
        (["--bound", "0"], "bound: is 0"), (["--threshold", "nan"], "threshold: is nan"),
        (["--plot", saved], "is an input and would be replaced"),
    ):  # fmt: skip
        with pytest.raises(SystemExit, match="2"):
            compared(monkeypatch, saved, *words)
        assert wanted in capsys.readouterr().err
    for array, wanted in (
        (np.array([1, 2]), "has dtype int64"), (np.zeros(0), "0 elements"),
        (np.array([1j, 1e39]), "not finite in single precision"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=wanted):
            compare_codecs(array)


def test_bucket_elimination_gives_the_energies_of_the_state() -> None:
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


def test_the_benchmark_measures_what_its_goals_are_about() -> None:
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

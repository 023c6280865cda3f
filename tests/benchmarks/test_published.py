"""Published values: what they imply, and how they stand beside ours."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.root import ROOT
from tnplan.common.errors import InputError
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.path_file import save_path
from tnplan.planner.projection.projection import project
from tnplan.reporting.tables import NOTHING

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(ROOT / "benchmarks" / "planning"))
    from published import PAPER, baseline_notes, load_published, main, published_table


def ring(extent: int, sliced: tuple[str, ...] = (), name: str = "ring") -> ContractionPath:
    inputs = (("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"))
    network = Network(inputs, (), dict.fromkeys("abcd", extent))
    return ContractionPath(network, ((0, 1), (4, 2), (5, 3)), sliced, "complex64", name)


def test_published_figures_imply_times_and_operations() -> None:
    published = load_published(PAPER)
    circuit = published.workloads[0]
    assert circuit.one_device_s == pytest.approx(9.05e11, rel=0.01)
    assert circuit.time_s(8) == pytest.approx(6.1e9, rel=0.01)
    assert circuit.time_s(1024) == pytest.approx(2.12e7, rel=0.01)
    assert circuit.time_s(3) is None
    assert circuit.one_device_complexity is not None
    assert np.log10(circuit.one_device_complexity / 8) == pytest.approx(24.5, abs=0.05)
    for workload in published.workloads:
        assert workload.row(8) is not None
        for row in workload.rows:
            if row.speedup and row.extra_speedup:
                assert row.extra_speedup == pytest.approx(row.speedup / row.devices, rel=0.02)


def test_ours_stands_beside_what_is_published() -> None:
    published = load_published(PAPER)
    path = replace(ring(16, ("b",)), name="zuchongzhi_n60_m24 small")
    found = project([path], load_profile("dgx-h100"), [1, 8])
    made = published_table(found, published)
    assert made is not None
    assert made.title == "Beside the paper, on DGX H100"
    assert made.columns[-1] == "T_P paper / ours"
    assert [row[0] for row in made.rows] == ["1, ours", "1, paper", "8, ours", "8, paper"]
    assert made.rows[1][-2] == "28,685 years (implied)"
    assert made.rows[3][3:6] == ("148", "18.5", "18.5")
    (note,) = baseline_notes(found, published)
    assert "the better it is, the smaller they are" in note
    other = project([ring(16)], load_profile("cpu"), [1, 8])
    assert published_table(other, published) is None
    assert baseline_notes(other, published) == []


def test_a_publication_may_give_little(tmp_path: Path) -> None:
    workload = {"name": "w", "prefix": "ring", "rows": [{"devices": 2, "extra_speedup": 3}]}
    found = project([ring(16)], load_profile("cpu"), [1, 2, 4])
    published = load_published(published_file(tmp_path, workload))
    made = published_table(found, published)
    assert made is not None
    assert [row[0] for row in made.rows] == ["2, ours", "2, others"]
    assert made.rows[1][1:] == (NOTHING, NOTHING, NOTHING, "3", NOTHING, NOTHING, NOTHING)
    assert baseline_notes(found, published) == []


def test_the_command_prints_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_path(replace(ring(16), name="hexagonal_8x8 small"), tmp_path / "a.json")
    words = ["--devices", "1,8", "--hardware", "cpu", "--baseline-time", "0"]
    monkeypatch.setattr(sys, "argv", ["published.py", str(tmp_path / "a.json"), *words])
    main()
    assert "Beside the paper, on DGX H100" in capsys.readouterr().out
    save_path(ring(16), tmp_path / "a.json")
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "has no workload of these paths" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"rows": [{"devices": 8, "speedup": -1}]}, "workloads[0].rows[0].speedup"),
        ({"rows": [{"devices": 8, "speedup": float("inf")}]}, "workloads[0].rows[0].speedup"),
        ({"rows": [{"devices": 8, "speedup": "fast"}]}, "workloads[0].rows[0].speedup"),
        ({"rows": [{"devices": 8, "spedup": 1}]}, "workloads[0].rows[0]"),
        ({"rows": [{"devices": 0}]}, "workloads[0].rows[0].devices"),
        ({"rows": [{"speedup": 2}]}, "workloads[0].rows[0]"),
        ({"rows": [{"devices": 8}, {"devices": 8}]}, "workloads[0].rows"),
        ({"prefix": ""}, "workloads[0].prefix"),
    ],
)
def test_published_values_that_make_no_sense_are_refused(
    tmp_path: Path, changes: dict[str, object], place: str
) -> None:
    file = published_file(tmp_path, {"name": "w", "prefix": "w", "rows": []} | changes)
    with pytest.raises(InputError) as refused:
        load_published(file)
    assert f"{file}: {place}: " in str(refused.value)


def published_file(folder: Path, workload: dict[str, object]) -> Path:
    document = {"format": "tnplan.published", "version": 1, "source": "a journal", "label": "others"}
    (folder / "published.json").write_text(
        json.dumps({**document, "hardware": "theirs", "workloads": [workload]})
    )
    return folder / "published.json"

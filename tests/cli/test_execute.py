"""`tnplan execute` in one process: output, JSON, statuses, progress."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.support.contraction.executor import Case, check_values, make_case
from tnplan.cli.main import run
from tnplan.common.units import size_text

FIGURES = ("measured", "predicted")


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(tmp_path_factory.mktemp("case"), 2, n_open=0)


def arguments(case: Case, *more: object) -> list[str]:
    return ["execute", str(case.schedule_file), "--tensors", str(case.tensors_file), *map(str, more)]


def test_a_result_and_its_figures(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "result.npy"
    assert run(arguments(case, "-o", output)) == 0
    check_values(case, np.load(output))
    shown = capsys.readouterr()
    assert re.search(r"^device: (cpu \(.+\)|gpu \(2 x .+\))$", shown.err, re.MULTILINE)
    assert "2 ranks in 1 group, 8 slices" in shown.out
    peaks = [json.loads(output.with_suffix(".json").read_text())[name]["peak_bytes"] for name in FIGURES]
    (line,) = (line for line in shown.out.splitlines() if line.startswith("peak per rank"))
    assert line.split()[3:] == " ".join(map(size_text, peaks)).split()
    assert f"written: {output}" in shown.out


def test_json_is_the_report(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments(case, "--json", "--ranks", 4, "--device", "cpu", "--slices", "2:6")) == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert shown.err == ""
    assert report["groups"] == 2
    assert sorted(report["measured"]["slices_s"]) == ["2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [(("--device", "tpu"), "'tpu'"), (("--ranks", 5), "5 ranks"), (("--resume",), "--output")],
)
def test_refusals(
    case: Case, capsys: pytest.CaptureFixture[str], options: tuple[object, ...], problem: str
) -> None:
    assert run(arguments(case, *options)) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("device:")]
    assert problem in line


def test_progress_in_a_log(
    case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tnplan.cli.terminal.LOG_EVERY_S", 0.0)
    assert run(arguments(case)) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("slice")]
    assert lines[0].startswith("slice 1 of 8, about ")
    assert lines[-1] == "slice 8 of 8, about 0 s left"


def test_values_that_are_not_finite_are_warned_of(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = tmp_path / "tensors.npz"
    arrays = [array.copy() for array in case.arrays]
    arrays[0].flat[0] = np.inf
    np.savez(tensors, **{f"t{number}": array for number, array in enumerate(arrays)})
    assert run(["execute", str(case.schedule_file), "--tensors", str(tensors)]) == 0
    assert "warning: the result holds 1 values" in capsys.readouterr().err

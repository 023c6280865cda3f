"""The short form of the benchmarks: what misses its goal, fails or takes too long is seen."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from math import nan
from pathlib import Path
from typing import Any

import pytest

from tests.support.root import ROOT


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The script as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield __import__("short")
    sys.modules.pop("short")


@pytest.mark.parametrize(
    ("value", "at_least", "noise", "verdict"),
    [
        (1.0, False, 0.0, "met"), (1.01, False, 0.0, "MISSED"), (1.01, False, 0.25, "near"),
        (1.26, False, 0.25, "MISSED"), (1.0, True, 0.0, "met"), (0.99, True, 0.0, "MISSED"),
        (0.8, True, 0.25, "near"), (0.74, True, 0.25, "MISSED"), (nan, False, 0.25, "MISSED"),
        (nan, True, 0.25, "MISSED"),
    ],
)  # fmt: skip
def test_a_row_stands_beside_its_goal(
    short: Any, value: float, at_least: bool, noise: float, verdict: str
) -> None:
    row = short.Row("figure", value, 1.0, at_least, noise)
    assert row.verdict == verdict
    assert row.line.endswith(verdict)


@pytest.mark.parametrize(("value", "status"), [(1.0, 0), (3.0, 1)])
def test_the_status_says_whether_a_goal_is_missed(
    short: Any, value: float, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(short, "rows_of", lambda name: [short.Row(name, value, 2.0)])
    target = tmp_path / "rows.json"
    monkeypatch.setattr(sys, "argv", ["short.py", "--only", "plan", "intervals", "-o", str(target)])
    assert short.main() == status
    assert f"{2 - 2 * status} met, 0 near, {2 * status} MISSED" in capsys.readouterr().out
    assert list(json.loads(target.read_text())) == ["planning", "intervals"]


def test_what_fails_is_missed(short: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = short.rows_of("no such part")
    assert row.what == "no such part: failed"
    assert row.verdict == "MISSED"

    def late(*command: Any, **options: Any) -> None:
        raise subprocess.TimeoutExpired("short.py", options["timeout"])

    monkeypatch.setattr(subprocess, "run", late)
    (row,) = short.rows_of("planning")
    assert row.verdict == "MISSED"


def test_benchmarks_on_a_gpu_have_their_options_and_a_status(short: Any) -> None:
    for file, *options in map(str.split, short.GPU_COMMANDS.values()):
        source = (ROOT / "benchmarks" / file).read_text()
        assert all(f'"{option}"' in source for option in options if option.startswith("--"))
        assert "sys.exit(main())" in source


@pytest.mark.parametrize(("status", "verdict"), [(0, "met"), (1, "MISSED"), (2, "MISSED"), (-9, "MISSED")])
def test_the_row_of_a_benchmark_on_a_gpu_is_its_status(
    short: Any, status: int, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.CompletedProcess((), status)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    (row,) = short.gpu_rows("permutation")
    assert row.verdict == verdict


@pytest.mark.slow
@pytest.mark.parametrize("part", ["small_arrays", "compressed_states", "intervals"])
def test_a_part_gives_rows(short: Any, part: str) -> None:
    rows = short.rows_of(part)
    assert rows
    assert all("failed" not in row.what and row.value == row.value for row in rows)

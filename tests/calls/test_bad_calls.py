"""Wrong values from Python, values that are not finite, a full disk, Ctrl-C: nothing silent or half-done."""

from __future__ import annotations

import errno
import io
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
import tnplan.common.files
from tests.support.bad_input import NETWORK, make_folder, snapshot, tensors
from tests.support.contraction.executor import make_case
from tests.support.heeded_signals import heeded
from tests.support.networks import shown
from tests.support.robustness.refusals import Refusal, Row, table
from tests.support.search import odd_network
from tnplan.cli.main import run
from tnplan.common.errors import InputError
from tnplan.planner.networks.path_file import save_network
from tnplan.planner.networks.tensors import random_tensors

COMMANDS = [
    "plan path.json --devices 4 -o out.json",
    "report path.json --devices 1,2 --hardware cpu --html out.html",
    "search net.json --unlimited --time 0.1 -o out.json",
    "show four.json --plot out.svg",
    "execute four.json -o r.npy --no-checkpoint",
    "execute four.json -o r.npy --no-checkpoint --result sharded",
    "execute four.json -o r.npy",
    "network c.qsim -o n.json",
    "workload peps --rows 2 --columns 2 --hyper 0 -o n.json",
]
OLD_RESULT = '{"format": "tnplan.result"}'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The good files and old outputs, in the current folder."""
    make_folder(tmp_path)
    for name in ("out.json", "out.html", "out.svg", "n.json", "n.npz", "r.npy"):
        (tmp_path / name).write_text("old")
    (tmp_path / "r.json").write_text(OLD_RESULT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


NOT_FILES = [5, None, b"t.npz", ["path.json"], "", "absent", "folder", "t.npz", "four.npy"]
NOT_COUNTS = [0, -1, 2.5, "4", True, math.nan, [4], 10**12]
NOT_SIZES = [0, -1, math.nan, -math.inf, "much", True, [1], 1]
NOT_WORDS = ["fp8", "", 5, ["fp32"]]
NOT_SLICES = [(5, 2), (0, 999), (1,), (0, 1, 2), ("a", "b"), (None, 2), (0.5, 1), "x", 5, 2.5]
NOT_ARRAYS: list[Any] = [
    [], [np.ones((4, 8))], [None] * 4, ["x"] * 4, [[[1], [1, 2]]] * 4, {"t0": 1}, np.ones(4), 5,
    [object()] * 4,
]  # fmt: skip


def plan_with(**options: Any) -> object:
    return tnplan.plan("path.json", **options)


def report_with(**options: Any) -> object:
    usual = {"paths": ["path.json"], "devices": [1], "hardware": "cpu", "baseline_time": 0}
    return tnplan.report(**usual | options)


def execute_with(**options: Any) -> object:
    values = random_tensors(NETWORK, "complex64", 1)
    return tnplan.execute(**{"schedule": "four.json", "tensors": values, **options})


def contract_with(**options: Any) -> object:
    return tnplan.contract("ij,jk->ik", np.ones((4, 4)), np.ones((4, 4)), **options)


CALLS: list[tuple[str, Callable[..., object], list[Any]]] = [
    ("path", tnplan.load_path, NOT_FILES),
    ("path", tnplan.plan, NOT_FILES),
    ("devices", plan_with, NOT_COUNTS),
    ("ranks_per_group", plan_with, [value for value in NOT_COUNTS if value is not None]),
    ("threshold", plan_with, [value for value in NOT_COUNTS[:-1] if value != "4"]),
    ("memory", plan_with, NOT_SIZES),
    ("precision", plan_with, NOT_WORDS),
    ("policy", plan_with, NOT_WORDS),
    ("hardware", plan_with, NOT_FILES),
    ("paths", report_with, [[], "path.json", None, 5, *([name] for name in NOT_FILES)]),
    ("devices", report_with, [[], 4, None, "4", *([value] for value in NOT_COUNTS)]),
    ("memory", report_with, NOT_SIZES),
    ("baseline_time", report_with, [-1, math.nan, math.inf, "auto", None, [1], 10**400]),
    ("baseline", report_with, ["folder", "absent/x.json", "x.npz", "path.json", 5, b"x"]),
    ("html", report_with, ["folder", "absent/x.html", "out.pdf", 5, b"x"]),
    ("schedule", execute_with, NOT_FILES),
    ("tensors", execute_with, [*NOT_ARRAYS, "absent", "four.json"]),
    ("ranks", execute_with, [3, *NOT_COUNTS]),
    ("threads", execute_with, NOT_COUNTS[:-1]),
    ("slices", execute_with, NOT_SLICES),
    ("device", execute_with, ["tpu", 5]),
    ("result", execute_with, ["both", 5]),
    ("output", execute_with, ["r.txt", "absent/r.npy", 5, b"r.npy"]),
    ("resume", execute_with, [True]),
    ("memory", contract_with, NOT_SIZES),
    ("device", contract_with, ["tpu", 5]),
    ("schedule", tnplan.show, NOT_FILES),
    ("max_tensor", tnplan.Optimizer, [value for value in NOT_COUNTS[:-1] if value is not None]),
    ("devices", contract_with, NOT_COUNTS[:-1]),
    ("threads", contract_with, NOT_COUNTS[:-1]),
    ("tree", tnplan.from_cotengra, [None, 5, "path.json"]),
]


@pytest.mark.parametrize(
    ("name", "call", "value"),
    [(name, call, value) for name, call, values in CALLS for value in values],
    ids=shown,
)
def test_a_wrong_argument_is_an_input_error(
    folder: Path, name: str, call: Callable[..., object], value: object
) -> None:
    before = snapshot(folder)
    with pytest.raises(InputError) as caught:
        call(**{name: value}) if call not in (tnplan.load_path, tnplan.from_cotengra) else call(value)
    assert isinstance(caught.value, ValueError)
    assert caught.value.place
    assert caught.value.problem
    assert caught.value.remedy
    assert snapshot(folder) == before


def test_sizes_of_contractions_may_be_text() -> None:
    assert tnplan.contract("ij,jk->", np.ones((4, 4)), np.ones((4, 4)), memory="1MiB") == 64
    with tnplan.compile("ij,jk->", (4, 4), (4, 4), dtype="float64", memory="unlimited") as total:
        assert total(np.ones((4, 4)), np.ones((4, 4))) == 64


# fmt: off
REFUSED: list[Row] = [
    (lambda: tnplan.execute(tnplan.load_path("path.json")), "schedule",
     "is of type ContractionPath", "`plan` returns"),
    (lambda: tnplan.execute(tnplan.plan(replace(tnplan.load_path("path.json"), tensors=None))), "--tensors",
     "the schedule names no file", "give an .npz"),
    (lambda: tnplan.from_einsum("ij,jk->ik", np.ones((3, 4)), np.ones((4, 5))), "operands",
     "is one array", "give a list of arrays or shapes"),
]
# fmt: on


@pytest.mark.usefixtures("folder")
@table(REFUSED)
def test_what_does_not_belong_there_is_refused(refusal: Refusal) -> None:
    refusal.raised_by(refusal.given)


def test_values_that_are_not_finite_are_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors(t0=np.full((4, 8), np.nan))(folder)
    assert run(["execute", "four.json", "-o", "r.npy"]) == 0
    assert "warning: the result holds 16 values that are NaN or infinite" in capsys.readouterr().err
    assert '"not_finite": 16' in (folder / "r.json").read_text()
    with pytest.warns(RuntimeWarning, match="16 values that are NaN"):
        tnplan.execute("four.json")


class Failing(io.FileIO):
    """A file whose writes fail."""

    error: BaseException

    def write(self, data: Any) -> int:
        raise self.error


def fail_writes(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let every write of an output fail with `error`."""
    monkeypatch.setattr(Failing, "error", error, raising=False)
    monkeypatch.setattr(
        tnplan.common.files.os, "fdopen", lambda handle, mode: io.BufferedWriter(Failing(handle, "w"))
    )


def test_a_file_has_the_rights_that_are_asked_for_and_a_rank_changes_them_for_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = os.umask(0o027)
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the whole process would write under it"))
    try:
        tnplan.common.files.write_text(tmp_path / "new", "text")
    finally:
        monkeypatch.undo()
        os.umask(outer)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "cannot be written (No space left on device)"),
        (KeyboardInterrupt(), "interrupted; nothing was kept"),
    ],
    ids=["full disk", "ctrl-c"],
)
def test_a_write_that_fails_leaves_the_old_file_alone(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    error: BaseException,
    says: str,
) -> None:
    before = snapshot(folder)
    fail_writes(monkeypatch, error)
    failed = 1 if line.startswith("execute") else 2
    assert run(line.split()) == (failed if isinstance(error, OSError) else 130)
    lines = [text for text in capsys.readouterr().err.splitlines() if text.startswith("tnplan: ")]
    assert len(lines) == 1
    assert says in lines[0]
    assert snapshot(folder) == before


def interrupted(folder: Path, line: str, after: str, made: str | None = None) -> str:
    """Start a command, send it Ctrl-C once it has said `after` and `made` exists; return what it said."""
    command = [sys.executable, "-m", "tnplan", *line.split()]
    with heeded(signal.SIGINT):
        begun = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    with begun as process:
        assert process.stderr is not None
        said = ""
        while after not in said:
            text = process.stderr.readline()
            assert text, said
            said += text
        while made is not None and not (folder / made).exists():
            assert process.poll() is None, said
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said += process.stderr.read()
    assert process.returncode == 130, said
    return said


def test_ctrl_c_in_a_search_leaves_its_checkpoint_and_its_best_path(folder: Path) -> None:
    save_network(odd_network(1, 40, 80), folder / "net.json", dtype="complex64", name="odd")
    before = snapshot(folder)
    line = "search net.json --unlimited -o out.json --time"
    said = interrupted(folder, f"{line} 60", "multiply-adds", made="out.json.ckpt")
    problem = "interrupted; the best path so far is written, continue with --resume"
    assert said.splitlines()[-1] == f"tnplan: error: {problem}"
    assert "Traceback" not in said
    left = snapshot(folder)
    del left["out.json.ckpt"]
    assert left.pop("out.json") != before.pop("out.json")
    assert left == before
    assert run(f"{line} 0 --resume".split()) == 0
    assert not (folder / "out.json.ckpt").exists()
    assert (folder / "out.json").read_text() != "old"


def test_ctrl_c_in_a_run_leaves_its_checkpoint_alone(folder: Path) -> None:
    make_case(folder, 2, n_sliced=15)
    before = snapshot(folder)
    said = interrupted(folder, "execute schedule.json --tensors tensors.npz -o r.npy --threads 1", "device:")
    kept = "r.npy.ckpt has what was done, continue with --resume"
    has_kept = (folder / "r.npy.ckpt").is_dir() and any((folder / "r.npy.ckpt").iterdir())
    line = f"tnplan: error: interrupted; {kept if has_kept else 'nothing was kept'}"
    assert said.splitlines()[-1] == line
    assert list((folder / "r.npy.ckpt").glob(".*")) == []
    shutil.rmtree(folder / "r.npy.ckpt", ignore_errors=True)
    assert snapshot(folder) == before

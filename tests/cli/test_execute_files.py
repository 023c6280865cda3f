"""The files of `tnplan execute`: inputs are never replaced, and outputs are whole or not written at all."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from tests.support.bad_input import Spoil, make_folder, snapshot
from tests.support.contraction.executor import make_case
from tests.support.contraction.shards import load_shards
from tests.support.robustness.refusals import Refusal, Row, table
from tests.support.slow import slow_unless
from tnplan.calls.execute import execute
from tnplan.cli.main import run
from tnplan.common.errors import WriteError
from tnplan.common.files import Staged
from tnplan.executor.contraction.run import checkpoint as checkpoints

SHARDED = "--result sharded"
SPREAD = "schedule.json --tensors tensors.npz -o r.npy"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The good files, and a schedule whose result is spread over 4 ranks, in the current folder."""
    make_folder(tmp_path)
    make_case(tmp_path, 4, n_open=3)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def moved(name: str, target: str, linked: bool = False) -> Spoil:
    """Give a file another name, and link to it from its own."""

    def spoil(folder: Path) -> None:
        (folder / name).rename(folder / target)
        if linked:
            (folder / name).symlink_to(target)

    return spoil


# fmt: off
REFUSED: list[Row] = [
    (("one.json --tensors r.npy -o r.npy", moved("t.npz", "r.npy")), "r.npy",
     "is an input", "give the output another"),
    (("one.json -o r.npy", moved("t.npz", "r.npy", True)), "r.npy", "is an input", "give the output another"),
    ((f"one.json -o r.npy {SHARDED} --tensors t.npz", moved("t.npz", "r.rank0.npy", True)), "r.rank0.npy",
     "is an input", "give the output another"),
    ((f"{SPREAD} {SHARDED}", moved("tensors.npz", "r.rank3.npy", True)), "r.rank3.npy",
     "is an input", "give the output another"),
    ((f"r.rank0.npy -o r.npy {SHARDED}", moved("one.json", "r.rank0.npy")), "r.rank0.npy",
     "is an input", "give the output another"),
    (("r.npy -o r.npy", moved("one.json", "r.npy")), "r.npy", "is an input", "give the output another"),
    ((f"four.json -o r.npy {SHARDED}", moved("folder", "r.rank0.npy")), "r.rank0.npy",
     "is a folder", "give the name of a file"),
    ((f"{SPREAD} {SHARDED}", moved("folder", "r.rank2.npy")), "r.rank2.npy",
     "is a folder", "give the name of a file"),
]
# fmt: on


@table(REFUSED)
def test_an_output_that_is_an_input_or_a_folder_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], refusal: Refusal
) -> None:
    line, spoil = refusal.given
    spoil(folder)
    refusal.ends(f"execute {line} --device cpu", capsys)


def test_a_link_to_itself_is_replaced(folder: Path) -> None:
    (folder / "r.npy").symlink_to("r.npy")
    assert run(["execute", "one.json", "-o", "r.npy", "--device", "cpu"]) == 0
    assert np.load("r.npy").shape == (4, 4)


def failing(wanted: str, write: Callable[..., None]) -> Callable[..., None]:
    """`Staged.add`, which finds the disk full at the files whose names end so."""

    def add(self: Staged, path: Path, fill: Callable[[BinaryIO], Any]) -> None:
        def full(stream: BinaryIO) -> None:
            stream.write(b"some")
            raise OSError(errno.ENOSPC, "No space left on device")

        write(self, path, full if Path(path).name.endswith(wanted) else fill)

    return add


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("--no-checkpoint", "r.npy"),
        ("--no-checkpoint", "r.json"),
        ("", "r.json"),
        ("", "rank2.0.1.npy"),
        (SHARDED, "r.rank3.npy"),
        (SHARDED, "r.shards.json"),
        (SHARDED, "r.json"),
    ],
)
def test_a_write_that_fails_after_the_work_is_status_1_and_leaves_old_outputs_together(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: str,
    wanted: str,
) -> None:
    line = f"execute {SPREAD} --device cpu {options}".split()
    assert run(line) == 0
    before = snapshot(folder)
    capsys.readouterr()
    monkeypatch.setattr(Staged, "add", failing(wanted, Staged.add))
    assert run(line) == 1
    (error,) = capsys.readouterr().err.splitlines()[-1:]
    assert error.startswith("tnplan: error: WriteError: ")
    assert f"{wanted}: cannot be written (No space left on device); free space" in error
    after = snapshot(folder)
    kept = {name for name in after if name.startswith("r.npy.ckpt")}
    assert {name: content for name, content in after.items() if name not in kept} == before
    assert not [name for name in after if Path(name).name.startswith(".")]
    assert bool(kept) == (options != "--no-checkpoint")


def test_a_run_goes_on_from_its_checkpoint_where_the_result_could_not_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "INTERVAL", 0)
    case: Any = ("schedule.json", "tensors.npz")
    options: dict[str, Any] = {"device": "cpu", "threads": 1}
    files: dict[str, Any] = {"output": "r.npy", "result": "sharded"}
    with monkeypatch.context() as patch:
        patch.setattr(Staged, "add", failing("r.json", Staged.add))
        with pytest.raises(WriteError, match=r"r\.json"):
            execute(*case, **files, **options)
    assert execute(*case, **files, **options, resume=True).report["slices"]["resumed"] == 7
    whole = execute(*case, **options).array
    assert np.array_equal(load_shards("r.shards.json"), whole)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "closed"),
    slow_unless(
        lambda line, closed: (line + closed) % 2 == 0,
        ["execute one.json -o r.npy --device cpu", "show one.json"],
        ["2>&-", ">&-", ">&- 2>&-"],
    ),
)
def test_closed_standard_streams_are_no_failure(folder: Path, line: str, closed: str) -> None:
    command = f"{sys.executable} -m tnplan {line} {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert (folder / "r.npy").exists() == line.startswith("execute")
    assert bool(done.stdout) == (closed == "2>&-")

"""Faults of all commands at random moments: each ends in time, in one line, and leaves nothing half done."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.effort import repeats
from tests.support.mpirun import mpirun, needs_mpi
from tests.support.robustness.campaign import CALLS, Campaign, built_failing_calls, needs_failing_calls
from tests.support.robustness.commands import COMMANDS, HAS_ADDON, ON_RANKS
from tests.support.root import ROOT
from tests.support.slow import slow_after
from tnplan.cli import main

SEED = 65
CIRCUIT = "2\n0 h 0\n1 cz 0 1\n"
LINE = "statevector c.qsim --observable Z1 --device cpu --threads 1 -o r.json"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return Campaign(tmp_path_factory.mktemp("campaign"), SEED)


def test_every_command_has_faults_and_all_of_ranks_have_them_on_two_hosts() -> None:
    without = set() if HAS_ADDON else {"sqd"}
    assert {line.split()[0] for line in COMMANDS} == set(main.COMMANDS) - without
    assert {line.split()[0] for line in ON_RANKS} == set(main.ON_RANKS) - without


@pytest.mark.slow
@pytest.mark.parametrize("number", range(repeats(24, 400)))
def test_a_fault_ends_a_command_in_one_line(campaign: Campaign, number: int) -> None:
    outcome = campaign.trial(number)
    assert not outcome.wrong, outcome


def settings_of(folder: Path, call: str, code: int) -> dict[str, str]:
    """The environment in which calls of a kind fail on files of a folder."""
    counts, library = folder.parent / "counts", folder.parent / "failing.so"
    counts.write_bytes(bytes(1024))
    if not library.exists():
        built_failing_calls(folder.parent)
    return {
        "PYTHONSAFEPATH": "1", "LD_PRELOAD": str(library), "FAULT_COUNTS": str(counts),
        "FAULT_FOLDER": str(folder),
        "FAULT_CALL": call, "FAULT_ERRNO": str(code), "FAULT_FIRST": "1", "FAULT_TIMES": "1000",
    }  # fmt: skip


def failing(folder: Path, call: str, code: int) -> subprocess.Popen[str]:
    """The command in a folder, where calls of a kind fail."""
    return subprocess.Popen(
        [sys.executable, "-m", "tnplan", *LINE.split()], cwd=folder, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **settings_of(folder, call, code)},
    )  # fmt: skip


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "c.qsim").write_text(CIRCUIT)
    return folder


@needs_failing_calls
@pytest.mark.parametrize("call", slow_after(4, CALLS))
def test_a_disk_that_always_fails_is_said_with_a_remedy(work: Path, call: str) -> None:
    job = failing(work, call, errno.EIO)
    said = job.communicate(timeout=120)[1].splitlines()
    if job.returncode == 0:
        assert (work / "r.json").exists()
    else:
        assert len(said) == 1, said
        assert said[0].startswith("tnplan: error: ")
        assert "; " in said[0]
    left = {path.name for path in work.iterdir()} - {"c.qsim", "r.json"}
    assert call == "unlink" or not left


@needs_failing_calls
@needs_mpi
@pytest.mark.mpi
def test_a_question_whose_file_cannot_be_written_ends_all_ranks(work: Path) -> None:
    settings = {**settings_of(work, "rename", errno.EACCES), "FAULT_RANK": "0"}
    line = ["amplitudes", work / "c.qsim", "--bitstrings", "00,11", "--device", "cpu", "--threads", "1"]
    done = mpirun(2, "-m", "tnplan", *line, "-o", work / "r.json", **settings)
    assert done.returncode == 2
    assert "cannot be written (Permission denied); free space there" in done.stderr
    assert not (work / "r.json").exists()


@needs_failing_calls
def test_two_commands_of_one_output_without_locks(work: Path) -> None:
    """Without locks of the file system the second command is told what to do; the first one ends whole."""

    def started() -> subprocess.Popen[str]:
        return failing(work, "flock", errno.ENOLCK)

    lock = work / ".r.json.lock"
    lock.write_text('{"host": "gone", "pid": 7}')
    (refusal,) = started().communicate(timeout=120)[1].splitlines()
    assert "has no locks (process 7 on gone); delete it if that run has ended" in refusal
    lock.unlink()
    ended = [(job.communicate(timeout=120)[1], job.returncode) for job in [started(), started()]]
    assert {status for _, status in ended} <= {0, 2}
    assert 0 in {status for _, status in ended}
    assert all("delete it if that run has ended" in said for said, status in ended if status)
    assert (work / "r.json").exists()
    assert not lock.exists()

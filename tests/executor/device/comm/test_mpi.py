"""Ranks started by mpirun: the bits of in-process ranks, refusals in one line, failures that end the job."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.support.contraction.executor import Case, check_values, make_case
from tests.support.contraction.shards import load_shards
from tests.support.mpirun import SCRIPTS, mpirun, needs_mpi
from tests.support.slow import slow_after
from tnplan.calls.execute import execute

pytestmark = [pytest.mark.mpi, needs_mpi]


def tnplan(n_ranks: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    return mpirun(n_ranks, "-m", "tnplan", "execute", *arguments)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(tmp_path_factory.mktemp("pair"), 2)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(tmp_path_factory.mktemp("single"), 1)


@pytest.fixture(scope="module")
def whole(pair: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of four ranks of which none is killed."""
    output = tmp_path_factory.mktemp("whole") / "whole.npy"
    done = tnplan(4, pair.schedule_file, "--tensors", pair.tensors_file, "-o", output)
    assert done.returncode == 0, done.stderr
    return output


@pytest.mark.parametrize("n_ranks", slow_after(2, [1, 2, 4]))
def test_the_same_bits_as_in_process_ranks(pair: Case, single: Case, tmp_path: Path, n_ranks: int) -> None:
    case = single if n_ranks == 1 else pair
    output = tmp_path / "result.npy"
    options = ("--device", "cpu", "--threads", 1)
    done = tnplan(n_ranks, case.schedule_file, "--tensors", case.tensors_file, "-o", output, *options)
    assert done.returncode == 0, done.stderr
    result = np.load(output)
    check_values(case, result)
    in_process = execute(case.schedule, case.arrays, ranks=n_ranks, threads=1, device="cpu")
    assert np.array_equal(result, in_process.array)
    report = json.loads(output.with_suffix(".json").read_text())
    assert report["ranks"] == n_ranks
    assert report["environment"]["communicator"] == ("threads" if n_ranks == 1 else "mpi")
    assert report["measured"]["peak_bytes"] <= report["predicted"]["peak_bytes"]
    assert not Path(f"{output}.ckpt").exists()


@pytest.mark.parametrize(("n_ranks", "count"), [(2, 10), pytest.param(4, 40, marks=pytest.mark.slow)])
def test_random_networks_agree_with_einsum(n_ranks: int, count: int) -> None:
    done = mpirun(n_ranks, "-m", "mpi4py", SCRIPTS / "random_networks.py", "cpu", count)
    assert done.returncode == 0, done.stderr
    assert f"{count} networks agree on {n_ranks} ranks" in done.stdout


def test_a_sharded_result(pair: Case, tmp_path: Path) -> None:
    output = tmp_path / "result.npy"
    done = tnplan(2, pair.schedule_file, "--tensors", pair.tensors_file, "-o", output, "--result", "sharded")
    assert done.returncode == 0, done.stderr
    assert not output.exists()
    check_values(pair, load_shards(tmp_path / "result.shards.json"))


@pytest.mark.parametrize(
    ("n_ranks", "options", "problem"),
    [
        (3, (), "3 ranks are not a multiple"),
        (2, ("--tensors", "nowhere.npz"), "nowhere.npz"),
        (2, ("--colour",), "No such option"),
        *(
            pytest.param(2, *case, marks=pytest.mark.slow)
            for case in (
                (("--slices", "5:99"), "--slices"),
                (("--ranks", 4), "mpirun started 2"),
                (("--ranks", 0), "0 is not in the range"),
            )
        ),
    ],
)
def test_a_refusal_is_one_line_and_status_2(
    pair: Case, tmp_path: Path, n_ranks: int, options: tuple[object, ...], problem: str
) -> None:
    output = tmp_path / "result.npy"
    output.write_bytes(b"kept")
    done = tnplan(n_ranks, pair.schedule_file, "--tensors", pair.tensors_file, "-o", output, *options)
    assert done.returncode == 2
    errors = done.stderr.splitlines()
    assert len(errors) == 1
    assert errors[0].startswith("tnplan: error: ")
    assert problem in errors[0]
    assert output.read_bytes() == b"kept"


def test_only_execute_works_on_ranks() -> None:
    done = mpirun(2, "-m", "tnplan", "plan", "path.json")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "mpirun: started 2 ranks of 'tnplan plan'; start it without mpirun" in line


def test_a_rank_that_fails_ends_the_job_with_its_message(pair: Case, tmp_path: Path) -> None:
    start = time.monotonic()
    files = pair.schedule_file, pair.tensors_file
    done = mpirun(2, SCRIPTS / "kill_at_slice.py", 1, 1, *files, tmp_path / "r.npy", "raise")
    assert time.monotonic() - start < 30
    assert done.returncode != 0
    assert "rank 1: RuntimeError: struck by a test" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 3])
def test_a_killed_rank_ends_the_job_and_resume_gives_the_same_bits(
    pair: Case, whole: Path, tmp_path: Path, victim: int
) -> None:
    output = tmp_path / "result.npy"
    start = time.monotonic()
    done = mpirun(4, SCRIPTS / "kill_at_slice.py", victim, 3, pair.schedule_file, pair.tensors_file, output)
    assert time.monotonic() - start < 30
    assert done.returncode != 0
    assert not output.exists()
    assert list(Path(f"{output}.ckpt").glob("rank*.npy"))
    arguments = (pair.schedule_file, "--tensors", pair.tensors_file, "-o", output)
    refused = tnplan(4, *arguments)
    assert refused.returncode == 2
    assert "--resume" in refused.stderr
    resumed = tnplan(4, *arguments, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    report = json.loads(output.with_suffix(".json").read_text())
    # The victim's group has kept its first slice; the other one may have been killed before its own.
    assert report["slices"]["resumed"] >= 1
    assert np.array_equal(np.load(output), np.load(whole))
    assert not Path(f"{output}.ckpt").exists()


def test_messages_go_in_chunks(tmp_path: Path) -> None:
    done = mpirun(2, SCRIPTS / "chunked.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ok") == 2


@pytest.fixture(scope="module")
def three_gates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A circuit whose only rotation leaves two terms of Z0."""
    path = tmp_path_factory.mktemp("circuit") / "c.qsim"
    path.write_text("2\n0 rx 0 0.3\n1 h 1\n2 cnot 0 1\n")
    return path


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--stop-above", 1), "step 1: leaves 2 terms, more than 1"),
        (("--memory", 1), "--memory: allows a rank 1 B"),
    ],
)
def test_of_ranks_that_refuse_alike_one_speaks_and_none_is_aborted(
    three_gates: Path, options: tuple[object, ...], problem: str
) -> None:
    done = mpirun(2, "-m", "tnplan", "pauli", three_gates, "--observable", "Z0", *options)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"tnplan: error: {problem}")


@pytest.mark.parametrize("how", ["alike", "late"])
def test_ranks_that_refuse_alike_at_other_times_wait_for_each_other(three_gates: Path, how: str) -> None:
    done = mpirun(2, SCRIPTS / "refuse.py", "0,1", how, three_gates)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("tnplan: error: step 1: struck by a test; leave it out (see docs/")


Ended = tuple[subprocess.CompletedProcess[str], float]
"""A job that ended, and the seconds that it took."""
STOPPED = {
    "start": "the start of MPI takes more than 5 s",
    "meeting": "the start of the ranks takes more than 5 s",
    "finalize": "rank 1 on ",
}


@pytest.fixture(scope="module")
def stopped(three_gates: Path) -> dict[str, Ended]:
    """All at once: each waits for the rank that is stopped."""
    line = ("pauli", three_gates, "--observable", "Z0", "--timeout", 5, "--device", "cpu")

    def job(when: str) -> Ended:
        begin = time.monotonic()
        return mpirun(2, SCRIPTS / "stop_a_rank.py", 1, when, *line), time.monotonic() - begin

    with ThreadPoolExecutor(len(STOPPED)) as pool:
        return dict(zip(STOPPED, pool.map(job, STOPPED), strict=True))


@pytest.mark.parametrize("when", STOPPED)
def test_a_rank_that_is_stopped_where_nobody_computes_ends_the_job(
    stopped: dict[str, Ended], when: str
) -> None:
    """From the start of MPI to its end."""
    done, time_s = stopped[when]
    assert time_s < 60
    assert done.returncode == 1
    said = [text for text in done.stderr.splitlines() if text.startswith("tnplan: error: ")]
    assert len(said) == 1, done.stderr
    assert STOPPED[when] in said[0]


Jobs = dict[tuple[str, ...], Ended]
"""Jobs by the arguments of refuse.py."""
ABORTED = [("0", "alike", "rank 0"), ("1", "alike", "rank 1"), ("0,1", "apart", "rank 0")]
SHOWN = ("1", "alike", "--debug")


@pytest.fixture(scope="module")
def aborted(three_gates: Path) -> Jobs:
    """All at once: each waits some seconds for the rank that does not refuse alike."""

    def job(words: tuple[str, ...]) -> Ended:
        who, how, *more = words
        start = time.monotonic()
        return mpirun(2, SCRIPTS / "refuse.py", who, how, three_gates, *more), time.monotonic() - start

    jobs = [SHOWN, *((who, how) for who, how, _ in ABORTED)]
    with ThreadPoolExecutor(len(jobs)) as pool:
        return dict(zip(jobs, pool.map(job, jobs), strict=True))


@pytest.mark.parametrize(("who", "how", "said"), ABORTED)
def test_ranks_that_do_not_refuse_alike_are_aborted(aborted: Jobs, who: str, how: str, said: str) -> None:
    done, time_s = aborted[who, how]
    assert time_s < 30
    assert done.returncode == 2
    assert f"{said}: step 1: struck" in done.stderr
    assert "tnplan: error" not in done.stderr


def test_debug_shows_the_tracebacks_of_refusals_on_the_way(three_gates: Path) -> None:
    arguments = ("pauli", three_gates, "--observable", "Z0", "--stop-above", 1)
    # Without the option all of stderr is one line, as the test of refusals alike has it.
    shown = mpirun(2, "-m", "tnplan", "--debug", *arguments).stderr
    assert "in ending_together" in shown
    assert "in do" in shown


def test_debug_shows_the_traceback_of_a_job_that_is_ended(aborted: Jobs) -> None:
    ended = aborted[SHOWN][0].stderr
    assert "rank 1 of 2:\nTraceback" in ended
    assert "in ending_together" in ended


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        (("--help",), "Usage: tnplan [OPTIONS]"),
        (("execute", "--help"), "Usage: tnplan execute"),
        (("--version",), "tnplan, version"),
    ],
)
def test_help_is_printed_once(arguments: tuple[str, ...], start: str) -> None:
    done = mpirun(2, "-m", "tnplan", *arguments)
    assert done.returncode == 0
    assert done.stdout.startswith(start)
    assert done.stdout.count(start) == 1
    assert done.stderr == ""


def test_the_message_of_a_rank_that_ends_the_job_is_one_write() -> None:
    code = (
        "from tnplan.executor.device.comm.mpi import world\nworld().abort('rank 0: struck\\n by a test', 3)\n"
    )
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        done = subprocess.run([sys.executable, "-u", "-c", code], stderr=theirs, timeout=60, check=False)
        assert done.returncode == 3
        ours.setblocking(False)
        written = []
        with suppress(BlockingIOError):
            while True:
                written.append(ours.recv(1000))
    assert b"rank 0: struck by a test\n" in written

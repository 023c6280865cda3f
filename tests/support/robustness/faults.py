"""Faults of a job on two hosts with two ranks each, and whether the job ends as it should and goes on equal.

As a script: `python -m tests.support.robustness.faults FIRST STOP` makes the faults with these numbers and
prints a line of JSON for each. `... fault_table ROWS` makes the table of the documents from these lines.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np

from tests.support.contraction.schedules import planned, sliced_lattice
from tests.support.mpirun import SCRIPTS
from tests.support.networks import random_arrays
from tests.support.robustness.hosts import Cluster, Host, cluster, ended
from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.planner.networks.tensors import save_tensors
from tnplan.planner.schedule.file import save_schedule

TIMEOUT_S, GRACE_S, PAUSE_S = 6.0, 10.0, 0.1
LINK_DOWN_S = 5.0
RANK = "slow_slices.py"
DISK_BYTES = 1 << 20
RANKS, RESUMED_RANKS = 4, (4, 8, 12)
"""Of the job, one group, and of the job that goes on from it: one, two or three groups."""
ROUNDING = 1e-6
"""Of 64 slices that are added in another order in fp32, against the largest value."""
WORST_S = 60.0
"""What a job without a fault takes at most."""


def kill_rank(made: Cluster, random: Random) -> None:
    """kill -9 of a rank."""
    os.kill(random.choice(ranks_of(made)), signal.SIGKILL)


def kill_daemon(made: Cluster, random: Random) -> None:
    """kill -9 of the launcher's daemon on a host."""
    for process in random.choice(made.hosts).processes("hydra_pmi_proxy"):
        os.kill(process, signal.SIGKILL)


def stop_rank(made: Cluster, random: Random) -> None:
    """SIGSTOP of a rank."""
    os.kill(random.choice(ranks_of(made)), signal.SIGSTOP)


def cut_shortly(made: Cluster, random: Random) -> None:
    """A link that is down for 5 s."""
    made.link(1, up=False)
    time.sleep(LINK_DOWN_S)
    made.link(1, up=True)


def cut(made: Cluster, random: Random) -> None:
    """A link that is down for good."""
    made.link(1, up=False)


def lose_host(made: Cluster, random: Random) -> None:
    """A host that is gone."""
    made.link(1, up=False)
    made.hosts[1].lose()


def fill_disk(made: Cluster, random: Random) -> None:
    """The disk of one host, from which all others have it, is full: it is a small one."""
    filled = made.folder / "disk" / "filled"
    assert shutil.disk_usage(filled.parent).total <= DISK_BYTES
    with filled.open("wb") as stream:
        try:
            while stream.write(bytes(1 << 16)):
                stream.flush()
        except OSError:
            pass


def interrupt(made: Cluster, random: Random) -> None:
    """Ctrl-C."""
    for process in made.hosts[0].processes("mpirun"):
        os.kill(process, signal.SIGINT)


def terminate(made: Cluster, random: Random) -> None:
    """SIGTERM of the launcher."""
    for process in made.hosts[0].processes("mpirun"):
        os.kill(process, signal.SIGTERM)


def stop_ranks(made: Cluster, random: Random) -> None:
    """SIGTERM of all ranks, as a scheduler sends it."""
    _tell_ranks(made, signal.SIGTERM)


def warn_ranks(made: Cluster, random: Random) -> None:
    """SIGUSR1 of all ranks, as a scheduler sends it before the time is over."""
    _tell_ranks(made, signal.SIGUSR1)


def _tell_ranks(made: Cluster, number: int) -> None:
    ranks = ranks_of(made)
    if not ranks:
        raise IndexError("no rank is there")
    for process in ranks:
        os.kill(process, number)


@dataclass(frozen=True)
class Fault:
    """What is done to a job, when, and the status with which it is to end (None: any but 0)."""

    name: str
    make: Callable[[Cluster, Random], None]
    early: bool = False
    status: int | None = None
    timeout_s: float = TIMEOUT_S


FAULTS = (
    Fault("a rank is killed (kill -9)", kill_rank),
    Fault("the launcher's daemon on a host is killed", kill_daemon),
    Fault("a rank is stopped (SIGSTOP)", stop_rank),
    Fault("a link is down for 5 s", cut_shortly, status=0, timeout_s=20.0),
    Fault("a link is down for good", cut),
    Fault("a host is lost", lose_host),
    Fault("the disk is full", fill_disk),
    Fault("Ctrl-C while slices are computed", interrupt),
    Fault("Ctrl-C in the first seconds", interrupt, early=True),
    Fault("a rank is killed in the first seconds", kill_rank, early=True),
)


@dataclass(frozen=True)
class Outcome:
    """What a job did: its status and last line, how long after the fault it ended, and what was left."""

    number: int
    fault: str
    status: int | None
    line: str
    seconds: float
    left: int
    resumed_ranks: int
    """0 where nothing was left to do."""
    resumed_equal: bool

    def wrong(self, fault: Fault) -> str:
        """What is wrong with it; empty where nothing is."""
        if self.status is None:
            return "hangs"
        if (self.status == 0) != (fault.status == 0) and not (fault.early and self.status == 0):
            return f"status {self.status}"
        if self.status and self.seconds > fault.timeout_s + GRACE_S:
            return f"ends {self.seconds:.1f} s after the fault"
        if self.left:
            return f"{self.left} ranks are left"
        return "" if self.resumed_equal else "the resumed result differs"


def ranks_of(made: Cluster, *hosts: Host) -> list[int]:
    """The processes of the ranks on some hosts, or on all: nothing else there is Python."""
    return [process for host in hosts or made.hosts for process in host.processes("")
            if "python" in Path(f"/proc/{process}/comm").read_text()]  # fmt: skip


def make_problem(folder: Path) -> np.ndarray:
    """A schedule of 64 slices for a group of 4 ranks in the folder, and its result."""
    path = replace(sliced_lattice(2, n_sliced=9), tensors="tensors.npz")
    schedule = planned(path, ranks=4)
    assert schedule.n_slices >= 30, schedule.n_slices
    arrays = random_arrays(path, 1)
    save_tensors(arrays, folder / "tensors.npz")
    save_schedule(schedule, folder / "schedule.json")
    result = execute(schedule, arrays, device="cpu", ranks=4, threads=1).array
    assert result is not None
    return result


def trial(number: int, folder: Path, expected: np.ndarray) -> Outcome:
    """One fault, the end of the job, and the job resumed on hosts that are whole."""
    output = folder / "disk" / "result.npy"
    with small_disk(folder / "disk"):
        return _on_disk(number, folder, output, expected)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of 1 MiB in memory, which hosts made inside share."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "disk", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _on_disk(number: int, folder: Path, output: Path, expected: np.ndarray) -> Outcome:
    fault, random = FAULTS[number % len(FAULTS)], Random(number)
    with cluster(2, folder) as made:
        command = [SCRIPTS / RANK, folder / "schedule.json", output, PAUSE_S, fault.timeout_s]
        job = made.mpirun(2, command)
        if fault.early:
            time.sleep(random.uniform(0.05, 2.5))
        else:
            _wait_for_slices(output, random.randint(2, 10))
        begun_s = time.monotonic()
        fault.make(made, random)
        status, error, _ = ended(job, WORST_S + fault.timeout_s + GRACE_S)
        seconds = time.monotonic() - begun_s
        while ranks_of(made) and time.monotonic() - begun_s < fault.timeout_s + GRACE_S:
            time.sleep(0.2)
        left = len(ranks_of(made))
        if fault.make is fill_disk:
            (folder / "disk" / "filled").unlink()
    lines = [line for line in error.splitlines() if "error" in line or "rank" in line]
    ranks = random.choice(RESUMED_RANKS) if status != 0 else 0
    if ranks:
        _resume(folder / "schedule.json", output, ranks)
    is_equal = _equals(np.load(output), expected, ranks)
    ours = ("tnplan: error", "rank ")
    line = next((line for line in lines if line.startswith(ours)), lines[-1] if lines else "")
    return Outcome(number, fault.name, status, line[:200], round(seconds, 2), left, ranks, is_equal)


def _equals(found: np.ndarray, expected: np.ndarray, ranks: int) -> bool:
    """Bit for bit; to rounding where other groups have made the partial sums."""
    if ranks in (0, RANKS):
        return found.tobytes() == expected.tobytes()
    return np.allclose(found, expected, rtol=0, atol=ROUNDING * float(np.abs(expected).max()))


def _resume(schedule: Path, output: Path, ranks: int) -> None:
    """Go on once the ranks that were killed have let go of the output."""
    end_s = time.monotonic() + GRACE_S
    while True:
        try:
            execute(schedule, device="cpu", ranks=ranks, threads=1, output=output, resume=True)
        except InputError as refusal:
            if "is used by another run" not in str(refusal) or time.monotonic() > end_s:
                raise
            time.sleep(0.2)
        else:
            return


def _wait_for_slices(output: Path, count: int) -> None:
    said = Path(f"{output}.slices")
    end_s = time.monotonic() + WORST_S
    # The ranks write the file anew while it is read: it is empty for a moment.
    while int((said.read_text() if said.is_file() else "") or 0) < count:
        if time.monotonic() > end_s:
            raise TimeoutError("the job computes no slices")
        time.sleep(0.02)


def _main(first: str, stop: str) -> None:
    with TemporaryDirectory() as made:
        folder = Path(made)
        expected = make_problem(folder)
        for number in range(int(first), int(stop)):
            done = trial(number, folder, expected)
            wrong = done.wrong(FAULTS[number % len(FAULTS)])
            print(json.dumps({**asdict(done), "wrong": wrong}), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])

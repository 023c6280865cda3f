"""Hosts that are lost while a job on two hosts starts: whether what is left of it ends.

As a script: `python -m tests.support.robustness.early_faults FIRST STOP` makes the faults with these numbers
and prints a line of JSON for each.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.support.mpirun import SCRIPTS
from tests.support.robustness.faults import (
    GRACE_S,
    PAUSE_S,
    RANK,
    TIMEOUT_S,
    cut,
    lose_host,
    make_problem,
    ranks_of,
)
from tests.support.robustness.hosts import Cluster, cluster, ended

WITHIN_S = 3.0
"""The seconds of the start in which hosts are lost."""


def stop_host(made: Cluster, random: Random) -> None:
    """SIGSTOP of all ranks of a host, as soon as there are some."""
    host, end_s = random.choice(made.hosts), time.monotonic() + TIMEOUT_S
    while not ranks_of(made, host) and time.monotonic() < end_s:
        time.sleep(0.01)
    for process in ranks_of(made, host):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGSTOP)


KINDS = (lose_host, cut, stop_host)


@dataclass(frozen=True)
class EarlyOutcome:
    """How a job ended, seconds after its fault, and how many ranks were left then."""

    number: int
    fault: str
    after_s: float
    status: int | None
    line: str
    seconds: float
    left: int

    @property
    def wrong(self) -> str:
        """What is wrong with it; empty where nothing is."""
        if self.status is None or self.seconds > TIMEOUT_S + GRACE_S:
            return "does not end in time"
        if self.status == 0:
            return "goes on without a host"
        return f"{self.left} ranks are left" if self.left else ""


def early_trial(number: int, folder: Path) -> EarlyOutcome:
    """One fault at a random moment of the start of the job of `make_problem` in the folder."""
    random = Random(f"early {number}")
    fault, after_s = KINDS[number % len(KINDS)], random.uniform(0.0, WITHIN_S)
    (folder / "disk").mkdir(exist_ok=True)
    with cluster(2, folder) as made:
        output = folder / "disk" / f"{number}.npy"
        job = made.mpirun(2, [SCRIPTS / RANK, folder / "schedule.json", output, PAUSE_S, TIMEOUT_S])
        time.sleep(after_s)
        begun_s = time.monotonic()
        fault(made, random)
        status, error, seconds = ended(job, TIMEOUT_S + GRACE_S)
        while ranks_of(made) and time.monotonic() - begun_s < TIMEOUT_S + GRACE_S:
            time.sleep(0.1)
        left = len(ranks_of(made))
    line = next((line for line in error.splitlines() if line.startswith("tnplan: error")), "")
    return EarlyOutcome(
        number, fault.__name__, round(after_s, 2), status, line[:200], round(seconds, 1), left
    )


def _main(first: str, stop: str) -> None:
    with TemporaryDirectory() as made:
        folder = Path(made)
        make_problem(folder)
        for number in range(int(first), int(stop)):
            done = early_trial(number, folder)
            print(json.dumps({**asdict(done), "wrong": done.wrong}), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])

"""A limit of what a job waits for before its ranks hear each other's heartbeats.

A host that is lost while MPI starts, or before the first heartbeats, leaves all others in MPI for ever.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Timer
from time import sleep

from tnplan.executor.device.comm.launcher import launched_local_rank, launched_rank
from tnplan.executor.device.protocols.communicator import FORWARD_S

GRACE_S = 1.0
"""How long a rank leaves it to others to say why the job ends."""
STATUS = 1

End = Callable[[str], None]


@contextmanager
def ending_after(limit_s: float, waits_for: str, end: End) -> Iterator[None]:
    """Call `end` with a line, from another thread, where what is inside takes longer; 0: no limit."""
    if limit_s <= 0:
        yield
        return
    text = (
        f"{waits_for} takes more than {limit_s:g} s, and a host may be lost: the job is ended; "
        "allow more with --timeout"
    )
    timer = Timer(limit_s, end, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def leave_the_line_to_others() -> None:
    """Wait where other ranks say why the job ends: rank 0, or else the first of a host that is left."""
    sleep(GRACE_S * ((launched_rank() > 0) + (launched_local_rank() > 0)))


def end_process(text: str) -> None:
    """Print the line and end this process and, by its launcher, the job: MPI is not there to do it."""
    leave_the_line_to_others()
    sys.stderr.write(f"tnplan: error: rank {launched_rank()}: {text}\n")
    sys.stderr.flush()
    sleep(FORWARD_S)
    with suppress(OSError, ValueError):
        # As MPI_Abort tells MPICH's launcher: that awaits a lost host for ever where a process only ends.
        os.write(int(os.environ.get("PMI_FD", "")), f"cmd=abort exitcode={STATUS}\n".encode())
        sleep(GRACE_S)
    os._exit(STATUS)

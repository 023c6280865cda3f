"""A limit of what a job waits for before its ranks hear each other's heartbeats.

A host that is lost while MPI starts, or before the first heartbeats, leaves all others in MPI for ever.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from threading import Timer
from time import sleep

from tnplan.common.errors import InputError
from tnplan.executor.device.comm.launcher import (
    interrupt_ends_process,
    interrupt_is_raised,
    launched_local_rank,
    launched_rank,
    launched_size,
)
from tnplan.executor.device.protocols.communicator import FORWARD_S, World

GRACE_S = 1.0
"""How long a rank waits for others to print why the job ends."""
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


def wait_for_lower_ranks() -> None:
    """Wait where a lower rank prints why the job ends: rank 0, or else the first of a host that is left."""
    sleep(GRACE_S * ((launched_rank() > 0) + (launched_local_rank() > 0)))


def end_process(text: str) -> None:
    """Print the line and end this process and, by its launcher, the job: MPI is not there to do it."""
    wait_for_lower_ranks()
    sys.stderr.write(f"tnplan: error: rank {launched_rank()}: {text}\n")
    sys.stderr.flush()
    sleep(FORWARD_S)
    with suppress(OSError, ValueError):
        # As MPI_Abort tells MPICH's launcher: that awaits a lost host for ever where a process only ends.
        os.write(int(os.environ.get("PMI_FD", "")), f"cmd=abort exitcode={STATUS}\n".encode())
        sleep(GRACE_S)
    os._exit(STATUS)


def world_communicator(timeout_s: float = 0.0) -> World | None:
    """All ranks of the job, or None outside a launcher or with one rank.

    Where MPI does not start within `timeout_s`, this process ends; 0: no limit.
    """
    size = launched_size()
    if size == 1:
        return None
    if find_spec("mpi4py") is None:
        raise InputError(
            "mpirun", f"started {size} ranks, but mpi4py is not installed",
            "install it with: pip install 'tnplan[mpi]'", topic="installation",
        )  # fmt: skip
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        interrupt_ends_process()
    from tnplan.executor.device.comm import mpi

    with ending_after(timeout_s, "the start of MPI", end_process):
        world = mpi.world()
    if handler in (signal.default_int_handler, signal.SIG_DFL):
        interrupt_is_raised()
    if world.size != size:
        raise InputError(
            "mpirun", f"started {size} ranks, but mpi4py's own MPI sees {world.size}",
            "start with the mpirun of the MPI library that mpi4py was built for",
            topic="ranks",
        )  # fmt: skip
    return world

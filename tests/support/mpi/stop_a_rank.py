"""Run under mpirun: the command line, with a rank that is stopped: `stop_a_rank.py RANK WHEN ARGUMENTS`.

WHEN is `start`, of MPI; `meeting`, before the first heartbeats are heard; or `finalize`, the end of MPI.
"""

from __future__ import annotations

import os
import signal
import sys

from tnplan.cli.main import main
from tnplan.executor.device.comm import heartbeat, mpi
from tnplan.executor.device.comm.launcher import launched_rank


def stop() -> None:
    """For ever: Open MPI continues a process before it ends it."""
    while True:
        os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    rank, when = int(sys.argv.pop(1)), sys.argv.pop(1)
    if launched_rank() == rank and when == "finalize":
        mpi.finalize = stop
    if launched_rank() == rank and when == "start":
        mpi.world = stop  # type: ignore[assignment]
    if launched_rank() == rank and when == "meeting":
        heartbeat.Heartbeat.wait_until_heard = lambda self, limit_s: stop()  # type: ignore[method-assign]
    main()

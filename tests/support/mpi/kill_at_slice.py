"""Runs a schedule and kills a rank when a slice is done. Arguments: RANK SLICE SCHEDULE TENSORS OUT [raise].

With `raise` the rank fails with an error instead.
"""

from __future__ import annotations

import os
import signal
import sys

from tnplan.api.execute import execute
from tnplan.executor.device.comm.launcher import launched_rank


def main() -> None:
    victim, last, schedule, tensors, output, *how = sys.argv[1:]

    def progress(done: int, n_slices: int) -> None:
        if launched_rank() == int(victim) and done == int(last):
            if how:
                raise RuntimeError("struck by a test")
            os.kill(os.getpid(), signal.SIGKILL)

    execute(schedule, tensors, output=output, progress=progress)


if __name__ == "__main__":
    main()

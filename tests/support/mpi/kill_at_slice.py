"""Runs a schedule and kills a rank when a slice is done. Arguments: RANK SLICE SCHEDULE TENSORS OUT [HOW].

With `raise` the rank fails with an error instead. With `resume` the run goes on from its checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys

from tnplan.calls.execute import execute
from tnplan.executor.device.comm.launcher import launched_rank
from tnplan.jobs.job import Rank


def main() -> None:
    victim, last, schedule, tensors, output, *how = sys.argv[1:]

    def say(rank: Rank, done: int, total: int, *rest: object, **more: object) -> None:
        if launched_rank() == int(victim) and done == int(last) and total:
            if "raise" in how:
                raise RuntimeError("struck by a test")
            os.kill(os.getpid(), signal.SIGKILL)

    Rank.say = say  # type: ignore[method-assign]
    execute(schedule, tensors, output=output, resume="resume" in how)


if __name__ == "__main__":
    main()

"""Run under mpirun: the command line, where one rank is to stop: `ask_a_rank.py RANK LAYER ARGUMENTS`.

The signal comes to that rank alone, after so many layers of a PEPS.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from tests.support.stop import ask_to_stop
from tnplan.cli.main import main
from tnplan.executor.device.comm.launcher import launched_rank
from tnplan.executor.peps.state import PepsState

if __name__ == "__main__":
    rank, layer, apply = int(sys.argv.pop(1)), int(sys.argv.pop(1)), PepsState.apply

    def counted(*arguments: Any) -> None:
        global layer
        apply(*arguments)
        layer -= 1
        if layer == 0:
            ask_to_stop(signal.SIGUSR1)

    if launched_rank() == rank:
        PepsState.apply = counted  # type: ignore[assignment, method-assign]
    main()

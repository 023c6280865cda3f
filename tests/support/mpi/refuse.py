"""Runs a circuit's propagation in which ranks refuse on the way. Arguments: RANKS HOW CIRCUIT [--debug].

RANKS, such as 0,1, refuse; the others wait for them in a collective call. HOW is alike, apart (each in other
words), or late (the last rank one second after the others).
"""

from __future__ import annotations

import sys
import time
from typing import Any

from tnplan.cli.main import main
from tnplan.common.errors import InputError
from tnplan.executor.device.protocols import communicator
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.jobs import pauli as propagation

ranks, how = sys.argv[1:3]


def refused(pieces: object, start: object, truncation: object, use: Any, **options: object) -> None:
    world: Communicator = use.ranks
    if str(world.rank) not in ranks.split(","):
        world.barrier()
    if how == "late" and world.rank == world.size - 1:
        time.sleep(1)
    raise InputError("step 1", f"struck{world.rank if how == 'apart' else ''} by a test", "leave it out")


if __name__ == "__main__":
    if how != "late":  # others wait for a rank that never comes
        communicator.COMPARED_WITHIN_S = 2.0
    propagation.propagate_all = refused  # type: ignore[assignment]
    sys.argv[1:] = [*sys.argv[4:], "pauli", sys.argv[3], "--observable", "Z0"]
    main()

"""Whether every host that will write can: the folder is one for all, it is writable, and it has room.

Collective; what is refused leaves nothing behind.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from socket import gethostname
from time import sleep
from typing import Any
from uuid import uuid4

import numpy as np

from tnplan.common.errors import InputError
from tnplan.common.files import unfinished, write_file, write_json
from tnplan.common.units import size_text
from tnplan.executor.device.protocols.communicator import Communicator, agree
from tnplan.jobs.job_options import JobOptions

# A result of arrays: an .npz with the report beside it. The checkpoint goes once nothing is left to do.


def write_arrays(options: JobOptions, arrays: dict[str, Any], report: dict[str, Any]) -> None:
    """Write the arrays to the output and the report beside it; delete the checkpoint of what converged."""
    target, checkpoint = options.output, options.checkpoint_file
    assert target is not None
    write_file(target, lambda stream: np.savez(stream, **arrays))
    write_json(target.with_suffix(".json"), report)
    if checkpoint is not None and report["converged"]:
        checkpoint.unlink(missing_ok=True)


# Whether every host that will write can: the folder is one for all, it is writable, and it has room.


LOOKS, APART_S = 10, 0.3
"""How often a rank looks for a file of rank 0: file systems of networks show it late."""


@dataclass(frozen=True)
class Writes:
    """What a job writes: to the folder of `output`, from all ranks or rank 0 alone, bytes of all together."""

    output: Path
    by_all: bool = False
    room_bytes: int = 0


def check_outputs(world: Communicator, writes: Writes) -> None:
    """Refuse, on all ranks alike, a folder that a rank which is to write cannot use; collective."""
    folder, is_first = writes.output.parent, world.rank == 0
    probe = folder / f".{writes.output.name}.{world.broadcast_object(uuid4().hex[:8], 0)}"
    try:
        agree(world, lambda: _write(probe) if is_first else None)
        agree(world, lambda: _check(writes, probe) if is_first or writes.by_all else None)
    finally:
        if is_first:
            probe.unlink(missing_ok=True)
            unfinished.forget(probe)


def _write(probe: Path) -> None:
    try:
        os.close(unfinished.open(probe))
    except OSError as error:
        raise InputError(
            f"{probe.parent} on {gethostname()}", f"cannot be written ({error.strerror})",
            "choose a folder that is writable",
            topic="files that cannot be written",
        ) from None  # fmt: skip


def _check(writes: Writes, probe: Path) -> None:
    place = f"{probe.parent} on {gethostname()}"
    # Directory entries of network file systems are cached for seconds, so that a file that rank 0
    # just made may not be seen here yet.
    for _ in range(LOOKS):
        if probe.exists():
            break
        sleep(APART_S)
    else:
        raise InputError(
            place, "is not the folder that rank 0 writes to, and every rank is to write there",
            "choose a folder that all hosts share, or leave out checkpoints (--no-checkpoint) and shards",
            topic="checkpoints",
        )  # fmt: skip
    if not os.access(probe.parent, os.W_OK | os.X_OK):
        raise InputError(
            place, "is not writable", "choose a folder that is writable on every host",
            topic="files that cannot be written",
        )
    free_bytes = disk_usage(probe.parent).free
    if free_bytes < writes.room_bytes:
        raise InputError(
            place, f"has {size_text(free_bytes)} free, and {size_text(writes.room_bytes)} are to be written",
            "make room, or choose another folder",
        )  # fmt: skip

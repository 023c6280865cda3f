"""What can be said of the host that a run was made on. Knows no device."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from socket import gethostname
from typing import Any

from tnplan.executor.device.protocols.communicator import Communicator


def usable_cores() -> tuple[int, ...]:
    """The numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cores() -> int:
    """How many cores this process may use."""
    return len(usable_cores())


def ranks_here(world: Communicator) -> int:
    """How many ranks this host has, this one among them; collective."""
    return world.gather_objects(gethostname()).count(gethostname())


def threads_a_rank(world: Communicator) -> int:
    """This process's cores over the ranks of its host that share them, at least 1; collective."""
    here = gethostname(), usable_cores()
    return max(1, len(here[1]) // world.gather_objects(here).count(here))


def host_facts() -> dict[str, Any]:
    """The system, the processor's name and the cores that this process may use."""
    return {
        "system": platform.platform(),
        "cpu": cpu_name(Path("/proc/cpuinfo")),
        "cores": cores(),
        "python": platform.python_version(),
    }


def cpu_name(cpuinfo: Path) -> str:
    """The processor as Linux names it, or its architecture where there is no such file."""
    if cpuinfo.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
        if found:
            return f"{found[1].strip()} ({platform.machine()})"
    return platform.machine()

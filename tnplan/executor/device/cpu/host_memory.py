"""The memory that this process may take: the host's, or less where a control group limits it.

A job of Slurm and a container are control groups of Linux. Knows their files; never what memory is for.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from socket import gethostname
from typing import Any

from tnplan.common.errors import InputError
from tnplan.common.system_calls import cores, installed_memory, usable_cores
from tnplan.common.units import size_text
from tnplan.executor.device.protocols.communicator import Communicator

# Facts of the host that a run is made on. Knows no device.


def ranks_here(world: Communicator) -> int:
    """How many ranks this host has, this one among them; collective."""
    return world.gather_objects(gethostname()).count(gethostname())


def threads_a_rank(world: Communicator) -> int:
    """This process's cores over the ranks of its host that share them, at least 1; collective."""
    host = gethostname(), usable_cores()
    return max(1, len(host[1]) // world.gather_objects(host).count(host))


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
        match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
        if match:
            return f"{match[1].strip()} ({platform.machine()})"
    return platform.machine()


PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
REMEDY = "plan with a smaller --memory or more --devices"
"""What to do where a schedule does not fit."""
UNKNOWN_BYTES = 2.0**62
"""More than any host has: where the memory is unknown."""


@dataclass(frozen=True)
class _Names:
    """The files of a control group: its limit, what is used, and what of that are pages of files."""

    limit: str
    used: str
    pages: str


UNIFIED = _Names("memory.max", "memory.current", "inactive_file")
FIRST = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def host_memory(proc: Path = PROC, groups: Path = GROUPS) -> tuple[float, float]:
    """The bytes that this process and others of its group may hold, and those that are free.

    On a host that does not tell what is free, as macOS, all of its memory.
    """
    text = _read(proc / "meminfo") or ""
    total, free = installed_memory() or (UNKNOWN_BYTES, UNKNOWN_BYTES)
    total, free = _kilobytes(text, "MemTotal", total), _kilobytes(text, "MemAvailable", free)
    for folder, names in _own_groups(_read(proc / "self" / "cgroup") or "", groups):
        limit, used = _number(folder / names.limit), _number(folder / names.used)
        if limit is None or used is None:
            continue
        pages = re.search(rf"^{names.pages} (\d+)$", _read(folder / "memory.stat") or "", re.MULTILINE)
        used_bytes = used - (int(pages[1]) if pages else 0)
        total, free = min(total, limit), min(free, max(0, limit - used_bytes))
    return total, free


def check_host_memory(needed_bytes: int, free_bytes: float, n_ranks: int = 1, remedy: str = REMEDY) -> None:
    """Raise InputError where this host has not the free memory that each of its `n_ranks` ranks needs."""
    if n_ranks * needed_bytes > free_bytes:
        needed_by = "for a rank"
        if n_ranks > 1:
            needed_by = f"for {n_ranks} ranks, {size_text(needed_bytes)} each"
            remedy = f"{remedy}, or start fewer ranks on a host"
        raise InputError(
            "--device cpu",
            f"{size_text(n_ranks * needed_bytes)} are needed {needed_by}, {gethostname()} has "
            f"{size_text(free_bytes)} free",
            remedy, topic="memory",
        )


@lru_cache(maxsize=8)
def _own_groups(memberships: str, groups: Path) -> list[tuple[Path, _Names]]:
    """The folders of the groups that limit this process's memory, and of all that these are inside of.

    In a container the path may be that of the host, of which the root alone is seen.
    """
    folders: list[tuple[Path, _Names]] = []
    for line in memberships.splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers == "":
            roots, names = [groups, groups / "unified"], UNIFIED
        elif "memory" in controllers.split(","):
            roots, names = [groups / "memory"], FIRST
        else:
            continue
        for root in roots:
            own = root / path.strip("/")
            folders += [(folder, names) for folder in (own, *own.parents) if folder.is_relative_to(root)]
    return folders


def _kilobytes(text: str, name: str, otherwise: float) -> float:
    match = re.search(rf"^{name}:\s*(\d+) kB$", text, re.MULTILINE)
    return float(match[1]) * 1024 if match else otherwise


def _number(path: Path) -> int | None:
    text = (_read(path) or "").strip()
    return int(text) if text.isdigit() else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return None

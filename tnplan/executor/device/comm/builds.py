"""Whether all ranks run the same tnplan on the same libraries: others may give other bits, or nonsense."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from socket import gethostname
from typing import Any

import numpy as np

from tnplan.common.release import release, source_hash
from tnplan.executor.device.cpu.host_memory import cpu_name
from tnplan.executor.device.protocols.communicator import AgreedError, Communicator

LIBRARIES = ("numba", "llvmlite", "mpi4py")


def build_facts() -> dict[str, str]:
    """What of this process may change the bits of a result."""
    from importlib.metadata import PackageNotFoundError, version

    from threadpoolctl import threadpool_info

    facts = {
        "tnplan": release(), "sources": source_hash()[:12], "python": platform.python_version(),
        "numpy": np.__version__, "blas": blas_text(threadpool_info()), "byte order": sys.byteorder,
        "cpu": cpu_name(Path("/proc/cpuinfo")),
    }  # fmt: skip
    for name in LIBRARIES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = "none"
    return facts


def blas_text(loaded: Sequence[Mapping[str, Any]]) -> str:
    """The BLAS that NumPy multiplies with, of the libraries that are loaded, as threadpoolctl lists them.

    Other packages bring their own, such as SciPy, which one rank may have imported and another one not.
    """
    packages = Path(np.__file__).resolve().parents[1]
    numpys = (packages / "numpy", packages / "numpy.libs")
    names = set()
    for entry in loaded:
        path = Path(entry["filepath"]).resolve()
        is_others = path.is_relative_to(packages) and not any(path.is_relative_to(own) for own in numpys)
        if entry.get("user_api") == "blas" and not is_others:
            words = entry["internal_api"], entry.get("version"), entry.get("architecture", "")
            names.add(" ".join(map(str, words)).strip())
    return ", ".join(sorted(names))


def agreed_builds(world: Communicator, mixed: bool) -> dict[str, dict[str, str]]:
    """The facts of every host; AgreedError where they differ and may not. Collective."""
    builds: dict[str, dict[str, str]] = {}
    first_host = ""
    first: dict[str, str] = {}
    for rank, (host, facts) in enumerate(world.gather_objects((gethostname(), build_facts()))):
        if not first:
            first_host, first = host, facts
        name = next((key for key in first if facts.get(key) != first[key]), None)
        if name is not None and not mixed:
            raise AgreedError(
                f"rank {rank} on {host}",
                f"has {name} {facts.get(name)}, and rank 0 on {first_host} has {first[name]}",
                "install the same version everywhere, or, where the job has --allow-mixed-builds, accept "
                "results that may differ by rounding",
                topic="equal builds",
            )
        builds.setdefault(host if builds.get(host, facts) == facts else f"{host} (rank {rank})", facts)
    return builds

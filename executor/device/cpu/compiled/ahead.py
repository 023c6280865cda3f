"""Kernels compiled by processes beside this one: those that a job will need soon, when the first is missing.

A job says which kernels it will call (`expect`). Nothing happens while all are in the cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock
from typing import Any

from tnplan.executor.device.cpu.compiled.object_cache import CompiledObject, objects_folder
from tnplan.executor.device.cpu.host_facts import cores

Sample = tuple[Any, tuple[Any, ...]]
"""A kernel, and arguments of the types that it is called with."""
LOOK_AGAIN_S = 0.005
"""Seconds between two looks for what another process makes."""


@dataclass(frozen=True)
class Samples:
    """The kernels of an engine: `function` of `module`, called with `arguments`, gives a list of `Sample`.

    The kernels of `modules` are among them; this process waits for these instead of compiling them too.
    """

    module: str
    function: str
    arguments: tuple[str, ...]
    modules: tuple[str, ...]


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    modules: tuple[str, ...]


_expected: list[Samples] = []
_workers: list[_Worker] = []
_lock = Lock()


def expect(several: Iterable[Samples]) -> None:
    """Say which kernels will be called soon."""
    with _lock:
        _expected.extend(one for one in several if one not in _expected)


def compiled_elsewhere(kernel: Any, find: Callable[[], CompiledObject | None]) -> CompiledObject | None:
    """What another process makes of a missing kernel, as soon as it is there; None where none makes it.

    Starts the processes for all kernels that are expected.
    """
    _start()
    module = kernel.function.__module__
    mine = [one for one in _workers if module in one.modules]
    while mine:
        running = [one for one in mine if one.process.poll() is None]
        found = find()
        if found is not None or not running:
            return found
        mine = running
        time.sleep(LOOK_AGAIN_S)
    return None


def _start() -> None:
    """Start a process for each of the expected samples, the first ones, with a core for each and for this."""
    with _lock:
        expected, _expected[:] = list(_expected), []
        if not expected or objects_folder() is None:
            return
        for one in expected[: max(1, cores() - 1)]:
            worker = [sys.executable, "-m", f"{__package__}.worker"]
            command = [*worker, one.module, one.function, *one.arguments]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env=environment,
            )  # fmt: skip
            _workers.append(_Worker(process, one.modules))

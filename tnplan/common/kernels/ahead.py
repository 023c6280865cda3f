"""Kernels compiled by processes beside this one, when a job says that it will call them soon."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any

from tnplan.common.kernels.object_cache import CompiledObject, find_object, objects_folder
from tnplan.common.system_calls import cores

Sample = tuple[Any, tuple[Any, ...]]
"""A kernel, and arguments of the types that it is called with."""
LOOK_AGAIN_S = 0.005
"""Seconds between two looks for what another process makes."""


@dataclass(frozen=True)
class Samples:
    """Kernels that one process compiles: `function` of `module`, called with `arguments`, lists `Sample`."""

    module: str
    function: str
    arguments: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """All of it in one line, as the process reads it."""
        return " ".join((self.module, self.function, *self.arguments))

    def all(self) -> list[Sample]:
        """The kernels with their arguments."""
        samples: list[Sample] = getattr(import_module(self.module), self.function)(*self.arguments)
        return samples


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    kernels: list[Any]


_workers: dict[Samples, _Worker] = {}
_ready: set[Samples] = set()
"""Those that the cache was seen to have."""
_children: list[subprocess.Popen[bytes]] = []
"""All processes that `python` has started."""
_lock = threading.Lock()


def compile_soon(several: Iterable[Samples]) -> None:
    """Start processes, no more than there are cores, for those of which something is not in the cache.

    Where there are fewer cores, neighbours in the list share one.
    """
    if objects_folder() is None:
        return
    missing: dict[Samples, list[Any]] = {}
    for samples in several:
        if samples in _workers or samples in _ready:
            continue
        pairs = samples.all()
        if all(is_compiled(*pair) for pair in pairs):
            _ready.add(samples)
            continue
        missing[samples] = [kernel for kernel, _ in pairs]
    with _lock:
        # Checked again under the lock, which is free while samples are made.
        new = [samples for samples in missing if samples not in _workers]
        # Each process imports numba first, which takes a core half a second.
        for part in split_evenly(new, cores()):
            # What this process cannot do is done, and said, where the kernel is called.
            process = python(f"{__package__}.worker", *(samples.words for samples in part))
            for samples in part:
                _workers[samples] = _Worker(process, missing[samples])


def split_evenly(entries: list[Samples], most: int) -> list[list[Samples]]:
    """Up to so many parts of a list, in order, whose lengths differ by at most 1."""
    n_parts = min(most, len(entries))
    ends = [len(entries) * k // n_parts for k in range(n_parts + 1)] if n_parts else [0]
    return [entries[begin:end] for begin, end in pairwise(ends)]


def is_compiled(kernel: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether the cache has a kernel for the types of these arguments."""
    from tnplan.common.kernels.kernel import argument_types

    return find_object(kernel, argument_types(*arguments)) is not None


def still_compiling(several: Iterable[Samples]) -> bool:
    """Whether a process that was started for one of these is at work."""
    return any(samples in _workers and _workers[samples].process.poll() is None for samples in several)


def compiled_elsewhere(kernel: Any, find: Callable[[], CompiledObject | None]) -> CompiledObject | None:
    """What another process makes of a missing kernel, as soon as it is there; None where none makes it."""
    with _lock:
        makers = [worker.process for worker in _workers.values() if kernel in worker.kernels]
    while makers:
        # Before `find`: what a process wrote before it ended is found in this round, or nobody
        # makes it any more.
        running = [process for process in makers if process.poll() is None]
        compiled = find()
        if compiled is not None:
            return compiled
        makers = running
        time.sleep(LOOK_AGAIN_S)
    return None


def python(module: str, *arguments: str, stderr: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """A process that runs a module, to the end also where this one has ended before, but not where a signal
    ended this one: it is to call `end_with_parent`."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=stderr,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    _children.append(process)
    return process


def end_with_parent() -> None:
    """End this process, which `python` has started, where its parent ends without a word."""

    def watch() -> None:
        if not os.read(sys.stdin.fileno(), 1):
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def end_children() -> None:
    """End the processes that are at work: this one was interrupted."""
    for process in _children:
        process.kill()


@atexit.register
def _leave_children() -> None:
    """Let processes that are at work go on: what they compile is there for later calls."""
    for process in _children:
        assert process.stdin is not None
        with suppress(OSError, ValueError):  # it has ended
            process.stdin.write(b"1")
            process.stdin.close()

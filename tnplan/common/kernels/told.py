"""Says once a process, where a person sees it, that kernels are compiled, when that takes over a second."""

from __future__ import annotations

import builtins
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

LEAST_S = 1.0
"""Seconds of compilation in all, from which on it is told."""
LINE = "compiling kernels for this machine (once), about 20 s; 'tnplan warmup' does so ahead"
CLEARED = "\r\x1b[2K"

_lock = threading.Lock()
_spent_s = [0.0]
_is_told: list[bool] = []


@contextmanager
def compiling() -> Iterator[None]:
    """Inside, a kernel is compiled, or waited for."""
    if _is_told:
        yield
        return
    # A timer, since no thread comes back to Python while LLVM or NVRTC compiles.
    timer = threading.Timer(max(0.0, LEAST_S - _spent_s[0]), _tell)
    timer.daemon = True
    timer.start()
    began = time.monotonic()
    try:
        yield
    finally:
        timer.cancel()
        with _lock:
            _spent_s[0] += time.monotonic() - began


def _tell() -> None:
    with _lock:
        if _is_told:
            return
        _is_told.append(True)
    stream = sys.stderr
    on_terminal = stream is not None and stream.isatty()
    # Logs stay as they are: nobody waits in front of them.
    if stream is not None and (on_terminal or hasattr(builtins, "get_ipython")):
        stream.write(f"{CLEARED if on_terminal else ''}{LINE}\n")
        stream.flush()

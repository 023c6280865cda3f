"""Signals that ask a job to stop at its next checkpoint, as Slurm sends before a time limit.

`SIGTERM` and `SIGUSR1` set a flag, which ranks look at where they can keep what they have.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
STATUS = 143
"""The exit status of a job that stopped so."""

_asked: list[str] = []


class StoppedRunError(Exception):
    """A job that stopped when the signal of this name asked it to, with a checkpoint."""

    def __init__(self, name: str) -> None:
        super().__init__(f"stopped for {name}, with a checkpoint; continue with --resume")


@contextmanager
def listening() -> Iterator[None]:
    """Let the signals ask this process's job to stop, rather than end it; in the main thread alone."""
    _asked.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def hear(number: int, frame: FrameType | None) -> None:
        _asked.append(signal.Signals(number).name)

    before = [(number, signal.signal(number, hear)) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def asked() -> str:
    """The signal that asks to stop; empty where none came."""
    return _asked[0] if _asked else ""

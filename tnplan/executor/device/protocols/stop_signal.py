"""Signals that ask a job to stop at its next checkpoint, as Slurm sends before a time limit.

`SIGTERM` and `SIGUSR1` set a flag, which ranks read where they can write a checkpoint. Where they cannot, a
command ends at once: everything that can be kept is on the disk.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

SIGNALS = tuple(signal.Signals[name] for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name))
STATUS = 143
"""The exit status of a job that stopped so."""

NOTHING_KEPT = "nothing was kept"

_received: list[str] = []
"""The names of the signals that came."""
_keeping: list[bool] = []
"""An entry for each rank of this process that is inside `keeping`."""
_checkpoint: list[Path] = []
"""The checkpoint of the job, while it listens."""
_end_command: list[Callable[[str], None]] = []


class StoppedRunError(Exception):
    """A job that stopped when the signal of this name asked it to."""

    def __init__(self, name: str, has_checkpoint: bool = True) -> None:
        how = "with a checkpoint; continue with --resume" if has_checkpoint else "before it had a checkpoint"
        super().__init__(f"stopped for {name}, {how}")


@contextmanager
def listening(checkpoint: Path) -> Iterator[None]:
    """Let the signals ask this process's job to stop, rather than end it; in the main thread alone."""
    _received.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        # No more: this thread may hold any lock.
        _received.append(signal.Signals(number).name)

    before = [(number, signal.signal(number, on_signal)) for number in SIGNALS]
    _checkpoint[:] = [checkpoint]
    try:
        yield
    except KeyboardInterrupt as error:
        error.add_note(kept_text())
        raise
    finally:
        _received.clear()  # the next job of this process may keep no checkpoint, and not listen
        _checkpoint.clear()
        for number, handler in before:
            signal.signal(number, handler)


def kept_text() -> str:
    """What an interrupted job leaves behind."""
    checkpoint = _checkpoint[0] if _checkpoint else None
    if checkpoint is None or not checkpoint.exists():
        return NOTHING_KEPT
    # A name that begins with a dot is of a file that is not whole, and is deleted.
    if checkpoint.is_dir() and all(file.name.startswith(".") for file in checkpoint.iterdir()):
        return NOTHING_KEPT
    return f"{checkpoint} has what was done, continue with --resume"


@contextmanager
def interrupting() -> Iterator[None]:
    """Let Ctrl-C and the signals raise `KeyboardInterrupt`, with their name; in the main thread alone.

    The first one does so; after that Ctrl-C is Python's again, and the others are ignored. What the starter
    of this process has it ignore stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        for other in changed:
            signal.signal(other, signal.default_int_handler if other == signal.SIGINT else signal.SIG_IGN)
        raise KeyboardInterrupt(signal.Signals(number).name)

    is_python_s = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    changed = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    changed += [signal.SIGINT] if is_python_s else []
    before = [(number, signal.signal(number, on_signal)) for number in changed]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


@contextmanager
def keeping() -> Iterator[None]:
    """Inside, a rank calls `asked` again and again, and then writes what is not on the disk yet."""
    _keeping.append(True)
    try:
        yield
    finally:
        _keeping.pop()
    if asked():
        _end_at_once(asked())


def asked() -> str:
    """The signal that asks to stop; empty where none came."""
    return _received[0] if _received else ""


def ask(number: int) -> None:
    """Ask the job that listens to stop, for a signal; not from its handler."""
    if _checkpoint:
        name = signal.Signals(number).name
        _received.append(name)
        _end_at_once(name)


def _end_at_once(name: str) -> None:
    if _end_command and not _keeping and _checkpoint:
        _end_command[0](str(StoppedRunError(name, _checkpoint[0].exists())))


def end_command_by(end: Callable[[str], None]) -> None:
    """This process is a command, whose job may be ended at any moment: by a call of `end` with a line."""
    _end_command[:] = [end]

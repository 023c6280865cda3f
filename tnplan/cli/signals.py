"""Signals that end a command at once, also while it computes, with nothing half-written left behind.

A handler of Python waits until a kernel returns. So the number of the signal goes through a pipe to a thread,
which deletes what is unfinished and ends the process. A job with a checkpoint keeps what it has before that.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

from tnplan.cli.terminal import say
from tnplan.executor.device.protocols import stop_signal

ENDING = tuple(
    signal.Signals[name]
    for name in ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU")
    if hasattr(signal, name)
)
"""Those that end any process which does not know them: schedulers send several of them."""
SIGNALLED = 128
"""The exit status of a signal is its number and this, as shells say it."""
INTERRUPT_S = 5.0
"""How long Ctrl-C may take: an exception of Python ends what it can."""

_stopping = threading.Lock()


def end_by_signals() -> None:
    """Let the signals end this process, unless its starter has it ignore them.

    On Windows a process gets no signal but Ctrl-C, which Python raises.
    """
    if sys.platform == "win32":
        return
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _passed_on)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    stop_signal.end_command_by(_stop)
    threading.Thread(target=_watch, args=(read_end,), name="signals", daemon=True).start()


def _passed_on(number: int, frame: FrameType | None) -> None:
    """Nothing: the number goes through the pipe to the thread."""


def _watch(read_end: int) -> None:
    while received := os.read(read_end, 1):
        number = received[0]
        handler = signal.getsignal(number)
        if handler is _passed_on:
            _end(SIGNALLED + number)
        elif handler is signal.default_int_handler:
            # Python's own handler raises KeyboardInterrupt when the interpreter is reached; where a
            # kernel does not come back by then, the process ends without it.
            late = threading.Timer(INTERRUPT_S, _interrupt_late, (SIGNALLED + number,))
            late.daemon = True
            late.start()
        # A job that heeds signals ends at its next checkpoint.
        elif number in stop_signal.SIGNALS:
            stop_signal.ask(number)


def _stop(line: str) -> None:
    """End a job that has nothing to keep but what is on the disk."""
    _stopping.acquire()  # the job's own thread may come here too: one speaks, the other waits for the end
    say(f"tnplan: error: {line}", err=True)
    _end(stop_signal.STATUS)


def _interrupt_late(status: int) -> None:
    """End a job that does not come back from a kernel, and say what it leaves."""
    say(f"tnplan: error: interrupted; {stop_signal.kept_text()}", err=True)
    _end(status)


def _end(status: int) -> None:
    files = sys.modules.get("tnplan.common.files")
    unfinished = getattr(files, "unfinished", None)  # where the command has come to it
    if unfinished is not None:
        unfinished.delete()
    os._exit(status)

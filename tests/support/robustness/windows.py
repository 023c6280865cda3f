"""A Python that lacks what Windows lacks: python -m tests.support.robustness.windows -m tnplan ...

Modules and calls of POSIX are gone before anything of tnplan is imported, and `sys.platform` is "win32".
Locks come from a stand-in of `msvcrt` that locks files for real. What it cannot show: paths with drives, and
that a file which is open cannot be deleted.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import runpy
import signal
import sys
import types
from importlib import import_module
from typing import Any

MODULES = ("fcntl", "resource", "termios", "pwd", "grp", "pty")
CALLS = (
    "geteuid", "getuid", "sched_getaffinity", "sysconf", "pread", "pwrite", "major", "minor", "fork",
    "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "killpg", "setsid", "getpgid",
)  # fmt: skip
SIGNALS = ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGKILL", "SIGALRM", "SIGPIPE")
LIBRARIES = (
    "click.testing", "concurrent.futures.process", "cotengra", "matplotlib.figure",
    "multiprocessing.connection", "multiprocessing.popen_spawn_posix", "multiprocessing.resource_tracker",
    "multiprocessing.spawn", "numba", "rich.console", "socket", "subprocess", "threadpoolctl",
)  # fmt: skip
"""What looks at the platform itself when it is imported."""
MEMORY = 8 << 30


def _fake_msvcrt() -> types.ModuleType:
    module: Any = types.ModuleType("msvcrt")
    module.LK_NBLCK = 2

    def locking(handle: int, mode: int, count: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(13, "Permission denied") from None

    module.locking = locking
    return module


def _fake_windll() -> Any:
    """`GlobalMemoryStatusEx`, which says that 8 GiB are there, half of them free."""

    def status(pointer: Any) -> int:
        pointer._obj.bytes[0], pointer._obj.bytes[1] = MEMORY, MEMORY // 2
        return int(pointer._obj.length == ctypes.sizeof(pointer._obj) == 64)

    return types.SimpleNamespace(kernel32=types.SimpleNamespace(GlobalMemoryStatusEx=status))


def become_windows() -> None:
    """Take away what Windows has not, after the libraries that look at the platform are imported."""
    for library in LIBRARIES:
        import_module(library)
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for name in CALLS:
        if hasattr(os, name):
            delattr(os, name)
    for name in SIGNALS:
        if hasattr(signal, name):
            delattr(signal, name)
    sys.modules["msvcrt"] = _fake_msvcrt()
    ctypes.windll = _fake_windll()  # type: ignore[attr-defined]
    sys.platform = "win32"


if __name__ == "__main__":
    become_windows()
    kind, name, *rest = sys.argv[1:]
    sys.argv = [name, *rest]
    if kind == "-m":
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        exec(name, {"__name__": "__main__"})

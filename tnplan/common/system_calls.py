"""Calls of the system that Windows has otherwise or not at all: files, their owners and locks, memory, cores.

Everything that another system lacks is here, so that the rest of the house is written once.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

PRIVATE = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0) | getattr(os, "O_BINARY", 0)
"""Flags of each file that is opened by `os.open`: no child has it, and its bytes are taken as they are."""
NO_LINK = PRIVATE | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Neither follow a link nor wait, for the other end of a pipe for instance."""
FAR = 2**30
"""Windows locks bytes, which no one else can read then: one that lies behind the end of every lock file."""


def own_user(status: os.stat_result) -> bool:
    """Whether a file belongs to this user; True where the system does not tell."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def usable_cores() -> tuple[int, ...]:
    """The numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cores() -> int:
    """How many cores this process may use."""
    return len(usable_cores())


def lock_file_alone(handle: int) -> None:
    """Lock an open file for this process until it is closed; BlockingIOError where another one has it.

    Raises another OSError where the file system has no locks.
    """
    if sys.platform == "win32":
        import msvcrt

        os.lseek(handle, FAR, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            raise BlockingIOError(errno.EWOULDBLOCK, "is locked") from None
        finally:
            os.lseek(handle, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def read_first(handle: int, count: int) -> bytes:
    """The first bytes of an open file, at most so many."""
    os.lseek(handle, 0, os.SEEK_SET)
    return os.read(handle, count)


def installed_memory() -> tuple[int, int] | None:
    """Bytes of this host's memory: all, and free, or all again where the system does not tell; else None."""
    if sys.platform == "win32":
        return _windows_memory()
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
    return total, total


def _windows_memory() -> tuple[int, int] | None:
    """From GlobalMemoryStatusEx of kernel32: the structure is two numbers of 32 bits and seven of 64."""
    import ctypes

    class Status(ctypes.Structure):
        _fields_ = (("length", ctypes.c_uint32), ("load", ctypes.c_uint32), ("bytes", ctypes.c_uint64 * 7))

    status = Status(length=ctypes.sizeof(Status))
    kernel32: Any = getattr(ctypes, "windll").kernel32  # noqa: B009
    return (status.bytes[0], status.bytes[1]) if kernel32.GlobalMemoryStatusEx(ctypes.byref(status)) else None

"""A lock on an output: two runs with one output would destroy each other's files.

The lock is the kernel's, on a file beside the output, and ends with the process that holds it: what a killed
run leaves is no lock.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname

from tnplan.planner.common.errors import InputError


def lock_file(output: Path) -> Path:
    """The file whose lock stands for an output and its checkpoint."""
    return output.with_name(f".{output.name}.lock")


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Hold the lock of an output; InputError, which names the other run, where it is held."""
    path = lock_file(output)
    handle = _held(path)
    try:
        yield
    finally:
        if handle is not None:
            with suppress(OSError):
                path.unlink()
            os.close(handle)


def _held(path: Path) -> int | None:
    """The open file with the lock; None on a file system that has no locks."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise InputError(
                str(path), f"cannot be written ({error.strerror})", "choose a folder that is writable"
            ) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 4096).decode(errors="replace")
            os.close(handle)
            raise InputError(
                str(path), f"is held by another run ({_named(holder)})",
                "wait for it, or choose another --output",
            ) from None  # fmt: skip
        except OSError:
            os.close(handle)
            with suppress(OSError):
                path.unlink()
            return None
        # Its last holder may have deleted the file between the two calls.
        with suppress(OSError):
            if os.fstat(handle).st_ino == path.stat().st_ino:
                os.ftruncate(handle, 0)
                os.write(handle, json.dumps({"host": gethostname(), "pid": os.getpid()}).encode())
                return handle
        os.close(handle)


def _named(holder: str) -> str:
    try:
        document = json.loads(holder)
        return f"process {int(document['pid'])} on {str(document['host'])[:80]}"
    except (ValueError, KeyError, TypeError):
        return "of an unknown process"

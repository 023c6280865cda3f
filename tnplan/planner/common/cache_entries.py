"""Files of caches: read where they are this user's own and whole, else as if they were not there.

A file begins with a line of `MAGIC` and the SHA-256 of its name and content; the content follows. It is
opened without following a link and without waiting, and the open file is what is checked and read. A file
that is damaged is removed; one that cannot be written is not kept. Nothing here raises an error.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from uuid import uuid4

from tnplan.planner.common.cache_folder import fault_of, refuse

MAGIC = b"tnplan.cache 1 "
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
"""Neither follow a link nor wait, for the other end of a pipe for instance."""


def read_entry(folder: Path, name: str) -> bytes | None:
    """The content of a file; None where it is not there, is damaged, or may be someone else's."""
    with _opened(folder) as place:
        if place is None:
            return None
        content = None
        with suppress(OSError):  # such as for a link, or a disk that cannot be read
            handle = os.open(name, os.O_RDONLY | NO_LINK, dir_fd=place)
            try:
                facts = os.fstat(handle)
                if fault := fault_of(facts):
                    refuse(folder / name, fault)
                    return None
                if stat.S_ISREG(facts.st_mode):
                    with open(handle, "rb", closefd=False) as stream:
                        content = _content(name, stream.read())
            finally:
                os.close(handle)
        if content is None:
            _remove(name, place)
        return content


def has_entry(folder: Path, name: str) -> bool:
    """Whether there is such a file; whether it is whole, reading tells."""
    with suppress(OSError):
        return stat.S_ISREG(os.lstat(folder / name).st_mode)
    return False


def write_entry(folder: Path, name: str, content: bytes) -> bool:
    """Write a file whole or not at all; whether that was done."""
    with _opened(folder) as place:
        if place is None:
            return False
        temporary = f".{name}.{uuid4().hex[:8]}"
        head = MAGIC + _digest(name, content) + b"\n"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK
            handle = os.open(temporary, flags, 0o600, dir_fd=place)
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(head + content)
                with suppress(FileNotFoundError):
                    if stat.S_ISDIR(os.lstat(name, dir_fd=place).st_mode):
                        _remove(name, place)
                os.replace(temporary, name, src_dir_fd=place, dst_dir_fd=place)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=place)
                raise
        except OSError:
            return False
        return True


@contextmanager
def locked_entry(folder: Path, name: str) -> Iterator[None]:
    """Alone with what has this name, as far as the folder has locks: other processes wait."""
    handle = None
    with _opened(folder) as place:
        if place is not None:
            with suppress(OSError):
                handle = os.open(name, os.O_RDWR | os.O_CREAT | NO_LINK, 0o600, dir_fd=place)
        try:
            if handle is not None and not fault_of(os.fstat(handle)):
                with suppress(ImportError, OSError):  # a folder of a network may have no locks
                    import fcntl

                    fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            if handle is not None:
                with suppress(OSError):
                    os.unlink(name, dir_fd=place)
                os.close(handle)


@contextmanager
def _opened(folder: Path) -> Iterator[int | None]:
    """The folder, open, if it is this user's own."""
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | NO_LINK)
    except (OSError, AttributeError):
        yield None
        return
    try:
        fault = fault_of(os.fstat(place))
        if fault:
            refuse(folder, fault)
        yield None if fault else place
    finally:
        os.close(place)


def _content(name: str, whole: bytes) -> bytes | None:
    """What follows the head of a file, if its checksum says so."""
    head, _, content = whole.partition(b"\n")
    return content if head == MAGIC + _digest(name, content) else None


def _digest(name: str, content: bytes) -> bytes:
    digest = hashlib.sha256(name.encode() + b"\0")
    digest.update(content)
    return digest.hexdigest().encode()


def _remove(name: str, place: int) -> None:
    """Remove what stands in the place of a file, if it is this user's own."""
    with suppress(OSError):
        facts = os.lstat(name, dir_fd=place)
        if facts.st_uid != os.geteuid():
            return
        if stat.S_ISDIR(facts.st_mode):
            rmtree(name, ignore_errors=True, dir_fd=place)
        else:
            os.unlink(name, dir_fd=place)

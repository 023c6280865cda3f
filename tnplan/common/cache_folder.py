"""Where tnplan keeps what it has compiled: a folder of the user's, a private temporary one, or nowhere.

Code is loaded from caches and run. So a folder is used only where it belongs to this user and no one else may
write in it or put another in its place. Its files are read where they are this user's own and whole, else as
if they were not there: a file is opened without following a link and without waiting, and the open file is
what is checked and read. On Windows, which tells no owner in this way, the folder is one inside the user's
own, which Windows keeps from others. A file begins with a line of `MAGIC` and the SHA-256 of its name and
content; the content follows. One that is damaged is removed, one that cannot be written is not kept, without
an error.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from time import monotonic, sleep
from uuid import uuid4

from tnplan.common.system_calls import NO_LINK, lock_file_alone, own_user

CACHE_VARIABLE = "TNPLAN_CACHE_DIR"
"""Environment variable: the folder of all caches; empty or 0: nothing is kept."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
MAGIC = b"tnplan.cache 1 "
LONGEST_WAIT_S, LOOK_AGAIN_S = 60.0, 0.02
"""How long a process waits for another that has a lock, and how often it looks."""
HAS_OWNERS = hasattr(os, "geteuid")
"""Whether the system tells to whom a file belongs, and opens files in a folder that is open."""
usable: dict[Path, Path] = {}
"""Folders that were found usable, and where their links lead."""
_refused: set[str] = set()
"""What this process has said that it does not use."""


def cache_folder(name: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder `name` of the first place that can be used, made where it is not there.

    The places are `TNPLAN_CACHE_DIR`; `tnplan` in `XDG_CACHE_HOME` or `~/.cache`; and a folder for this user
    alone among the temporary files. None where no place can be used, or the variable turns caches off.
    """
    if environment.get(CACHE_VARIABLE) in ("", "0"):
        return None
    for candidate in _places(environment):
        if own_folder(candidate) is not None and (folder := own_folder(candidate / name)) is not None:
            return folder
    return None


def _places(environment: Mapping[str, str]) -> Iterator[Path]:
    """Where caches may be, the best first."""
    named, base = environment.get(CACHE_VARIABLE), environment.get("XDG_CACHE_HOME")
    if named:
        yield Path(named)
    with suppress(RuntimeError):  # there is no home
        yield (Path(base) if base else Path.home() / (".cache" if HAS_OWNERS else "AppData/Local")) / "tnplan"
    private = private_folder()
    if private is not None:
        yield private


def own_folder(folder: Path) -> Path | None:
    """A folder that this user can write and no one else may, without links; made where it is not there.

    None where it cannot be written, or where that is not so, which a warning says. Whoever opens the folder
    later has to look at it once more.
    """
    try:
        if folder in usable and usable[folder].is_dir():
            return usable[folder]
        for missing in reversed([parent for parent in (folder, *folder.parents) if not parent.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
        real = folder.resolve(strict=True)
        if not real.is_dir() or not os.access(real, os.W_OK | os.X_OK):
            return None
        # The folder and everything above it, both as named and as links lead: who may write in one
        # of these could put another folder in the place of this one.
        fault = fault_of(real.stat()) or _fault_above({*folder.absolute().parents, *real.parents})
        if not HAS_OWNERS and Path.home().resolve() not in real.parents:
            fault = "is not in your own folder"
    except (OSError, RuntimeError):  # the latter for links in a circle
        return None
    if fault:
        refuse(folder, fault)
        return None
    usable[folder] = real
    return real


def fault_of(facts: os.stat_result) -> str:
    """Why a file or folder may hold what someone else has written; empty where it cannot."""
    if not HAS_OWNERS:
        return ""
    if not own_user(facts):
        return f"belongs to user {facts.st_uid}, and this is user {os.geteuid()}"
    if facts.st_mode & OTHERS_WRITE:
        return f"may be written by others (mode {stat.S_IMODE(facts.st_mode):04o})"
    return ""


def _fault_above(parents: Iterable[Path]) -> str:
    """Where anyone may put another folder in place of one below these; empty where none can."""
    for parent in parents if HAS_OWNERS else ():
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"may be replaced by others, who may write in {parent}"
    return ""


def refuse(path: Path, fault: str) -> None:
    """Say once a process that a folder or file of a cache is not used, and what to do."""
    if str(path) in _refused:
        return
    _refused.add(str(path))
    warnings.warn(
        f"cache {path} is not used: it {fault}. Remove these permissions (chmod -R go-w), or name a "
        f"folder of "
        f"your own in {CACHE_VARIABLE}",
        stacklevel=2,
    )


def private_folder(parent: Path | None = None) -> Path | None:
    """A folder among the temporary files that no other user can read or write; None where there is none.

    One that someone else has made, or that others can enter, is not taken: code is loaded from it.
    """
    if not HAS_OWNERS:
        return None
    try:
        folder = (parent or Path(tempfile.gettempdir())) / f"tnplan-{os.geteuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = os.lstat(folder)
    except OSError:
        return None
    is_private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
    return folder if is_private else None


def read_entry(folder: Path, name: str) -> bytes | None:
    """The content of a file; None where it is not there, is damaged, or may be someone else's."""
    with _opened(folder) as place:
        if place is None:
            return None
        content = None
        with suppress(OSError):  # such as for a link, or a disk that cannot be read
            handle = os.open(place.of(name), os.O_RDONLY | NO_LINK, dir_fd=place.descriptor)
            try:
                # Checked after it is opened, by the descriptor: a check by name could be of another
                # file than the one that is read.
                facts = os.fstat(handle)
                if fault := fault_of(facts):
                    refuse(folder / name, fault)
                    return None
                if stat.S_ISREG(facts.st_mode):
                    with open(handle, "rb", closefd=False) as stream:
                        content = _content(name, stream.read())
            finally:
                _close(handle)
        # A damaged entry is deleted, so that it is compiled again once and not refused for ever.
        if content is None:
            _remove(name, place)
        return content


def has_entry(folder: Path, name: str) -> bool:
    """Whether there is such a file; only reading shows whether it is whole."""
    with suppress(OSError):
        return stat.S_ISREG(os.lstat(folder / name).st_mode)
    return False


def write_entry(folder: Path, name: str, content: bytes) -> bool:
    """Write a file whole or not at all; whether that was done."""
    with _opened(folder) as place:
        if place is None:
            return False
        temporary, at = f".{name}.{uuid4().hex[:8]}", place.descriptor
        head = MAGIC + _digest(name, content) + b"\n"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK
            handle = os.open(place.of(temporary), flags, 0o600, dir_fd=at)
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(head + content)
                with suppress(FileNotFoundError):
                    if stat.S_ISDIR(os.lstat(place.of(name), dir_fd=at).st_mode):
                        _remove(name, place)
                # Invariant: an entry appears whole. The head has a digest of name and content, so
                # that an entry that was cut off by a full disk, or renamed, is not used.
                os.replace(place.of(temporary), place.of(name), src_dir_fd=at, dst_dir_fd=at)
            except BaseException:
                with suppress(OSError):
                    os.unlink(place.of(temporary), dir_fd=at)
                raise
        except OSError:
            return False
        return True


@contextmanager
def locked_entry(folder: Path, name: str) -> Iterator[None]:
    """Alone with what has this name, as far as there are locks: others wait, `LONGEST_WAIT_S` at most."""
    handle = None
    with _opened(folder) as place:
        if place is not None:
            with suppress(OSError):
                flags = os.O_RDWR | os.O_CREAT | NO_LINK
                handle = os.open(place.of(name), flags, 0o600, dir_fd=place.descriptor)
        try:
            with suppress(OSError):  # a folder of a network may have no locks
                if handle is not None and not fault_of(os.fstat(handle)):
                    # The lock only saves work, as entries are written whole anyway: where there are no locks,
                    # or its holder is stopped, two processes compile the same. One that ends lets go of it.
                    end_s = monotonic() + LONGEST_WAIT_S
                    while monotonic() < end_s:
                        try:
                            lock_file_alone(handle)
                            break
                        except BlockingIOError:
                            sleep(LOOK_AGAIN_S)
            yield
        finally:
            if handle is not None and place is not None:
                if HAS_OWNERS:  # elsewhere a file that is open cannot be deleted, and this one stays
                    with suppress(OSError):
                        os.unlink(place.of(name), dir_fd=place.descriptor)
                _close(handle)


@dataclass(frozen=True)
class _Place:
    """An open folder: its descriptor, or, where files are not opened by that, None and its path."""

    folder: Path
    descriptor: int | None

    def of(self, name: str) -> str | Path:
        """A file in it, for calls with `dir_fd=descriptor`."""
        return self.folder / name if self.descriptor is None else name


@contextmanager
def _opened(folder: Path) -> Iterator[_Place | None]:
    """The folder, open, if it is this user's own."""
    if not HAS_OWNERS:
        yield _Place(folder, None) if folder.is_dir() else None
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | NO_LINK)
    except (OSError, AttributeError):
        yield None
        return
    try:
        try:
            fault = fault_of(os.fstat(descriptor))
        except OSError as error:
            fault = f"cannot be inspected ({error.strerror})"
        if fault:
            refuse(folder, fault)
        yield None if fault else _Place(folder, descriptor)
    finally:
        _close(descriptor)


def _close(handle: int) -> None:
    """Close a file; one of a failing disk is closed too, and what it says of that costs no result."""
    with suppress(OSError):
        os.close(handle)


def _content(name: str, file_bytes: bytes) -> bytes | None:
    """What follows the head of a file, if its checksum says so."""
    head, _, content = file_bytes.partition(b"\n")
    return content if head == MAGIC + _digest(name, content) else None


def _digest(name: str, content: bytes) -> bytes:
    digest = hashlib.sha256(name.encode() + b"\0")
    digest.update(content)
    return digest.hexdigest().encode()


def _remove(name: str, place: _Place) -> None:
    """Remove what stands in the place of a file, if it is this user's own."""
    at = place.descriptor
    with suppress(OSError):
        facts = os.lstat(place.of(name), dir_fd=at)
        if not own_user(facts):
            return
        if stat.S_ISDIR(facts.st_mode):
            rmtree(place.of(name), ignore_errors=True, dir_fd=at)
        else:
            os.unlink(place.of(name), dir_fd=at)

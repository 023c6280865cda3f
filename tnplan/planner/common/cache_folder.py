"""Where tnplan keeps what it has compiled: a folder of the user's, a private temporary one, or nowhere.

Code is loaded from caches and run. So a folder is used only where it belongs to this user and no one else may
write in it or put another in its place.
"""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

CACHE_VARIABLE = "TNPLAN_CACHE_DIR"
"""Environment variable: the folder of all caches; empty or 0: nothing is kept."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_usable: dict[Path, Path] = {}
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
    for place in _places(environment):
        if own_folder(place) is not None and (folder := own_folder(place / name)) is not None:
            return folder
    return None


def _places(environment: Mapping[str, str]) -> Iterator[Path]:
    """Where caches may be, the best first."""
    given, base = environment.get(CACHE_VARIABLE), environment.get("XDG_CACHE_HOME")
    if given:
        yield Path(given)
    with suppress(RuntimeError):  # there is no home
        yield (Path(base) if base else Path.home() / ".cache") / "tnplan"
    private = private_folder()
    if private is not None:
        yield private


def own_folder(folder: Path) -> Path | None:
    """A folder that this user can write and no one else may, without links; made where it is not there.

    None where it cannot be written, or where that is not so, which a warning says. None too on a system
    that does not tell to whom a file belongs. Whoever opens the folder later has to look at it once more.
    """
    if folder in _usable and _usable[folder].is_dir():
        return _usable[folder]
    if not hasattr(os, "geteuid"):
        return None
    try:
        for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
        real = folder.resolve(strict=True)
        if not real.is_dir() or not os.access(real, os.W_OK | os.X_OK):
            return None
        fault = fault_of(real.stat()) or _fault_above({*folder.absolute().parents, *real.parents})
    except (OSError, RuntimeError):  # the latter for links in a circle
        return None
    if fault:
        refuse(folder, fault)
        return None
    _usable[folder] = real
    return real


def fault_of(facts: os.stat_result) -> str:
    """Why a file or folder may hold what someone else has written; empty where it cannot."""
    if facts.st_uid != os.geteuid():
        return f"belongs to user {facts.st_uid}, and this is user {os.geteuid()}"
    if facts.st_mode & OTHERS_WRITE:
        return f"may be written by others (mode {stat.S_IMODE(facts.st_mode):04o})"
    return ""


def _fault_above(parents: Iterable[Path]) -> str:
    """Where anyone may put another folder in the place of one below these; empty where nobody can."""
    for parent in parents:
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
        f"cache {path} is not used: it {fault}. Take the rights away (chmod -R go-w), or name a folder of "
        f"your own in {CACHE_VARIABLE}",
        stacklevel=2,
    )


def private_folder(parent: Path | None = None) -> Path | None:
    """A folder among the temporary files that no other user can read or write; None where there is none.

    One that someone else has made, or that others can enter, is not taken: code is loaded from it.
    """
    if not hasattr(os, "geteuid"):
        return None
    try:
        folder = (parent or Path(tempfile.gettempdir())) / f"tnplan-{os.geteuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = os.lstat(folder)
    except OSError:
        return None
    is_private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return folder if is_private else None

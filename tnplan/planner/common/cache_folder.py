"""Where tnplan keeps what it has compiled: a folder of the user's, a private temporary one, or nowhere."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

CACHE_VARIABLE = "TNPLAN_CACHE_DIR"
"""Environment variable: the folder of all caches; empty or 0: nothing is kept."""


def cache_folder(name: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder `name` of the first place that can be written, made where it is not there.

    The places are `TNPLAN_CACHE_DIR`; `tnplan` in `XDG_CACHE_HOME` or `~/.cache`; and a folder for this user
    alone among the temporary files. None where no place can be written, or the variable turns caches off.
    """
    if environment.get(CACHE_VARIABLE) in ("", "0"):
        return None
    for place in _places(environment):
        folder = place / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK):
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


def private_folder(parent: Path | None = None) -> Path | None:
    """A folder among the temporary files that no other user can read or write; None where there is none.

    One that someone else has made, or that others can enter, is not taken: code is loaded from it.
    """
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    try:
        folder = (parent or Path(tempfile.gettempdir())) / f"tnplan-{user}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = os.lstat(folder)
    except OSError:
        return None
    if not stat.S_ISDIR(found.st_mode):
        return None
    if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o077):
        return None
    return folder

"""Functions compiled by numba and kept where tnplan keeps them, if there is a place. Imports numba late."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = "TNPLAN_CACHE_DIR"
"""Environment variable: the folder of all caches of tnplan; empty or 0: nothing is kept."""


def cached_njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit(cache=True, ...)`; where nothing can be kept, the same without the cache.

    Where `NUMBA_CACHE_DIR` is set, numba's own choice holds.
    """
    import numba

    config: Any = numba.config

    def compiled(function: Callable[..., Any]) -> Any:
        if os.environ.get(FOLDER) in ("", "0"):
            return numba.njit(**options)(function)
        before = config.CACHE_DIR
        try:
            config.CACHE_DIR = before or str(_folder())
            return numba.njit(cache=True, **options)(function)
        except (OSError, RuntimeError):  # no home, or nothing can be written there
            return numba.njit(**options)(function)
        finally:
            config.CACHE_DIR = before

    return compiled


def unowned_views() -> Any:
    """A function for compiled code: an array to the same one, which holds no reference to its memory.

    Functions that take arrays count references to them, which costs as much as 32 numbers in the innermost
    loops. The memory must belong to an argument of the outermost compiled function.
    """
    from numba.core import cgutils
    from numba.extending import intrinsic

    @intrinsic
    def unowned(_: Any, array: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            given = context.make_array(array)(context, builder, arguments[0])
            made = context.make_array(array)(context, builder)
            for field in ("data", "shape", "strides", "itemsize", "nitems"):
                setattr(made, field, getattr(given, field))
            made.meminfo = cgutils.get_null_value(made.meminfo.type)
            made.parent = cgutils.get_null_value(made.parent.type)
            return made._getvalue()

        return array(array), generate

    return unowned


def _folder() -> Path:
    """`numba` in tnplan's caches, made where it is not there."""
    given, base = os.environ.get(FOLDER), os.environ.get("XDG_CACHE_HOME")
    place = Path(given) if given else (Path(base) if base else Path.home() / ".cache") / "tnplan"
    (place / "numba").mkdir(parents=True, exist_ok=True)
    return place / "numba"

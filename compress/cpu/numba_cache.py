"""Functions compiled by numba and kept on disk, where there is a place for them. Imported lazily."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numba

FOLDER = "TNPLAN_CACHE_DIR"
"""Environment variable: the folder of all caches of tnplan; empty or 0: nothing is kept."""


def cached_njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit(cache=True, ...)`; where nothing can be kept, the same without the cache."""

    def compiled(function: Callable[..., Any]) -> Any:
        given, before = os.environ.get(FOLDER), numba.config.CACHE_DIR
        if given in ("", "0"):
            return numba.njit(**options)(function)
        if given and not before:
            numba.config.CACHE_DIR = os.path.join(given, "numba")
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # numba finds no folder that can be written
            return numba.njit(**options)(function)
        finally:
            numba.config.CACHE_DIR = before

    return compiled

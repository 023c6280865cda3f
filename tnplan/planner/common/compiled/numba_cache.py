"""Functions compiled by numba and kept where tnplan keeps what it compiles. Imports numba when it is used."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tnplan.planner.common.cache_folder import cache_folder

NUMBA_FOLDER = "NUMBA_CACHE_DIR"
"""Environment variable of numba's: where it is set, numba's own choice holds."""


def cached_njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit(cache=True, ...)` that needs no home and no writable installation.

    Where no folder can be written the function is compiled anew in every process.
    """
    import numba

    def compiled(function: Callable[..., Any]) -> Any:
        if os.environ.get(NUMBA_FOLDER):
            return numba.njit(cache=True, **options)(function)
        folder = cache_folder("numba")
        if folder is None:
            return numba.njit(**options)(function)
        config: Any = numba.config
        before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
        try:
            return numba.njit(cache=True, **options)(function)
        finally:
            config.CACHE_DIR = before

    return compiled

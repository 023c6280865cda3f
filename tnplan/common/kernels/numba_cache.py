"""Functions compiled by numba and kept where tnplan keeps what it compiles. Imports numba when it is used.

Numba's own cache unpickles whatever lies in its folder, and a damaged file in it ends every later call. Here
the same pickles are entries of tnplan's cache: read where they are the user's own and whole.

It is for kernels that numba has to call; those of tnplan are object code wherever that is possible.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tnplan.common.cache_folder import cache_folder, own_folder, read_entry, write_entry
from tnplan.common.kernels.object_cache import object_key

NUMBA_FOLDER = "NUMBA_CACHE_DIR"
"""Environment variable of numba's: where it is set, entries are in that folder."""


def cached_njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit(...)` whose code is kept from process to process.

    Where no folder can be used the function is compiled anew in every process.
    """
    import numba

    def compiled(function: Callable[..., Any]) -> Any:
        dispatcher: Any = numba.njit(**options)(function)
        if hasattr(dispatcher, "_cache"):  # not where numba is set to compile nothing
            dispatcher._cache = FunctionCache(function, options)
        return dispatcher

    return compiled


class FunctionCache:
    """What a function of numba asks for its code, and gives it to; in the place of numba's own.

    Numba's names that this uses may be others in another version: then nothing is kept.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function, self._options = function, options

    @property
    def cache_path(self) -> str:
        """The folder, as numba shows it."""
        return str(self._folder() or "")

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The code for types of arguments; None where it is not kept."""
        folder = self._folder()
        if folder is None:
            return None
        try:
            from numba.core.compiler import CompileResult

            content = read_entry(folder, self._name(signature))
            target.refresh()
            return None if content is None else CompileResult._rebuild(target, *pickle.loads(content))
        except Exception:  # whatever a pickle of another state of the installation raises
            return None

    def save_overload(self, signature: Any, overload: Any) -> None:
        """Keep code, as far as that can be done."""
        folder = self._folder()
        if folder is None:
            return
        try:
            from numba.core.serialize import dumps

            if not overload.lifted and not overload.library.has_dynamic_globals:
                write_entry(folder, self._name(signature), dumps(overload._reduce()))
        except Exception:  # as above
            return

    @staticmethod
    def _folder() -> Path | None:
        named = os.environ.get(NUMBA_FOLDER)
        return (own_folder(Path(named)) if named else None) or cache_folder("numba")

    def _name(self, signature: Any) -> str:
        types = signature if isinstance(signature, tuple) else signature.args
        parts = (repr(sorted(self._options.items())), *map(_described, types))
        assert not any(" at 0x" in text for text in parts), "would have another name in every process"
        return f"{object_key(self._function, parts)}.numba"


def _described(kind: Any) -> str:
    """A type of numba; of tuples with names, their class and fields too."""
    instance = getattr(kind, "instance_class", None)
    inner = [_described(inner_type) for inner_type in getattr(kind, "types", ())]
    return f"{kind!r} {instance and (instance.__module__, instance.__qualname__, instance._fields)} {inner}"

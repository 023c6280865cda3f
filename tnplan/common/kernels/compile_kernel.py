"""Kernels compiled by numba to object code, in this process, and as functions of numba's own."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numpy as np
from numba import types

from tnplan.common.cache_folder import cache_folder, own_folder, read_entry, write_entry
from tnplan.common.kernels.kernel import Kernel, Late, Types
from tnplan.common.kernels.object_cache import CompiledObject, alone, find_object, keep_object, object_key

BY_NUMBA = CompiledObject(b"", "", "", False, ())
"""No code: numba has to call the kernel."""
_unknown: list[Exception] = []
"""What ended the compilation of a kernel by a version of numba that has other inner names."""
globals_of_modules: dict[tuple[str, bool], dict[str, Any]] = {}


def compile_and_keep(kernel: Kernel, kinds: Types) -> CompiledObject:
    """Compile a kernel for these types, and write it to the cache, unless another process has done it."""
    with alone(kernel, kinds):
        # Looked up again once alone: another process may have written it while this one waited.
        compiled = find_object(kernel, kinds)
        if compiled is None and not _unknown:
            try:
                compiled = compile_kernel(kernel, kinds)
                keep_object(kernel, kinds, compiled)
            except (AttributeError, ImportError, KeyError, TypeError) as error:
                _unknown.append(error)
                warnings.warn(
                    f"numba {numba.__version__} differs from the versions that tnplan supports "
                    f"({type(error).__name__}: {error}). "
                    "Each call of a kernel takes longer; install a supported version",
                    stacklevel=2,
                )
    return compiled or BY_NUMBA


def compile_kernel(kernel: Kernel, kinds: Types) -> CompiledObject:
    """The object code of a kernel for these types; without code where numba has to call it.

    Raises whatever a version of numba raises that has other inner names.
    """
    from tnplan.common.kernels.object_code_kernel import object_code

    try:
        compiled = object_code(kernel, lambda: _dispatcher(kernel, bare=True), numba_types(kinds), kinds)
    except numba.errors.NumbaError:
        return BY_NUMBA  # which says what is wrong, if it cannot do it either
    return compiled or BY_NUMBA


def dispatcher_of(kernel: Kernel) -> Any:
    """The kernel as a function of numba that is called from Python."""
    return _dispatcher(kernel, bare=False)


def _dispatcher(kernel: Kernel, bare: bool) -> Any:
    return _module_globals(kernel, bare)[kernel.function.__name__]


def _module_globals(kernel: Kernel, bare: bool) -> dict[str, Any]:
    """The globals of a kernel's module, in which kernels are functions of numba and nothing is `Late`."""
    name = kernel.function.__module__
    if (name, bare) in globals_of_modules:
        return globals_of_modules[name, bare]
    if bare:
        from tnplan.common.kernels.object_code_kernel import bare_njit
    # Kept before it is filled, so that modules whose kernels call each other end.
    names = globals_of_modules[name, bare] = dict(kernel.function.__globals__)
    for key, value in list(names.items()):
        if isinstance(value, Late):
            names[key] = value.value
        elif isinstance(value, Kernel) and value.function.__module__ == name:
            function = value.function
            # A copy of the function over the new globals: numba reads names from the function's own
            # globals, in which kernels are objects that it does not know.
            copy = FunctionType(
                function.__code__, names, function.__name__, function.__defaults__, function.__closure__
            )
            copy.__module__ = name
            names[key] = (bare_njit if bare else cached_njit)(**value.options)(copy)
    for key, value in list(names.items()):
        if isinstance(value, Kernel):
            names[key] = _module_globals(value, bare)[value.function.__name__]
    return names


def numba_types(kinds: Types) -> tuple[Any, ...]:
    """Numba's types of arguments."""
    entries, converted = iter(kinds), []
    while (entry := next(entries, None)) is not None:
        converted.append(_numba_type(entry, entries))
    return tuple(converted)


def _numba_type(entry: Any, entries: Iterator[Any]) -> Any:
    if isinstance(entry, type):
        fields = [_numba_type(next(entries), entries) for _ in range(next(entries))]
        return types.BaseTuple.from_types(fields, None if entry is tuple else entry)
    if isinstance(entry, tuple):
        dtype, axes, order = entry
        return types.Array(numba.from_dtype(np.dtype(dtype)), axes, order)
    return types.boolean if entry == "?" else numba.from_dtype(np.dtype(entry))


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

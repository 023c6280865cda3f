"""Kernels compiled by numba to object code, in this process, and as functions of numba's own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import numba
import numpy as np
from numba import types

from tnplan.planner.common.compiled.kernel import Kernel, Late, Types
from tnplan.planner.common.compiled.numba_cache import cached_njit
from tnplan.planner.common.compiled.object_cache import (
    CompiledObject,
    alone,
    find_object,
    keep_object,
)

BARE: dict[str, Any] = {"_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""No counts of references to arrays, and nothing for calls from Python: both take time to compile."""
BY_NUMBA = CompiledObject(b"", "", "", False, ())
"""No code: numba has to call the kernel."""
_globals: dict[tuple[str, bool], dict[str, Any]] = {}


def compile_and_keep(kernel: Kernel, kinds: Types) -> CompiledObject:
    """Compile a kernel for these types, and write it to the cache, unless another process has done it."""
    with alone(kernel, kinds):
        made = find_object(kernel, kinds)
        if made is None:
            made = compile_kernel(kernel, kinds)
            keep_object(kernel, kinds, made)
    return made


def compile_kernel(kernel: Kernel, kinds: Types) -> CompiledObject:
    """The object code of a kernel for these types; without code where numba has to call it."""
    try:
        from tnplan.planner.common.compiled.object_code import object_code

        made = object_code(lambda: _dispatcher(kernel, bare=True), numba_types(kinds), kinds)
    except numba.errors.NumbaError:
        return BY_NUMBA  # which says what is wrong, if it cannot do it either
    except (AttributeError, ImportError, KeyError, TypeError) as error:
        problem = f"{type(error).__name__}: {error}"
        warnings.warn(
            f"numba {numba.__version__} is not as tnplan knows it ({problem}): kernels are called through "
            "numba, which takes longer. Install a version that tnplan supports",
            stacklevel=2,
        )
        return BY_NUMBA
    return made or BY_NUMBA


def dispatcher_of(kernel: Kernel) -> Any:
    """The kernel as a function of numba that is called from Python."""
    return _dispatcher(kernel, bare=False)


def _dispatcher(kernel: Kernel, bare: bool) -> Any:
    return _module_globals(kernel, bare)[kernel.function.__name__]


def _module_globals(kernel: Kernel, bare: bool) -> dict[str, Any]:
    """The globals of a kernel's module, in which kernels are functions of numba and nothing is `Late`."""
    name = kernel.function.__module__
    if (name, bare) in _globals:
        return _globals[name, bare]
    made = _globals[name, bare] = dict(kernel.function.__globals__)
    for key, value in list(made.items()):
        if isinstance(value, Late):
            made[key] = value.value
        elif isinstance(value, Kernel) and value.function.__module__ == name:
            function = value.function
            copy = FunctionType(
                function.__code__, made, function.__name__, function.__defaults__, function.__closure__
            )
            copy.__module__ = name
            compiled = numba.njit(**BARE, **value.options) if bare else cached_njit(**value.options)
            made[key] = compiled(copy)
    for key, value in list(made.items()):
        if isinstance(value, Kernel):
            made[key] = _module_globals(value, bare)[value.function.__name__]
    return made


def numba_types(kinds: Types) -> tuple[Any, ...]:
    """Numba's types of arguments."""
    entries, found = iter(kinds), []
    while (entry := next(entries, None)) is not None:
        found.append(_numba_type(entry, entries))
    return tuple(found)


def _numba_type(entry: Any, entries: Iterator[Any]) -> Any:
    if isinstance(entry, type):
        fields = [_numba_type(next(entries), entries) for _ in range(next(entries))]
        return types.BaseTuple.from_types(fields, None if entry is tuple else entry)
    if isinstance(entry, tuple):
        dtype, axes, order = entry
        return types.Array(numba.from_dtype(np.dtype(dtype)), axes, order)
    return types.boolean if entry == "?" else numba.from_dtype(np.dtype(entry))

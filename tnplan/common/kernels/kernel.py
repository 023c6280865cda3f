"""Functions that numba compiles when they are first called with arguments of new types. Imports no numba.

A kernel is called with arrays, numbers and named tuples of these; it allocates nothing, and returns nothing,
a number, or a tuple of numbers of 64 bits. Its object code comes from the cache (`object_cache`), else from
numba (`compile_kernel`), and is called by `ctypes` without Python's lock. A kernel that does not keep to
this is compiled and called by numba itself. Code is entered with one pointer, to a word for each number.

While object code runs, its thread takes subnormal numbers as 0 (`vector_operations.flush_subnormals`). What
numba calls itself computes with them, and so do NumPy, BLAS and the codecs, whose bounds hold for them too.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.kernels.ahead import compiled_elsewhere
from tnplan.common.kernels.object_cache import CompiledObject, find_object, load_object
from tnplan.common.kernels.told import compiling

Types = tuple[Any, ...]
"""The types of arguments; see `argument_types`."""

DEBUG_VARIABLES = ("NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK")
"""Where one of these is set and not 0, kernels are left to numba."""
C_TYPES: dict[str, Any] = {
    "q": ctypes.c_int64, "Q": ctypes.c_uint64, "i": ctypes.c_int32, "I": ctypes.c_uint32,
    "d": ctypes.c_double, "f": ctypes.c_float, "?": ctypes.c_bool,
}  # fmt: skip
"""Numbers as arguments, by NumPy's characters."""
WORD_BYTES = 8
WORDS: dict[Any, str] = {
    ctypes.c_void_p: "Q", ctypes.c_int64: "q", ctypes.c_uint64: "Q", ctypes.c_int32: "i4x",
    ctypes.c_uint32: "I4x", ctypes.c_double: "d", ctypes.c_float: "f4x", ctypes.c_bool: "?7x",
}  # fmt: skip
"""Numbers as words of 64 bits, by characters of `struct`."""
_PYTHON = {bool: "?", int: "q", float: "d"}
_compiling = RLock()


class Late:
    """Something that a kernel uses and that needs numba to be made: made when a kernel is compiled.

    - `make`: Returns an intrinsic, or what else numba knows.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    @functools.cached_property
    def value(self) -> Any:
        """What it stands for."""
        return self.make()

    def __call__(self, *arguments: Any) -> Any:
        """Stands here for readers and type checkers: kernels alone call it."""
        raise TypeError("is called in kernels only")


class Kernel:
    """A function that is compiled when it is first called; see the head of this file.

    - `function`: What is to be compiled. Other kernels and `Late` objects that it uses are globals of its
      module.
    - `options`: Those of `numba.njit`.
    - `keeps_subnormals`: Whether subnormal numbers stay what they are; else they are 0 while it runs.
    - `unrolls`: Whether steps of loops are written out one behind the other, beyond vectors. Without it, what
      has many loops takes less time to compile.
    """

    def __init__(
        self, function: Callable[..., Any], options: Mapping[str, Any], keeps_subnormals: bool = False,
        unrolls: bool = True,
    ) -> None:  # fmt: skip
        functools.update_wrapper(self, function)
        self.function, self.options = function, options
        self.keeps_subnormals, self.unrolls = keeps_subnormals, unrolls
        self.loaded: dict[Types, Native | None] = {}

    def __call__(self, *arguments: Any) -> Any:
        types: list[Any] = []
        words: list[Any] = []
        for argument in arguments:
            _take_apart(argument, types, words)
        key = tuple(types)
        native = self.loaded[key] if key in self.loaded else self._loaded(key)
        return self.dispatcher(*arguments) if native is None else native(words)

    def bound(self, *arguments: Any) -> Callable[..., None]:
        """A call with these arguments, in a fraction of the time; for kernels that return nothing.

        Where one of the arguments is `...`, each call gives an integer for it.
        """
        types: list[Any] = []
        words: list[Any] = []
        hole = None
        for argument in arguments:
            if argument is ...:
                hole = len(words)
            _take_apart(0 if argument is ... else argument, types, words)
        native = self._loaded(tuple(types))
        if native is None:
            return lambda *values: self.dispatcher(*(values[0] if x is ... else x for x in arguments))
        return native.bound(words, hole, arguments)

    @functools.cached_property
    def dispatcher(self) -> Any:
        """The same function as numba's own; needs numba."""
        from tnplan.common.kernels.compile_kernel import dispatcher_of

        with _compiling:  # a module whose functions are half made would give the kernel itself
            return dispatcher_of(self)

    def _loaded(self, types: Types) -> Native | None:
        """The code for these types, from the cache or compiled now; None where numba has to call it."""
        # Invariant: `loaded` is written under the lock, so that a kernel is compiled once in this process.
        with _compiling:
            if types in self.loaded:
                return self.loaded[types]
            compiled = None
            # The code takes its arguments as Linux and macOS pass them to functions of C.
            by_numba = any(os.environ.get(name, "0") not in ("", "0") for name in DEBUG_VARIABLES)
            if not by_numba and sys.platform != "win32":
                compiled = find_object(self, types)
                # In this order: the cache, processes that compile it now, this process.
                if compiled is None:
                    with compiling():
                        compiled = compiled_elsewhere(self, lambda: find_object(self, types))
                        if compiled is None:
                            with no_garbage_search():
                                from tnplan.common.kernels.compile_kernel import compile_and_keep

                                compiled = compile_and_keep(self, types)
            address = None if compiled is None else load_object(compiled)
            native = None
            if compiled is not None and address is not None:
                native = Native(self.function.__name__, address, compiled, types)
            self.loaded[types] = native
            return native


def kernel(
    keeps_subnormals: bool = False, unrolls: bool = True, **options: Any
) -> Callable[[Callable[..., Any]], Kernel]:
    """A decorator that makes kernels, with these options of `numba.njit`."""
    return lambda function: Kernel(function, options, keeps_subnormals, unrolls)


def argument_types(*arguments: Any) -> Types:
    """The types of arguments, in turn: arrays as (dtype, axes, order), numbers as characters, tuples open.

    A tuple is its class, its length, and the types of its fields.
    """
    types: list[Any] = []
    for argument in arguments:
        _take_apart(argument, types, [])
    return tuple(types)


def _take_apart(value: Any, types: list[Any], words: list[Any]) -> None:
    """Append the types of a value, and the numbers that numba's calls have for it."""
    if type(value) is np.ndarray:
        flags = value.flags
        if flags.c_contiguous:
            order, address = "C", _address(value) if flags.writeable else value.ctypes.data
        else:
            order, address = "F" if flags.f_contiguous else "A", value.ctypes.data
        types.append((value.dtype.str, value.ndim, order))
        # numba's array in a call: meminfo and parent, which are null for memory that numba does not
        # count references of, then size, itemsize, data, shape and strides.
        words += (0, 0, value.size, value.itemsize, address, *value.shape, *value.strides)
    elif isinstance(value, tuple):
        types += (type(value), len(value))
        for entry in value:
            _take_apart(entry, types, words)
    else:
        character = _PYTHON.get(type(value))
        if character is None:
            character = {"l": "q", "L": "Q"}.get(value.dtype.char, value.dtype.char)
            value = value.item()
        types.append(character)
        words.append(value)


def _address(array: Array) -> int:
    """Where a contiguous array lies that may be changed; NumPy's own answer takes five times as long."""
    return ctypes.addressof(ctypes.c_byte.from_buffer(array.data)) if array.size else int(array.ctypes.data)


def c_types(types: Types) -> list[Any]:
    """The types of the numbers of a call in C."""
    ctypes_of: list[Any] = []
    entries = iter(types)
    for entry in entries:
        if isinstance(entry, type):
            next(entries)  # the number of its fields
        elif isinstance(entry, tuple):
            ctypes_of += [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
            ctypes_of += [ctypes.c_int64] * (2 * entry[1])
        else:
            ctypes_of.append(C_TYPES[entry])
    return ctypes_of


@contextmanager
def no_garbage_search() -> Iterator[None]:
    """For a while, no search for garbage in cycles: numba makes many objects, of which few are garbage."""
    searches = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searches:
            gc.enable()


class Native:
    """Loaded code, entered with where the result goes, where an error goes, and the numbers of arguments."""

    def __init__(self, name: str, address: int, compiled: CompiledObject, types: Types) -> None:
        self._name, self._returns, self._is_tuple = name, compiled.returns, compiled.is_tuple
        self._enter = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p)(address)
        self._pack = struct.Struct("=QQ" + "".join(WORDS[kind] for kind in c_types(types))).pack
        self._result_type = ctypes.c_int64 * max(1, len(compiled.returns))

    def __call__(self, words: list[Any]) -> Any:
        """The result for the numbers of a call."""
        result, error = self._result_type(), ctypes.c_void_p()
        self._check(self._enter(self._pack(ctypes.addressof(result), ctypes.addressof(error), *words)))
        if not self._returns:
            return None
        values = struct.unpack(self._returns, result)
        return values if self._is_tuple else values[0]

    def bound(self, words: list[Any], hole: int | None, arrays: object) -> Callable[..., None]:
        """A call with these numbers but that of the `hole`; it keeps the `arrays` of the addresses."""
        result, error, enter, check = self._result_type(), ctypes.c_void_p(), self._enter, self._check
        # Arguments are packed into bytes once. Invariant: `references` holds the arrays, since the bytes
        # have their addresses alone.
        packed = self._pack(ctypes.addressof(result), ctypes.addressof(error), *words)
        references = arrays, result, error
        if hole is None:

            def call(references: Any = references) -> None:
                check(enter(packed))

            return call
        first = (2 + hole) * WORD_BYTES
        before, behind, word = packed[:first], packed[first + WORD_BYTES :], struct.Struct("=q").pack

        def call_with(number: int, references: Any = references) -> None:
            check(enter(before + word(number) + behind))

        return call_with

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(f"kernel {self._name} ended with status {status}")

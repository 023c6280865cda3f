"""What numba lacks and the kernels of terms need: prefetches, arrays by address, words between threads.

Imported lazily (numba loads slowly).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

Generate = Callable[..., Any]
WORD_BYTES = 8

yield_processor = types.ExternalFunction("sched_yield", types.int32())
"""Give the processor to another thread that waits for it."""


def _fetch(typing_context: Any, array: Any, place: Any) -> tuple[Any, Generate]:
    """Ask for the line of memory that holds this element of an array of one axis, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at = builder.gep(_data(context, builder, array, arguments[0]), [arguments[1]])
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        ask = builder.module.declare_intrinsic("llvm.prefetch", (cgutils.voidptr_t,), kind)
        flags = [ir.Constant(number, value) for value in (0, 3, 1)]
        builder.call(ask, [builder.bitcast(at, cgutils.voidptr_t), *flags])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


def _pointer(typing_context: Any, address: Any) -> tuple[Any, Generate]:
    """An address as what `numba.carray` takes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


def _heard(typing_context: Any, array: Any, place: Any) -> tuple[Any, Generate]:
    """This element of an int64 array of one axis; what its writer wrote before it can be read after it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at = builder.gep(_data(context, builder, array, arguments[0]), [arguments[1]])
        return builder.load_atomic(at, "acquire", WORD_BYTES)

    return types.int64(array, types.int64), generate


def _say(typing_context: Any, array: Any, place: Any, value: Any) -> tuple[Any, Generate]:
    """Write this element of an int64 array of one axis, after all that was written before it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at = builder.gep(_data(context, builder, array, arguments[0]), [arguments[1]])
        builder.store_atomic(arguments[2], at, "release", WORD_BYTES)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Where the elements of an array lie."""
    return context.make_array(kind)(context, builder, array).data


prefetch: Any = intrinsic(_fetch)
pointer: Any = intrinsic(_pointer)
load_acquire: Any = intrinsic(_heard)
store_release: Any = intrinsic(_say)

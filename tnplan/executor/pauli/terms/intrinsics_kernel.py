"""What numba lacks and the kernels of terms need: prefetches, arrays by address, words between threads.

Each is made where a kernel that uses it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tnplan.common.kernels.kernel import Late

Generate = Callable[..., Any]
WORD_BYTES = 8


def _intrinsic(typing: Callable[..., Any]) -> Late:
    """An intrinsic of numba from its typing function."""

    def make() -> Any:
        from numba.extending import intrinsic

        return intrinsic(typing)

    return Late(make)


def _sched_yield() -> Any:
    """Give the processor to another thread that waits for it."""
    from numba import types

    return types.ExternalFunction("sched_yield", types.int32())


def _fetch(typing_context: Any, array: Any, place: Any) -> tuple[Any, Generate]:
    """Ask for the line of memory that holds this element of an array of one axis, without waiting for it."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at = builder.gep(_data(context, builder, array, arguments[0]), [arguments[1]])
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        ask = builder.module.declare_intrinsic("llvm.prefetch", (cgutils.voidptr_t,), kind)
        flags = [ir.Constant(number, value) for value in (0, 3, 1)]
        builder.call(ask, [builder.bitcast(at, cgutils.voidptr_t), *flags])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


def _vector(typing_context: Any, address: Any, n: Any, kind: Any) -> tuple[Any, Generate]:
    """The array of one axis of `n` numbers of type `kind` at an address."""
    from numba import types

    result = types.Array(_number(kind), 1, "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _array_at(context, builder, result, arguments[0], [arguments[1]])

    return result(types.int64, types.int64, kind), generate


def _columns(typing_context: Any, address: Any, n: Any, width: Any, kind: Any) -> tuple[Any, Generate]:
    """The array of `n` rows and `width` contiguous columns, numbers of type `kind`, at an address."""
    from numba import types

    result = types.Array(_number(kind), 2, "F")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _array_at(context, builder, result, arguments[0], arguments[1:3])

    return result(types.int64, types.int64, types.int64, kind), generate


def _number(kind: Any) -> Any:
    """The type of numbers that a class or a dtype says."""
    return getattr(kind, "instance_type", None) or kind.dtype


def _array_at(context: Any, builder: Any, result: Any, address: Any, shape: Any) -> Any:
    """An array over memory that is not its own, each axis contiguous in those before it."""
    from numba import types
    from numba.core import cgutils

    array = context.make_array(result)(context, builder)
    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(result.dtype)))
    strides, count = [itemsize], shape[0]
    for extent in shape[:-1]:
        strides.append(builder.mul(strides[-1], extent))
    for extent in shape[1:]:
        count = builder.mul(count, extent)
    array.data, array.itemsize = builder.inttoptr(address, array.data.type), itemsize
    array.shape, array.strides = (cgutils.pack_array(builder, numbers) for numbers in (shape, strides))
    array.nitems = count
    for owner in ("meminfo", "parent"):
        setattr(array, owner, cgutils.get_null_value(getattr(array, owner).type))
    return array._getvalue()


def _heard(typing_context: Any, array: Any, place: Any) -> tuple[Any, Generate]:
    """This element of an int64 array of one axis; what its writer wrote before it can be read after it."""
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at = builder.gep(_data(context, builder, array, arguments[0]), [arguments[1]])
        return builder.load_atomic(at, "acquire", WORD_BYTES)

    return types.int64(array, types.int64), generate


def _say(typing_context: Any, array: Any, place: Any, value: Any) -> tuple[Any, Generate]:
    """Write this element of an int64 array of one axis, after all that was written before it."""
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at = builder.gep(_data(context, builder, array, arguments[0]), [arguments[1]])
        builder.store_atomic(arguments[2], at, "release", WORD_BYTES)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Where the elements of an array lie."""
    return context.make_array(kind)(context, builder, array).data


prefetch: Any = _intrinsic(_fetch)
vector_at: Any = _intrinsic(_vector)
columns_at: Any = _intrinsic(_columns)
load_acquire: Any = _intrinsic(_heard)
store_release: Any = _intrinsic(_say)
yield_processor: Any = Late(_sched_yield)

"""Matrix products by cuBLAS, through nvmath's binding with 64-bit sizes: bound products and their workspace.

Knows row-major matrices at device addresses; nothing of modes or tiles. nvmath is imported when the first
product is bound.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from tnplan.common.errors import InputError
from tnplan.executor.device.protocols.precision import DOUBLE

Array = Any
"""A cupy.ndarray."""
Multiply = Callable[[int, int, int], None]
"""c = a b^T of row-major matrices at three addresses: a, b, c. Asynchronous."""

WORKSPACE_BYTES = 32 << 20
"""Device memory that a handle is given, so that cuBLAS allocates none (32 MiB is its advice for Hopper)."""
DATA_TYPES = {"float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
"""CUDA's number of each dtype (cudaDataType)."""
HALF = 2
"""CUDA's number of half-precision numbers."""
COMPUTE = {"fp32": 68, "tf32": 77, "fp64": 70}
"""cuBLAS's number of each precision (cublasComputeType_t)."""
GEMV = {"float32": "sgemv_64", "float64": "dgemv_64", "complex64": "cgemv_64", "complex128": "zgemv_64"}
NOT_TRANSPOSED, TRANSPOSED = 0, 1
DEFAULT_ALGORITHM = -1


def nvmath_bindings(library: str) -> Any:
    """nvmath's binding of a library of NVIDIA's; InputError where nvmath is not installed."""
    try:
        return import_module(f"nvmath.bindings.{library}")
    except ImportError as error:
        remedy = "install it with: pip install 'tnplan[gpu]'"
        raise InputError(
            "GPU", f"nvmath, which calls {library}, cannot be imported ({error})", remedy, topic="GPUs"
        ) from None


@cache
def bindings() -> Any:
    """nvmath's binding of cuBLAS."""
    return nvmath_bindings("cublas")


class Handle:
    """cuBLAS on one stream of the current device."""

    def __init__(self, stream: Any) -> None:
        self.value: int = bindings().create()
        weakref.finalize(self, bindings().destroy, self.value).atexit = False
        bindings().set_stream(self.value, stream.ptr)
        self._workspace: Any = None

    def use_workspace(self, workspace: Any) -> None:
        """Let the products of this handle, also those bound before, work in this flat array."""
        if self._workspace is None or workspace.data.ptr != self._workspace.data.ptr:
            bindings().set_workspace(self.value, workspace.data.ptr, workspace.nbytes)
            self._workspace = workspace


_handles: weakref.WeakKeyDictionary[Any, Handle] = weakref.WeakKeyDictionary()


def handle(stream: Any) -> Handle:
    """The handle of a stream of the current device; it goes with the stream and with what is bound to it."""
    if stream not in _handles:
        _handles[stream] = Handle(stream)
    return _handles[stream]


@cache
def factors(dtype: str) -> tuple[int, int, Any]:
    """The addresses of 1 and 0 of a type in host memory, and that memory, which the cache keeps."""
    values = np.array([1, 0], dtype)
    return values.ctypes.data, values.ctypes.data + values.itemsize, values


@dataclass(frozen=True)
class _Product:
    """One call of cuBLAS with all arguments but the addresses of a, b and c, in the order of its interface:
    `head`, b and its form, a and its form, the factor of the old c, c and its form, `tail`."""

    handle: Handle
    function: Callable[..., None]
    name: str
    head: tuple[int, ...]
    b_form: tuple[int, ...]
    a_form: tuple[int, ...]
    old: int
    c_form: tuple[int, ...]
    tail: tuple[int, ...] = ()

    def __call__(self, a: int, b: int, c: int) -> None:
        try:
            self.function(*self.head, b, *self.b_form, a, *self.a_form, self.old, c, *self.c_form, *self.tail)
        except bindings().cuBLASError as error:
            raise RuntimeError(f"{self.name} failed: {error}") from None


def bind_product(
    stream: Any, sizes: tuple[int, int, int, int], dtype: str, precision: str, split_sum: bool = False
) -> Multiply:
    """c = a b^T for row-major contiguous a [batch | m | k], b [batch | n | k] and c [batch | m | n].

    `sizes` are batch, m, n and k. With `split_sum` the batches are the parts of one sum: a [m | batch | k],
    b [n | batch | k].
    """
    n_batch, m, n, k = sizes
    (unit, zero, _), kind, bound = factors(dtype), DATA_TYPES[dtype], handle(stream)
    name = f"a product of batch {n_batch}, m {m}, n {n}, k {k}"
    # Read by columns, as cuBLAS does, the row-major c is its transpose: b and a change places.
    head = (bound.value, TRANSPOSED, NOT_TRANSPOSED, n, m, k, unit)
    end = (COMPUTE[precision], DEFAULT_ALGORITHM)
    if n_batch == 1:
        row = (kind, k)
        return _Product(bound, bindings().gemm_ex_64, name, head, row, row, zero, (kind, n), end)
    row = (kind, n_batch * k if split_sum else k)
    b_step, a_step = (k, k) if split_sum else (n * k, m * k)
    return _Product(
        bound, bindings().gemm_strided_batched_ex_64, name, head, (*row, b_step), (*row, a_step), zero,
        (kind, n, m * n), (n_batch, *end),
    )  # fmt: skip


def bind_addressed(stream: Any, sizes: tuple[int, int, int, int], dtype: str, precision: str) -> Multiply:
    """c = a b^T as of `bind_product`, for matrices anywhere in memory.

    It is called with the addresses of three arrays in memory of the device, which have the addresses of the
    matrices of each batch.
    """
    n_batch, m, n, k = sizes
    (unit, zero, _), kind, bound = factors(dtype), DATA_TYPES[dtype], handle(stream)
    return _Product(
        bound, bindings().gemm_batched_ex_64, f"a product of {n_batch} pairs of rows, m {m}, n {n}, k {k}",
        (bound.value, TRANSPOSED, NOT_TRANSPOSED, n, m, k, unit), (kind, k), (kind, k), zero, (kind, n),
        (n_batch, COMPUTE[precision], DEFAULT_ALGORITHM),
    )  # fmt: skip


def bind_stored(
    stream: Any, sizes: tuple[int, int, int, int], dtype: str, precision: str,
    a_stored: tuple[bool, int], b_stored: tuple[bool, int],
) -> Multiply:  # fmt: skip
    """c = a b^T for operands of which each is a part of a larger one, with k last or first.

    `sizes` are batch, m, n and k of the part. Each operand says whether it is stored with k first, as
    [batch | k | rows], and how many elements of m or n the whole of it has. c is row-major and contiguous,
    [batch | m | n].
    """
    n_batch, m, n, k = sizes
    (unit, zero, _), kind, bound = factors(dtype), DATA_TYPES[dtype], handle(stream)
    (a_first, all_m), (b_first, all_n) = a_stored, b_stored
    # Read by columns, as cuBLAS does, the row-major c is its transpose: b and a change places.
    operations = NOT_TRANSPOSED if b_first else TRANSPOSED, TRANSPOSED if a_first else NOT_TRANSPOSED
    head = (bound.value, *operations, n, m, k, unit)
    b_form = (kind, all_n if b_first else k, all_n * k)
    a_form = (kind, all_m if a_first else k, all_m * k)
    return _Product(
        bound, bindings().gemm_strided_batched_ex_64, f"a product of batch {n_batch}, m {m}, n {n}, k {k}",
        head, b_form, a_form, zero, (kind, n, m * n), (n_batch, COMPUTE[precision], DEFAULT_ALGORITHM),
    )  # fmt: skip


def bind_half_product(stream: Any, m: int, n: int, k: int, add: bool) -> Multiply:
    """c (+)= a b^T for row-major a [m | k] and b [n | k] of half-precision numbers and c [m | n] of floats.

    Summed in fp32; with `add` the product is added to c.
    """
    (unit, zero, _), bound, row = factors("float32"), handle(stream), (HALF, k)
    name = f"a product of halves of m {m}, n {n}, k {k}"
    head = (bound.value, TRANSPOSED, NOT_TRANSPOSED, n, m, k, unit)
    end = (COMPUTE["fp32"], DEFAULT_ALGORITHM)
    form = (DATA_TYPES["float32"], n)
    return _Product(bound, bindings().gemm_ex_64, name, head, row, row, unit if add else zero, form, end)


def bind_vector_product(stream: Any, n: int, k: int, dtype: str) -> Multiply:
    """c [n] = b [n | k] times a [k], row-major and contiguous."""
    (unit, zero, _), bound = factors(dtype), handle(stream)
    name, head = f"a product of a matrix of {n} x {k} with a vector", (bound.value, TRANSPOSED, k, n, unit)
    return _Product(bound, getattr(bindings(), GEMV[dtype]), name, head, (k,), (1,), zero, (1,))


def add_product(stream: Any, a: Array, b: Array, out: Array) -> None:
    """out += a b of matrices that may be parts of larger ones: a [m | k], b [k | n], out [m | n].

    Asynchronous; float32 and float64, products and sums in the same precision.
    """
    (m, k), n, dtype = a.shape, b.shape[1], out.dtype.name
    if b.shape != (k, n) or out.shape != (m, n) or not a.dtype == b.dtype == out.dtype:
        raise ValueError(f"matrices of {a.shape} and {b.shape} do not give {out.shape}")
    unit, compute = factors(dtype)[0], COMPUTE["fp64" if dtype in DOUBLE else "fp32"]
    # Read by columns, as cuBLAS does, a row-major matrix is its transpose: a and b change places.
    bindings().gemm_ex_64(
        handle(stream).value, NOT_TRANSPOSED, NOT_TRANSPOSED, n, m, k, unit, b.data.ptr, *_form(b),
        a.data.ptr, *_form(a), unit, out.data.ptr, *_form(out), compute, DEFAULT_ALGORITHM,
    )  # fmt: skip


def _form(matrix: Array) -> tuple[int, int]:
    """The type of a matrix and the elements between its rows."""
    row_step, step = (stride // matrix.itemsize for stride in matrix.strides)
    if step != 1 and matrix.shape[1] > 1:
        raise ValueError("the columns of a matrix are not adjacent")
    # A matrix of one row may have any stride; cuBLAS wants one that holds the row.
    return DATA_TYPES[matrix.dtype.name], max(row_step, matrix.shape[1])

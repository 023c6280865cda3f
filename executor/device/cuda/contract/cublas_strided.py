"""Products of row-major matrices that are parts of larger ones, by cuBLAS on a stream.

Knows addresses, strides and sizes; nothing of what is multiplied.
"""

from __future__ import annotations

from typing import Any

from tnplan.executor.device.cuda.contract.cublas import (
    COMPUTE_32,
    COMPUTE_64,
    DEFAULT_ALGORITHM,
    NOT_TRANSPOSED,
    TYPES,
    check,
    cublas_library,
    factors,
    handle,
)

Array = Any
"""A cupy.ndarray."""

COMPUTE = {"float32": COMPUTE_32, "float64": COMPUTE_64}


def operand(array: Array) -> tuple[int, int]:
    """The type and the elements between rows."""
    row_step, step = (stride // array.itemsize for stride in array.strides)
    if step != 1 and array.shape[1] > 1:
        raise ValueError("the columns of a matrix are not adjacent")
    # A matrix of one row may have any stride; cuBLAS wants one that holds the row.
    return TYPES[array.dtype.name], max(row_step, array.shape[1])


def add_product(stream: Any, a: Array, b: Array, out: Array) -> None:
    """out += a b: a [m | k], b [k | n], out [m | n].

    Asynchronous; float32 and float64, products and sums in the same precision.
    """
    (m, k), n, dtype = a.shape, b.shape[1], out.dtype.name
    if b.shape != (k, n) or out.shape != (m, n) or not a.dtype == b.dtype == out.dtype:
        raise ValueError(f"matrices of {a.shape} and {b.shape} do not give {out.shape}")
    one = factors(dtype).one
    # Read by columns, as cuBLAS does, a row-major matrix is its transpose: a and b change places.
    status = cublas_library().cublasGemmEx_64(
        handle(stream).value, NOT_TRANSPOSED, NOT_TRANSPOSED, n, m, k, one, b.data.ptr, *operand(b),
        a.data.ptr, *operand(a), one, out.data.ptr, *operand(out), COMPUTE[dtype], DEFAULT_ALGORITHM,
    )  # fmt: skip
    check(status, f"a product of m {m}, n {n}, k {k}")

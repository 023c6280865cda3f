"""Matrix products by cuBLAS, through its C interface with 64-bit sizes: handles and bound products.

Knows row-major matrices at device addresses; nothing of modes or tiles.
"""

from __future__ import annotations

import ctypes
import weakref
from functools import cache
from typing import Any

import numpy as np

WORKSPACE_BYTES = 32 << 20
"""Device memory that a handle is given, so that cuBLAS allocates none (32 MiB is its advice for Hopper)."""

TYPES = {"float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
HALF = 2
"""The type of half-precision numbers."""
COMPUTE_32, COMPUTE_TF32, COMPUTE_64 = 68, 77, 70
GEMV = {"float32": "cublasSgemv_v2_64", "float64": "cublasDgemv_v2_64", "complex64": "cublasCgemv_v2_64",
        "complex128": "cublasZgemv_v2_64"}  # fmt: skip
NOT_TRANSPOSED, TRANSPOSED = 0, 1
DEFAULT_ALGORITHM = -1

Address = ctypes.c_void_p
Size = ctypes.c_int64
Integer = ctypes.c_int


@cache
def cublas_library() -> Any:
    """libcublas with the argument types of what is used here."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    library = ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)
    library.cublasCreate_v2.argtypes = [ctypes.POINTER(Address)]
    library.cublasSetStream_v2.argtypes = [Address, Address]
    library.cublasSetWorkspace_v2.argtypes = [Address, Address, ctypes.c_size_t]
    library.cublasDestroy_v2.argtypes = [Address]
    library.cublasGetStatusString.argtypes = [Integer]
    library.cublasGetStatusString.restype = ctypes.c_char_p
    operand: list[Any] = [Address, Integer, Size]
    head: list[Any] = [Address, Integer, Integer, Size, Size, Size, Address]
    library.cublasGemmEx_64.argtypes = [*head, *operand, *operand, Address, *operand, Integer, Integer]
    strided = [*operand, ctypes.c_longlong]
    library.cublasGemmStridedBatchedEx_64.argtypes = [
        *head, *strided, *strided, Address, *strided, Size, Integer, Integer,
    ]  # fmt: skip
    for name in GEMV.values():
        getattr(library, name).argtypes = [
            Address, Integer, Size, Size, Address, Address, Size, Address, Size, Address, Address, Size,
        ]  # fmt: skip
    return library


def check(status: int, what: str) -> None:
    """Raise RuntimeError where a call of cuBLAS has failed."""
    if status:
        raise RuntimeError(f"{what} failed: {cublas_library().cublasGetStatusString(status).decode()}")


class Handle:
    """cuBLAS on one stream of the current device."""

    def __init__(self, stream: Any) -> None:
        library = cublas_library()
        self.value = Address()
        check(library.cublasCreate_v2(ctypes.byref(self.value)), "cublasCreate")
        weakref.finalize(self, library.cublasDestroy_v2, self.value).atexit = False
        check(library.cublasSetStream_v2(self.value, stream.ptr), "cublasSetStream")
        self._workspace: Any = None

    def use_workspace(self, workspace: Any) -> None:
        """Let the products of this handle, also those bound before, work in this flat array."""
        if self._workspace is None or workspace.data.ptr != self._workspace.data.ptr:
            status = cublas_library().cublasSetWorkspace_v2(self.value, workspace.data.ptr, workspace.nbytes)
            check(status, "cublasSetWorkspace")
            self._workspace = workspace


_handles: weakref.WeakKeyDictionary[Any, Handle] = weakref.WeakKeyDictionary()


def handle(stream: Any) -> Handle:
    """The handle of a stream of the current device; it goes with the stream and with what is bound to it."""
    if stream not in _handles:
        _handles[stream] = Handle(stream)
    return _handles[stream]


class Factors:
    """The numbers 1 and 0 of a type in host memory, at addresses that stay."""

    def __init__(self, dtype: str) -> None:
        self._values = np.array([1, 0], dtype)
        self.one = self._values.ctypes.data
        self.zero = self.one + self._values.itemsize


@cache
def factors(dtype: str) -> Factors:
    """The factors of a type; made once, so that their addresses outlive every call."""
    return Factors(dtype)


class Product:
    """c = a b^T for row-major contiguous a [batch | m | k], b [batch | n | k] and c [batch | m | n].

    Sizes, type and compute type are bound; a call takes the three addresses and is asynchronous. With
    `parts_of_sum` the batches are the parts of one sum: a [m | batch | k], b [n | batch | k].
    """

    def __init__(
        self, handle: Handle, n_batch: int, m: int, n: int, k: int, dtype: str, compute: int,
        parts_of_sum: bool = False,
    ) -> None:  # fmt: skip
        library, constants, kind = cublas_library(), factors(dtype), TYPES[dtype]
        self._handle = handle
        self._what = f"a product of batch {n_batch}, m {m}, n {n}, k {k}"
        # Read by columns, as cuBLAS does, the row-major c is its transpose: b and a change places.
        self._head = (handle.value, TRANSPOSED, NOT_TRANSPOSED, n, m, k, constants.one)
        self._batched = n_batch > 1
        self._gemm = library.cublasGemmStridedBatchedEx_64 if self._batched else library.cublasGemmEx_64
        row = n_batch * k if parts_of_sum else k
        steps = (k, k, m * n) if parts_of_sum else (n * k, m * k, m * n)
        self._b, self._a, self._c = (
            (kind, length, step) if self._batched else (kind, length)
            for length, step in zip((row, row, n), steps, strict=True)
        )
        self._tail = (*((n_batch,) if self._batched else ()), compute, DEFAULT_ALGORITHM)
        self._zero = constants.zero

    def __call__(self, a: int, b: int, c: int) -> None:
        status = self._gemm(*self._head, b, *self._b, a, *self._a, self._zero, c, *self._c, *self._tail)
        if status:
            check(status, self._what)


class HalfProduct:
    """c (+)= a b^T for row-major a [m | k] and b [n | k] of half-precision numbers and c [m | n] of floats.

    Summed in fp32; with `add` the product is added to c. Called with the addresses of a, b and c.
    """

    def __init__(self, handle: Handle, m: int, n: int, k: int, add: bool) -> None:
        constants = factors("float32")
        self._handle = handle
        self._gemm = cublas_library().cublasGemmEx_64
        self._what = f"a product of halves of m {m}, n {n}, k {k}"
        self._head = (handle.value, TRANSPOSED, NOT_TRANSPOSED, n, m, k, constants.one)
        self._row, self._old = (HALF, k), constants.one if add else constants.zero
        self._tail = (TYPES["float32"], n, COMPUTE_32, DEFAULT_ALGORITHM)

    def __call__(self, a: int, b: int, c: int) -> None:
        status = self._gemm(*self._head, b, *self._row, a, *self._row, self._old, c, *self._tail)
        if status:
            check(status, self._what)


class VectorProduct:
    """y [m] = a [m | k] times x [k], row-major and contiguous; called with the addresses of a, x and y."""

    def __init__(self, handle: Handle, m: int, k: int, dtype: str) -> None:
        self._handle = handle
        self._function = getattr(cublas_library(), GEMV[dtype])
        self._what = f"a product of a matrix of {m} x {k} with a vector"
        self._head = (handle.value, TRANSPOSED, k, m, factors(dtype).one)
        self._k, self._zero = k, factors(dtype).zero

    def __call__(self, a: int, x: int, y: int) -> None:
        status = self._function(*self._head, a, self._k, x, 1, self._zero, y, 1)
        if status:
            check(status, self._what)

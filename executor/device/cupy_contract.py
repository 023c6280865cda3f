"""One contraction on a GPU: a product written directly, or formed tile by tile and copied to its place.

Knows the modes of one contraction and the tiles of its result; `cublas` and the kernels multiply.
A bound call launches on one stream, allocates nothing and does not wait.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from math import gcd, prod
from typing import Any

import cupy
import numpy as np
from cupy_backends.cuda.api import runtime

from executor.device import cublas
from executor.device.cupy_copy import bind_placed
from executor.device.cupy_scatter import LONGEST_ROW, bind_scattered
from executor.device.device import Call, ContractShape
from executor.device.kernel_cache import load_kernel
from executor.device.precision import check_precision
from executor.device.tile import Block, tile

Array = Any
"""A flat cupy.ndarray."""
Multiply = Callable[[int, int, int], None]
"""c = a b^T of row-major matrices at three addresses: a, b, c."""

EFFICIENT_EXTENT = 256
"""Tiles keep m and n at least this large where they can: below it cuBLAS loses much of its rate."""
SMALL_PRODUCT = 512
"""The most multiplications of one matrix of a batch that the kernel of small products takes."""
PRODUCT_THREADS = 256
PRODUCT_BLOCKS = 132 * 16
SHORT_INDEX = 2**31


def scratch_bytes(shape: ContractShape, dtype: str, precision: str) -> int:
    """The bytes of scratch memory that `bind_contract` wants beside the workspace: cuBLAS's own."""
    needed = min(shape.sizes) and not _scatters(shape, check_precision(precision, dtype))
    return cublas.WORKSPACE_BYTES if needed else 0


def _scatters(shape: ContractShape, precision: str) -> bool:
    """Whether a kernel writes every sum to its place: always in fp16x3, in fp32 where c has another order."""
    if 2 * shape.k > LONGEST_ROW:
        return False
    return precision == "fp16x3" or (precision == "fp32" and shape.direct is None)


def bind_contract(
    shape: ContractShape, a: Array, b: Array, c: Array, workspace: Array | None, precision: str, stream: Any,
    scratch: Array,
) -> Call:  # fmt: skip
    """c = the sum over k of a times b on `stream`; see `Device.bind_contract`.

    a [batch | m | k], b [batch | n | k], c and the workspace are flat arrays of one type, `scratch` is one of
    `scratch_bytes` bytes that the calls on a stream may share. Raises ValueError for a precision that the
    type does not have, or where a workspace is needed and missing.
    """
    n_batch, m, n, k = shape.sizes
    dtype = c.dtype.name
    precision = check_precision(precision, dtype)
    if n_batch * m * n == 0:
        return _nothing
    if k == 0:
        return lambda: runtime.memsetAsync(c.data.ptr, 0, c.nbytes, stream.ptr)
    if _scatters(shape, precision):
        return bind_scattered(shape, a, b, c, precision, stream)
    if precision == "fp16x3":  # a sum longer than its kernel takes: fp32 keeps the promise too
        precision = "fp32"
    cublas.handle(stream).use_workspace(scratch)
    direct = shape.direct
    if direct is None:
        if workspace is None or not len(workspace):
            raise ValueError("a contraction whose result is stored in another order needs a workspace")
        return _bind_tiles(shape, a, b, c, workspace, precision, stream)
    if direct == "nm":
        a, b, m, n = b, a, n, m
    multiply = bind_product(n_batch, m, n, k, dtype, precision, stream)
    addresses = a.data.ptr, b.data.ptr, c.data.ptr
    return lambda: multiply(*addresses)


def bind_product(
    n_batch: int, m: int, n: int, k: int, dtype: str, precision: str, stream: Any
) -> Multiply:  # fmt: skip
    """What multiplies a [batch | m | k] and b [batch | n | k] of these sizes."""
    if n_batch > 1 and m * n * k <= SMALL_PRODUCT:
        return _bind_small(n_batch, m, n, k, dtype, stream)
    handle = cublas.handle(stream)
    if n_batch == 1 and n == 1:
        return cublas.VectorProduct(handle, m, k, dtype)
    if n_batch == 1 and m == 1:
        vector = cublas.VectorProduct(handle, n, k, dtype)
        return lambda a, b, c: vector(b, a, c)
    compute = {"fp32": cublas.COMPUTE_32, "tf32": cublas.COMPUTE_TF32, "fp64": cublas.COMPUTE_64}[precision]
    return cublas.Product(handle, n_batch, m, n, k, dtype, compute)


def _bind_small(n_batch: int, m: int, n: int, k: int, dtype: str, stream: Any) -> Multiply:
    count = n_batch * m * n
    short = n_batch * max(m, n) * max(n, k) < SHORT_INDEX
    kernel = load_kernel(
        "products.cu",
        "products",
        {
            "REAL": "double" if dtype in ("float64", "complex128") else "float",
            "COMPLEX": int(dtype.startswith("complex")),
            "INDEX": "unsigned" if short else "unsigned long long",
        },
    )
    grid = (min(-(-count // PRODUCT_THREADS), PRODUCT_BLOCKS),)
    sizes = np.int64(count), np.uint32(m), np.uint32(n), np.int32(k)

    def run(a: int, b: int, c: int) -> None:
        addresses = np.uint64(a), np.uint64(b), np.uint64(c)
        kernel(grid, (PRODUCT_THREADS,), (*addresses, *sizes), stream=stream)

    return run


def _bind_tiles(
    shape: ContractShape, a: Array, b: Array, c: Array, workspace: Array, precision: str, stream: Any
) -> Call:
    """Form every tile of the product in the workspace and copy it to its place in c.

    Tiles take turns in two halves of the workspace: one is copied, on a second stream, while one is formed.
    """
    k = shape.k
    halves = 2 if prod(shape.sizes[:3]) > len(workspace) > 1 else 1
    half = len(workspace) // halves
    tiling = tile(shape, half, EFFICIENT_EXTENT)
    left, right, left_blocks, right_blocks = a, b, tiling.m, tiling.n
    if not tiling.n_last:
        left, right, left_blocks, right_blocks = b, a, tiling.n, tiling.m
    divisor = gcd(*(block.c_offset for block in (*tiling.batch, *left_blocks, *right_blocks)))
    copier = _copier(stream)
    works = [workspace[i * half : (i + 1) * half] for i in range(halves)]
    steps: dict[tuple[int, int, int], tuple[Multiply, list[Callable[[int], None]]]] = {}
    for rows, copy in tiling.copies.items():
        n_batch, m, n = rows
        key = rows if tiling.n_last else (n_batch, n, m)
        product = bind_product(*key, k, c.dtype.name, precision, stream)
        steps[key] = product, [bind_placed(c, work, copy, divisor, copier) for work in works]
    row_bytes = k * c.itemsize

    def addresses(operand: Array, batch: Block, blocks: tuple[Block, ...]) -> list[tuple[int, int, int]]:
        rows = len(operand) // k // sum(block.rows for block in tiling.batch)
        base = operand.data.ptr + batch.start * rows * row_bytes
        return [(base + block.start * row_bytes, block.rows, block.c_offset) for block in blocks]

    batches = [
        (
            batch.rows,
            batch.c_offset,
            addresses(left, batch, left_blocks),
            addresses(right, batch, right_blocks),
        )
        for batch in tiling.batch
    ]
    turns = [(work.data.ptr, _event(), _event()) for work in works]

    def run() -> None:
        turn = 0
        for n_batch, batch_offset, lefts, rights in batches:
            for left_address, left_rows, left_offset in lefts:
                offset = batch_offset + left_offset
                for right_address, right_rows, right_offset in rights:
                    work, formed, copied = turns[turn]
                    multiply, place = steps[n_batch, left_rows, right_rows]
                    stream.wait_event(copied)
                    multiply(left_address, right_address, work)
                    formed.record(stream)
                    copier.wait_event(formed)
                    place[turn](offset + right_offset)
                    copied.record(copier)
                    turn = (turn + 1) % halves
        for _, _, copied in turns:
            stream.wait_event(copied)

    return run


_copiers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _copier(stream: Any) -> Any:
    """The second stream of a stream, on which tiles are copied."""
    if stream not in _copiers:
        _copiers[stream] = cupy.cuda.Stream(non_blocking=True)
    return _copiers[stream]


def _event() -> Any:
    return cupy.cuda.Event(disable_timing=True)


def _nothing() -> None:
    """The callable of work that has no elements."""

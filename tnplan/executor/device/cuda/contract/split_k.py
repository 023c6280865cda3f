"""A product with few results and a long sum on the GPU: parts of the sum at once, then their sum.

A lone long sum would leave most of the device idle and round as often as it has terms. Knows one product;
long_sums.cu or cuBLAS forms the parts, which are added in double precision.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.executor.device.cuda.contract import Product, cublas
from tnplan.executor.device.cuda.copy.permute import bind_copy, bind_sum
from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel
from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel, number_defines
from tnplan.executor.device.protocols.copy import make_copy, row_major
from tnplan.executor.device.protocols.device import Call, ContractShape, call_in_turn
from tnplan.executor.device.protocols.precision import DOUBLE

Array = Any
"""A flat cupy.ndarray."""

FILE = Path(__file__).parent / "kernels" / "long_sums.cu"
LONG_SUM = 4096
"""Sums of fewer terms are not split, but for those of `_has_few_sums`."""
FEW_SUMS, FEW_SUMS_TERMS = 1 << 14, 512
"""A batch of so few sums leaves the device idle where a thread forms each; from so many terms on."""
PART_TERMS, WARP_TERMS = 1024, 256
"""Terms of a part, at least: of those of cuBLAS, and of long_sums.cu."""
PARTS_BYTES = 32 << 20
"""What all parts take together, at most."""
MOST_PARTS = 8192
"""Of parts that long_sums.cu forms, in a batch of all: each is the work of a few warps."""
MOST_WARPS, MOST_WARPS_K_FIRST = 8, 4
"""Warps of a part, a block of results each, up to which long_sums.cu forms the parts."""
FEW_DOUBLES = 64
"""Results up to which it does in double precision, whose products cuBLAS forms on tensor cores."""
LOAD_BYTES = 16
BLOCK_EXTENT = 64
MANY_BLOCKS = 264
"""So many blocks of results, two for each multiprocessor of an H200, occupy the device without a split."""


def result_block(m: int, n: int, itemsize: int) -> tuple[int, int]:
    """Rows and columns of the results that a warp of long_sums.cu sums: powers of two."""
    most = 4 if itemsize == 16 else 8
    rows, columns = (min(most, 1 << (extent - 1).bit_length()) for extent in (m, n))
    return rows, columns


def is_thin(shape: ContractShape, dtype: np.dtype[Any]) -> bool:
    """Whether long_sums.cu forms the parts.

    Measured on an H200, share of the copy's bandwidth (kernel, cuBLAS), m = n = 4, 8, 16, and 16 x 32:
    complex64 1.05, 0.08; 0.97, 0.16; 0.69, 0.32; 0.52, 0.46; float32 0.95, 0.62; 1.03, 0.77; 0.88, 0.49;
    0.66, 0.38; float64 1.00, 0.30; 1.03, 0.61; 0.91, 1.02; complex128 1.06, 0.36; 0.98, 0.76. With k first,
    on an H100: complex64 0.78, 0.18; 0.80, 0.20; 0.51, 0.41; 0.30, 0.55.
    """
    _, m, n, _ = shape.sizes
    if dtype.name in DOUBLE and m * n > FEW_DOUBLES:
        return False
    most = MOST_WARPS_K_FIRST if shape.k_first else MOST_WARPS
    return count_blocks(m, n, result_block(m, n, dtype.itemsize)) <= most


def count_blocks(m: int, n: int, block: tuple[int, int]) -> int:
    """Blocks of so many rows and columns that cover m x n results."""
    return -(-m // block[0]) * -(-n // block[1])


def count_parts(shape: ContractShape, dtype: np.dtype[Any]) -> int:
    """How many parts the sum of a product is cut into; 1 where it is not."""
    n_batch, m, n, k = shape.sizes
    if (k < LONG_SUM and not _has_few_sums(shape, dtype)) or n_batch * m * n == 0:
        return 1
    if is_thin(shape, dtype):
        most = min(k // WARP_TERMS, max(2, MOST_PARTS // n_batch))
    elif n_batch > 1 or count_blocks(m, n, (BLOCK_EXTENT, BLOCK_EXTENT)) >= MANY_BLOCKS:
        return 1
    else:
        most = min(k // PART_TERMS, PARTS_BYTES // (m * n * dtype.itemsize))
    # Equal parts, so that one batched product forms them all.
    return next((parts for parts in range(most, 1, -1) if k % parts == 0), 1)


def _has_few_sums(shape: ContractShape, dtype: np.dtype[Any]) -> bool:
    """Whether a batch has few thin products, whose sums long_sums.cu forms though they are not long.

    Measured on an H200, complex64: 1,024 sums of 512 terms took a thread each 135 microseconds.
    """
    n_batch, m, n, k = shape.sizes
    return n_batch > 1 and k >= FEW_SUMS_TERMS and n_batch * m * n <= FEW_SUMS and is_thin(shape, dtype)


def split_bytes(shape: ContractShape, dtype: np.dtype[Any]) -> int:
    """The bytes of scratch memory: all parts, and the result where c has another order."""
    parts = count_parts(shape, dtype)
    if parts == 1:
        return 0
    n_batch, m, n, _ = shape.sizes
    return (parts + (shape.direct is None)) * n_batch * m * n * dtype.itemsize


def bind_split(product: Product, precision: str, scratch: Array) -> Call:
    """Form a product in parts of its sums; cuBLAS multiplies in `precision`, one product alone.

    Thin products take operands stored with k first too.

    `scratch` is a flat array of bytes, `split_bytes` of them or more, and lives as long as the call.
    """
    shape, a, b, c, stream = product
    n_batch, m, n, k = shape.sizes
    count, parts = n_batch * m * n, count_parts(shape, c.dtype)
    # Parts are summed as c is stored where that is a plain order; otherwise into scratch memory and copied.
    left, right, rows, columns = (b, a, n, m) if shape.direct == "nm" else (a, b, m, n)
    memory = scratch[: split_bytes(shape, c.dtype)].view(c.dtype)
    terms = memory[: parts * count]
    multiply: Call
    if is_thin(shape, c.dtype):
        names = "ba" if shape.direct == "nm" else "ab"
        k_first = names[0] in shape.k_first, names[1] in shape.k_first
        sizes = n_batch, rows, columns, k
        multiply = _bind_thin((left, right), terms, sizes, parts, k_first, stream)
    else:
        sizes = parts, rows, columns, k // parts
        bound = cublas.bind_product(stream, sizes, terms.dtype.name, precision, split_sum=True)
        multiply = partial(bound, left.data.ptr, right.data.ptr, terms.data.ptr)
    result = c if shape.direct else memory[parts * count :]
    # Parts of one batch are added in double precision and in a fixed order.
    added = bind_sum(result, terms, (n_batch, parts, rows * columns), (True, False, True), stream)
    calls = [multiply, added]
    if shape.direct is None:
        modes = (*shape.batch, *shape.m, *shape.n)
        extents, targets = ([mode[side] for mode in modes] for side in (0, 1))
        axes = list(zip(extents, row_major(extents), targets, strict=True))
        calls.append(bind_copy(c, result, make_copy(axes), 0, 0, None, stream))
    run = call_in_turn(calls)
    # The launches know addresses alone: this keeps the memory when the device takes a larger scratch.
    run.__dict__["memory"] = memory
    return run


def _bind_thin(
    operands: tuple[Array, Array], terms: Array, sizes: tuple[int, int, int, int], parts: int,
    k_first: tuple[bool, bool], stream: Any,
) -> Call:  # fmt: skip
    """So many parts by long_sums.cu; sizes are those of batch, m, n and k."""
    (a, b), (n_batch, m, n, k) = operands, sizes
    block = result_block(m, n, terms.itemsize)
    length, most = k // parts, LOAD_BYTES // terms.itemsize
    is_aligned = (a.data.ptr | b.data.ptr) % LOAD_BYTES == 0
    vector = most if is_aligned and not any(k_first) and length % most == 0 else 1
    reads = [
        math.gcd(most, rows) if is_aligned and first and extent % rows == 0 else 1
        for first, extent, rows in zip(k_first, (m, n), block, strict=True)
    ]
    threads = 32 * count_blocks(m, n, block)
    defines = long_sums_defines(terms.dtype.name, block, vector, threads, k_first, (reads[0], reads[1]))
    kernel = load_kernel(FILE, "sum_parts", defines)
    arguments: list[np.generic] = [
        *(np.uint64(array.data.ptr) for array in (a, b, terms)), np.int64(k), np.uint32(length),
        np.int32(m), np.int32(n),
    ]  # fmt: skip
    return BoundKernel(kernel, n_batch * parts, threads, arguments, 0, stream)


def long_sums_defines(
    dtype: str, block: tuple[int, int], vector: int, threads: int,
    k_first: tuple[bool, bool] = (False, False), reads: tuple[int, int] = (1, 1),
) -> dict[str, str | int]:  # fmt: skip
    """Of long_sums.cu: results of a thread, terms that it reads of a row at once, threads of a part; which of
    the two operands are stored with k first, and rows of each that are read of a term at once."""
    return {
        **number_defines(dtype),
        "ROWS": block[0], "COLUMNS": block[1], "VECTOR": vector, "THREADS": threads,
        "A_K_FIRST": int(k_first[0]), "B_K_FIRST": int(k_first[1]), "A_READ": reads[0], "B_READ": reads[1],
    }  # fmt: skip

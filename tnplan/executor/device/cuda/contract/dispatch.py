"""One contraction on a GPU: a product written directly, or formed tile by tile and copied to its place.

Knows the modes of one contraction and the tiles of its result; `cublas` and the kernels multiply.
A bound call launches on one stream, allocates nothing and does not wait.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.executor.device.cuda.contract import Product, cublas
from tnplan.executor.device.cuda.contract.cublas import Multiply
from tnplan.executor.device.cuda.contract.few_columns import RowTiles, bind_few_columns, row_tiles
from tnplan.executor.device.cuda.contract.fp16x3_cublas import (
    HalfProductTiles,
    bind_halves,
    halves_bytes,
    tiles,
)
from tnplan.executor.device.cuda.contract.fp16x3_wgmma import READ_BYTES, Cut, bind_wgmma, cut
from tnplan.executor.device.cuda.contract.scatter import LONGEST_ROW, LONGEST_SIDE, bind_scattered
from tnplan.executor.device.cuda.contract.split_k import bind_split, count_parts, is_thin, split_bytes
from tnplan.executor.device.cuda.copy.permute import bind_placed
from tnplan.executor.device.cuda.runtime.bound_kernel import bind_zero
from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel, number_defines
from tnplan.executor.device.protocols.device import Call, ContractShape, nothing
from tnplan.executor.device.protocols.output_tiling import Rows, cut_output
from tnplan.executor.device.protocols.precision import DOUBLE, check_precision

# A product of operands that are stored with the summed modes first, on a GPU: by cuBLAS, written directly or
# tile by tile, which other products are too. The products of gradients are such.

Array = Any
"""A flat cupy.ndarray."""
EFFICIENT_EXTENT = 256
"""Tiles keep m and n at least this large where they can: below it cuBLAS loses much of its rate."""


def bind_k_first(product: Product, workspace: Array | None, precision: str) -> Call:
    """Form a product of operands with k first in this precision, or in fp32 where it is fp16x3.

    Raises ValueError where a workspace is needed and missing. cuBLAS has its own workspace by then.
    """
    shape, a, b, c, stream = product
    n_batch, m, n, k = shape.sizes
    precision = "fp32" if precision == "fp16x3" else precision
    a_stored, b_stored = ("a" in shape.k_first, m), ("b" in shape.k_first, n)
    direct, dtype = shape.direct, c.dtype.name
    if direct is not None:
        if direct == "nm":
            a, b, m, n, a_stored, b_stored = b, a, n, m, b_stored, a_stored
        multiply = cublas.bind_stored(stream, (n_batch, m, n, k), dtype, precision, a_stored, b_stored)
        addresses = a.data.ptr, b.data.ptr, c.data.ptr
        return lambda: multiply(*addresses)

    def multiply_tile(extents: tuple[int, int, int], n_last: bool) -> Multiply:
        sides = (a_stored, b_stored) if n_last else (b_stored, a_stored)
        return cublas.bind_stored(stream, (*extents, k), dtype, precision, *sides)

    return bind_in_tiles(product, workspace, multiply_tile)


def bind_in_tiles(
    product: Product, workspace: Array | None, multiply: Callable[[tuple[int, int, int], bool], Multiply]
) -> Call:
    """Form every tile of a product in the workspace and copy it to its place in c.

    `multiply` is given the extents of a tile and whether its columns are those of b. Raises ValueError where
    there is no workspace.
    """
    if workspace is None or not len(workspace):
        raise ValueError("a contraction whose result is stored in another order needs a workspace")
    shape, a, b, c, stream = product
    tiling, address = cut_output(shape, len(workspace), EFFICIENT_EXTENT), workspace.data.ptr
    # One product and one copy for each size of tile, of which there are few; blocks differ in addresses
    # alone.
    steps = {
        extents: (
            multiply(extents, tiling.n_last), address,
            bind_placed(c, workspace, copy, tiling.start_divisor, stream),
        )
        for extents, copy in tiling.copies.items()
    }  # fmt: skip
    _, m, n, k = shape.sizes

    def rows_of(operand: Array, rows: int, step: int) -> Rows:
        """The address of the first element of a block."""
        base, itemsize = operand.data.ptr, operand.itemsize
        return lambda batch, block: base + (batch.start * rows * k + block.start * step) * itemsize

    a_step, b_step = (1 if name in shape.k_first else k for name in "ab")
    return tiling.bind(rows_of(a, m, a_step), rows_of(b, n, b_step), steps)


PRODUCTS_FILE = Path(__file__).parent / "kernels" / "products.cu"
SMALL_PRODUCT = 512
"""The most multiplications of one product of a batch that the kernel of small products takes."""
THIN_PRODUCT = 64
"""The most multiplications of a row of the longer operand that it takes."""
LONG_SUM_K_FIRST = 1 << 13
"""A product of operands with k first is left to cuBLAS where its sum is shorter."""
SCATTERED_EXTENT = 64
"""The least that the longer of m and n must be in a batch for a kernel whose blocks are that large."""
CUBLAS_TERMS = 16
"""Sums of more terms are left to cuBLAS where it can store c as it is."""
LARGE_PRODUCT = 1 << 20
"""Elements of both operands and the result from which on a kernel of its own is compiled."""
FEW_COLUMNS, FEW_PRODUCTS = 16, 320
"""Large complex64 products in another order have no more columns, and multiplications of a row, for the
kernel of few columns: with more, sums of a thread alone take longer than those of `fma.cu`."""
PRODUCT_THREADS = 256
PRODUCT_BLOCKS = 132 * 16
SHORT_INDEX = 2**31


def scratch_bytes(shape: ContractShape, dtype: str, precision: str) -> int:
    """The bytes of scratch that `bind_contract` wants beside the workspace: cuBLAS's own, and for parts."""
    if _row_tiles(shape, np.dtype(dtype)) is not None:
        return 0
    if shape.k_first and not _has_thin_parts(shape, np.dtype(dtype)):
        return cublas.WORKSPACE_BYTES
    halved = _split_beforehand(shape, dtype, precision)
    if isinstance(halved, Cut):
        return halved.scratch_bytes
    if halved is not None:
        return cublas.WORKSPACE_BYTES + halves_bytes(halved)
    split = split_bytes(shape, np.dtype(dtype))
    if split:
        return split if is_thin(shape, np.dtype(dtype)) else cublas.WORKSPACE_BYTES + split
    by_cublas = min(shape.sizes) and not _scatters(shape, np.dtype(dtype), check_precision(precision, dtype))
    return cublas.WORKSPACE_BYTES if by_cublas else 0


def _split_beforehand(shape: ContractShape, dtype: str, precision: str) -> Cut | HalfProductTiles | None:
    """How a product is cut whose operands are split into halves beforehand, one or both; None for others."""
    if check_precision(precision, dtype) != "fp16x3" or count_parts(shape, np.dtype(dtype)) > 1:
        return None
    return cut(shape, dtype) or tiles(shape, dtype)


def _row_tiles(shape: ContractShape, dtype: np.dtype[Any]) -> RowTiles | None:
    """How a product of many rows and few columns is cut, for the kernel of such: with operands that have k
    first, and where c has another order, but for single precision that `fma.cu` takes, which is all but
    complex64 with few columns and short sums. None for others.

    Measured on an H100, share of the copy's bandwidth (kernel, cuBLAS with copies of tiles), m = 2^22,
    complex64, k last: n = k = 8: 0.92, 0.32; k first: 0.92, 0.26; n = k = 16: 0.70, 0.31; complex128,
    m = 86400, n = k = 20, k first: 0.39, 0.26.
    """
    n_batch, m, n, k = shape.sizes
    fewer = min(m, n)
    is_few = dtype == np.complex64 and fewer <= FEW_COLUMNS and fewer * k <= FEW_PRODUCTS
    is_large = n_batch * (m * k + n * k + m * n) >= LARGE_PRODUCT
    is_slow = is_small(n_batch, m, n, k) or dtype.name in DOUBLE or (is_few and is_large)
    if not shape.k_first and (shape.direct is not None or not is_slow):
        return None
    return row_tiles(shape, dtype.itemsize)


def _has_thin_parts(shape: ContractShape, dtype: np.dtype[Any]) -> bool:
    """Whether a product has few results of a long sum, which a kernel forms in parts.

    It does so for operands with k first where that saves more than a second launch takes.
    """
    least = LONG_SUM_K_FIRST if shape.k_first else 0
    return shape.k >= least and count_parts(shape, dtype) > 1 and is_thin(shape, dtype)


def _scatters(shape: ContractShape, dtype: np.dtype[Any], precision: str) -> bool:
    """Whether a kernel writes every sum to its place: in fp16x3, and in fp32 where c has another order, or
    where it beats cuBLAS.

    Not for products that are small against its blocks, or too large for its indices; fp32 keeps what fp16x3
    promises there too.
    """
    n_batch, m, n, k = shape.sizes
    if 2 * k > LONGEST_ROW or max(m, n) > LONGEST_SIDE or is_small(n_batch, m, n, k):
        return False
    if n_batch > 1 and max(m, n) < SCATTERED_EXTENT:
        return False
    if precision == "fp32" and shape.direct is not None:
        return _beats_cublas(n_batch, m, n, k, dtype.kind == "c")
    return precision in ("fp16x3", "fp32")


def _beats_cublas(n_batch: int, m: int, n: int, k: int, is_complex: bool) -> bool:
    """Whether fma.cu is faster than cuBLAS where both write c as it is stored.

    Small products are left to cuBLAS, for which no kernel is compiled.

    Measured on an H200, microseconds (fma.cu, cuBLAS), batches of 1,024, m = 512, c as [m | n]. complex64,
    n = 64: k = 8 111, 148; 16 156, 196; 32 252, 250; n = 16: k = 16 55, 92; 64 163, 211; 512 1025, 1361;
    n = 8: k = 16 47, 90; 64 146, 208. float32, n = 64: k = 8 69, 79; 16 73, 95; 64 199, 192.
    """
    fewer = min(m, n)
    elements = n_batch * (m * k + n * k + m * n)
    if elements < LARGE_PRODUCT or fewer < 2 or k < 8:
        return False
    return (is_complex and fewer <= 16) or (k <= CUBLAS_TERMS and fewer > (16 if is_complex else 32))


def is_small(n_batch: int, m: int, n: int, k: int) -> bool:
    """Whether the kernel of small products beats cuBLAS.

    Measured on an H200, complex64, share of the copy's bandwidth (cuBLAS, kernel): batches of m = n = k = 2:
    0.01, 0.95; 4: 0.02, 0.92; 8: 0.10, 0.54; 16: 0.28, 0.08. One product, n = k = 2: 0.08, 0.82; 4: 0.15,
    0.79; 8: 0.30, 0.37; n = 8 and k = 16: 0.32, 0.14.
    """
    thin = min(m, n) > 1 and k > 1 and min(m, n) * k <= THIN_PRODUCT
    return thin or (n_batch > 1 and m * n * k <= SMALL_PRODUCT)


def bind_contract(product: Product, workspace: Array | None, precision: str, scratch: Array) -> Call:
    """Form a product; see `Device.bind_contract`.

    The workspace is a flat array of its type, `scratch` one of `scratch_bytes` bytes that the calls on a
    stream may share. Raises ValueError for a precision that the type does not have, or where a workspace is
    needed and missing.
    """
    shape, a, b, c, stream = product
    n_batch, m, n, k = shape.sizes
    dtype = c.dtype.name
    precision = check_precision(precision, dtype)
    # From here on in order of preference, each way for what it is fastest at. Invariant: `scratch_bytes`
    # decides by the same tests in the same order.
    if min(shape.sizes) == 0:
        return nothing if n_batch * m * n == 0 else bind_zero(c, stream)
    rows = _row_tiles(shape, c.dtype)
    if rows is not None:
        return bind_few_columns(rows, product)
    if shape.k_first and not _has_thin_parts(shape, c.dtype):
        cublas.handle(stream).use_workspace(scratch[: cublas.WORKSPACE_BYTES])
        return bind_k_first(product, workspace, precision)
    halved = _split_beforehand(shape, dtype, precision)
    if isinstance(halved, Cut) and (a.data.ptr | b.data.ptr) % READ_BYTES == 0:  # else by bind_scattered
        return bind_wgmma(halved, product, scratch)
    if isinstance(halved, HalfProductTiles):
        cublas.handle(stream).use_workspace(scratch[: cublas.WORKSPACE_BYTES])
        return bind_halves(halved, product, scratch[cublas.WORKSPACE_BYTES :])
    parts = count_parts(shape, c.dtype)
    if parts == 1 and _scatters(shape, c.dtype, precision):
        return bind_scattered(product, precision)
    # What no kernel takes in halves is multiplied in fp32, which is at least as exact.
    if precision == "fp16x3":
        precision = "fp32"
    if _has_thin_parts(shape, c.dtype):
        return bind_split(product, precision, scratch)
    direct = shape.direct
    if parts > 1 or direct is None or not is_small(n_batch, m, n, k):  # opening cuBLAS takes 0.3 s
        cublas.handle(stream).use_workspace(scratch[: cublas.WORKSPACE_BYTES])
    if parts > 1:
        return bind_split(product, precision, scratch[cublas.WORKSPACE_BYTES :])
    if direct is None:
        return bind_in_tiles(
            product, workspace, lambda extents, _: bind_product((*extents, k), dtype, precision, stream)
        )
    # c stored as [n | m] is the product with a and b exchanged.
    if direct == "nm":
        a, b, m, n = b, a, n, m
    multiply = bind_product((n_batch, m, n, k), dtype, precision, stream)
    addresses = a.data.ptr, b.data.ptr, c.data.ptr
    return lambda: multiply(*addresses)


def bind_product(sizes: tuple[int, int, int, int], dtype: str, precision: str, stream: Any) -> Multiply:
    """What multiplies a [batch | m | k] and b [batch | n | k] of sizes batch, m, n, k."""
    n_batch, m, n, k = sizes
    if is_small(*sizes):
        return _bind_small(sizes, dtype, stream)
    if n_batch == 1 and m == 1:
        return cublas.bind_vector_product(stream, n, k, dtype)
    if n_batch == 1 and n == 1:
        multiply = cublas.bind_vector_product(stream, m, k, dtype)
        return lambda a, b, c: multiply(b, a, c)
    return cublas.bind_product(stream, sizes, dtype, precision)


def _bind_small(sizes: tuple[int, int, int, int], dtype: str, stream: Any) -> Multiply:
    n_batch, m, n, k = sizes
    count = n_batch * m * n
    short = n_batch * max(m, n) * max(n, k) < SHORT_INDEX
    kernel = load_kernel(PRODUCTS_FILE, "products", products_defines(dtype, short))
    grid = (min(-(-count // PRODUCT_THREADS), PRODUCT_BLOCKS),)
    index = np.uint32 if short else np.uint64
    numbers = np.int64(count), index(m), index(n), np.int32(k)

    def run(a: int, b: int, c: int) -> None:
        addresses = np.uint64(a), np.uint64(b), np.uint64(c)
        kernel(grid, (PRODUCT_THREADS,), (*addresses, *numbers), stream=stream)

    return run


def products_defines(dtype: str, short: bool) -> dict[str, str | int]:
    """The definitions of products.cu; `short`: element numbers are below 2^31."""
    return {**number_defines(dtype), "INDEX": "unsigned" if short else "unsigned long long"}

"""Large products on the GPU as exact as fp32, by cuBLAS's half-precision products.

Rows of both operands are scaled and split into halves beforehand (kernels/halves.cu), tile by tile in scratch
memory; cuBLAS forms the three products as one; the sums are scaled back and written to their places. Faster
than mma.cu where every number is multiplied often enough to pay for its splitting. Knows one product.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.common.arrays import ALIGNMENT_BYTES, round_up
from tnplan.executor.device.cuda.contract import Product, cublas
from tnplan.executor.device.cuda.contract.scatter import offset_tables, spans, table_arguments
from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel
from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel
from tnplan.executor.device.protocols.device import Call, ContractShape
from tnplan.executor.device.protocols.output_tiling import innermost
from tnplan.executor.device.protocols.precision import BLOCK_REALS

Array = Any
"""A flat cupy.ndarray."""

FILE = Path(__file__).parent / "kernels" / "halves.cu"
LEAST_SIDE = 512
"""The fewest rows and columns."""
LEAST_SUM = 2048
"""The fewest reals of a row. Measured on an H100, complex64, TFLOP/s of this way and of mma.cu at k = n =
256: 73 and 108; 512: 115 and 113; 1024: 147 and 110; 4096: 149 and 103."""
GRANULE = 8
"""Rows are a multiple of so many reals, so that their halves are aligned for tensor cores."""
TERMS = 3
HALF_BYTES, REAL_BYTES, EXPONENT_BYTES = 2, 4, 4
ROWS_BYTES = 64 << 20
"""The halves of a tile's rows, at most."""
TILE_BYTES = 64 << 20
"""The sums of a tile, at most."""
COLUMNS_BYTES = 128 << 20
"""The halves of a tile's columns over the whole sum, at most."""
MOST_COLUMNS = 2048
NOWHERE = np.uint64(0)
"""An address that is set at every launch."""
FIRST_ROW = 4
"""The argument of `place` that is the first row; the first column is the next."""
THREADS = 256
WARPS = THREADS // 32
MOST_BLOCKS = 132 * 8


@dataclass(frozen=True)
class HalfProductTiles:
    """How a product is cut: whether the rows of the tile are those of a, extents of the product and of a
    tile, reals of an element and of a row."""

    m_rows: bool
    rows: int
    columns: int
    parts: int
    reals: int
    tile_rows: int
    tile_columns: int

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """First real and length of the blocks of a sum: longer ones are added in fp32."""
        return spans(self.reals, BLOCK_REALS)

    @property
    def sizes_bytes(self) -> list[int]:
        """Bytes of the halves of columns and of rows, of the sums, of exponents of columns and of rows."""
        halves = TERMS * HALF_BYTES
        sizes = (
            self.tile_columns * self.parts * self.reals * halves,
            self.tile_rows * min(BLOCK_REALS, self.reals) * halves,
            self.tile_rows * self.tile_columns * self.parts * REAL_BYTES,
            self.tile_columns * EXPONENT_BYTES,
            self.tile_rows * EXPONENT_BYTES,
        )
        return [round_up(size, ALIGNMENT_BYTES) for size in sizes]


def tiles(shape: ContractShape, dtype: str) -> HalfProductTiles | None:
    """The tiles of a product in fp16x3; None where this way does not serve, or does not pay."""
    n_batch, m, n, k = shape.sizes
    parts = 2 if dtype == "complex64" else 1
    reals = k * parts
    if n_batch != 1 or min(m, n) < LEAST_SIDE or reals < LEAST_SUM or reals % GRANULE:
        return None
    m_rows = innermost(shape.n) <= innermost(shape.m)
    rows, columns = (m, n) if m_rows else (n, m)
    most = COLUMNS_BYTES // (parts * reals * TERMS * HALF_BYTES)
    tile_columns = min(columns, MOST_COLUMNS, _power_of_two(most) if most else 0)
    if tile_columns < min(columns, LEAST_SIDE):
        return None
    fit = min(
        ROWS_BYTES // (min(BLOCK_REALS, reals) * TERMS * HALF_BYTES),
        TILE_BYTES // (tile_columns * parts * REAL_BYTES),
    )
    return HalfProductTiles(m_rows, rows, columns, parts, reals, min(rows, _power_of_two(fit)), tile_columns)


def halves_bytes(cut: HalfProductTiles) -> int:
    """The bytes of scratch memory beside cuBLAS's own."""
    return sum(cut.sizes_bytes)


def bind_halves(cut: HalfProductTiles, product: Product, scratch: Array) -> Call:
    """Form a product; `scratch` is a flat array of bytes, `halves_bytes` of them or more.

    The stream's cuBLAS handle has its workspace.
    """
    shape, a, b, c, stream = product
    sides = ((a, shape.m), (b, shape.n)) if cut.m_rows else ((b, shape.n), (a, shape.m))
    (left, of_rows), (right, of_columns) = sides
    # x = 2^e (h + l) with h and l in half precision, e one exponent a row: x x' is about l h' + h l' + h h',
    # three products with sums in fp32. They are one product of rows three times as long: [low | high | high]
    # on one side and [high | low | high] on the other, the small products first.
    tables = offset_tables(of_rows), offset_tables(of_columns)
    # Invariant: the regions of `sizes_bytes` lie one after the other in scratch memory, each aligned.
    others, plain, sums, column_exponents, row_exponents = map(
        int, np.cumsum((scratch.data.ptr, *cut.sizes_bytes[:-1]))
    )
    row_tiles, column_tiles = spans(cut.rows, cut.tile_rows), spans(cut.columns, cut.tile_columns)
    blocks = list(enumerate(cut.blocks))
    stride, row_bytes = np.int64(cut.reals), cut.reals * REAL_BYTES

    def launch(entry: str, count: int, *arguments: np.generic) -> BoundKernel:
        kernel = load_kernel(FILE, entry, halves_defines(cut.parts))
        return BoundKernel(kernel, min(count, MOST_BLOCKS), THREADS, arguments, 0, stream, (scratch, tables))

    def find(count: int, exponents: int) -> BoundKernel:
        return bind_exponents(0, cut.reals, count, exponents, cut.parts, stream)

    def split(entry: str, count: int, length: int, exponents: int, out: int) -> BoundKernel:
        sizes = np.int32(length), np.uint32(count)
        return launch(entry, count, NOWHERE, stride, *sizes, np.uint64(exponents), np.uint64(out))

    # Halves of all blocks of a sum are held for the columns of a tile, and used for all tiles of rows.
    def halves_of_columns(count: int, first: int) -> int:
        return others + count * cut.parts * first * TERMS * HALF_BYTES

    # Tiles have at most two heights and two widths: a launch for each, with addresses that are set when it
    # runs.
    heights, widths = ({count for _, count in side_tiles} for side_tiles in (row_tiles, column_tiles))
    find_rows = {count: find(count, row_exponents) for count in heights}
    find_columns = {count: find(count, column_exponents) for count in widths}
    split_rows = {
        (count, number): split("split_plain", count, length, row_exponents, plain)
        for count in heights for number, (_, length) in blocks
    }  # fmt: skip
    split_columns = {
        (count, number): split(
            "split_other", count, length, column_exponents, halves_of_columns(count, first)
        )
        for count in widths for number, (first, length) in blocks
    }  # fmt: skip
    products = {
        (rows, columns, number): cublas.bind_half_product(
            stream, rows, columns * cut.parts, length * TERMS, number > 0
        )
        for rows in heights for columns in widths for number, (_, length) in blocks
    }  # fmt: skip
    stores = {
        (rows, columns): launch(
            "place", rows, *map(np.uint64, (sums, row_exponents, column_exponents, c.data.ptr)),
            *map(np.uint32, (0, 0, rows, columns)), *table_arguments(tables),
        )
        for rows in heights for columns in widths
    }  # fmt: skip

    def run() -> None:
        # Columns outside: they are split once each, rows once for each tile of columns.
        for first_column, columns in column_tiles:
            start = right.data.ptr + first_column * row_bytes
            find_columns[columns].at(0, start)
            for number, (first, _) in blocks:
                split_columns[columns, number].at(0, start + first * REAL_BYTES)
            for first_row, rows in row_tiles:
                start = left.data.ptr + first_row * row_bytes
                find_rows[rows].at(0, start)
                for number, (first, _) in blocks:
                    split_rows[rows, number].at(0, start + first * REAL_BYTES)
                    # Block number 0 writes the sums, further ones add to them: each block is summed by
                    # itself, so that sums in fp32 stay short.
                    products[rows, columns, number](plain, halves_of_columns(columns, first), sums)
                store = stores[rows, columns]
                store.put(FIRST_ROW, first_row)
                store.at(FIRST_ROW + 1, first_column)

    return run


def bind_exponents(start: int, reals: int, rows: int, exponents: int, parts: int, stream: Any) -> BoundKernel:
    """Write at `exponents` what scales each of the rows of so many reals that begin at address `start`.

    Argument 0 is that address; `parts`: the reals of an element.
    """
    kernel = load_kernel(FILE, "row_exponents", halves_defines(parts))
    arguments = np.uint64(start), np.int64(reals), np.int32(reals), np.uint32(rows), np.uint64(exponents)
    return BoundKernel(kernel, min(-(-rows // WARPS), MOST_BLOCKS), THREADS, arguments, 0, stream)


def halves_defines(parts: int) -> dict[str, str | int]:
    """The definitions of halves.cu; `parts`: the reals of an element."""
    return {"COMPLEX": parts - 1}


def _power_of_two(most: int) -> int:
    """The largest power of two that is at most this, which is 1 or more."""
    return 1 << most.bit_length() - 1

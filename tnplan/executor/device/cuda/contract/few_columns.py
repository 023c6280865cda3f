"""Products of many rows and few columns on a GPU, whose modes lie in c in any order: few_columns.cu.

The products of gradients are such, with operands that are stored with k first. cuBLAS loses most of its rate
there, and copies of tiles would move all of c once more. Knows the modes of one product and its tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from cupy_backends.cuda.api import driver
from numpy.typing import NDArray

from tnplan.executor.device.cuda.contract import Product
from tnplan.executor.device.cuda.contract.scatter import multiprocessors
from tnplan.executor.device.cuda.copy.tiling import two_levels
from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel, on_device
from tnplan.executor.device.cuda.runtime.kernel_cache import cached_per_device, load_kernel, number_defines
from tnplan.executor.device.protocols.copy import Axis, offsets, row_major
from tnplan.executor.device.protocols.device import Call, ContractShape

Array = Any
"""A flat cupy.ndarray."""

FILE = Path(__file__).parent / "kernels" / "few_columns.cu"
MOST_COLUMNS, LONGEST_SUM = 32, 64
"""More columns take too many registers of a thread, longer sums too much time to read a row each thread."""
LEAST_TENSOR_PRODUCTS, TENSOR_WIDTHS, COLUMNS_BYTES = 36, (8, 12, 16, 20, 28, 32, 40, 52), 36 << 10
"""Multiplications of a row from which on tensor cores are worth their addresses; the columns of kernels, of
which more take too many registers; and the shared memory of the operand with few rows."""
MOST_GROUPS = 8
"""Of columns, where there are more than a tile has: each reads the rows again."""
MOST_BATCHES = 64
TILE_BYTES, MOST_ROWS, LEAST_ROWS = 40 << 10, 256, 32
"""Results of a tile, and its rows, each of which is one thread's."""
LEAST_TENSOR_ROWS, SMALL_SIDE = 8, 1 << 13
"""With tensor cores shorter sides may have tiles of fewer rows: other ways take two launches."""
WARP_ROWS, MOST_WARPS = 16, 4
"""With tensor cores: rows that a warp takes at once, and warps of a block."""
READ_BYTES = 16
RUN_BYTES = 128
"""Rows of a tile lie in a row in a until so many bytes are read from one place."""
SHARED_BYTES = 96 << 10
"""The most shared memory of a block: results of a tile, and the operand with few rows."""
GAP = 16
"""Results of a column in shared memory have a gap after so many, so that those that are a power of two apart
lie in different banks."""
SPAN = 1 << 32
"""Rows of a, and elements of c over which one tile spreads, are fewer."""


@dataclass(frozen=True)
class RowTiles:
    """How the rows of a product are cut into tiles.

    `inner` are the modes of a tile, `outer` those that number the tiles: extents, with the strides in rows of
    a and in elements of c. `swapped`: the rows are those of b. `tensor`: tensor cores multiply. `columns` are
    the modes of a tile too, `groups` those before them: extents and strides in c.
    """

    swapped: bool
    tensor: bool
    inner: tuple[Axis, ...]
    outer: tuple[Axis, ...]
    columns: tuple[tuple[int, int], ...]
    groups: tuple[tuple[int, int], ...]

    @property
    def rows(self) -> int:
        """The rows of a tile."""
        return prod(extent for extent, _, _ in self.inner)

    @property
    def column_step(self) -> int:
        """Elements of shared memory from one column of results to the next."""
        step = self.rows + self.rows // GAP + 1
        # Two rows of four columns, which lanes write together, lie in different banks.
        return step + (2 - step) % 8 if self.tensor else step

    @property
    def n_tiles(self) -> int:
        """The number of tiles."""
        return prod(extent for extent, _, _ in self.outer)

    @property
    def n_columns(self) -> int:
        """The columns of a tile."""
        return prod(extent for extent, _ in self.columns)

    @property
    def n_groups(self) -> int:
        """The number of groups of columns."""
        return prod(extent for extent, _ in self.groups)

    @property
    def width(self) -> int:
        """The columns that the kernel is compiled for."""
        return padded_columns(self.n_columns, self.tensor)

    @property
    def threads(self) -> int:
        """The threads of a block: one a row, or warps with equally many groups of rows."""
        if not self.tensor:
            return self.rows
        groups = -(-self.rows // WARP_ROWS)
        return 32 * -(-groups // -(-groups // MOST_WARPS))

    def shared_bytes(self, k: int, itemsize: int) -> int:
        """The shared memory of a block."""
        of_columns = columns_bytes(self.width, k, itemsize, self.tensor)
        return of_columns + self.column_step * self.width * itemsize


def padded_columns(n: int, tensor: bool) -> int:
    """The columns of a kernel for n: few kernels do all products."""
    if tensor:
        return next(width for width in TENSOR_WIDTHS if width >= n)
    return 2 if n <= 2 else -(-n // 4) * 4


def columns_bytes(width: int, k: int, itemsize: int, tensor: bool) -> int:
    """The shared memory of the operand with few rows: with tensor cores in fours of terms, with a gap."""
    return (-(-k // 4) * 4 * (width + 2) if tensor else k * width) * itemsize


@lru_cache(maxsize=1024)
def row_tiles(shape: ContractShape, itemsize: int) -> RowTiles | None:
    """How a product is cut for few_columns.cu; None for one that it does not take."""
    n_batch, m, n, k = shape.sizes
    if not min(shape.sizes):
        return None
    swapped = n > m
    long, short, name = (shape.n, shape.m, "b") if swapped else (shape.m, shape.n, "a")
    n_rows, n_columns = max(m, n), min(m, n)
    # Complex numbers of doubles alone have so many bytes.
    tensor = itemsize == np.dtype(np.complex128).itemsize and n_columns * k > LEAST_TENSOR_PRODUCTS
    most = MOST_COLUMNS if k <= LONGEST_SUM else 0
    if tensor:
        fitting = (each for each in TENSOR_WIDTHS if columns_bytes(each, k, itemsize, True) <= COLUMNS_BYTES)
        most = max(fitting, default=0)
    groups, columns = _last_modes(short, max(most, 1))
    tiles = RowTiles(swapped, tensor, (), (), columns, groups)
    most_groups = MOST_GROUPS if tensor and not shape.k_first else 1
    if tiles.n_groups > most_groups or not 1 <= n_batch <= MOST_BATCHES or tiles.n_columns < 2 or k < 2:
        return None
    # The results of a tile are in shared memory at once. With tensor cores four blocks share a
    # multiprocessor, of the widest three.
    tile_bytes = TILE_BYTES * 4 // 5 if tensor and tiles.width <= MOST_COLUMNS else TILE_BYTES
    wanted = min(MOST_ROWS, tile_bytes // itemsize // tiles.width)
    run = -(-RUN_BYTES // (itemsize if name in shape.k_first else itemsize * k))
    strides = row_major([extent for extent, _ in long])
    axes = [(extent, row, stride) for (extent, stride), row in zip(long, strides, strict=True) if extent > 1]
    inner, outer = _tile_axes(axes, run, wanted)
    tiles = replace(tiles, inner=tuple(inner), outer=tuple(outer))
    span = sum((extent - 1) * stride for extent, _, stride in inner)
    span += sum((extent - 1) * stride for extent, stride in columns)
    least = LEAST_ROWS
    if tensor:
        least = LEAST_TENSOR_ROWS if n_rows <= SMALL_SIDE else WARP_ROWS
    return tiles if tiles.rows >= least and max(n_rows, span) < SPAN else None


def _last_modes(
    modes: Sequence[tuple[int, int]], most: int
) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """The last modes, of `most` elements together at most, behind those before; one may be divided."""
    last: list[tuple[int, int]] = []
    for number in range(len(modes) - 1, -1, -1):
        extent, stride = modes[number]
        factor = _largest_divisor(extent, most // prod(each for each, _ in last))
        last.insert(0, (factor, stride))
        if factor < extent:
            return (*modes[:number], (extent // factor, stride * factor)), tuple(last)
    return (), tuple(last)


def _tile_axes(axes: Sequence[Axis], run: int, wanted: int) -> tuple[list[Axis], list[Axis]]:
    """Modes of a tile of `wanted` rows at most, and the others; a mode may be divided between both.

    First come those that are last in a, `run` rows of them, then those that are last in c.
    """
    left, inner, size = list(axes), list[Axis](), 1
    for side, most in ((1, min(run, wanted)), (2, wanted)):
        for axis in sorted(left, key=lambda entry: entry[side]):
            extent, row, stride = axis
            factor = _largest_divisor(extent, most // size)
            if factor == 1:
                continue
            size *= factor
            inner.append((factor, row, stride))
            left.remove(axis)
            if factor < extent:
                left.append((extent // factor, row * factor, stride * factor))
    inner.sort(key=lambda axis: -axis[1])
    left.sort(key=lambda axis: -axis[1])
    return inner, left


def _largest_divisor(number: int, most: int) -> int:
    return next(divisor for divisor in range(min(number, most), 0, -1) if number % divisor == 0)


def bind_few_columns(tiles: RowTiles, product: Product) -> Call:
    """Form a product by few_columns.cu."""
    shape, a, b, c, stream = product
    vector = READ_BYTES // c.itemsize
    a_step = operand_steps(shape)[tiles.swapped][1]
    if a_step != 1 or shape.k % vector or (b if tiles.swapped else a).data.ptr % READ_BYTES:
        vector = 1
    kernel = _kernel(c.dtype.name, tiles.width, vector, tiles.tensor)
    tables = _tables(tiles, shape.batch)
    shared_bytes = tiles.shared_bytes(shape.k, c.itemsize)
    # As many blocks as are at work at once: a later one would begin when the others have done all tiles.
    most = driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, tiles.threads, shared_bytes)
    most *= multiprocessors()
    parts = shape.sizes[0] * tiles.n_groups
    blocks = parts * min(tiles.n_tiles, -(-most // parts))
    arguments = [
        value if isinstance(value, np.generic) else np.uint64(value.data.ptr)
        for value in kernel_arguments(tiles, shape, (a, b, c), tables)
    ]
    return BoundKernel(kernel, blocks, tiles.threads, arguments, shared_bytes, stream, tables)


def kernel_arguments(
    tiles: RowTiles, shape: ContractShape, arrays: tuple[Array, Array, Array], tables: Sequence[Array]
) -> list[Any]:
    """What few_columns.cu takes, in its order: a, b, c and the tables of `all_tables` among numbers."""
    n_batch, m, n, k = shape.sizes
    *operands, c = arrays
    sides = list(zip(operands, (m, n), operand_steps(shape), strict=True))
    (rows, n_rows, row_steps), (columns, _, column_steps) = sides[:: -1 if tiles.swapped else 1]
    *places, row_high, row_low, place_high, place_low = tables
    return [
        rows, *map(np.int64, (n_rows * k, *row_steps)),
        columns, np.int64(tiles.n_columns * k), *map(np.int32, column_steps),
        c, *map(np.uint32, (n_batch * tiles.n_groups, tiles.n_groups)),
        *map(np.int32, (tiles.n_columns, k, tiles.rows, tiles.column_step)),
        np.uint32(tiles.n_tiles), *places,
        row_high, row_low, np.uint32(len(row_low)), place_high, place_low, np.uint32(len(place_low)),
    ]  # fmt: skip


@cached_per_device
def _kernel(dtype: str, columns: int, vector: int, tensor: bool) -> Any:
    """The kernel with these constants on the current device."""
    kernel = load_kernel(FILE, "few_columns", few_columns_defines(dtype, columns, vector, tensor))
    kernel.max_dynamic_shared_size_bytes = SHARED_BYTES
    return kernel


def operand_steps(shape: ContractShape) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of a and b: elements from one row to the next, and from one term of a sum to the next."""
    _, m, n, k = shape.sizes
    return ((1, m) if "a" in shape.k_first else (k, 1), (1, n) if "b" in shape.k_first else (k, 1))


def few_columns_defines(dtype: str, columns: int, vector: int, tensor: bool) -> dict[str, str | int]:
    """Of few_columns.cu: columns, elements of a row that a thread reads at once, and tensor cores or not."""
    blocks = (4 if columns <= MOST_COLUMNS else 3) if tensor else 1
    return {
        **number_defines(dtype), "THREADS": 32 * MOST_WARPS if tensor else MOST_ROWS, "BLOCKS": blocks,
        "TENSOR": int(tensor), "COLUMNS": columns, "VECTOR": vector, "GAP": GAP,
    }  # fmt: skip


def all_tables(tiles: RowTiles, batch: tuple[tuple[int, int], ...]) -> list[NDArray[Any]]:
    """Those of `tile_tables`, the places in c of each group of each batch, and those of `first_tables`."""
    parts = offsets([(extent, 0, stride) for extent, stride in (*batch, *tiles.groups)], 2).astype(np.int64)
    return [*tile_tables(tiles), parts, *(table for pair in first_tables(tiles) for table in pair)]


def tile_tables(tiles: RowTiles) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    """The rows of a tile in a; then of its results, in the order of c, the slots in shared memory and the
    places in c."""
    rows, strides = offsets(tiles.inner, 1), offsets(tiles.inner, 2)
    across = offsets([(extent, 0, stride) for extent, stride in tiles.columns], 2)
    numbers = np.arange(tiles.rows)
    slots = np.arange(len(across))[:, None] * tiles.column_step + numbers + numbers // GAP
    in_c = (across[:, None] + strides).ravel()
    # Results leave shared memory in the order of c, so that a warp writes neighbours.
    order = np.argsort(in_c)
    return rows.astype(np.uint32), slots.ravel()[order].astype(np.uint32), in_c[order].astype(np.uint32)


def first_tables(tiles: RowTiles) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The first row in a and the first place in c of every tile, each as the two tables of a `Part`."""
    high, low = two_levels(tiles.outer)
    return [(offsets(high, side).astype(np.int64), offsets(low, side).astype(np.int64)) for side in (1, 2)]


@cached_per_device
def _tables(tiles: RowTiles, batch: tuple[tuple[int, int], ...]) -> list[Array]:
    """The tables of tiles on the current device."""
    return on_device(*all_tables(tiles, batch))

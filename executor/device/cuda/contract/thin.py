"""Products of many rows and few columns on a GPU, whose modes lie in c in any order: thin_rows.cu.

The products of gradients are such, with operands that are stored with k first. cuBLAS loses most of its rate
there, and copies of tiles of c would read and write c once more. Knows the modes of one product and its tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.cuda.contract.scatter import table_arguments
from tnplan.executor.device.cuda.copy.tiling import two_levels
from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel
from tnplan.executor.device.cuda.runtime.kernel_cache import cached_per_device, load_kernel, number_defines
from tnplan.executor.device.protocols.copy import Axis, offsets, row_major
from tnplan.executor.device.protocols.device import Call, ContractShape

Array = Any
"""A flat cupy.ndarray."""

FILE = Path(__file__).parent / "kernels" / "thin_rows.cu"
MOST_COLUMNS, LONGEST_SUM = 32, 64
"""More columns take too many registers of a thread, longer sums too much shared memory."""
TILE_BYTES, MOST_ROWS, LEAST_ROWS = 32 << 10, 256, 64
"""Results of a tile, and its rows, each of which is one thread's."""
READ_BYTES = 16
RUN_BYTES = 128
"""Rows of a tile lie in a row in a until so many bytes are read from one place."""
SHARED_BYTES = 64 << 10
"""The most shared memory of a block: results of a tile, and the operand with few rows."""
MOST_BLOCKS = 132 * 8
SPAN = 1 << 32
"""Rows of a, and elements of c over which one tile spreads, are fewer."""


@dataclass(frozen=True)
class ThinTiles:
    """How the rows of a product are cut into tiles.

    `inner` are the modes of a tile, `outer` those that number the tiles: extents with the strides in rows of a
    and in elements of c. `swapped`: the rows are those of b.
    """

    swapped: bool
    inner: tuple[Axis, ...]
    outer: tuple[Axis, ...]
    columns: tuple[tuple[int, int], ...]

    @property
    def rows(self) -> int:
        """The rows of a tile."""
        return prod(extent for extent, _, _ in self.inner)

    @property
    def n_tiles(self) -> int:
        """The number of tiles."""
        return prod(extent for extent, _, _ in self.outer)

    @property
    def width(self) -> int:
        """The columns, as the power of two that the kernel is compiled for."""
        return column_room(prod(extent for extent, _ in self.columns))


def column_room(n: int) -> int:
    """The least power of two that is n or more."""
    return 1 << (n - 1).bit_length()


@lru_cache(maxsize=1024)
def thin_tiles(shape: ContractShape, itemsize: int) -> ThinTiles | None:
    """How a product is cut for thin_rows.cu; None for one that it does not take."""
    n_batch, m, n, k = shape.sizes
    swapped = n > m
    long, short, name = (shape.n, shape.m, "b") if swapped else (shape.m, shape.n, "a")
    n_rows, n_columns = max(m, n), min(m, n)
    if n_batch != 1 or not 1 < n_columns <= MOST_COLUMNS or not 1 < k <= LONGEST_SUM:
        return None
    wanted = min(MOST_ROWS, TILE_BYTES // itemsize // column_room(n_columns))
    run = -(-RUN_BYTES // (itemsize if name in shape.k_first else itemsize * k))
    strides = row_major([extent for extent, _ in long])
    axes = [(extent, row, place) for (extent, place), row in zip(long, strides, strict=True) if extent > 1]
    inner, outer = _tile_axes(axes, run, wanted)
    found = ThinTiles(swapped, tuple(inner), tuple(outer), tuple(short))
    span = sum((extent - 1) * place for extent, _, place in inner)
    span += sum((extent - 1) * place for extent, place in short)
    is_whole = found.rows * found.n_tiles == n_rows
    fits = found.rows >= LEAST_ROWS and max(n_rows, span) < SPAN
    return found if is_whole and fits else None


def _tile_axes(axes: Sequence[Axis], run: int, wanted: int) -> tuple[list[Axis], list[Axis]]:
    """Modes of a tile of `wanted` rows at most, and the others; a mode may be divided between both.

    First come those that are last in a, `run` rows of them, then those that are last in c.
    """
    left = list(axes)
    inner: list[Axis] = []
    size = 1
    for by_row, most in ((True, min(run, wanted)), (False, wanted)):
        while left and size < most:
            best = min(left, key=lambda axis: axis[1 if by_row else 2])
            part = _largest_divisor(best[0], most // size)
            if part == 1:
                break
            extent, row, place = best
            left.remove(best)
            if part < extent:
                left.append((extent // part, row * part, place * part))
            inner.append((part, row, place))
            size *= part
    inner.sort(key=lambda axis: -axis[1])
    left.sort(key=lambda axis: -axis[1])
    return inner, left


def _largest_divisor(number: int, most: int) -> int:
    return next(one for one in range(min(number, most), 0, -1) if number % one == 0)


def bind_thin_rows(
    tiles: ThinTiles, shape: ContractShape, a: Array, b: Array, c: Array, stream: Any
) -> Call:  # fmt: skip
    """c = the sum over k of a times b, stored as `shape` says."""
    _, m, n, k = shape.sizes
    names = "ab"
    if tiles.swapped:
        a, b, m, n, names = b, a, n, m, "ba"
    k_first = names[0] in shape.k_first, names[1] in shape.k_first
    vector = READ_BYTES // c.itemsize
    if k_first[0] or k % vector or a.data.ptr % READ_BYTES:
        vector = 1
    kernel = load_kernel(
        FILE, "thin_rows", thin_rows_defines(c.dtype.name, (tiles.rows, tiles.width), vector, k_first)
    )
    tables, outer = _on_device(tiles)
    shared_bytes = (k + tiles.rows + 1) * tiles.width * c.itemsize
    kernel.max_dynamic_shared_size_bytes = SHARED_BYTES
    arguments: list[np.generic] = [
        *(np.uint64(one.data.ptr) for one in (a, b, c)), np.int64(m), np.int32(n), np.int32(k),
        np.uint32(tiles.n_tiles), *(np.uint64(one.data.ptr) for one in tables), *table_arguments(outer),
    ]  # fmt: skip
    blocks = min(tiles.n_tiles, MOST_BLOCKS)
    return BoundKernel(kernel, blocks, tiles.rows, arguments, shared_bytes, stream, (tables, outer))


def thin_rows_defines(
    dtype: str, tile: tuple[int, int], vector: int, k_first: tuple[bool, bool]
) -> dict[str, str | int]:
    """Of thin_rows.cu: rows and columns of a tile, elements of a row that are read at once, and which of the
    two operands are stored with k first."""
    return {
        **number_defines(dtype), "ROWS": tile[0], "COLUMNS": tile[1], "VECTOR": vector,
        "A_K_FIRST": int(k_first[0]), "B_K_FIRST": int(k_first[1]),
    }  # fmt: skip


def tile_tables(tiles: ThinTiles) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    """The rows of a tile in a; then of its results, in the order of c, the slot in shared memory and the place
    in c."""
    rows, places = offsets(tiles.inner, 1), offsets(tiles.inner, 2)
    across = offsets([(extent, 0, place) for extent, place in tiles.columns], 2)
    slots = np.arange(len(across))[:, None] * (tiles.rows + 1) + np.arange(tiles.rows)
    in_c = (across[:, None] + places).ravel()
    order = np.argsort(in_c)
    return rows.astype(np.uint32), slots.ravel()[order].astype(np.uint32), in_c[order].astype(np.uint32)


def first_tables(tiles: ThinTiles) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The first row in a and the first place in c of every tile, each as the two tables of a `Part`."""
    high, low = two_levels(tiles.outer)
    return [
        (offsets(high, side).astype(np.int64), offsets(low, side).astype(np.int64)) for side in (1, 2)
    ]


@cached_per_device
def _on_device(tiles: ThinTiles) -> tuple[list[Array], list[tuple[Array, Array]]]:
    """The tables of tiles on the current device."""
    found = (
        [cupy.asarray(one) for one in tile_tables(tiles)],
        [(cupy.asarray(high), cupy.asarray(low)) for high, low in first_tables(tiles)],
    )
    cupy.cuda.get_current_stream().synchronize()
    return found

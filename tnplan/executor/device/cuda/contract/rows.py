"""Products of pairs of rows on a GPU: rows.cu, or cuBLAS by the addresses of rows where these are large.

The steps of many bit strings at once are such products. Knows the modes of one product and its pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.cuda.contract import cublas
from tnplan.executor.device.cuda.contract.scatter import multiprocessors, offset_tables, table_arguments
from tnplan.executor.device.cuda.copy.permute import bind_placed
from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel, on_device
from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel, number_defines
from tnplan.executor.device.protocols.copy import make_copy, row_major
from tnplan.executor.device.protocols.device import Call, RowShape, call_in_turn, nothing
from tnplan.executor.device.protocols.precision import check_precision

Array = Any
"""A flat cupy.ndarray."""

FILE = Path(__file__).parent / "kernels" / "rows.cu"
CHUNK_BYTES = 128
"""Of a row in shared memory at once: a line."""
BLOCKS_A_MULTIPROCESSOR = 8
SUM_THREADS, WARP, LONG_SUM = 256, 32, 64
"""Threads of a block of `row_sums`; terms from which on a warp forms each sum."""
READ_WORK, SHARED_WORK, SUM_WORK = 4, 0.5, 6
"""What reading a term counts, in multiply-adds of a tile, from memory and from shared memory; and what a
multiply-add does whose factors are read for it. Estimates."""
LEAST_MATRIX, LEAST_TERMS = 32, 16
"""m and n, and k, from which on cuBLAS multiplies pairs of rows: its batches reach their rate there."""


class TileShape(NamedTuple):
    """Rows and columns of a tile that a thread sums, threads of a block along both."""

    rows: int
    columns: int
    down: int
    across: int

    @property
    def extents(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        return self.rows * self.down, self.columns * self.across


TILES = (
    TileShape(4, 4, 16, 16), TileShape(4, 4, 8, 32), TileShape(2, 4, 4, 64), TileShape(4, 2, 32, 8),
    TileShape(2, 2, 16, 16),
)  # fmt: skip


class Operands(NamedTuple):
    """A product, operand `s` first: that whose rows are shared by a tile. `swapped`: it is b."""

    swapped: bool
    m: int
    n: int
    pairs: NDArray[np.int32]
    """The rows of both that make each row of c, int32 [row, 2], that of s first."""


@dataclass(frozen=True)
class RowWay:
    """How pairs are multiplied: by tiles, or each sum by itself where there are none."""

    swapped: bool
    tile: TileShape | None
    work: float


def row_way(shape: RowShape, pairs: NDArray[np.int32]) -> RowWay:
    """The kernel of least work, in multiply-adds of all tiles and reads."""
    n_batch, m, n, k = shape.each.sizes
    best = RowWay(False, None, float(len(pairs)) * n_batch * m * n * k * SUM_WORK)
    for swapped in (False, True):
        given = operands(shape, pairs, swapped)
        counts = np.bincount(given.pairs[:, 0])
        for tile in TILES:
            across = chunk_pairs(tile, given.n)
            chunks = int((-(-counts // across)).sum())
            bm, bn = tile.extents
            n_tiles = float(chunks) * n_batch * -(-given.m // bm) * -(-across * given.n // bn)
            each = 1 + SHARED_WORK * (1 / tile.rows + 1 / tile.columns)
            work = n_tiles * k * (bm * bn * each + READ_WORK * (bm + bn))
            if work < best.work:
                best = RowWay(swapped, tile, work)
    return best


def operands(shape: RowShape, pairs: NDArray[np.int32], swapped: bool) -> Operands:
    """The product, with b for s where `swapped`."""
    _, m, n, _ = shape.each.sizes
    return Operands(True, n, m, pairs[:, ::-1]) if swapped else Operands(False, m, n, pairs)


def chunk_pairs(tile: TileShape, n: int) -> int:
    """Pairs of a chunk: as many as a tile has columns for, at least one."""
    return max(1, tile.extents[1] // n)


def chunk_tables(pairs: NDArray[np.int32], across: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Of each chunk of `across` pairs at most the row of s, the first pair and how many, int32 [chunk, 4]; of
    each pair, sorted by the row of s, the rows of g and of c, int32 [pair, 2]."""
    order = np.argsort(pairs[:, 0], kind="stable")
    shared = pairs[order, 0]
    starts = np.flatnonzero(np.diff(shared, prepend=-1))
    rows, counts = shared[starts], np.diff(starts, append=len(shared))
    of_group = -(-counts // across)  # chunks of each row of s
    group = np.repeat(np.arange(len(rows)), of_group)
    within = np.arange(len(group)) - np.repeat(np.cumsum(of_group) - of_group, of_group)
    chunks = np.zeros((len(group), 4), np.int32)
    chunks[:, 0] = rows[group]
    chunks[:, 1] = starts[group] + within * across
    chunks[:, 2] = np.minimum(counts[group] - within * across, across)
    return chunks, np.stack((pairs[order, 1], order), axis=1).astype(np.int32)


def bind_rows(
    shape: RowShape, pairs: NDArray[np.int32], arrays: tuple[Array, Array, Array], workspace: Array | None,
    precision: str, stream: Any, scratch: Array | None,
) -> Call:  # fmt: skip
    """Form the products; see `RowDevice.bind_rows`. `arrays` are a, b and c.

    `scratch` is cuBLAS's workspace, which the calls on a stream may share; without it no product is left to
    cuBLAS.
    """
    n_batch, m, n, _ = shape.each.sizes
    if not len(pairs) * n_batch * m * n:
        return nothing
    precision = check_precision(precision, arrays[2].dtype.name)
    if scratch is not None and by_cublas(shape):
        cublas.handle(stream).use_workspace(scratch[: cublas.WORKSPACE_BYTES])
        return _bind_cublas(shape, pairs, arrays, workspace, precision, stream)
    # rows.cu multiplies in fp32, which is at least as exact as tf32 and fp16x3.
    way = row_way(shape, pairs)
    if way.tile is None:
        return _bind_sums(shape, pairs, arrays, stream)
    return _bind_tiles(shape, operands(shape, pairs, way.swapped), way.tile, arrays, stream)


def by_cublas(shape: RowShape) -> bool:
    """Whether cuBLAS multiplies each pair of rows, from their addresses."""
    _, m, n, k = shape.each.sizes
    return min(m, n) >= LEAST_MATRIX and k >= LEAST_TERMS


def _bind_tiles(
    shape: RowShape, given: Operands, tile: TileShape, arrays: tuple[Array, Array, Array], stream: Any
) -> Call:
    (a, b, c), (n_batch, _, _, k) = arrays, shape.each.sizes
    across = chunk_pairs(tile, given.n)
    chunks, pairs = on_device(*chunk_tables(given.pairs, across))
    bm, bn = tile.extents
    m_tiles, n_tiles = -(-given.m // bm), -(-across * given.n // bn)
    n_blocks = len(chunks) * n_batch * m_tiles * n_tiles
    kernel = load_kernel(FILE, "row_tiles", rows_defines(c.dtype.name, tile))
    s, g, *places, tables = _sides(shape, given.swapped, a, b)
    arguments = [
        *(np.uint64(array.data.ptr) for array in (s, g, c, chunks, pairs)), np.uint64(n_blocks),
        *map(np.uint32, (m_tiles, n_tiles, n_batch, given.m, given.n)), np.int32(k),
        np.int64(shape.row_stride), *places,
    ]  # fmt: skip
    grid = min(n_blocks, BLOCKS_A_MULTIPROCESSOR * multiprocessors())
    threads = tile.down * tile.across
    return BoundKernel(kernel, grid, threads, arguments, 0, stream, (chunks, pairs, tables))


def _bind_sums(
    shape: RowShape, pairs: NDArray[np.int32], arrays: tuple[Array, Array, Array], stream: Any
) -> Call:
    (a, b, c), (n_batch, m, n, k) = arrays, shape.each.sizes
    lanes = WARP if k >= LONG_SUM else 1
    kernel = load_kernel(FILE, "row_sums", rows_defines(c.dtype.name, TILES[0], lanes))
    (on_gpu,) = on_device(np.ascontiguousarray(pairs, np.int32))
    s, g, *places, tables = _sides(shape, False, a, b)
    count = len(pairs) * n_batch * m * n
    arguments = [
        *(np.uint64(array.data.ptr) for array in (s, g, c, on_gpu)), np.uint64(count),
        *map(np.uint32, (n_batch, m, n)), np.int32(k), np.int64(shape.row_stride), *places,
    ]  # fmt: skip
    grid = min(-(-count * lanes // SUM_THREADS), BLOCKS_A_MULTIPROCESSOR * multiprocessors())
    return BoundKernel(kernel, grid, SUM_THREADS, arguments, 0, stream, (on_gpu, tables))


def _sides(shape: RowShape, swapped: bool, a: Array, b: Array) -> list[Any]:
    """s and g, what the kernels take of their places in c, and the tables that these name."""
    sides = [(a, shape.each.m), (b, shape.each.n)][:: -1 if swapped else 1]
    tables = [offset_tables(modes) for modes in (shape.each.batch, sides[0][1], sides[1][1])]
    return [sides[0][0], sides[1][0], *table_arguments(tables), tables]


def rows_defines(dtype: str, tile: TileShape, lanes: int = 1) -> dict[str, str | int]:
    """Of rows.cu."""
    depth = CHUNK_BYTES // np.dtype(dtype).itemsize
    return {
        **number_defines(dtype), "ROWS": tile.rows, "COLUMNS": tile.columns, "DOWN": tile.down,
        "ACROSS": tile.across, "DEPTH": depth, "LANES": lanes,
    }  # fmt: skip


def _bind_cublas(
    shape: RowShape, pairs: NDArray[np.int32], arrays: tuple[Array, Array, Array], workspace: Array | None,
    precision: str, stream: Any,
) -> Call:  # fmt: skip
    """By cuBLAS: all pairs at once where c has their rows as they come, else as many as the workspace holds,
    which are then copied to their places."""
    (a, b, c), (n_batch, m, n, k) = arrays, shape.each.sizes
    precision = "fp32" if precision == "fp16x3" else precision
    at_once = len(pairs)
    order = shape.plain_order
    if order is None:
        assert workspace is not None
        at_once = min(len(pairs), len(workspace) // (n_batch * m * n))
        if not at_once:
            raise ValueError("the workspace does not hold the product of one pair of rows")
    batch = np.arange(n_batch)
    first, second = (
        (base.data.ptr + base.itemsize * rows * k * (n_batch * pairs[:, side, None].astype(np.int64) + batch))
        for side, (base, rows) in enumerate(((a, m), (b, n)))
    )
    result = c if order is not None else workspace
    assert result is not None
    places = result.data.ptr + c.itemsize * m * n * np.arange(
        n_batch * (len(pairs) if order is not None else at_once)
    )
    tables = on_device(*(table.reshape(-1).astype(np.uint64) for table in (first, second, places)))
    given, (rows, columns) = list(tables[:2]), (m, n)
    if order == "nm":
        given, rows, columns = given[::-1], n, m
    calls: list[Call] = []
    placings: dict[int, Callable[[int], None]] = {}
    for start in range(0, len(pairs), at_once):
        count = min(at_once, len(pairs) - start)
        multiply = cublas.bind_addressed(stream, (count * n_batch, rows, columns, k), c.dtype.name, precision)
        skipped = 8 * start * n_batch
        left, right = (table.data.ptr + skipped for table in given)
        calls.append(partial(multiply, left, right, tables[2].data.ptr))
        if order is None:
            if count not in placings:
                placings[count] = _bind_placing(shape, (c, result), count, stream)
            calls.append(partial(placings[count], start * shape.row_stride))
    run = call_in_turn(calls)
    held = partial(run)  # the launches know addresses alone: this keeps the tables
    held.__dict__["tables"] = tables
    return held


def _bind_placing(
    shape: RowShape, arrays: tuple[Array, Array], count: int, stream: Any
) -> Callable[[int], None]:
    """The copy of `count` products from the workspace to c, called with the place of the first row."""
    c, products = arrays
    modes = ((count, shape.row_stride), *shape.each.batch, *shape.each.m, *shape.each.n)
    stored = row_major([extent for extent, _ in modes])
    axes = [(extent, source, target) for (extent, target), source in zip(modes, stored, strict=True)]
    return bind_placed(c, products, make_copy(axes), shape.row_stride, stream)

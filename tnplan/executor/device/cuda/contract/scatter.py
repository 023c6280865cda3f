"""Contractions whose kernels write each sum to its place in c, whatever the order: fma.cu and mma.cu.

Knows the modes of one contraction and the blocks of its product. There is no workspace: results go from
registers to c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from tnplan.executor.device.cuda.contract import Product
from tnplan.executor.device.cuda.copy.tiling import two_levels
from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel, on_device
from tnplan.executor.device.cuda.runtime.kernel_cache import cached_per_device, load_kernel
from tnplan.executor.device.protocols.copy import offsets
from tnplan.executor.device.protocols.device import Call, call_in_turn
from tnplan.executor.device.protocols.precision import BLOCK_REALS

Array = Any
"""A flat cupy.ndarray."""

KERNELS = Path(__file__).parent / "kernels"
MMA_CHUNK = 32
"""Reals of a row that mma.cu holds at once, as two halves of two bytes, in two stages."""
FMA_THREADS = 256
MOST_BLOCKS = 2**31 - 1
LONGEST_ROW = 2**22
"""Reals of a row, so that the rows that a thread reads lie less than 4 GiB apart."""
LONGEST_SIDE = 2**31 - 2**9
"""Most rows and columns, so that the number of a row, in a last block that is not full, is an int."""
SHORT_SUM = 32
"""Terms of a sum up to which the results take about as long to write as to add up."""
FEW_TILES = 64
"""Tiles of 128 x 64 that leave half of the multiprocessors idle: smaller ones are then faster."""


@dataclass(frozen=True)
class BlockShape:
    """A kernel and how it cuts the product: rows and columns of a block of threads, shared memory besides."""

    file: Path
    block_m: int
    block_n: int
    threads: int
    shared_bytes: int
    longest_sum: int
    """Reals of a row that one launch sums."""
    defines: tuple[tuple[str, int], ...]
    persistent_blocks: int = 0
    """Blocks a multiprocessor that form one tile after another; 0: there is a block for each tile."""


def mma_blocking(block_m: int, block_n: int) -> BlockShape:
    """Three half-precision products on tensor cores: rows and columns of a block; a warp has 32 of each."""
    threads = block_m // 32 * (block_n // 32) * 32
    shared_bytes = 2 * 2 * 2 * MMA_CHUNK * (block_m + block_n)
    defines = (("BM", block_m), ("BN", block_n), ("WM", 32), ("WN", 32), ("BLOCKS", 3))
    return BlockShape(KERNELS / "mma.cu", block_m, block_n, threads, shared_bytes, BLOCK_REALS, defines)


def fma_blocking(
    rows: int, columns: int, across: int, blocks: int, chunk: int = 16, persistent: bool = True
) -> BlockShape:
    """fp32 multiply-adds: rows and columns of a thread, threads along the columns, reals held of a row."""
    block_m, block_n = rows * FMA_THREADS // across, columns * across
    defines = (
        ("ROWS", rows), ("COLUMNS", columns), ("ACROSS", across), ("CHUNK", chunk), ("BLOCKS", blocks),
        ("PERSISTENT", int(persistent)),
    )  # fmt: skip
    file, n_persistent = KERNELS / "fma.cu", blocks if persistent else 0
    return BlockShape(file, block_m, block_n, FMA_THREADS, 0, LONGEST_ROW, defines, n_persistent)


def blocking(precision: str, sizes: tuple[int, int, int, int], is_complex: bool) -> BlockShape:
    """The blocks for a product of these sizes (batch, m, n, k), n <= m, in fp32 or fp16x3.

    Measured on an H200, complex64, TFLOP/s at k = n = 64, 128, 256, 1024. fp16x3: blocks of 64 x 64, three a
    multiprocessor, 74, 89, 108, 116; 128 x 128 of 8 warps 81, 94, 93 from 128 on; 128 x 64 64, 81, 98, 102.
    fp32: 128 x 64 37, 43, 46, 48. At k = 256, n = 32: 128 x 32, three a multiprocessor, 41, 256 x 32 36;
    n = 16: 128 x 16, 32 reals held, four a multiprocessor, 35.8, 16 reals held, six, 29.2. Persistent
    blocks, and short sums, in benchmarks/notes/gpu.md.
    """
    n_batch, m, n, k = sizes
    if precision == "fp16x3":
        return mma_blocking(128, 32) if n <= 32 else mma_blocking(64, 64)
    if n <= 32:
        return _narrow(m, n, k) if is_complex else fma_blocking(4, 4, 8, 3)
    if max(m, n) <= 64 or n_batch * -(-m // 128) * -(-n // 64) <= FEW_TILES:
        return fma_blocking(4, 4, 16, 3)
    return fma_blocking(8, 8, 16, 2) if n > 64 and not is_complex else fma_blocking(8, 4, 16, 2)


def _narrow(m: int, n: int, k: int) -> BlockShape:
    """The blocks for 32 columns or fewer of complex numbers."""
    if n <= 8 and k <= SHORT_SUM:
        return fma_blocking(4, 2, 4, 4)
    if n <= 16:
        return fma_blocking(2 if m <= 64 else 4, 2, 8, 4, 32, persistent=False)
    return fma_blocking(8, 2, 16, 2) if k <= SHORT_SUM // 2 else fma_blocking(4, 4, 8, 3, persistent=False)


def transposed(blocks: BlockShape) -> BlockShape:
    """Square blocks of threads with as many columns each as they had rows, and as many rows as columns."""
    sizes = dict(blocks.defines)
    return fma_blocking(sizes["COLUMNS"], sizes["ROWS"], sizes["ACROSS"], sizes["BLOCKS"], sizes["CHUNK"])


def bind_scattered(product: Product, precision: str) -> Call:
    """Form a product in fp32 or fp16x3, of float32 or complex64; no extent is zero.

    Raises ValueError where the product is too large.
    """
    shape, a, b, c, stream = product
    n_batch, m, n, k = shape.sizes
    m_modes, n_modes = shape.m, shape.n
    # n is the shorter side from here on: kernels have wide blocks along m.
    if n > m:
        a, b, m, n, m_modes, n_modes = b, a, n, m, n_modes, m_modes
    parts = 2 if c.dtype.kind == "c" else 1
    reals = k * parts
    blocks = blocking(precision, (n_batch, m, n, k), parts == 2)
    rows_follow = any(extent > 1 and stride == 1 for extent, stride in m_modes)
    if rows_follow and precision == "fp32" and n > 32 and (k <= SHORT_SUM or parts == 1):
        # Threads follow each other along columns: if these follow each other in c, warps write whole lines.
        a, b, m, n, m_modes, n_modes, blocks = b, a, n, m, n_modes, m_modes, transposed(blocks)
    m_tiles, n_tiles = -(-m // blocks.block_m), -(-n // blocks.block_n)
    n_blocks = n_batch * m_tiles * n_tiles
    if reals > LONGEST_ROW or max(m, n) > LONGEST_SIDE or n_blocks > MOST_BLOCKS:
        raise ValueError(f"batch {n_batch}, m {m}, n {n}, k {k} is too large for {blocks.file.name}")
    # Reads of 16 bytes only where all rows begin on such a boundary.
    vector = 4 if reals % 4 == 0 and (a.data.ptr | b.data.ptr) % 16 == 0 else parts
    tables = [offset_tables(modes) for modes in (shape.batch, m_modes, n_modes)]
    table_values = table_arguments(tables)
    calls: list[Call] = []
    # A longer sum takes several launches, of which all but the first add to c.
    for first in range(0, reals, blocks.longest_sum):
        arguments: list[np.generic] = [
            np.uint64(a.data.ptr + 4 * first), np.uint64(b.data.ptr + 4 * first), np.uint64(c.data.ptr),
            np.int64(reals), np.int32(min(blocks.longest_sum, reals - first)),
            *map(np.uint32, (m, n, m_tiles, n_tiles)), *table_values,
        ]  # fmt: skip
        kernel = _kernel(blocks, parts, vector, first > 0)
        if precision == "fp32":
            arguments.append(np.uint32(n_blocks))
        grid = n_blocks
        if blocks.persistent_blocks:
            grid = min(n_blocks, blocks.persistent_blocks * multiprocessors())
        launch = BoundKernel(kernel, grid, blocks.threads, arguments, blocks.shared_bytes, stream, tables)
        calls.append(launch)
    return call_in_turn(calls)


def multiprocessors() -> int:
    """Those of the current device."""
    return int(cupy.cuda.Device().attributes["MultiProcessorCount"])


def contract_defines(blocks: BlockShape, parts: int, vector: int, add: bool) -> dict[str, str | int]:
    """The definitions of the kernel of a blocking; `parts`: the reals of an element."""
    return {**dict(blocks.defines), "COMPLEX": parts - 1, "VECTOR": vector, "ADD": int(add)}


@cached_per_device
def _kernel(blocks: BlockShape, parts: int, vector: int, add: bool) -> Any:
    """The kernel with these constants on the current device."""
    kernel = load_kernel(blocks.file, "contract", contract_defines(blocks, parts, vector, add))
    if blocks.shared_bytes:
        kernel.max_dynamic_shared_size_bytes = blocks.shared_bytes
    kernel.preferred_shared_memory_carveout = 100
    return kernel


@cached_per_device
def offset_tables(modes: tuple[tuple[int, int], ...]) -> tuple[Array, Array]:
    """The tables of `two_level_offsets` on the current device."""
    high, low = on_device(*two_level_offsets(modes))
    return high, low


def table_arguments(tables: Sequence[Sequence[Array]]) -> list[np.generic]:
    """What kernels take of tables of places: two addresses and the length of the second, for each part."""
    return [
        value
        for high, low in tables
        for value in (np.uint64(high.data.ptr), np.uint64(low.data.ptr), np.uint32(len(low)))
    ]


def two_level_offsets(modes: Sequence[tuple[int, int]]) -> tuple[Any, Any]:
    """Offsets in c of a part's numbers, as two tables: high[number // len(low)] + low[number % len(low)]."""
    levels = two_levels([(extent, stride, 0) for extent, stride in modes if extent > 1])
    high, low = (offsets(axes, 1).astype(np.int64) for axes in levels)
    assert len(high) * len(low) == prod(extent for extent, _ in modes)
    return high, low


def spans(count: int, most: int) -> list[tuple[int, int]]:
    """First number and length of consecutive parts of 0 .. count-1, of `most` each but the last."""
    return [(first, min(most, count - first)) for first in range(0, count, most)]

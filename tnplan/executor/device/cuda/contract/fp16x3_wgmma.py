"""Complex products as exact as fp32 by the tensor core instructions of Hopper GPUs (kernels/wgmma.cu).

The operand with fewer rows is split into halves beforehand, some rows at a time, in scratch memory; the other
is split on its way into registers. Sums go from registers to their places. Knows one product.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from tnplan.common.arrays import ALIGNMENT_BYTES, round_up
from tnplan.executor.device.cuda.contract import Product
from tnplan.executor.device.cuda.contract.fp16x3_cublas import bind_exponents
from tnplan.executor.device.cuda.contract.scatter import (
    LONGEST_ROW,
    LONGEST_SIDE,
    offset_tables,
    spans,
    table_arguments,
)
from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel
from tnplan.executor.device.cuda.runtime.kernel_cache import cached_per_device, load_kernel
from tnplan.executor.device.protocols.device import Call, ContractShape, call_in_turn
from tnplan.executor.device.protocols.output_tiling import StridedModes

Array = Any
"""A flat cupy.ndarray."""

FILE = Path(__file__).parent / "kernels" / "wgmma.cu"
COMPUTE_CAPABILITY = "90"
"""Of the GPUs that have the instructions; later ones have others."""
GROUPS = {32: 5, 64: 3, 128: 2}
"""Warpgroups that multiply, by the columns of a block. Measured on an H200, TFLOP/s: n = 32, k = 256 with
two, three, four and five 61, 78, 96, 105; n = 64, k = 128 with two, three and four 95, 119, 87; n = k = 256
in blocks of 64 columns with three 168, of 128 with two 187."""
GROUP_ROWS, GROUP_THREADS = 64, 128
CHUNK = 16
"""Complex numbers of a row that are multiplied at once; k is a multiple of it."""
CHUNK_BYTES = 2 * 2 * 2 * 2 * CHUNK
"""What a chunk of a row becomes: for both sums both parts of every number, as two halves of two bytes."""
STAGES_BYTES = 192 << 10
LEAST_COLUMNS = 17
LEAST_BLOCKS, LEAST_PRODUCTS = 64, 1 << 26
"""Smaller products go to mma.cu, which is one launch. Measured on an H200, TFLOP/s of this way and of mma.cu:
m = 16384, n = k = 64: 36 and 37; n = k = 128: 98 and 68; m = 4096, n = k = 256: 77 and 78; m = n = k = 512:
25 and 35."""
SPLIT_BYTES = 32 << 20
"""The halves of the columns that are split at once, at most; sums too long for that go another way."""
SPLIT_THREADS = 256
SPLIT_BLOCKS = 132 * 8
EXPONENT_BYTES = 4
READ_BYTES = 16
"""What is read and written at once."""


@dataclass(frozen=True)
class Cut:
    """How a product is cut: whether its rows are those of a; its extents; the columns of a block of threads,
    and those that are split at once."""

    m_rows: bool
    rows: int
    columns: int
    k: int
    block_columns: int
    split_columns: int

    @property
    def block_rows(self) -> int:
        """The rows of a block of threads."""
        return GROUPS[self.block_columns] * GROUP_ROWS

    @property
    def exponents_bytes(self) -> int:
        """The bytes of the exponents of the columns that are split at once."""
        return round_up(self.split_columns * EXPONENT_BYTES, ALIGNMENT_BYTES)

    @property
    def scratch_bytes(self) -> int:
        """The bytes of scratch memory: exponents, then halves."""
        return self.exponents_bytes + self.split_columns * self.k // CHUNK * CHUNK_BYTES

    @property
    def parts(self) -> list[tuple[int, int]]:
        """First number and count of the columns that are split at once."""
        return spans(self.columns, self.split_columns)


def cut(shape: ContractShape, dtype: str) -> Cut | None:
    """How the current device forms a product in fp16x3 this way; None where it cannot or need not."""
    n_batch, m, n, k = shape.sizes
    columns, rows = sorted((m, n))
    if dtype != "complex64" or n_batch != 1 or k % CHUNK or columns < LEAST_COLUMNS:
        return None
    if rows > LONGEST_SIDE or 2 * k > LONGEST_ROW or m * n * k < max(LEAST_PRODUCTS, 1):
        return None
    block = next((size for size in GROUPS if columns <= size), max(GROUPS))
    most = SPLIT_BYTES // (k // CHUNK * CHUNK_BYTES) // block * block
    chosen = Cut(n <= m, rows, columns, k, block, min(most, -(-columns // block) * block))
    n_blocks = -(-rows // chosen.block_rows) * -(-columns // block)
    return chosen if most and n_blocks >= LEAST_BLOCKS and has_instructions() else None


def has_instructions() -> bool:
    """Whether the current device has the instructions."""
    return bool(cupy.cuda.Device().compute_capability == COMPUTE_CAPABILITY)


def bind_wgmma(cut: Cut, product: Product, scratch: Array) -> Call:
    """Form a product whose a and b begin at a multiple of `READ_BYTES`.

    `scratch` is a flat array of bytes, `cut.scratch_bytes` of them or more.
    """
    shape, a, b, c, stream = product
    sides = ((a, shape.m), (b, shape.n)) if cut.m_rows else ((b, shape.n), (a, shape.m))
    (left, of_rows), (right, of_columns) = sides
    tables = offset_tables(of_rows), offset_tables(of_columns)
    split, multiply, multiprocessors = _kernels(cut.block_columns)
    exponents, halves = (np.uint64(scratch.data.ptr + start) for start in (0, cut.exponents_bytes))
    stride, chunks = np.int64(2 * cut.k), np.int32(cut.k // CHUNK)
    pairs = np.int32(c.data.ptr % READ_BYTES == 0 and in_pairs(of_rows, of_columns))
    m_tiles = -(-cut.rows // cut.block_rows)
    threads = (GROUPS[cut.block_columns] + 1) * GROUP_THREADS
    calls: list[Call] = []
    for first, columns in cut.parts:
        start = right.data.ptr + first * cut.k * right.itemsize
        # Columns are filled up to whole blocks with halves of zero, so that the kernel has no ragged edge
        # there.
        n_tiles = -(-columns // cut.block_columns)
        padded_columns = n_tiles * cut.block_columns
        split_blocks = min(-(-padded_columns * int(chunks) * 4 // SPLIT_THREADS), SPLIT_BLOCKS)
        sizes = np.uint32(columns), np.uint32(padded_columns)
        splits: list[np.generic] = [np.uint64(start), stride, chunks, *sizes, exponents, halves]
        arguments: list[np.generic] = [
            np.uint64(left.data.ptr), halves, exponents, np.uint64(c.data.ptr), stride, chunks,
            *map(np.uint32, (cut.rows, first, columns, m_tiles, n_tiles)), pairs, *table_arguments(tables),
        ]  # fmt: skip
        blocks = min(m_tiles * n_tiles, multiprocessors)
        calls += [
            bind_exponents(start, 2 * cut.k, columns, int(exponents), 2, stream),
            BoundKernel(split, split_blocks, SPLIT_THREADS, splits, 0, stream, scratch),
            BoundKernel(multiply, blocks, threads, arguments, STAGES_BYTES, stream, (scratch, tables)),
        ]
    return call_in_turn(calls)


def in_pairs(of_rows: StridedModes, of_columns: StridedModes) -> bool:
    """Whether columns 0 and 1, 2 and 3, ... lie side by side in c, the first at an even place."""
    *outer, (extent, stride) = [mode for mode in of_columns if mode[0] > 1]
    others = [stride for extent, stride in (*of_rows, *outer) if extent > 1]
    return stride == 1 and extent % 2 == 0 and not any(stride % 2 for stride in others)


def wgmma_defines(block_columns: int) -> dict[str, str | int]:
    """The definitions of wgmma.cu."""
    return {"COLUMNS": block_columns, "GROUPS": GROUPS[block_columns]}


@cached_per_device
def _kernels(block_columns: int) -> tuple[Any, Any, int]:
    """Both kernels, and the multiprocessors of the current device."""
    defines = wgmma_defines(block_columns)
    split, multiply = (
        load_kernel(FILE, entry, defines, arch_specific=True) for entry in ("split_columns", "contract")
    )
    multiply.max_dynamic_shared_size_bytes = STAGES_BYTES
    return split, multiply, int(cupy.cuda.Device().attributes["MultiProcessorCount"])

"""Independent sets of a grid, row by row, on a GPU: residues of their number modulo primes.

A row of w sites is a vector over words of blocks of four sites, three bits a block (grid_rows.cu).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import cupy
import numpy as np

from tnplan.executor.device.cuda.gpus import check_free
from tnplan.executor.device.cuda.runtime.bound_kernel import BoundKernel
from tnplan.executor.device.cuda.runtime.kernel_cache import load_kernel

ROWS_FILE = Path(__file__).parent / "grid_rows.cu"
MOST_PRIME = 2**29
"""Eight residues are added in 32 bits."""
BLOCK = 4
"""Sites of a block."""
WORDS = (1, 2, 3, 5, 8)
"""How many words of so many sites have no two neighbours."""
FIRST_GROUP, GROUP, LOW = 4, 3, 5
"""Blocks of the first pass and of each other one, whose tiles have LOW bits of the first blocks too: 32
elements side by side."""
LARGE_GROUP = 5
"""Blocks of the first pass where that saves one."""
DOT_SUMS = 132 * 2048
"""Threads of an inner product, at most."""
MOST_BLOCKS = 1 << 30
MOST_STRIP = 10
"""Sites across the strips from which numbers are bounded."""

ROW = np.dtype(
    [("size", np.int64), ("tiles", np.int64), ("borders", np.uint64), ("p", np.uint32), ("factor", np.uint32),
     ("first", np.int32), ("last", np.int32), ("words", np.int32)], align=True,
)  # fmt: skip


class RowPass(NamedTuple):
    """A pass over the vector: its first block, how many it takes, and the bits below them in a tile."""

    first: int
    group: int
    low: int

    @property
    def threads(self) -> int:
        """Those of a block: 32 elements each where there are many."""
        return max(32, min(1024, self.tile // (32 if self.low else 16)))

    @property
    def tile(self) -> int:
        """The elements of a tile."""
        return 1 << (3 * self.group + self.low)


def passes(blocks: int) -> list[RowPass]:
    """The passes of a row of so many blocks."""
    large, usual = (-(-max(blocks - first, 0) // GROUP) for first in (LARGE_GROUP, FIRST_GROUP))
    first = min(blocks, LARGE_GROUP if large < usual else FIRST_GROUP)
    made = [RowPass(0, first, 0)]
    while first < blocks:
        made.append(RowPass(first, min(GROUP, blocks - first), LOW))
        first += GROUP
    return made


def rows_defines(row_pass: RowPass) -> dict[str, str | int]:
    """The definitions of grid_rows.cu."""
    return {"GROUP": row_pass.group, "LOW": row_pass.low, "THREADS": row_pass.threads}


def sizes(width: int) -> tuple[int, int, int]:
    """Of a row: its blocks, the codes of the last one, and the elements of a vector."""
    blocks = -(-width // BLOCK)
    words = WORDS[width - BLOCK * (blocks - 1)]
    return blocks, words, 8 ** (blocks - 1) * words


def row_argument(width: int, row_pass: RowPass, prime: int) -> Any:
    """What a pass is given."""
    blocks, words, size = sizes(width)
    # Of one row, and the same in a tile: of the new row below the group, of the old one above.
    new = range(-(-row_pass.low // 3), row_pass.first - 1)
    old = range(row_pass.first + row_pass.group, blocks - 1)
    borders = sum(1 << 3 * block for block in (*new, *old))
    above = -(-size // 8 ** (row_pass.first + row_pass.group))
    tiles = 2 ** (3 * row_pass.first - row_pass.low) * above
    return np.array((size, tiles, borders, prime, 2**32 // prime, row_pass.first, blocks - 1, words), ROW)[()]


def pass_share(width: int, row_pass: RowPass) -> float:
    """The share of the tiles of a pass that are not left out."""
    blocks, words, _ = sizes(width)
    fibonacci = [1, 2]
    while len(fibonacci) <= width:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    share = 1.0
    for begin, end in ((-(-row_pass.low // 3), row_pass.first), (row_pass.first + row_pass.group, blocks)):
        if end > begin:
            has_last = end == blocks
            sites = width - BLOCK * begin if has_last else BLOCK * (end - begin)
            share *= fibonacci[sites] / (8 ** (end - begin - has_last) * (words if has_last else 1))
    return share


class GridRows:
    """Vectors of rows of `width` sites on the current GPU, and their products with the transfer matrix."""

    def __init__(self, width: int) -> None:
        self.width = width
        *_, self.size = sizes(width)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.passes = passes(-(-width // BLOCK))
        self._sums = cupy.ndarray(DOT_SUMS, np.uint64)
        self._vectors: list[Any] = []

    def residue(self, height: int, prime: int) -> int:
        """The number of independent sets of `height` rows, modulo a prime up to 2^29.

        It is e T^(height + 1) e for the word e of no site: half of the powers from each side.
        """
        half, is_odd = divmod(height + 1, 2)
        x = self._vector(0)
        with self.stream:
            x.fill(0)
            x[:1] = 1
        for call in self._row(x, prime) * half:
            call()
        y = x
        if is_odd:
            y = self._vector(1)
            with self.stream:
                y[...] = x
            for call in self._row(y, prime):
                call()
        return self._dot(x, y, prime)

    def _row(self, vector: Any, prime: int) -> list[BoundKernel]:
        """The launches of a row."""
        calls = []
        for row_pass in self.passes:
            kernel = load_kernel(ROWS_FILE, "replace_group", rows_defines(row_pass))
            shared = 4 * row_pass.tile
            kernel.preferred_shared_memory_carveout = 100
            kernel.max_dynamic_shared_size_bytes = max(shared, kernel.max_dynamic_shared_size_bytes)
            row = row_argument(self.width, row_pass, prime)
            blocks = min(int(row["tiles"]), MOST_BLOCKS)
            arguments = [np.uint64(vector.data.ptr), row]
            calls.append(BoundKernel(kernel, blocks, row_pass.threads, arguments, shared, self.stream))
        return calls

    def _dot(self, x: Any, y: Any, prime: int) -> int:
        row_pass = self.passes[0]
        kernel = load_kernel(ROWS_FILE, "dot", rows_defines(row_pass))
        arguments: list[Any] = [
            *(np.uint64(each.data.ptr) for each in (x, y, self._sums)), np.int64(self.size), np.uint32(prime),
        ]
        blocks = len(self._sums) // row_pass.threads
        BoundKernel(kernel, blocks, row_pass.threads, arguments, 0, self.stream)()
        self.stream.synchronize()
        return sum(self._sums[: blocks * row_pass.threads].get().tolist()) % prime

    def _vector(self, number: int) -> Any:
        while len(self._vectors) <= number:
            size_bytes = 4 * self.size
            check_free(cupy.cuda.Device().id, size_bytes)
            memory = cupy.cuda.MemoryPointer(cupy.cuda.Memory(size_bytes), 0)
            self._vectors.append(cupy.ndarray(self.size, np.uint32, memory))
        return self._vectors[number]


def most_sets(width: int, height: int) -> int:
    """A bound of the number of independent sets: edges between strips across the grid are left out."""
    whole, rest = divmod(height, MOST_STRIP)
    return strip_sets(MOST_STRIP, width) ** whole * (strip_sets(rest, width) if rest else 1)


def strip_sets(width: int, length: int) -> int:
    """The number of independent sets of a narrow grid, in integers of any size."""
    words = [word for word in range(1 << width) if not word & word << 1]
    numbers = dict.fromkeys(words, 1)
    for _ in range(length - 1):
        numbers = {word: sum(numbers[other] for other in words if not word & other) for word in words}
    return sum(numbers.values())

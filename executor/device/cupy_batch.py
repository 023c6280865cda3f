"""The steps of a batch of excitations on a GPU; kernels/excite.cu says what each does.

Knows CuPy, cuBLAS and launches; nothing of strings and integrals. Everything runs on one stream.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from executor.device.cublas_strided import add_product
from executor.device.kernel_cache import load_kernel

Array = Any
"""A cupy.ndarray."""

FILE = "excite.cu"
REALS = {"float32": "float", "float64": "double"}
THREADS = 256
TILE = 32
TAKE_ROWS = 8
TURNS = 4
"""Elements that a group of threads makes one after the other."""
MOST_TILES = 65535


def excite_defines(dtype: str, lanes: int) -> dict[str, str | int]:
    """The definitions of the kernels for numbers of a type, and so many excitations at once."""
    return {"REAL": REALS[dtype], "LANES": lanes, "THREADS": THREADS}


class CupyBatch:
    """See `executor.sbd.batched.BatchSteps`. Works on the GPU and the stream that are current at first."""

    def __init__(self, dtype: str = "float64") -> None:
        """Gives back memory that CuPy keeps for arrays that are gone, such as those of another precision."""
        cupy.get_default_memory_pool().free_all_blocks()
        self.dtype = dtype
        self._stream = cupy.cuda.get_current_stream()
        self._real = np.dtype(dtype).type
        self._kernels: dict[tuple[str, int], Any] = {}

    def put(self, array: np.ndarray) -> Array:
        """A copy on the GPU."""
        return cupy.asarray(np.ascontiguousarray(array))

    def get(self, array: Array) -> np.ndarray:
        """A copy on the host."""
        return cupy.asnumpy(array)

    def empty(self, *shape: int) -> Array:
        """An array there, not set."""
        return cupy.empty(shape, self.dtype)

    def take(
        self, rows: Array, first: int, start: Array, other: Array, shift: int, x: Array, values: Array
    ) -> None:
        """values[b, j, lane] = x[string at the place, j]."""
        count, n_beta, lanes = values.shape
        sizes = n_beta, first, shift
        grid = (count * -(-n_beta // TILE),)
        self._launch("take", lanes, grid, (TILE, TAKE_ROWS), (rows,), sizes, start, other, x, values)

    def weigh(
        self, rows: Array, first: int, start: Array, pairs: Array, sign: Array, active: Array, own: Array,
        weights: Array,
    ) -> None:  # fmt: skip
        """weights[b, a, lane] of the places from `first` on."""
        count, n_active, lanes = weights.shape
        tiles = -(-n_active * lanes // (TURNS * THREADS))
        sizes = tiles, n_active, first
        self._launch(
            "weigh", lanes, (count * tiles,), (THREADS,), (rows,), sizes, start, pairs, sign, active, own,
            weights,
        )  # fmt: skip

    def pairs(
        self, rows: Array, first: int, above: int, half: bool, start: Array, bounds: Array, entries: Array,
        weights: Array, values: Array, y: Array,
    ) -> None:  # fmt: skip
        """y[row, j] += the sum of +-weights[b, pair, lane] values[b, source, lane] over lanes and entries."""
        count, n_beta, lanes = values.shape
        elements = n_beta // 2 + 1 if half else n_beta
        tiles = -(-elements // (TURNS * THREADS // lanes))
        sizes = tiles, n_beta, weights.shape[1], first, above, int(half)
        self._launch(
            "pairs", lanes, (count * tiles,), (THREADS,), (rows,), sizes, start, bounds, entries, weights,
            values, y,
        )  # fmt: skip

    def numbers(
        self, start: Array, other: Array, pairs: Array, sign: Array, filled: Array, numbers: Array,
        factor: float, shift: int, x: Array, y: Array,
    ) -> None:  # fmt: skip
        """y[row, j] += the sum of +-numbers[pair, j] x[other, j], and what the string itself gives."""
        n_rows, n_beta = y.shape
        sizes = n_rows, n_beta, filled.shape[1], shift
        self._launch(
            "numbers", 1, (n_rows * -(-n_beta // THREADS),), (THREADS,), (), sizes, start, other, pairs, sign,
            filled, numbers, self._real(factor), x, y,
        )  # fmt: skip

    def add_product(self, a: Array, b: Array, y: Array) -> None:
        """y += a b."""
        add_product(self._stream, a, b, y)

    def sparse(self, start: Array, column: Array, value: Array, x: Array, y: Array) -> None:
        """y[i] += the sum over e in start[i] .. start[i+1]-1 of value[e] x[column[e]]."""
        n_rows, n_columns = y.shape
        grid = n_rows, min(MOST_TILES, -(-n_columns // THREADS))
        self._launch("sparse", 1, grid, (THREADS,), (), (n_columns,), start, column, value, x, y)

    def copy(self, source: Array, target: Array) -> None:
        """target = source, for views of any strides."""
        cupy.copyto(target, source)

    def _launch(
        self, entry: str, lanes: int, grid: tuple[int, ...], block: tuple[int, ...], head: tuple[Array, ...],
        sizes: tuple[int, ...], *arguments: Any,
    ) -> None:  # fmt: skip
        if 0 in grid:
            return
        kernel = self._kernels.get((entry, lanes))
        if kernel is None:
            kernel = load_kernel(FILE, entry, excite_defines(self.dtype, lanes))
            self._kernels[entry, lanes] = kernel
        kernel(grid, block, (*head, *map(np.int64, sizes), *arguments))


def peak_bytes() -> int:
    """The memory that CuPy holds for arrays on the current GPU, which it never gives back by itself."""
    return int(cupy.get_default_memory_pool().total_bytes())

"""The steps of a batch of excitations on a GPU; kernels/excite.cu says what each does.

Knows CuPy, cuBLAS and launches; nothing of strings and integrals. Everything runs on one stream.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from executor.device.cublas_strided import multiply
from executor.device.kernel_cache import load_kernel

Array = Any
"""A cupy.ndarray."""

FILE = "excite.cu"
REALS = {"float32": "float", "float64": "double"}
THREADS = 256
WEIGH_THREADS = 64
MOST_TILES = 65535


def excite_defines(dtype: str) -> dict[str, str | int]:
    """The definitions of the kernels for numbers of a type."""
    return {"REAL": REALS[dtype]}


class CupyBatch:
    """See `executor.sbd.batched.BatchSteps`. Works on the GPU and the stream that are current at first."""

    def __init__(self, dtype: str = "float64") -> None:
        """Gives back memory that CuPy keeps for arrays that are gone, such as those of another precision."""
        cupy.get_default_memory_pool().free_all_blocks()
        self.dtype = dtype
        self._stream = cupy.cuda.get_current_stream()
        self._real = np.dtype(dtype).type
        self._kernels = {
            entry: load_kernel(FILE, entry, excite_defines(dtype))
            for entry in ("weigh", "take", "collect", "gather", "sparse")
        }

    def put(self, array: np.ndarray) -> Array:
        """A copy on the GPU."""
        return cupy.asarray(np.ascontiguousarray(array))

    def get(self, array: Array) -> np.ndarray:
        """A copy on the host."""
        return cupy.asnumpy(array)

    def empty(self, *shape: int) -> Array:
        """An array there, not set."""
        return cupy.empty(shape, self.dtype)

    def weigh(
        self, rows: Array, start: Array, pairs: Array, sign: Array, two: Array, numbers: Array, first: int,
        factor: float, weights: Array,
    ) -> None:  # fmt: skip
        """weights[b, c, place] of columns first + c and every place of the strings `rows`."""
        count, n_block, k = weights.shape
        sizes = n_block, k, first, *two.shape
        self._launch(
            "weigh", (count * n_block,), WEIGH_THREADS, rows, sizes, start, pairs, sign, two, numbers,
            self._real(factor), weights,
        )  # fmt: skip

    def take(self, rows: Array, start: Array, other: Array, shift: int, x: Array, values: Array) -> None:
        """values[b, place, j] = x[string at the place, j]."""
        count, k, n_beta = values.shape
        self._launch("take", (count * k,), THREADS, rows, (k, n_beta, shift), start, other, x, values)

    def multiply(self, a: Array, b: Array, out: Array, add: bool = False) -> None:
        """out[i] = a[i] b[i], or is added."""
        multiply(self._stream, a, b, out, add)

    def collect(self, rows: Array, start: Array, code: Array, held: Array, y: Array) -> None:
        """y[row, j] += the sum of +-held[b] over the elements that `code` names for j."""
        count, n_block, n_beta = held.shape
        grid = count, _tiles(n_beta)
        self._launch("collect", grid, THREADS, rows, (n_block, n_beta), start, code, held, y)

    def gather(self, rows: Array, start: Array, code: Array, weights: Array, values: Array, y: Array) -> None:
        """As `collect`, of products that are not kept."""
        count, n_block, k = weights.shape
        places, n_beta = values.shape[1:]
        sizes = n_block, k, places, n_beta
        self._launch("gather", (count, _tiles(n_beta)), THREADS, rows, sizes, start, code, weights, values, y)

    def sparse(self, start: Array, column: Array, value: Array, x: Array, y: Array) -> None:
        """y[i] += the sum over e in start[i] .. start[i+1]-1 of value[e] x[column[e]]."""
        n_rows, n_columns = y.shape
        grid = n_rows, _tiles(n_columns)
        self._launch("sparse", grid, THREADS, None, (n_columns,), start, column, value, x, y)

    def copy(self, source: Array, target: Array) -> None:
        """target = source, for views of any strides."""
        cupy.copyto(target, source)

    def _launch(
        self, entry: str, grid: tuple[int, ...], threads: int, rows: Array, sizes: tuple[int, ...],
        *arguments: Any,
    ) -> None:  # fmt: skip
        if 0 in grid:
            return
        head = () if rows is None else (rows,)
        self._kernels[entry](grid, (threads,), (*head, *map(np.int64, sizes), *arguments))


def _tiles(n_columns: int) -> int:
    return min(MOST_TILES, -(-n_columns // THREADS))


def peak_bytes() -> int:
    """The memory that CuPy holds for arrays on the current GPU, which it never gives back by itself."""
    return int(cupy.get_default_memory_pool().total_bytes())

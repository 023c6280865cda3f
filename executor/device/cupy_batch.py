"""The steps of a batch of excitations on a GPU; kernels/excite.cu says what each does.

Knows CuPy and flat launches; nothing of strings and integrals. Everything runs on the current stream.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from executor.device.kernel_cache import load_kernel

Array = Any
"""A cupy.ndarray."""

FILE = "excite.cu"
THREADS = 256
MOST_BLOCKS = 132 * 64


def excite_defines(real: str) -> dict[str, str | int]:
    """The definitions of the kernels for numbers of a C type."""
    return {"REAL": real}


class CupyBatch:
    """See `executor.sbd.batched.BatchSteps`."""

    def __init__(self) -> None:
        self._kernels = {
            entry: load_kernel(FILE, entry, excite_defines("double"))
            for entry in ("weigh", "take", "collect")
        }

    def put(self, array: np.ndarray) -> Array:
        """A copy on the current GPU."""
        return cupy.asarray(np.ascontiguousarray(array))

    def empty(self, *shape: int) -> Array:
        """An array of doubles there, not set."""
        return cupy.empty(shape, np.float64)

    def weigh(
        self, rows: Array, start: Array, pairs: Array, sign: Array, two: Array, numbers: Array, weights: Array
    ) -> None:
        """weights[b, column, place] of every place of the strings `rows`."""
        count, n_columns, k = weights.shape
        sizes = count, k, n_columns
        self._launch("weigh", weights.size, rows, sizes, start, pairs, sign, two, numbers, weights)

    def take(self, rows: Array, start: Array, other: Array, x: Array, values: Array) -> None:
        """values[b, place, j] = x[string at the place, j]."""
        self._launch("take", values.size, rows, values.shape, start, other, x, values)

    def multiply(self, weights: Array, values: Array, held: Array) -> None:
        """held[b] = weights[b] values[b]."""
        cupy.matmul(weights, values, out=held)

    def collect(
        self, rows: Array, start: Array, source: Array, column: Array, sign: Array, held: Array, y: Array
    ) -> None:
        """y[row, j] += the sum over the excitations e of j of +-held[b, column[e], source[e]]."""
        count, n_columns, n_beta = held.shape
        sizes = count, n_columns, n_beta
        self._launch("collect", count * n_beta, rows, sizes, start, source, column, sign, held, y)

    def _launch(self, entry: str, work: int, rows: Array, sizes: tuple[int, ...], *arrays: Array) -> None:
        blocks = max(1, min(MOST_BLOCKS, -(-work // THREADS)))
        self._kernels[entry]((blocks,), (THREADS,), (rows, *map(np.int64, sizes), *arrays))

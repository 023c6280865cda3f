"""The steps of a batch of alpha strings in NumPy: the twin of the GPU's, for tests and small spaces.

Knows arrays; nothing of strings and integrals. executor/device/kernels/excite.cu says what each step does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class NumpyBatch:
    """See `batched.BatchSteps`."""

    def put(self, array: Array) -> Array:
        """The array itself."""
        return array

    def empty(self, *shape: int) -> Array:
        """An array of doubles."""
        return np.empty(shape)

    def weigh(
        self, rows: Array, start: Array, pairs: Array, sign: Array, two: Array, numbers: Array, weights: Array
    ) -> None:
        """weights[b, column, place] of every place of the strings `rows`."""
        weights[:] = 0.0
        for b, row in enumerate(rows):
            span = slice(start[row], start[row + 1])
            weights[b, :, 0] = numbers[row]
            weights[b, :, 1 : 1 + len(pairs[span])] = (two[pairs[span]] * sign[span, None]).T

    def take(self, rows: Array, start: Array, other: Array, x: Array, values: Array) -> None:
        """values[b, place, j] = x[string at the place, j]."""
        values[:] = 0.0
        for b, row in enumerate(rows):
            span = slice(start[row], start[row + 1])
            values[b, 0] = x[row]
            values[b, 1 : 1 + len(other[span])] = x[other[span]]

    def multiply(self, weights: Array, values: Array, held: Array) -> None:
        """held[b] = weights[b] values[b]."""
        np.matmul(weights, values, out=held)

    def collect(
        self, rows: Array, start: Array, source: Array, column: Array, sign: Array, held: Array, y: Array
    ) -> None:
        """y[row, j] += the sum over the excitations e of j of +-held[b, column[e], source[e]]."""
        n_beta = y.shape[1]
        own = np.repeat(np.arange(n_beta), np.diff(start))
        for b, row in enumerate(rows):
            y[row] += np.bincount(own, sign * held[b, column, source], n_beta)

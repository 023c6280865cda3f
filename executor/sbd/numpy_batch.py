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

    def __init__(self, dtype: str = "float64") -> None:
        self.dtype = dtype

    def put(self, array: Array) -> Array:
        """The array itself."""
        return array

    def get(self, array: Array) -> Array:
        """The array itself."""
        return array

    def empty(self, *shape: int) -> Array:
        """An array, not set."""
        return np.empty(shape, self.dtype)

    def weigh(
        self, rows: Array, start: Array, pairs: Array, sign: Array, two: Array, numbers: Array, first: int,
        factor: float, weights: Array,
    ) -> None:  # fmt: skip
        """weights[b, c, place] of columns first + c and every place of the strings `rows`."""
        columns = slice(first, first + weights.shape[1])
        weights[:] = 0.0
        for b, row in enumerate(rows):
            span = slice(start[row], start[row + 1])
            places = np.concatenate([numbers[row, None, columns], (two[columns, pairs[span]] * sign[span]).T])
            used = places[: weights.shape[2]]
            weights[b, :, : len(used)] = factor * used.T

    def take(self, rows: Array, start: Array, other: Array, shift: int, x: Array, values: Array) -> None:
        """values[b, place, j] = x[string at the place, j]."""
        values[:] = 0.0
        for b, row in enumerate(rows):
            span = slice(start[row], start[row + 1])
            if shift >= 0:
                values[b, 0] = x[row + shift]
            values[b, 1 : 1 + len(other[span])] = x[other[span]]

    def multiply(self, a: Array, b: Array, out: Array, add: bool = False) -> None:
        """out[i] = a[i] b[i], or is added."""
        if add:
            out += np.matmul(a, b)
        else:
            np.matmul(a, b, out=out)

    def collect(self, rows: Array, start: Array, code: Array, held: Array, y: Array) -> None:
        """y[row, j] += the sum of +-held[b] over the elements that `code` names for j."""
        own = np.repeat(np.arange(y.shape[1]), np.diff(start))
        sign = 1 - 2 * (code & 1)
        for b, row in enumerate(rows):
            sums = np.bincount(own, sign * held[b].ravel()[code >> 1], y.shape[1])
            y[row] += sums.astype(self.dtype)

    def gather(self, rows: Array, start: Array, code: Array, weights: Array, values: Array, y: Array) -> None:
        """As `collect`, of products that are not kept."""
        held = np.matmul(weights, values[:, : weights.shape[2]])
        self.collect(rows, start, code, held, y)

    def sparse(self, start: Array, column: Array, value: Array, x: Array, y: Array) -> None:
        """y[i] += the sum over e in start[i] .. start[i+1]-1 of value[e] x[column[e]]."""
        for i, row in enumerate(y):
            span = slice(start[i], start[i + 1])
            row += value[span] @ x[column[span]]

    def copy(self, source: Array, target: Array) -> None:
        """target = source, for views of any strides."""
        np.copyto(target, source)

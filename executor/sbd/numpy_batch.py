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

    def take(
        self, rows: Array, first: int, start: Array, other: Array, shift: int, x: Array, values: Array
    ) -> None:
        """values[b, j, lane] = x[string at the place, j]."""
        values[:] = 0.0
        for b, row in enumerate(rows):
            for lane, place in _places(first, values.shape[2], start, row):
                if place > 0:
                    values[b, :, lane] = x[other[start[row] + place - 1]]
                elif shift >= 0:
                    values[b, :, lane] = x[row + shift]

    def weigh(
        self, rows: Array, first: int, start: Array, pairs: Array, sign: Array, active: Array, own: Array,
        weights: Array,
    ) -> None:  # fmt: skip
        """weights[b, a, lane] of the places from `first` on."""
        weights[:] = 0.0
        for b, row in enumerate(rows):
            for lane, place in _places(first, weights.shape[2], start, row):
                e = start[row] + place - 1
                weights[b, :, lane] = sign[e] * active[pairs[e]] if place > 0 else own[row]

    def pairs(
        self, rows: Array, first: int, above: int, half: bool, start: Array, bounds: Array, entries: Array,
        weights: Array, values: Array, y: Array,
    ) -> None:  # fmt: skip
        """y[row, j] += the sum of +-weights[b, pair, lane] values[b, source, lane] over lanes and entries."""
        n = y.shape[1]
        positive, negative = np.diff(bounds).reshape(n, 2).T
        own = np.repeat(np.arange(n), positive + negative)
        minus = np.arange(len(entries)) >= bounds[1::2][own]
        pair, source = entries.T
        for b, row in enumerate(rows):
            terms = np.einsum("el,el->e", weights[b, pair], values[b, source])
            sums = np.bincount(own, np.where(minus, -terms, terms), n).astype(self.dtype)
            if half:
                begin = row + above
                count = (n + 1) // 2 + (n % 2 == 0 and begin < n // 2)
                sums[(begin + np.arange(count, n)) % n] = 0.0
                sums[begin] *= 0.5
            y[row] += sums

    def numbers(
        self, start: Array, other: Array, pairs: Array, sign: Array, filled: Array, numbers: Array,
        factor: float, shift: int, x: Array, y: Array,
    ) -> None:  # fmt: skip
        """y[row, j] += the sum of +-numbers[pair, j] x[other, j], and what the string itself gives."""
        for row, out in enumerate(y):
            span = slice(start[row], start[row + 1])
            out += (sign[span, None] * numbers[pairs[span]] * x[other[span]]).sum(0)
            if shift >= 0:
                out += factor * (filled[row] @ numbers[: filled.shape[1]]) * x[row + shift]

    def add_product(self, a: Array, b: Array, y: Array) -> None:
        """y += a b."""
        y += a @ b

    def sparse(self, start: Array, column: Array, value: Array, x: Array, y: Array) -> None:
        """y[i] += the sum over e in start[i] .. start[i+1]-1 of value[e] x[column[e]]."""
        for i, row in enumerate(y):
            span = slice(start[i], start[i + 1])
            row += value[span] @ x[column[span]]

    def copy(self, source: Array, target: Array) -> None:
        """target = source, for views of any strides."""
        np.copyto(target, source)


def _places(first: int, lanes: int, start: Array, row: int) -> enumerate[int]:
    """The lanes that have a place of a string, and the place of each."""
    return enumerate(range(first, min(first + lanes, int(start[row + 1] - start[row]) + 1)))

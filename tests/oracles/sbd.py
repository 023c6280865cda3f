"""The steps of a product of the Hamiltonian in NumPy: the oracle of those on a GPU.

Knows arrays; nothing of strings and integrals. executor/sbd/cuda/excite.cu and excite_tiles.cu say what
each step does.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.sbd.sigma.batched import BatchedBlock, BatchedTables
from tnplan.executor.sbd.sigma.opposite_spin import LANES, NONE, PADDING, PART, PARTS, SIGN

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

    def add_opposite_spin(
        self, block: BatchedBlock, tables: BatchedTables, half: bool, x: Array, y: Array
    ) -> None:
        """y[row, j] += the sum of +-(pair | a) x[other, j'] over excitations of the row and of j."""
        table, split, bounds = block.tasks
        first, columns, more, slots = tables.tiles
        rank, active, own, spare = tables.rank, tables.active, tables.number_weights, tables.spare
        (start, other, pairs, sign), shift = block.singles, block.shift
        spare[:] = 0
        for row, begin, end, place in table:
            span = slice(start[row], start[row + 1])
            weights, sources = sign[span, None] * active[pairs[span]], other[span]
            if half:
                apart = np.arange(active.shape[1]) - rank[pairs[span], None]
                weights = weights * np.where(apart > 0, 1.0, np.where(apart == 0, 0.5, 0.0))
            elif shift >= 0:
                weights = np.concatenate([own[row][None], weights])
                sources = np.append(row + shift, sources)
            target = y[row] if place < 0 else spare[place]
            _add_tiles(weights, x[sources], range(begin, end), first, columns, more, slots, target)
        for row, (begin, end) in zip(split, itertools.pairwise(bounds), strict=True):
            y[row] += spare[begin:end].sum(0)

    def add_number_operators(
        self, block: BatchedBlock, tables: BatchedTables, factor: float, x: Array, y: Array
    ) -> None:
        """y[row, j] += the sum of +-numbers[pair, j] x[other, j], and what the string itself gives."""
        (start, other, pairs, sign), shift = block.singles, block.shift
        filled, numbers = tables.filled, tables.numbers
        for row, out in enumerate(y):
            span = slice(start[row], start[row + 1])
            out += (sign[span, None] * numbers[pairs[span]] * x[other[span]]).sum(0)
            if shift >= 0:
                out += factor * (filled[row] @ numbers[: filled.shape[1]]) * x[row + shift]

    def add_exchange(
        self, block: BatchedBlock, active: Array, partners: Array, factor: float, x: Array, y: Array
    ) -> None:
        """y[row, j] += factor times the sum of x[other, j'] over opposite excitations of row and string."""
        start, other, pairs, sign = block.singles
        for row, out in enumerate(y):
            for e in range(start[row], start[row + 1]):
                if active[pairs[e]] >= 0:
                    partner = partners[active[pairs[e]]]
                    met = (partner >= 0) & ((partner >> 1 & 1) != block.up[e])
                    signs = np.where(partner[met] & 1, -sign[e], sign[e])
                    out[met] += factor * signs * x[other[e], partner[met] >> 2]

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


def _add_tiles(
    weights: Array, values: Array, rows: range, first: Array, columns: Array, more: Array, slots: Array,
    y: Array,
) -> None:  # fmt: skip
    """y[j] += the elements of weights^T values that its slots in rows of tiles want; see `PairTiles`."""
    warps = columns.shape[1]
    for m in rows:
        for part in range(PARTS * first[m], PARTS * first[m + 1]):
            a = (m * PARTS + part % PARTS) * PART
            strings = columns[part // PARTS].transpose(0, 2, 1).ravel()
            products = np.zeros((PART, LANES * warps + PADDING))
            kept = weights[:, a : a + PART]
            products[: kept.shape[1], : len(strings)] = kept.T.astype(float) @ values[:, strings]
            wanted = np.append(slots[part].ravel(), slots[more[part] : more[part + 1]].ravel())
            wanted = wanted[wanted != NONE]
            elements = np.where(wanted & SIGN, -1, 1) * products.ravel()[wanted % SIGN]
            np.add.at(y, wanted // (2 * SIGN), elements.astype(y.dtype))


class CountingBatch(NumpyBatch):
    """Steps that count the bytes of the arrays made where they work."""

    held_bytes = 0

    def put(self, array: np.ndarray) -> np.ndarray:
        self.held_bytes += array.nbytes
        return array

    def empty(self, *shape: int) -> np.ndarray:
        made = super().empty(*shape)
        self.held_bytes += made.nbytes
        return made

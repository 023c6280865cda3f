"""Which rows of a table on a GPU stay where there may be only so many; all in order; values without a kernel.

Twin: terms/truncation.py.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.pauli.algebra.expectation import key_products
from tnplan.executor.pauli.cuda.table import GpuTable, free_pool, memory_for
from tnplan.executor.pauli.terms.selection import Resampler

READ_ROWS = 1 << 20
"""Rows that are copied to the host at once, where there are many."""
ROWS_AT_ONCE = 1 << 22
"""Rows whose values in a product state are there at once."""
ROWS_OF_HOST = 1 << 13
"""So many rows are sorted on the host in less than a millisecond; CuPy's first sort takes 50 to be loaded."""


def largest(table: GpuTable, n: int, count: int) -> tuple[Any, float, float, int]:
    """The numbers of the `count` largest magnitudes, of equal ones the least words; the others' sums.

    Returns also the sums of |c| and |c|^2 and the number of the terms that are not among them.
    """
    sizes = cupy.abs(table.coefficients[:n]).astype(np.float64)
    is_largest = largest_mask(sizes, table.keys, count)
    dropped = sizes[~is_largest & (sizes > 0)]
    return cupy.flatnonzero(is_largest), float(dropped.sum()), float((dropped**2).sum()), int(dropped.size)


def largest_mask(sizes: Any, keys: Any, count: int) -> Any:
    """Which rows have the `count` largest sizes; of equal ones those of the least words."""
    least = cupy.partition(sizes, len(sizes) - count)[len(sizes) - count]
    ties, is_largest = cupy.flatnonzero(sizes == least), sizes > least
    n_ties = count - int(cupy.count_nonzero(is_largest))
    order = np.lexsort(cupy.asnumpy(keys[ties]).T)[:n_ties]
    is_largest[ties[cupy.asarray(order)]] = True
    return is_largest


def resample(table: GpuTable, n: int, resampler: Resampler, max_terms: int) -> Any:
    """Let a resampler leave at most `max_terms` of n rows; their numbers. Coefficients are then the new ones.

    Rows lie in another order in every run; they are drawn from in the order of their weights, equal ones
    in that of their hashes. Strata of alike weights have less noise than random ones.
    """
    hashes = cupy.empty(n, np.uint64)
    table.hash_rows(hashes)
    order = cupy.argsort(hashes)
    weights = cupy.abs(table.coefficients[:n]).astype(np.float64)
    weights *= resampler.importance(table.keys[:n])
    order = order[cupy.argsort(weights[order])]  # CuPy's is stable
    weights = weights[order]
    drawn_from, sizes = resampler.draw(weights, max_terms, cupy)
    rows = order[drawn_from]
    table.coefficients[rows] = (table.coefficients[rows] * (sizes / weights[drawn_from])).astype(table.dtype)
    return rows


def in_order(table: GpuTable, n: int) -> tuple[Array, Array]:
    """Keys and coefficients of the terms among n rows, on the host, in rising order of their words."""
    if n <= ROWS_OF_HOST:
        keys, coefficients = cupy.asnumpy(table.keys[:n]), cupy.asnumpy(table.coefficients[:n])
        terms = np.flatnonzero(coefficients)
        terms = terms[np.lexsort(keys[terms].T)]
        return keys[terms], coefficients[terms]
    free_pool()
    with memory_for(n):
        order = cupy.flatnonzero(table.coefficients[:n])
        # Stable sorts from the least significant word of the keys to the most significant:
        # lexicographic order.
        for word in range(table.words):
            order = order[cupy.argsort(table.keys[order, word])]  # CuPy's is stable
    keys = np.empty((len(order), table.words), np.uint64)
    coefficients = np.empty(len(order), table.dtype)
    for first in range(0, len(order), READ_ROWS):
        rows = order[first : first + READ_ROWS]
        keys[first : first + READ_ROWS] = cupy.asnumpy(table.keys[rows])
        coefficients[first : first + READ_ROWS] = cupy.asnumpy(table.coefficients[rows])
    return keys, coefficients


def in_product(table: GpuTable, n: int, bloch: Array) -> float:
    """The value of the first `n` rows in a product state of Bloch vectors, float64 [qubit, 3]."""
    total = 0.0
    for first in range(0, n, ROWS_AT_ONCE):
        rows = slice(first, min(n, first + ROWS_AT_ONCE))
        values = key_products(table.keys[rows], bloch, cupy)
        total += float((table.coefficients[rows] * values).sum())
    return total

"""The part of the Hamiltonian within one spin, over the strings of a set: made once, dense or sparse.

Knows strings, integrals and matrices; nothing of the other spin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.sbd.integrals import Integrals
from executor.sbd.strings import StringSet
from executor.sbd.work import over_rows

Array = NDArray[Any]

ROWS_AT_ONCE = 128
"""Rows of a dense product in one call, so that threads share a product evenly."""


@dataclass(frozen=True)
class DenseMatrix:
    """A symmetric matrix [string, string]."""

    values: Array

    def add_product(self, first: int, last: int, x: Array, out: Array) -> None:
        """out[i, :] += the sum over j of self[i, j] x[j, :] for rows first .. last-1."""
        for begin in range(first, last, ROWS_AT_ONCE):
            rows = slice(begin, min(last, begin + ROWS_AT_ONCE))
            out[rows] += self.values[rows] @ x

    def add_transposed(self, first: int, last: int, x: Array, out: Array) -> None:
        """out[i, :] += the sum over j of x[i, j] self[j, :] for rows first .. last-1."""
        for begin in range(first, last, ROWS_AT_ONCE):
            rows = slice(begin, min(last, begin + ROWS_AT_ONCE))
            out[rows] += x[rows] @ self.values

    @property
    def diagonal(self) -> Array:
        """The diagonal elements."""
        return self.values.diagonal().copy()


@dataclass(frozen=True)
class SparseMatrix:
    """A symmetric matrix by rows: value[e] at column[e] for e in start[i] .. start[i+1]-1."""

    start: Array
    column: Array
    value: Array

    def add_product(self, first: int, last: int, x: Array, out: Array) -> None:
        """out[i, :] += the sum over j of self[i, j] x[j, :] for rows first .. last-1."""
        from executor.sbd import string_kernel

        string_kernel.sparse_rows(first, last, self.start, self.column, self.value, x, out)

    def add_transposed(self, first: int, last: int, x: Array, out: Array) -> None:
        """out[i, :] += the sum over j of x[i, j] self[j, :] for rows first .. last-1."""
        from executor.sbd import string_kernel

        part = np.zeros((x.shape[1], last - first))
        turned = np.ascontiguousarray(x[first:last].T)
        string_kernel.sparse_rows(0, len(part), self.start, self.column, self.value, turned, part)
        out[first:last] += part.T

    @property
    def diagonal(self) -> Array:
        """The diagonal elements."""
        rows = np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))
        return self.value[self.column == rows]


SpinMatrix = DenseMatrix | SparseMatrix


def same_spin(
    strings: StringSet, integrals: Integrals, linked: Array, dense: bool, threads: int
) -> SpinMatrix:
    """The same-spin Hamiltonian in Hartree; `linked` counts the elements of every row."""
    from executor.sbd import string_kernel

    n, words, one, two = len(strings), strings.words, integrals.one, integrals.two
    if dense:
        matrix = np.empty((n, n))
        over_rows(
            n, threads, lambda first, last: string_kernel.fill_dense(words, first, last, one, two, matrix)
        )
        return DenseMatrix(matrix)
    start = np.concatenate([[0], np.cumsum(linked)])
    column, value = np.empty(start[-1], np.int32), np.empty(start[-1])
    over_rows(
        n,
        threads,
        lambda first, last: string_kernel.fill_sparse(words, first, last, one, two, start, column, value),
    )
    return SparseMatrix(start, column, value)

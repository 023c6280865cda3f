"""The part of the Hamiltonian within one spin, over the strings of a set: made once, dense or sparse.

Knows strings, integrals and matrices; nothing of the other spin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.sbd.basis.strings import StringSet

ROWS_AT_ONCE = 128
"""Rows of a dense product in one call, so that threads share a product evenly."""


@dataclass(frozen=True)
class DenseMatrix:
    """Rows of a matrix [string, string]."""

    values: Array

    @property
    def size_bytes(self) -> int:
        """The memory of the elements."""
        return int(self.values.nbytes)

    def columns(self, first: int, last: int) -> DenseMatrix:
        """Columns first .. last-1, numbered from 0."""
        return DenseMatrix(self.values[:, first:last])

    def as_type(self, dtype: str) -> DenseMatrix:
        """The same in another precision."""
        return DenseMatrix(self.values.astype(dtype, copy=False))

    def add_product(self, first: int, last: int, x: Array, out: Array) -> None:
        """out[i, :] += the sum over j of self[i, j] x[j, :] for rows first .. last-1."""
        for begin in range(first, last, ROWS_AT_ONCE):
            rows = slice(begin, min(last, begin + ROWS_AT_ONCE))
            out[rows] += self.values[rows] @ x

    def add_transposed(self, first: int, last: int, x: Array, out: Array) -> None:
        """out[i, k] += the sum over j of x[i, j] self[k, j] for rows first .. last-1."""
        for begin in range(first, last, ROWS_AT_ONCE):
            rows = slice(begin, min(last, begin + ROWS_AT_ONCE))
            out[rows] += x[rows] @ self.values.T


class SparseMatrix(NamedTuple):
    """Rows of a matrix: value[e] at column[e] for e in start[i] .. start[i+1]-1."""

    start: Array
    column: Array
    value: Array

    @property
    def size_bytes(self) -> int:
        """The memory of the elements."""
        return int(self.column.nbytes + self.value.nbytes)

    def columns(self, first: int, last: int) -> SparseMatrix:
        """Columns first .. last-1, numbered from 0."""
        is_inside = (self.column >= first) & (self.column < last)
        start = np.concatenate([[0], np.cumsum(is_inside)])[self.start]
        return SparseMatrix(start, self.column[is_inside] - np.int32(first), self.value[is_inside])

    def as_type(self, dtype: str) -> SparseMatrix:
        """The same in another precision."""
        return SparseMatrix(self.start, self.column, self.value.astype(dtype, copy=False))

    def add_product(self, first: int, last: int, x: Array, out: Array) -> None:
        """out[i, :] += the sum over j of self[i, j] x[j, :] for rows first .. last-1."""
        from tnplan.executor.sbd.basis import string_kernel

        string_kernel.sparse_rows(first, last, self, x, out)

    def add_transposed(self, first: int, last: int, x: Array, out: Array) -> None:
        """out[i, k] += the sum over j of x[i, j] self[k, j] for rows first .. last-1."""
        from tnplan.executor.sbd.basis import string_kernel

        # Rows of x are columns of its transpose, over which `sparse_rows` runs in memory order: a
        # copy there and back.
        columns = np.zeros((x.shape[1], last - first), x.dtype)
        transposed = np.ascontiguousarray(x[first:last].T)
        string_kernel.sparse_rows(0, len(columns), self, transposed, columns)
        out[first:last] += columns.T


SpinMatrix = DenseMatrix | SparseMatrix


def same_spin(
    strings: StringSet, integrals: tuple[Array, Array], linked: Array, dense: bool, threads: int,
    rows: tuple[int, int],
) -> SpinMatrix:  # fmt: skip
    """Rows rows[0] .. rows[1]-1 of the same-spin Hamiltonian in Hartree, numbered from 0.

    `integrals` are the spin's one- and two-electron integrals, `linked` counts the elements of every row.
    """
    from tnplan.executor.sbd.basis import string_kernel

    above, n_rows = rows[0], rows[1] - rows[0]
    if dense:
        matrix: Any = np.empty((n_rows, len(strings)))
    else:
        start = np.concatenate([[0], np.cumsum(linked[slice(*rows)])])
        matrix = start, np.empty(start[-1], np.int32), np.empty(start[-1])
    fill = string_kernel.fill_dense if dense else string_kernel.fill_sparse
    over_rows(
        n_rows, threads,
        lambda first, last: fill(strings.words, above + first, above + last, above, integrals, matrix),
    )  # fmt: skip
    return DenseMatrix(matrix) if dense else SparseMatrix(*matrix)


def string_energies(strings: StringSet, integrals: tuple[Array, Array]) -> Array:
    """The energy of every string alone: the diagonal of the same-spin Hamiltonian."""
    from tnplan.executor.sbd.basis import string_kernel

    energies = np.empty(len(strings))
    string_kernel.fill_energies(strings.words, *integrals, energies)
    return energies

"""A Hermitian matrix among a list of basis states, on a CPU: the rows of one rank.

Elements are stored as a sparse matrix where they fit, and computed in every product otherwise. Knows rows
and arrays; subclasses know the elements.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.sbd.basis.determinants import NEITHER, ListOfStates
from tnplan.executor.sbd.sigma.cost_model import RowPartition
from tnplan.executor.sbd.sigma.same_spin import SparseMatrix

INDEX_BYTES, VALUE_BYTES = 4, 8
"""What an element of a sparse matrix takes: its column, and every real number of its value."""
LEAST_ROWS, LEAST_ELEMENTS = 128, 1 << 15
"""Rows that a thread computes at once, and elements of a sparse matrix that it multiplies, at least."""
Rows = TypeVar("Rows", bound="ListedRows")


class ListedRows(ListOfStates):
    """The rows of one rank. `rows` are the first of them and the one after the last."""

    parities: tuple[int, ...] = (NEITHER,)

    def __init__(self, dtype: np.dtype, threads: int, partition: RowPartition, rank: int) -> None:
        self.dtype, self.threads, self.partition = dtype, threads, partition
        self.shape: tuple[int, ...] = (partition.bounds[-1],)
        self.rows = partition.rows(rank)
        self._matrix: SparseMatrix | None = None
        self.element_bytes = INDEX_BYTES + VALUE_BYTES * (1 + self.is_complex)

    @property
    def is_complex(self) -> bool:
        """Whether elements are complex numbers."""
        return self.dtype.kind == "c"

    @property
    def n_rows(self) -> int:
        """How many rows this rank has."""
        return self.rows[1] - self.rows[0]

    @property
    def elements_bytes(self) -> int:
        """The memory of the stored elements."""
        return 0 if self._matrix is None else sum(array.nbytes for array in self._matrix)

    @cached_property
    def counts(self) -> Array:
        """The numbers of elements of the local rows."""
        counts = np.zeros(self.n_rows, np.int64)
        self._count(counts)
        return counts

    @property
    def pairs_contributing(self) -> int:
        """Pairs of basis states, the first of them local, between which an element may be."""
        return int(self.counts.sum())

    def store(self, memory_bytes: float) -> None:
        """Store the elements, if they fit."""
        if self.element_bytes * self.n_rows > memory_bytes:
            return
        start = np.concatenate([[0], np.cumsum(self.counts)])
        if self.element_bytes * start[-1] > memory_bytes:
            return
        column = np.empty(start[-1], np.int32)
        self._matrix = SparseMatrix(start, column, self._fill(start, column))

    def diagonal(self) -> Array:
        """The diagonal over the local rows, a new array of real numbers."""
        return self._diagonal.copy()

    @cached_property
    def _diagonal(self) -> Array:
        energies = np.empty(self.n_rows)
        self._fill_diagonal(energies)
        return energies

    def _count(self, counts: Array) -> None:
        """Set the numbers of elements of the local rows."""
        raise NotImplementedError

    def _fill(self, start: Array, column: Array) -> Array:
        """Set the columns of the elements of the local rows, and return their values."""
        raise NotImplementedError

    def _fill_diagonal(self, energies: Array) -> None:
        """Set the diagonal of the local rows."""
        raise NotImplementedError

    def _add_again(self, x: Array, y: Array) -> None:
        """Add the local rows of a product to y, with elements computed for it."""
        raise NotImplementedError

    def _over_rows(self, kernel: Callable[..., None], *arguments: Any) -> None:
        """Call kernel(first, last, first local row, *arguments) over the local rows, on all threads."""
        above = self.rows[0]
        over_rows(
            self.n_rows, self.threads,
            lambda first, last: kernel(first + above, last + above, above, *arguments), least=LEAST_ROWS,
        )  # fmt: skip

    def of_rows(self: Rows, first: int, last: int) -> Rows:
        """The same with rows first .. last-1, whose elements are not stored."""
        other = copy.copy(self)
        other.rows, other._matrix = (first, last), None
        for name in ("cells", "counts", "_diagonal"):
            other.__dict__.pop(name, None)
        return other

    def alone(self: Rows) -> Rows:
        """The same with all rows, whose elements are not stored unless they are here."""
        return self if self.rows == (0, self.shape[0]) else self.of_rows(0, self.shape[0])

    def project(self, x: Array, parity: int) -> Array:
        """x itself: a list has no symmetry of exchange."""
        return x

    def apply(self, x: Array, parity: int | None = None, out: Array | None = None) -> Array:
        """The product with x, a new array or `out`; where this rank has all rows."""
        if x.shape != self.shape:
            raise ValueError(f"a state of shape {x.shape} where {self.shape} is expected")
        y = np.empty(self.shape, self.dtype) if out is None else out
        y[:] = 0.0
        self.add_rows(None, self.put(x), x, y, False)
        return y

    def add_rows(self, block: None, x: Array, local: Array, y: Array, half: bool) -> None:
        """Add the local rows of the product with x, a whole state, to y."""
        from tnplan.executor.sbd.lists import list_kernel

        if self._matrix is None:
            self._add_again(x, y)
            return
        matrix = self._matrix
        over_rows(
            self.n_rows, self.threads, lambda first, last: list_kernel.add_sparse(first, last, matrix, x, y),
            least=LEAST_ELEMENTS * self.n_rows // (len(matrix[1]) + 1),
        )  # fmt: skip

    def dense(self) -> Array:
        """All elements as a full matrix; where they are stored and this rank has all rows."""
        assert self._matrix is not None
        start, column, value = self._matrix
        matrix = np.zeros(2 * self.shape, self.dtype)
        matrix[np.repeat(np.arange(self.n_rows), np.diff(start)), column] = value
        return matrix

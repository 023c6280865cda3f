"""The Hamiltonian among a list of determinants, on a CPU: the rows of one rank.

Elements are kept as a sparse matrix where they fit, and otherwise made again for every product. Knows
determinants, integrals and arrays; nothing of solvers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property, partial

import numpy as np

from tnplan.executor.device.cpu.host_facts import cores
from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.sbd.basis.determinants import NEITHER, DeterminantList, OneRank
from tnplan.executor.sbd.basis.integrals import Integrals, spin_constant
from tnplan.executor.sbd.basis.real_parts import add_by_parts
from tnplan.executor.sbd.lists.list_cells import ListCells, list_cells
from tnplan.executor.sbd.lists.list_tables import (
    GroupLinks,
    SpinTerms,
    StringGroups,
    list_tables,
    row_work,
    spin_terms,
)
from tnplan.executor.sbd.sigma.row_partition import partition_rows
from tnplan.planner.common.arrays import Array

INDEX_BYTES, VALUE_BYTES = 4, 8
"""What an element of a sparse matrix takes: its column, and every real number of its value."""
NO_COLUMNS = np.empty(0, np.int32)
NO_VALUES = np.empty(0)


class ListHamiltonian(OneRank):
    """H, without the core energy, among a list of determinants; of several ranks each has a range of rows."""

    symmetric = False
    sector = None

    def __init__(
        self, integrals: Integrals, basis: DeterminantList, *, threads: int | None = None,
        room_bytes: float = np.inf, rank_of: tuple[int, int] = (0, 1),
    ) -> None:  # fmt: skip
        """`room_bytes` is the memory that elements may take; 0: they are not even counted.

        `rank_of` is this rank and how many there are.
        """
        self.threads = threads or cores()
        self.integrals, self.basis = integrals, basis
        self.shape: tuple[int, ...] = (len(basis),)
        self.parities = (NEITHER,)
        self.dtype = integrals.two.dtype
        self.tables = list_tables(basis, len(integrals.two))
        parts = (integrals.real, integrals.imaginary) if integrals.is_complex else (integrals,)
        self.terms_of_parts = tuple(self._with_singles(spin_terms(part)) for part in parts)
        self.partition = partition_rows(row_work(self.tables), rank_of[1])
        self.rows = self.partition.rows(rank_of[0])
        self._matrix: tuple[Array, Array, Array] | None = None
        self.element_bytes = INDEX_BYTES + VALUE_BYTES * len(parts)
        if self.element_bytes * self.n_rows <= room_bytes:
            self._store(room_bytes)

    def _with_singles(self, terms: tuple[SpinTerms, SpinTerms]) -> tuple[SpinTerms, SpinTerms]:
        """Integrals with the elements between linked strings of each spin."""
        from tnplan.executor.sbd.lists import list_kernel

        def made(groups: StringGroups, links: GroupLinks, spin: SpinTerms) -> SpinTerms:
            tables = groups.own, links, spin.one, spin.two, np.empty(len(links.other))
            over_rows(
                len(groups.own), self.threads,
                lambda first, last: list_kernel.fill_singles(first, last, *tables),
            )  # fmt: skip
            return spin._replace(singles=tables[-1])

        alpha, beta, alpha_links, beta_links = self.tables
        return made(alpha, alpha_links, terms[0]), made(beta, beta_links, terms[1])

    @property
    def n_rows(self) -> int:
        """How many rows this rank has."""
        return self.rows[1] - self.rows[0]

    @property
    def is_stored(self) -> bool:
        """Whether the elements are kept."""
        return self._matrix is not None

    @property
    def elements_bytes(self) -> int:
        """The memory of the elements that are kept."""
        return 0 if self._matrix is None else sum(part.nbytes for part in self._matrix)

    @cached_property
    def cells(self) -> ListCells:
        """Where the local rows' excitations of both spins are, made when they are first needed."""
        return list_cells(self.tables, self.rows, self.threads)

    @cached_property
    def counts(self) -> Array:
        """The numbers of elements of the local rows."""
        from tnplan.executor.sbd.lists import list_kernel

        counts, parts = np.zeros(self.n_rows, np.int64), (self.tables, self.cells, *self.terms_of_parts[0])
        self._over_rows(lambda first, last, above: list_kernel.count_rows(
            first, last, above, *parts, counts, NO_VALUES, NO_COLUMNS
        ))  # fmt: skip
        return counts

    @property
    def pairs_contributing(self) -> int:
        """Pairs of determinants, the first of them local, that the rules of Slater and Condon let couple."""
        return int(self.counts.sum())

    def _over_rows(self, work: Callable[[int, int, int], None]) -> None:
        """Call work(first, last, first local row) over the local rows, on all threads."""
        above = self.rows[0]
        over_rows(
            self.n_rows, self.threads,
            lambda first, last: work(first + above, last + above, above),
        )  # fmt: skip

    def _store(self, room_bytes: float) -> None:
        """Keep the elements, if they fit."""
        from tnplan.executor.sbd.lists import list_kernel

        start = np.concatenate([[0], np.cumsum(self.counts)])
        if self.element_bytes * start[-1] > room_bytes:
            return
        column = np.empty(start[-1], np.int32)
        values = []
        for terms in self.terms_of_parts:
            value, tables = np.empty(start[-1]), (self.tables, self.cells, *terms)
            self._over_rows(lambda first, last, above: list_kernel.fill_rows(
                first, last, above, *tables, start, NO_VALUES, column, value  # noqa: B023
            ))  # fmt: skip
            values.append(value)
        self._matrix = start, column, values[0] if len(values) == 1 else values[0] + 1j * values[1]

    def diagonal(self) -> Array:
        """The diagonal of H over the local rows, a new array."""
        return self._diagonal.copy()

    @cached_property
    def _diagonal(self) -> Array:
        from tnplan.executor.sbd.lists import list_kernel

        energies = np.empty(self.n_rows)
        self._over_rows(lambda first, last, above: list_kernel.fill_energies(
            first, last, above, self.tables, *self.terms_of_parts[0], energies
        ))  # fmt: skip
        return energies

    def alone(self) -> ListHamiltonian:
        """The same with all rows, whose elements are not kept unless they are here."""
        return self if self.rows == (0, self.shape[0]) else self.of_rows(0, self.shape[0])

    def of_rows(self, first: int, last: int) -> ListHamiltonian:
        """The same with rows first .. last-1, whose elements are not kept."""
        other = copy.copy(self)
        other.rows, other._matrix = (first, last), None
        for name in ("cells", "counts", "_diagonal"):
            other.__dict__.pop(name, None)
        return other

    def open_shells(self) -> Array:
        """The numbers of singly occupied orbitals of the local determinants."""
        from tnplan.executor.sbd.lists import list_kernel

        counts = np.empty(self.n_rows, np.int64)
        self._over_rows(lambda first, last, above: list_kernel.count_open(
            first, last, above, self.tables, counts
        ))  # fmt: skip
        return counts

    def spin_diagonal(self) -> Array:
        """The diagonal of S^2 over the local rows."""
        n_electrons = self.integrals.n_alpha + self.integrals.n_beta
        return spin_constant(self.integrals) - (n_electrons - self.open_shells()) / 2

    def add_exchange(self, block: None, factor: float, x: Array, y: Array) -> None:
        """Add to y, the local rows, factor times the sum over p != q of E^a_pq E^b_qp x, x being whole."""
        from tnplan.executor.sbd.lists import list_kernel

        def add(real: Array, made: Array) -> None:
            self._over_rows(lambda first, last, above: list_kernel.add_exchange(
                first, last, above, factor, self.tables, real, made
            ))  # fmt: skip

        add_by_parts(add, x, y)

    def block(self, first: int, last: int) -> None:
        """What rows first .. last-1 of a state contribute from: all rows, which are given together."""
        if (first, last) != (0, self.shape[0]):
            raise ValueError("a list takes all rows of a state at once")

    def empty(self, *shape: int) -> Array:
        """An array, not set."""
        return np.empty(shape, self.dtype)

    def put(self, array: Array) -> Array:
        """The array in fp64, complex where integrals are."""
        return np.ascontiguousarray(array, self.dtype)

    def get(self, array: Array) -> Array:
        """The array itself: it is on the host."""
        return array

    def project(self, x: Array, parity: int) -> Array:
        """x itself: a list has no symmetry of exchange."""
        return x

    def apply(self, x: Array, parity: int | None = None, out: Array | None = None) -> Array:
        """H x, a new array or `out`; where this rank has all rows."""
        if x.shape != self.shape:
            raise ValueError(f"a state of shape {x.shape} where {self.shape} is expected")
        y = np.empty(self.shape, self.dtype) if out is None else out
        y[:] = 0.0
        self.add_rows(None, self.put(x), x, y, False)
        return y

    def add_rows(self, block: None, x: Array, local: Array, y: Array, half: bool) -> None:
        """Add the local rows of H x to y. `x` is a whole state."""
        from tnplan.executor.sbd.lists import list_kernel

        if self._matrix is None:
            self._add_again(x, y)
            return
        matrix = self._matrix
        over_rows(
            self.n_rows, self.threads, lambda first, last: list_kernel.add_sparse(first, last, *matrix, x, y)
        )

    def _add_again(self, x: Array, y: Array) -> None:
        """The same with elements made again: (A + i B) (u + i v) = A u - B v + i (A v + B u)."""
        from tnplan.executor.sbd.lists import list_kernel

        def add(number: int, real: Array, made: Array) -> None:
            tables = self.tables, self.cells, *self.terms_of_parts[number]
            self._over_rows(lambda first, last, above: list_kernel.add_rows(
                first, last, above, *tables, real, NO_COLUMNS, made
            ))  # fmt: skip

        y += self._diagonal * x[slice(*self.rows)]
        add_by_parts(partial(add, 0), x, y)
        if len(self.terms_of_parts) > 1:
            turned = np.zeros_like(y)
            add_by_parts(partial(add, 1), x, turned)
            y += 1j * turned

    def dense(self) -> Array:
        """H as a full matrix; where the elements are kept and this rank has all rows."""
        assert self._matrix is not None
        start, column, value = self._matrix
        matrix = np.zeros(2 * self.shape, self.dtype)
        matrix[np.repeat(np.arange(self.n_rows), np.diff(start)), column] = value
        return matrix

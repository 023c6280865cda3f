"""Rows of H among a list of determinants in the form that a GPU takes: nothing is stored but cells.

Work of a product of N determinants, of k couplings by both spins and groups of g members: 2 N g comparisons
of strings, of about 8 integer operations, and N k elements of about 8 operations. Bytes: 8 N k of entries and
16 N k of the state and of integrals, nearly all from caches; 16 s N of cells and entries once, for s links of
a string. Elements stored as a sparse matrix would take 12 N k bytes.

Knows the tables of a `ListHamiltonian`; where arrays lie and what works on them is up to `ListSteps`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian, ListTasks, list_tasks
from tnplan.executor.sbd.lists.list_tables import GroupLinks, ListCells, SpinTerms, StringGroups

Array = Any
"""An array where the steps work."""
Host = NDArray[Any]
NONE = np.empty(0)


class GroupRows(NamedTuple):
    """Groups, the tasks of this rank's rows, and the integrals of the spin whose strings are compared."""

    groups: StringGroups
    tasks: ListTasks
    terms: SpinTerms


class CellRows(NamedTuple):
    """The beta strings of this rank's rows, the links of beta, the cells of the rows, and integrals.

    `two` are those [pair of beta, pair of alpha].
    """

    betas: Array
    links: GroupLinks
    cells: ListCells
    two: Array


class LinkedRows(NamedTuple):
    """Groups of alpha strings and their links; this rank's rows as members, and the group of each."""

    groups: StringGroups
    links: GroupLinks
    members: Array
    row_groups: Array


class PutOnce:
    """Copies of arrays where steps work, one of each array however often it is put."""

    def __init__(self, put: Callable[[Host], Array]) -> None:
        self._put = put
        self._copy_of: dict[int, tuple[Host, Array]] = {}
        """By the array's id, which no other array gets while this one is referenced."""

    def __call__(self, table: Host) -> Array:
        """The copy of an array."""
        if id(table) not in self._copy_of:
            self._copy_of[id(table)] = table, self._put(table)
        return self._copy_of[id(table)][1]

    def copies(self) -> list[Array]:
        """All copies."""
        return [copy for _, copy in self._copy_of.values()]


class ListSteps(Protocol):
    """The steps of a product on one device, in fp64, one after the other. `above` is the first local row."""

    def put(self, array: Host) -> Array:
        """A copy where the steps work."""

    def get(self, array: Array) -> Host:
        """A copy on the host."""

    def empty(self, *shape: int) -> Array:
        """An array there, not set."""

    def add_diagonal(self, above: int, diagonal: Array, x: Array, y: Array) -> None:
        """y[i] += diagonal[i] x[above + i]."""

    def add_same_spin(self, above: int, rows: GroupRows, x: Array, y: Array, counting: bool) -> None:
        """Add to y the excitations of one spin, or their numbers."""

    def add_opposite_spin(self, rows: CellRows, x: Array, y: Array) -> None:
        """Add to y the excitations of both spins."""

    def add_exchange(self, above: int, rows: LinkedRows, factor: float, x: Array, y: Array) -> None:
        """Add to y factor times the sum over p != q of E^a_pq E^b_qp x."""


class BatchedList:
    """The rows of H that a `ListHamiltonian` holds, without the core energy, made where `steps` work."""

    symmetric = False
    sector = None

    def __init__(self, hamiltonian: ListHamiltonian, steps: ListSteps) -> None:
        """Puts the tables where the steps work. ValueError for complex integrals."""
        if hamiltonian.integrals.is_complex:
            raise ValueError("rows of complex integrals are computed only on CPUs")
        self._hamiltonian, self._steps = h, _ = hamiltonian, steps
        self.shape, self.rows, self.parities = h.shape, h.rows, h.parities
        self.block, self.empty, self.get = h.block, steps.empty, steps.get
        tables, (alpha_terms, beta_terms) = h.tables, h.terms_of_parts[0]
        once = PutOnce(steps.put)

        def put_tables(arrays: Any) -> Any:
            """A tuple of arrays where the steps work, each of them put once."""
            return type(arrays)(*map(once, arrays))

        groups = [put_tables(tables.alpha), put_tables(tables.beta)]
        self._within = []
        for own, own_put, terms in zip(
            (tables.alpha, tables.beta), groups, (beta_terms, alpha_terms), strict=True
        ):
            tasks = put_tables(list_tasks(own, np.diff(own.begin), self.rows))
            self._within.append(GroupRows(own_put, tasks, put_tables(terms._replace(singles=NONE))))
        links = put_tables(tables.alpha_links), put_tables(tables.beta_links)
        members, determinants = self._within[0].tasks.local, tables.alpha.determinants
        local = (determinants >= h.rows[0]) & (determinants < h.rows[1])
        row_groups = tables.alpha.number[determinants[local]]
        self._exchanged = LinkedRows(groups[0], links[0], members, steps.put(row_groups))
        betas, two = tables.beta.number[slice(*h.rows)], beta_terms.two_other
        self._across = CellRows(steps.put(betas), links[1], put_tables(h.cells), once(two))
        self._couplings = h.cells.couplings
        self._diagonal = steps.put(h.diagonal())
        self.size_bytes = sum(table.nbytes for table in (*once.copies(), row_groups, betas, self._diagonal))

    def put(self, array: Host) -> Array:
        """A copy where the steps work."""
        return self._steps.put(np.asarray(array, np.float64))

    def diagonal(self) -> Array:
        """The diagonal of H over the local rows."""
        return self._diagonal

    def spin_diagonal(self) -> Array:
        """The diagonal of S^2 over the local rows."""
        return self._steps.put(self._hamiltonian.spin_diagonal())

    def add_rows(self, block: None, x: Array, local: Array, y: Array, half: bool) -> None:
        """Add the local rows of H x to y. `x` is a whole state. Allocates nothing."""
        self._steps.add_diagonal(self.rows[0], self._diagonal, x, y)
        for rows in self._within:
            self._steps.add_same_spin(self.rows[0], rows, x, y, False)
        self._steps.add_opposite_spin(self._across, x, y)

    @property
    def pairs_contributing(self) -> int:
        """How many pairs of determinants couple, the first of them local."""
        n_rows = self.rows[1] - self.rows[0]
        y = self._steps.empty(n_rows)
        y[:] = 0.0
        for rows in self._within:
            self._steps.add_same_spin(self.rows[0], rows, y, y, True)
        return n_rows + int(self._steps.get(y).sum()) + self._couplings

    def add_exchange(self, block: None, factor: float, x: Array, y: Array) -> None:
        """Add to y factor times the sum over p != q of E^a_pq E^b_qp x. `x` is a whole state."""
        self._steps.add_exchange(self.rows[0], self._exchanged, factor, x, y)

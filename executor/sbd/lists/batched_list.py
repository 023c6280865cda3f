"""Rows of H among a list of determinants, found anew for every product: the form that a GPU takes.

Work of a product of N determinants with c candidates and k couplings each: N c comparisons of strings, of
about 8 integer operations, and N k elements, of about 30. Bytes: what a block brings to its shared memory, 20
for a candidate and up to 64 rows. Stored elements would take 12 N k bytes.

Knows the tables of a `ListHamiltonian`; where arrays lie and what works on them is up to `ListSteps`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.lists.list_tables import GroupLinks, SpinTerms, StringGroups, linked_members
from tnplan.executor.sbd.lists.list_tasks import ListTasks, list_tasks

Array = Any
"""An array where the steps work."""
Host = NDArray[Any]


class RowTasks(NamedTuple):
    """Groups, the tasks of this rank's rows, and the integrals of the spin whose strings are compared."""

    groups: StringGroups
    tasks: ListTasks
    terms: SpinTerms


class LinkedRows(NamedTuple):
    """Groups and their links, the tasks of this rank's rows, and the group of each row.

    `two` are integrals [pair of the groups' spin, pair of the other].
    """

    groups: StringGroups
    links: GroupLinks
    tasks: ListTasks
    row_groups: Array
    two: Array


class ListSteps(Protocol):
    """The steps of a product on one device, in fp64, one after the other. `above` is the first local row."""

    def put(self, array: Host) -> Array:
        """A copy where the steps work."""

    def get(self, array: Array) -> Host:
        """A copy on the host."""

    def empty(self, *shape: int) -> Array:
        """An array there, not set."""

    def add_diagonal(self, above: int, diagonal: Array, x: Array, y: Array, counting: bool) -> None:
        """y[i] += diagonal[i] x[above + i], or 1 where `counting`."""

    def add_same_spin(self, above: int, rows: RowTasks, x: Array, y: Array, counting: bool) -> None:
        """Add to y the excitations of one spin, or their numbers."""

    def add_opposite_spin(self, above: int, rows: LinkedRows, x: Array, y: Array, counting: bool) -> None:
        """Add to y the excitations of both spins, or their numbers."""

    def add_exchange(self, above: int, rows: LinkedRows, factor: float, x: Array, y: Array) -> None:
        """Add to y factor times the sum over p != q of E^a_pq E^b_qp x."""


class BatchedList:
    """The rows of H that a `ListHamiltonian` holds, without the core energy, made where `steps` work."""

    symmetric = False

    def __init__(self, hamiltonian: ListHamiltonian, steps: ListSteps) -> None:
        """Puts the tables where the steps work."""
        self._hamiltonian, self._steps = h, _ = hamiltonian, steps
        self.shape, self.rows, self.parities = h.shape, h.rows, h.parities
        tables, (alpha_terms, beta_terms) = h.tables, h.terms
        put: dict[int, Array] = {}

        def placed(part: Any) -> Any:
            """A tuple of arrays where the steps work, each of them put once."""
            return type(part)(*(put.setdefault(id(table), steps.put(table)) for table in part))

        groups = [placed(tables.alpha), placed(tables.beta)]
        self._within = []
        for own, placed_own, terms in zip(
            (tables.alpha, tables.beta), groups, (beta_terms, alpha_terms), strict=True
        ):
            tasks = list_tasks(own, np.diff(own.begin), self.rows)
            self._within.append(RowTasks(placed_own, placed(tasks), placed(terms)))
        major = tables.major
        tasks = list_tasks(major, linked_members(tables.links), self.rows)
        row_groups = major.number[major.place[tasks.local]].astype(np.int32)
        two = (beta_terms if tables.by_beta else alpha_terms).two_other
        self._across = LinkedRows(
            groups[tables.by_beta], placed(tables.links), placed(tasks), steps.put(row_groups),
            put.setdefault(id(two), steps.put(two)),
        )  # fmt: skip
        self._diagonal = steps.put(h.diagonal())
        self._sizes = [table.nbytes for table in (*put.values(), row_groups, self._diagonal)]

    @property
    def size_bytes(self) -> int:
        """The memory of all tables where the steps work."""
        return sum(self._sizes)

    def block(self, first: int, last: int) -> None:
        """What rows first .. last-1 of a state contribute from: all rows, which are given together."""
        self._hamiltonian.block(first, last)

    def empty(self, *shape: int) -> Array:
        """An array where the steps work, not set."""
        return self._steps.empty(*shape)

    def put(self, array: Host) -> Array:
        """A copy where the steps work."""
        return self._steps.put(np.asarray(array, np.float64))

    def get(self, array: Array) -> Host:
        """A copy on the host."""
        return self._steps.get(array)

    def diagonal(self) -> Array:
        """The diagonal of H over the local rows."""
        return self._diagonal

    def spin_diagonal(self) -> Array:
        """The diagonal of S^2 over the local rows."""
        return self._steps.put(self._hamiltonian.spin_diagonal())

    def add_rows(self, block: None, x: Array, local: Array, y: Array, half: bool) -> None:
        """Add the local rows of H x to y. `x` is a whole state. Allocates nothing."""
        self._add(x, y, False)

    def count(self) -> int:
        """How many pairs of determinants couple, the first of them local."""
        y = self._steps.empty(self.rows[1] - self.rows[0])
        y[:] = 0.0
        self._add(self._diagonal, y, True)
        return int(self._steps.get(y).sum())

    def _add(self, x: Array, y: Array, counting: bool) -> None:
        above = self.rows[0]
        self._steps.add_diagonal(above, self._diagonal, x, y, counting)
        for rows in self._within:
            self._steps.add_same_spin(above, rows, x, y, counting)
        self._steps.add_opposite_spin(above, self._across, x, y, counting)

    def add_exchange(self, block: None, factor: float, x: Array, y: Array) -> None:
        """Add to y factor times the sum over p != q of E^a_pq E^b_qp x. `x` is a whole state."""
        self._steps.add_exchange(self.rows[0], self._across, factor, x, y)

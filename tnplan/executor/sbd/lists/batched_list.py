"""Rows of H among a list of determinants in the form that a GPU takes: nothing is stored but cells.

Work of a product of N determinants, of k couplings by both spins and groups of g members: 2 N g comparisons
of strings, of about 8 integer operations, and N k elements of about 8 operations. Bytes: 8 N k of entries and
16 N k of the state and of integrals, nearly all from caches; 8 s N of entries once and 8 for each cell, for s
links of a string. Elements stored as a sparse matrix would take 12 N k bytes.

Knows the tables of a `ListHamiltonian`; where arrays lie and what works on them is up to `ListSteps`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian, ListTasks, list_tasks
from tnplan.executor.sbd.lists.list_tables import GroupLinks, SortedCells, SpinTerms, StringGroups

Array = Any
"""An array where the steps work."""
Host = NDArray[Any]
NONE = np.empty(0)
PIECES = 64
"""Pieces in which entries are sorted, at least where they are many: what sorting needs besides is small."""
FEWEST_ENTRIES, MOST_ENTRIES = 1 << 16, 1 << 26
"""Entries of a piece."""
KEYS = 1 << 32
"""Groups of a piece times beta strings, at most."""


class GroupRows(NamedTuple):
    """Groups, the tasks of this rank's rows, and the integrals of the spin whose strings are compared."""

    groups: StringGroups
    tasks: ListTasks
    terms: SpinTerms


class CellRows(NamedTuple):
    """The alpha and beta groups of this rank's rows, the links of beta, the cells of alpha, and integrals.

    `two` are those [pair of beta, pair of alpha].
    """

    alphas: Array
    betas: Array
    links: GroupLinks
    cells: SortedCells
    two: Array


class LinkedEntries(NamedTuple):
    """What entries are made from: groups of alpha strings, their links, and members' beta strings.

    Link l has entries before[l] .. before[l+1]-1, and group g base[g] .. base[g+1]-1; none where a group
    has no row of this rank. These two are on the host.
    """

    groups: StringGroups
    links: GroupLinks
    betas: Array
    n_betas: int
    before: Host
    base: Host


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

    def sorted_cells(self, linked: LinkedEntries, ends: list[int]) -> SortedCells:
        """The cells of all groups, made for groups ends[i] .. ends[i+1]-1 at once."""

    def add_opposite_spin(self, rows: CellRows, x: Array, y: Array, counting: bool) -> None:
        """Add to y the excitations of both spins, or their numbers."""

    def add_exchange(self, above: int, rows: LinkedRows, factor: float, x: Array, y: Array) -> None:
        """Add to y factor times the sum over p != q of E^a_pq E^b_qp x."""


class BatchedList:
    """The rows of H that a `ListHamiltonian` holds, without the core energy, made where `steps` work."""

    symmetric = False
    sector = None

    def __init__(
        self, hamiltonian: ListHamiltonian, steps: ListSteps, memory_bytes: float = np.inf
    ) -> None:  # fmt: skip
        """Puts the tables where the steps work. ValueError for complex integrals.

        InputError where entries and vectors of a state do not fit in so many bytes.
        """
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
        alphas, betas = (steps.put(spin.number[slice(*h.rows)]) for spin in (tables.alpha, tables.beta))
        cells = self._sorted_cells(row_groups, (groups[0], links[0]), memory_bytes)
        self._across = CellRows(alphas, betas, links[1], cells, once(beta_terms.two_other))
        self._diagonal = steps.put(h.diagonal())
        others = alphas, betas, *cells, self._exchanged.row_groups, self._diagonal
        self.size_bytes = sum(table.nbytes for table in (*once.copies(), *others))

    def _sorted_cells(
        self, row_groups: Host, placed: tuple[StringGroups, GroupLinks], memory_bytes: float
    ) -> SortedCells:
        """The cells of the alpha groups that have one of these rows, made where the steps work.

        `placed` are those groups and their links there.
        """
        tables, steps = self._hamiltonian.tables, self._steps
        alpha, links, n_betas = tables.alpha, tables.alpha_links, len(tables.beta.own)
        n_groups = len(alpha.own)
        is_local = np.bincount(row_groups, minlength=n_groups) > 0
        counts = np.diff(alpha.begin)[links.other] * np.repeat(is_local, np.diff(links.start))
        before = np.concatenate([[0], np.cumsum(counts)])
        base = before[links.start]
        needed_bytes = 8 * int(base[-1])
        if needed_bytes > memory_bytes:
            raise InputError(
                "memory",
                f"is {size_text(memory_bytes)}, but excitations of both spins need {size_text(needed_bytes)}",
                "give a shorter list, more ranks or more memory",
                topic="memory",
            )  # fmt: skip
        at_once = np.clip(base[-1] // PIECES, FEWEST_ENTRIES, MOST_ENTRIES)
        most_groups = max(1, KEYS // n_betas)
        ends = [0]
        while ends[-1] < n_groups:
            first = ends[-1]
            last = int(np.searchsorted(base, base[first] + at_once, "right")) - 1
            ends.append(min(max(last, first + 1), first + most_groups))
        linked = LinkedEntries(
            *placed, steps.put(tables.beta.number[alpha.determinants]), n_betas, before, base
        )  # fmt: skip
        return steps.sorted_cells(linked, ends)

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
        self._steps.add_opposite_spin(self._across, x, y, False)

    @property
    def pairs_contributing(self) -> int:
        """How many pairs of determinants couple, the first of them local."""
        n_rows = self.rows[1] - self.rows[0]
        y = self._steps.empty(n_rows)
        y[:] = 0.0
        for rows in self._within:
            self._steps.add_same_spin(self.rows[0], rows, y, y, True)
        self._steps.add_opposite_spin(self._across, y, y, True)
        return n_rows + int(self._steps.get(y).sum())

    def add_exchange(self, block: None, factor: float, x: Array, y: Array) -> None:
        """Add to y factor times the sum over p != q of E^a_pq E^b_qp x. `x` is a whole state."""
        self._steps.add_exchange(self.rows[0], self._exchanged, factor, x, y)

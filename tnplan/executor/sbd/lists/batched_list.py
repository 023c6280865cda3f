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

from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian, ListTasks, list_tasks
from tnplan.executor.sbd.lists.list_tables import GroupLinks, ListTables, SortedCells, SpinTerms, StringGroups

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
SORTING_BYTES = 64
"""For each entry of a piece, while its cells are made and used."""


class GroupRows(NamedTuple):
    """Groups, the tasks of this rank's rows, and the integrals of the spin whose strings are compared."""

    groups: StringGroups
    tasks: ListTasks
    terms: SpinTerms


class LinkedEntries(NamedTuple):
    """What cells are made and used with: groups of alpha strings, the links of both spins, and integrals.

    `betas` are the beta strings of members, of `n_betas`; `two` integrals [pair of beta, pair of alpha].
    Link l has entries before[l] .. before[l+1]-1, and group g base[g] .. base[g+1]-1; none where a group has
    no row of this rank. These two are on the host.
    """

    groups: StringGroups
    links: GroupLinks
    beta_links: GroupLinks
    betas: Array
    two: Array
    n_betas: int
    before: Host
    base: Host


class CellPiece(NamedTuple):
    """Alpha groups groups[0] .. groups[1]-1, this rank's rows of them as members, and the group of each.

    `cells` are those of these groups; None where they are made again in each product.
    """

    groups: tuple[int, int]
    members: Array
    row_groups: Array
    cells: SortedCells | None


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

    def sorted_cells(self, linked: LinkedEntries, groups: tuple[int, int]) -> SortedCells:
        """The cells of groups groups[0] .. groups[1]-1, counted from the first of them."""

    def add_opposite_spin(
        self, above: int, linked: LinkedEntries, piece: CellPiece, x: Array, y: Array, counting: bool
    ) -> None:
        """Add to y the excitations of both spins of a piece with cells, or their numbers."""

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

        Cells that do not fit in so many bytes with all tables are made again in each product.
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

        groups = [put_tables(spin._replace(number=NONE)) for spin in (tables.alpha, tables.beta)]
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
        self._exchanged = LinkedRows(groups[0], links[0], members, once(row_groups))
        self._diagonal = once(h.diagonal())
        betas, two = once(tables.beta.number[determinants]), once(beta_terms.two_other)
        before, base = _entries_before(tables, row_groups)
        self._linked = LinkedEntries(groups[0], *links, betas, two, len(tables.beta.own), before, base)
        self.size_bytes = sum(table.nbytes for table in once.copies())
        self._pieces = self._pieces_within(row_groups, memory_bytes)

    def _pieces_within(self, row_groups: Host, memory_bytes: float) -> list[CellPiece]:
        """All pieces, with cells as long as the memory holds them; adds to `size_bytes`."""
        base, own = self._linked.base, self._exchanged
        at_once = np.clip(base[-1] // PIECES, FEWEST_ENTRIES, MOST_ENTRIES)
        most_groups = max(1, KEYS // self._linked.n_betas)
        pieces, first, n_groups = [], 0, len(base) - 1
        while first < n_groups:
            last = int(np.searchsorted(base, base[first] + at_once, "right")) - 1
            groups = first, min(max(last, first + 1), first + most_groups)
            rows = slice(*np.searchsorted(row_groups, groups))
            pieces.append(CellPiece(groups, own.members[rows], own.row_groups[rows], None))
            first = groups[1]
        most_entries = max(int(base[last] - base[first]) for (first, last), *_ in pieces)
        again_bytes = SORTING_BYTES * most_entries
        for i, piece in enumerate(pieces):
            cells = self._steps.sorted_cells(self._linked, piece.groups)
            cells_bytes = sum(array.nbytes for array in cells)
            if self.size_bytes + cells_bytes + again_bytes > memory_bytes:
                self.size_bytes += again_bytes
                break
            pieces[i] = piece._replace(cells=cells)
            self.size_bytes += cells_bytes
        return pieces

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
        """Add the local rows of H x to y. `x` is a whole state. Allocates cells that are made again alone."""
        self._steps.add_diagonal(self.rows[0], self._diagonal, x, y)
        for rows in self._within:
            self._steps.add_same_spin(self.rows[0], rows, x, y, False)
        self._add_opposite_spin(x, y, False)

    def _add_opposite_spin(self, x: Array, y: Array, counting: bool) -> None:
        """Add to y the excitations of both spins, or their numbers."""
        for piece in self._pieces:
            if piece.cells is None:
                piece = piece._replace(cells=self._steps.sorted_cells(self._linked, piece.groups))
            self._steps.add_opposite_spin(self.rows[0], self._linked, piece, x, y, counting)

    @property
    def pairs_contributing(self) -> int:
        """How many pairs of determinants couple, the first of them local."""
        n_rows = self.rows[1] - self.rows[0]
        y = self._steps.empty(n_rows)
        y[:] = 0.0
        for rows in self._within:
            self._steps.add_same_spin(self.rows[0], rows, y, y, True)
        self._add_opposite_spin(y, y, True)
        return n_rows + int(self._steps.get(y).sum())

    def add_exchange(self, block: None, factor: float, x: Array, y: Array) -> None:
        """Add to y factor times the sum over p != q of E^a_pq E^b_qp x. `x` is a whole state."""
        self._steps.add_exchange(self.rows[0], self._exchanged, factor, x, y)


def _entries_before(tables: ListTables, row_groups: Host) -> tuple[Host, Host]:
    """The entries before each link and each group of alpha, of those groups that have a row."""
    links, begin = tables.alpha_links, tables.alpha.begin
    has_row = np.bincount(row_groups, minlength=len(begin) - 1) > 0
    counts = np.diff(begin)[links.other] * np.repeat(has_row, np.diff(links.start))
    before = np.concatenate([[0], np.cumsum(counts)])
    return before, before[links.start]

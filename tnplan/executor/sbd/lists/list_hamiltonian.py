"""The Hamiltonian among a list of determinants, on a CPU: the rows of one rank.

Knows determinants, integrals and arrays; nothing of solvers.
"""

from __future__ import annotations

from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.system_calls import cores
from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.sbd.basis.determinants import DeterminantList
from tnplan.executor.sbd.basis.integrals import Integrals, add_by_parts, all_pairs, spin_constant
from tnplan.executor.sbd.lists.list_tables import (
    ListCells,
    ListedSpin,
    RowElements,
    RowTables,
    SpinTerms,
    StringGroups,
    list_cells,
    list_tables,
    row_work,
    spin_terms,
)
from tnplan.executor.sbd.lists.listed_rows import LEAST_ROWS, ListedRows
from tnplan.executor.sbd.properties.reduced_density import Densities, densities_of_parts
from tnplan.executor.sbd.sigma.cost_model import partition_rows

# How the rows of a list of determinants are dealt to blocks of threads on a GPU.
#
# Rows of one group have the same candidates, so that a block brings these to its shared memory once for all
# its rows. Knows numbers of members and candidates; no states.


ROWS = 64
"""Rows of a task, at most."""
MOST_WORK = 1 << 21
"""Candidates times rows of a task, at most, unless one row alone has more."""


PIECE_BYTES = 1 << 32
"""Cells that density matrices need at once."""


class ListTasks(NamedTuple):
    """The tasks of one rank, those of most work first.

    table [task, 3]: group, and the first and one after the last of its rows; row i is member local[i].
    """

    table: Array
    local: Array


def list_tasks(groups: StringGroups, candidates: Array, rows: tuple[int, int]) -> ListTasks:
    """The tasks of determinants rows[0] .. rows[1]-1, for so many candidates of each group."""
    determinants = groups.determinants
    local = np.flatnonzero((determinants >= rows[0]) & (determinants < rows[1])).astype(np.int32)
    counts = np.bincount(groups.number[determinants[local]], minlength=len(candidates))
    first = np.cumsum(counts) - counts
    at_once = np.clip(MOST_WORK // np.maximum(candidates, 1), 1, ROWS)
    pieces = np.where(candidates > 0, -(-counts // at_once), 0)
    group = np.repeat(np.arange(len(candidates)), pieces)
    number = np.arange(len(group)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin = first[group] + number * at_once[group]
    end = np.minimum(begin + at_once[group], (first + counts)[group])
    order = np.argsort(-(end - begin) * candidates[group], kind="stable")
    return ListTasks(np.stack([group, begin, end], 1)[order].astype(np.int64), local)


class ListHamiltonian(ListedRows):
    """H, without the core energy, among a list of determinants; of several ranks each has a range of rows."""

    def __init__(
        self, integrals: Integrals, basis: DeterminantList, *, threads: int | None = None,
        memory_bytes: float = np.inf, rank_of: tuple[int, int] = (0, 1),
    ) -> None:  # fmt: skip
        """`memory_bytes` is the memory that elements may take; 0: they are not even counted.

        `rank_of` is this rank and how many there are.
        """
        self.integrals, self.basis = integrals, basis
        self.tables = list_tables(basis, len(integrals.two))
        partition = partition_rows(row_work(self.tables), rank_of[1])
        super().__init__(integrals.two.dtype, threads or cores(), partition, rank_of[0])
        parts = (integrals.real, integrals.imaginary) if integrals.is_complex else (integrals,)
        self.terms_of_parts = tuple(self._with_singles(spin_terms(part)) for part in parts)
        self.store(memory_bytes)

    def _with_singles(self, terms: tuple[SpinTerms, SpinTerms]) -> tuple[SpinTerms, SpinTerms]:
        """Integrals with the elements between linked strings of each spin."""
        from tnplan.executor.sbd.lists import list_kernel

        # The same-spin part of a single excitation depends on the strings alone, and many
        # determinants share it: it is computed once for each link, in O(links) memory.
        def with_elements(spin: ListedSpin) -> SpinTerms:
            filled = spin._replace(terms=spin.terms._replace(singles=np.empty(len(spin.links.other))))
            over_rows(
                len(spin.groups.own), self.threads,
                lambda first, last: list_kernel.fill_singles(first, last, filled), least=LEAST_ROWS,
            )  # fmt: skip
            return filled.terms

        alpha, beta = self.tables.spins(terms)
        of_alpha = with_elements(alpha)
        if alpha.links is beta.links and self.integrals.beta is None:
            return of_alpha, of_alpha
        return of_alpha, with_elements(beta)

    def _matrix_of(self, terms: tuple[SpinTerms, SpinTerms]) -> RowTables:
        """What the local rows are made from, with the integrals of one part."""
        return RowTables(*self.tables.spins(terms), self.cells)

    @cached_property
    def cells(self) -> ListCells:
        """Where the local rows' excitations of both spins are, computed when they are first needed."""
        return list_cells(self.tables, self.rows, self.threads)

    @property
    def size_bytes(self) -> int:
        """The memory of all tables, and of the stored elements."""
        return self.tables.size_bytes + self.cells.size_bytes + self.elements_bytes

    def _count(self, counts: Array) -> None:
        from tnplan.executor.sbd.lists import list_kernel

        matrix = self._matrix_of(self.terms_of_parts[0])
        self._over_rows(list_kernel.count_rows, matrix, counts, RowElements())

    def _fill(self, start: Array, column: Array) -> Array:
        from tnplan.executor.sbd.lists import list_kernel

        values = []
        for terms in self.terms_of_parts:
            elements = RowElements(column, np.empty(start[-1]))
            self._over_rows(list_kernel.fill_rows, self._matrix_of(terms), start, elements)
            values.append(elements.value)
        return values[0] if len(values) == 1 else np.asarray(values[0] + 1j * values[1])

    def _fill_diagonal(self, energies: Array) -> None:
        from tnplan.executor.sbd.lists import list_kernel

        self._over_rows(list_kernel.fill_energies, *self.tables.spins(self.terms_of_parts[0]), energies)

    def open_shells(self) -> Array:
        """The numbers of singly occupied orbitals of the local determinants."""
        from tnplan.executor.sbd.lists import list_kernel

        counts = np.empty(self.n_rows, np.int64)
        self._over_rows(list_kernel.count_open, self.tables, counts)
        return counts

    def spin_diagonal(self) -> Array:
        """The diagonal of S^2 over the local rows."""
        # Doubly filled orbitals are (electrons - open shells) / 2, and S^2 has the diagonal const -
        # doubly filled.
        n_electrons = self.integrals.n_alpha + self.integrals.n_beta
        return spin_constant(self.integrals) - (n_electrons - self.open_shells()) / 2

    def spin_square_of(self, whole: Array) -> float:
        """The expectation value of S^2 in a whole normalized state."""
        return float(np.vdot(whole, self.alone().apply_spin_square(whole)).real)

    def identity_arrays(self) -> list[Array]:
        """Arrays that tell this space from others."""
        basis = self.basis
        return [basis.alpha_strings.words, basis.beta_strings.words, basis.alpha, basis.beta]

    def add_exchange(self, block: None, factor: float, x: Array, y: Array) -> None:
        """Add to y, the local rows, factor times the sum over p != q of E^a_pq E^b_qp x, x being whole."""
        from tnplan.executor.sbd.lists import list_kernel

        def add(real: Array, increment: Array) -> None:
            self._over_rows(list_kernel.add_exchange, factor, self.tables, real, increment)

        add_by_parts(add, x, y)

    def _add_again(self, x: Array, y: Array) -> None:
        """The same with elements computed in the product: (A + i B) (u + i v) = A u - B v + i (A v + B u)."""
        from tnplan.executor.sbd.lists import list_kernel

        def add(number: int, real: Array, increment: Array) -> None:
            matrix = self._matrix_of(self.terms_of_parts[number])
            self._over_rows(list_kernel.add_rows, matrix, RowElements(x=real), increment)

        y += self._diagonal * x[slice(*self.rows)]
        add_by_parts(partial(add, 0), x, y)
        if len(self.terms_of_parts) > 1:
            imaginary = np.zeros_like(y)
            add_by_parts(partial(add, 1), x, imaginary)
            y += 1j * imaginary


# Density matrices and occupations of a state over a list of determinants.
#
# Knows the tables of a `ListHamiltonian`; no files.


def list_densities(hamiltonian: ListHamiltonian, bra: Array, ket: Array) -> Densities:
    """The density matrices between two whole normalized states [determinant]."""
    h = hamiltonian.alone()
    return densities_of_parts(lambda left, right: _between(h, left, right), bra, ket)


def _between(h: ListHamiltonian, bra: Array, ket: Array) -> Densities:
    """The same products of operators between two real states."""
    from tnplan.executor.sbd.lists import list_kernel

    n = h.integrals.n_orbitals
    high, low = (np.append(side, side[n:]).astype(np.int32) for side in all_pairs(n))
    densities = [[np.zeros((n,) * axes) for axes in (2, 2, 4, 4, 4)] for _ in range(h.threads)]
    for first, last in pairwise(_ends_of_pieces(h)):
        piece = h if last - first == len(bra) else h.of_rows(first, last)
        given = first, piece._matrix_of(h.terms_of_parts[0]), (low, high), (bra, ket)
        bounds = np.linspace(first, last, h.threads + 1).astype(int)

        def share(begin: int, end: int) -> None:
            for number in range(begin, end):
                rows = int(bounds[number]), int(bounds[number + 1])  # noqa: B023
                list_kernel.add_densities(*rows, *given, tuple(densities[number]))  # noqa: B023

        over_rows(h.threads, h.threads, share)
    return Densities(*(np.sum(same, axis=0) for same in zip(*densities, strict=True)))


def _ends_of_pieces(h: ListHamiltonian) -> Array:
    """The ends of pieces of all rows, each of which has cells of about PIECE_BYTES."""
    alpha, beta = h.tables.alpha, h.tables.beta
    entries = h.tables.alpha_links.linked_members(alpha.begin) / np.diff(alpha.begin)
    cells = np.diff(h.tables.beta_links.start)
    row_bytes = 8 * (entries[alpha.number] + cells[beta.number])
    piece = (np.cumsum(row_bytes) // PIECE_BYTES).astype(np.int64)
    # Invariant: determinants are in order of alpha, so that rows of a group stand together.
    return np.concatenate([[0], np.flatnonzero(np.diff(piece)) + 1, [len(piece)]])


def list_weights(hamiltonian: ListHamiltonian, x: Array) -> tuple[Array, Array]:
    """The probability of every alpha and of every beta string."""
    basis, squared = hamiltonian.basis, np.abs(x) ** 2
    n_alpha, n_beta = basis.product_shape
    return np.bincount(basis.alpha, squared, n_alpha), np.bincount(basis.beta, squared, n_beta)

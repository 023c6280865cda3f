"""A list of determinants sorted for its couplings: by alpha string, by beta string, by their excitations.

Determinants that couple lie in few groups. Excitations within a spin stay in the group of determinants that
share the other spin's string. An excitation of both spins leads from a group to one whose string is a single
excitation away (`list_cells` sorts these).

Knows strings and integrals; no states and no devices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.sbd.basis.determinants import DeterminantList
from tnplan.executor.sbd.basis.excitations import neighbours
from tnplan.executor.sbd.basis.integrals import Integrals, number_pairs
from tnplan.executor.sbd.basis.strings import StringSet

COMPARISON = 0.1
"""The cost of comparing two strings, in elements."""


class StringGroups(NamedTuple):
    """Determinants grouped by the string of one spin.

    Group g has members begin[g] .. begin[g+1]-1, in rising order of their other strings. Member k is
    determinants[k], its other string the 64-bit words words[k]. `number[d]` is the group of determinant
    d, `own[g]` the words of the group's string.
    """

    begin: Array
    determinants: Array
    words: Array
    number: Array
    own: Array


class GroupLinks(NamedTuple):
    """Single excitations between the strings of groups.

    The string of group g is sign[l] a+_create[l] a_destroy[l] of that of group other[l], for l in start[g] ..
    start[g+1]-1. `pairs[l]` is the pair of orbitals.
    """

    start: Array
    other: Array
    create: Array
    destroy: Array
    pairs: Array
    sign: Array

    def linked_members(self, begin: Array) -> Array:
        """The members of all groups that each group is linked to, for groups that begin there."""
        sums = np.concatenate([[0], np.cumsum(np.diff(begin)[self.other])])
        return np.asarray(sums[self.start[1:]] - sums[self.start[:-1]])


class SpinTerms(NamedTuple):
    """The integrals that one spin sees.

    One-electron ones [p, q], two-electron ones [pair, pair] within the spin, and those with the other spin,
    to whose electrons the second pair belongs. All are real. `singles` are the elements between the spin's
    strings that are linked, by link; empty where they are not computed.
    """

    one: Array
    two: Array
    two_other: Array
    singles: Array


class ListedSpin(NamedTuple):
    """The groups of determinants by the strings of one spin, the links of these, and its integrals."""

    groups: StringGroups
    links: GroupLinks
    terms: SpinTerms


class ListTables(NamedTuple):
    """The groups of a list of determinants by the string of each spin, and the links between these."""

    alpha: StringGroups
    beta: StringGroups
    alpha_links: GroupLinks
    beta_links: GroupLinks

    @property
    def size_bytes(self) -> int:
        """The memory of all tables, those that the spins share counted once."""
        return sum({id(table): table.nbytes for tables in self for table in tables}.values())

    def spins(self, terms: tuple[SpinTerms, SpinTerms]) -> tuple[ListedSpin, ListedSpin]:
        """Alpha and beta with their integrals."""
        alpha, beta = terms
        return ListedSpin(self.alpha, self.alpha_links, alpha), ListedSpin(self.beta, self.beta_links, beta)


def spin_terms(integrals: Integrals) -> tuple[SpinTerms, SpinTerms]:
    """The real integrals of alpha and of beta."""
    tables = integrals.tables
    # (pq|rs) is (rs|pq): only orbitals of each spin need the transpose.
    turned = tables.mixed if integrals.beta is None else np.ascontiguousarray(tables.mixed.T)
    none = np.empty(0)
    return (
        SpinTerms(tables.one_alpha, tables.two_alpha, tables.mixed, none),
        SpinTerms(tables.one_beta, tables.two_beta, turned, none),
    )


def list_tables(basis: DeterminantList, n_pairs: int) -> ListTables:
    """The tables of a list, where there are so many pairs of orbitals: in order, or not."""
    sets = basis.alpha_strings, basis.beta_strings
    ranks = [_ranks(strings) for strings in sets]
    alpha, beta = ranks[0][basis.alpha], ranks[1][basis.beta]
    words = [strings.words[np.argsort(rank)] for strings, rank in zip(sets, ranks, strict=True)]
    groups = _groups(alpha, beta, *words), _groups(beta, alpha, *words[::-1])
    alpha_links = _links(sets[0], ranks[0], n_pairs)
    beta_links = alpha_links if sets[0].same_as(sets[1]) else _links(sets[1], ranks[1], n_pairs)
    return ListTables(*groups, alpha_links, beta_links)


def row_work(tables: ListTables) -> Array:
    """About how many elements each row has, and a tenth of the strings that it is compared with.

    Excitations of both spins are counted as if the list held every pair of its strings with a probability
    that is a product of one for each spin.
    """
    # Work is estimated, not counted: counting would take as long as a product with H.
    alpha, beta = tables.alpha, tables.beta
    both = [
        links.linked_members(groups.begin)[groups.number]
        for groups, links in ((alpha, tables.alpha_links), (beta, tables.beta_links))
    ]
    compared = np.diff(alpha.begin)[alpha.number] + np.diff(beta.begin)[beta.number]
    return np.asarray(both[0] * both[1] / len(alpha.number) + COMPARISON * compared + 1)


def _ranks(strings: StringSet) -> Array:
    """The number of each string in rising order."""
    ranks = np.empty(len(strings), np.int32)
    ranks[np.lexsort(strings.words.T)] = np.arange(len(strings), dtype=np.int32)
    return ranks


def _groups(number: Array, other: Array, own: Array, others: Array) -> StringGroups:
    """The groups of numbers; `own` and `others` are the words of strings by their numbers."""
    # Invariant: members of a group rise by their other string, which bisection (`exchange_row`) and
    # the walk beside links (`same_spin_row`) rely on.
    members = np.lexsort((other, number)).astype(np.int32)
    begin = np.concatenate([[0], np.cumsum(np.bincount(number, minlength=len(own)))]).astype(np.int64)
    words = np.ascontiguousarray(others[other[members]])
    return StringGroups(begin, members, words, np.ascontiguousarray(number), np.ascontiguousarray(own))


def _links(strings: StringSet, rank: Array, n_pairs: int) -> GroupLinks:
    """The links between the groups of strings in the order of their ranks."""
    bra, ket, create, destroy, sign = neighbours(strings)
    bra, ket = rank[bra], rank[ket]
    # No two links have the same strings. One number a link is sorted much faster than two.
    order = np.argsort(bra.astype(np.int64) * len(strings) + ket)
    bra, ket, create, destroy, sign = (table[order] for table in (bra, ket, create, destroy, sign))
    pairs = number_pairs(create.astype(np.int64), destroy.astype(np.int64), strings.n_orbitals, n_pairs)
    start = np.searchsorted(bra, np.arange(len(strings) + 1)).astype(np.int64)
    return GroupLinks(start, ket, create, destroy, pairs.astype(np.int32), sign)


# Excitations of alpha, sorted by the beta string of the determinant that they lead from.
#
# A determinant (a, b) couples by excitations of both spins to determinants (a', b') of the list, a' being
# linked to a and b' to b. The entries of alpha string a are all determinants (a', b') whose a' is linked to
# a; those with the same b' stand together, in a cell. So the couplings of a row are the cells (a, b') of
# the strings b' that are linked to b. A cell serves all rows of its alpha string. For s links of a string
# and N determinants the tables take 16 s N bytes, where the couplings themselves grow as s^2 N.
#
# Knows tables of groups and links; no integrals and no states.


class ListCells(NamedTuple):
    """The cells of the rows of one rank.

    Entry i is entries[i, 0], a determinant, and entries[i, 1], the code of its excitation: 4 times the pair,
    2 more where it creates the higher orbital, 1 more where it has a minus. For the m-th link of its beta
    string, row i has the entries base[i] + cells[s, 0] .. base[i] + cells[s, 1]-1, where s is start[i] + m.
    """

    entries: Array
    base: Array
    start: Array
    cells: Array

    @property
    def size_bytes(self) -> int:
        """The memory of all tables."""
        return sum(table.nbytes for table in self)

    @property
    def couplings(self) -> int:
        """How many couplings there are by excitations of both spins."""
        return int((self.cells[:, 1] - self.cells[:, 0]).sum(dtype=np.int64))


class SortedCells(NamedTuple):
    """The cells of alpha strings in the form that a GPU makes and takes: a row looks for its cells itself.

    Entry i is the 64-bit word 2^32 code + determinant, as in `ListCells`. Group g has entries base[g] ..
    base[g+1]-1 and cells first[g] .. first[g+1]-1, none of which is empty. Cell c is that of beta string
    strings[c], which rise in a group; its entries stand from base[g] + begin[c] to before the next cell's.
    """

    entries: Array
    base: Array
    first: Array
    strings: Array
    begin: Array


class CellScratch(NamedTuple):
    """The beta string of each member of the alpha groups; and by beta string: how many entries its cell has
    (zero between groups), where the next one goes, and which strings have a cell."""

    beta_of: Array
    counts: Array
    ends: Array
    present: Array


class RowTables(NamedTuple):
    """What the rows of the Hamiltonian of one rank are made from."""

    alpha: ListedSpin
    beta: ListedSpin
    cells: ListCells


class RowElements(NamedTuple):
    """Where elements of rows are written, and the state that they are multiplied by; empty where unused."""

    column: Array = np.empty(0, np.int32)
    value: Array = np.empty(0)
    x: Array = np.empty(0)


def list_cells(tables: ListTables, rows: tuple[int, int], threads: int) -> ListCells:
    """The cells of rows[0] .. rows[1]-1."""
    from tnplan.executor.sbd.lists import list_kernel

    # Entries of an alpha string are the determinants of all linked strings: their number is known
    # before, so each group has a range of its own and threads need no order.
    n_entries, n_cells = _counts(tables, rows)
    base = np.concatenate([[0], np.cumsum(n_entries)])
    start = np.concatenate([[0], np.cumsum(n_cells)])
    listed = ListCells(np.empty((base[-1], 2), np.int32), base, start, np.empty((start[-1], 2), np.int32))
    beta_of = tables.beta.number[tables.alpha.determinants]

    def groups(first: int, last: int) -> None:
        scratch = CellScratch(beta_of, *np.zeros((3, len(tables.beta.own)), np.int32))
        list_kernel.fill_cells(first, last, rows, tables, listed, scratch)

    over_rows(len(n_entries), threads, groups)
    return listed._replace(base=base[tables.alpha.number[slice(*rows)]])


def _counts(tables: ListTables, rows: tuple[int, int]) -> tuple[Array, Array]:
    """Entries of every alpha group that has one of the rows, and cells of every row."""
    alpha, beta = tables.alpha, tables.beta
    local = slice(*rows)
    n_entries = tables.alpha_links.linked_members(alpha.begin)
    n_entries = n_entries * (np.bincount(alpha.number[local], minlength=len(n_entries)) > 0)
    return n_entries, np.diff(tables.beta_links.start)[beta.number[local]]

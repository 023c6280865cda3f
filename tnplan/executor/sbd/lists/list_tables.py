"""A list of determinants sorted for its couplings: by alpha string, by beta string, by their excitations.

Determinants that couple lie in few places. Excitations within a spin stay in the group of determinants that
share the other spin's string. An excitation of both spins leads from a group to one whose string is a single
excitation away (`list_cells` sorts these).

Knows strings and integrals; no states and no devices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.sbd.basis.determinants import DeterminantList
from tnplan.executor.sbd.basis.excitations import neighbours
from tnplan.executor.sbd.basis.integrals import Integrals, number_pairs
from tnplan.executor.sbd.basis.strings import StringSet

COMPARISON = 0.1
"""The cost of comparing two strings, in elements."""


class StringGroups(NamedTuple):
    """Determinants grouped by the string of one spin.

    Group g has members begin[g] .. begin[g+1]-1, in rising order of their other strings. Member k is
    determinant place[k], its other string the 64-bit words words[k]. `number[d]` is the group of determinant
    d, `own[g]` the words of the group's string.
    """

    begin: Array
    place: Array
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
    strings that are linked, by link; empty where they are not made.
    """

    one: Array
    two: Array
    two_other: Array
    singles: Array


class ListTables(NamedTuple):
    """The groups of a list of determinants by the string of each spin, and the links between these."""

    alpha: StringGroups
    beta: StringGroups
    alpha_links: GroupLinks
    beta_links: GroupLinks

    @property
    def size_bytes(self) -> int:
        """The memory of all tables, those that the spins share counted once."""
        return sum({id(table): table.nbytes for part in self for table in part}.values())


def spin_terms(integrals: Integrals) -> tuple[SpinTerms, SpinTerms]:
    """The real integrals of alpha and of beta."""
    made = integrals.tables
    # (pq|rs) is (rs|pq): only orbitals of each spin need the transpose.
    turned = made.mixed if integrals.beta is None else np.ascontiguousarray(made.mixed.T)
    none = np.empty(0)
    return (
        SpinTerms(made.one_alpha, made.two_alpha, made.mixed, none),
        SpinTerms(made.one_beta, made.two_beta, turned, none),
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
    """The place of each string in rising order."""
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

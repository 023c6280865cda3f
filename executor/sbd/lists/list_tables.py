"""A list of determinants sorted for its couplings: by alpha string, by beta string, by their excitations.

Determinants that couple lie in few places. Excitations within a spin stay in the group of determinants that
share the other spin's string. An excitation of both spins leads from a group to one whose string is a single
excitation away. So the candidates of a determinant are the members of its two groups and of the groups linked
to one of them; a comparison of the other strings' bits finds those that couple.

Knows strings and integrals; no states and no devices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tnplan.executor.sbd.basis.determinants import DeterminantList
from tnplan.executor.sbd.basis.excitations import neighbours
from tnplan.executor.sbd.basis.integrals import Integrals, pair_number
from tnplan.executor.sbd.basis.strings import StringSet
from tnplan.planner.common.arrays import Array


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
    start[g+1]-1. `pairs[l]` is the pair of orbitals. offset[l] counts the members of the groups other[0] ..
    other[l-1]: the candidates of group g are numbered from offset[start[g]] to offset[start[g+1]]-1.
    """

    start: Array
    other: Array
    create: Array
    destroy: Array
    pairs: Array
    sign: Array
    offset: Array


class SpinTerms(NamedTuple):
    """The integrals that one spin sees.

    One-electron ones [p, q], two-electron ones [pair, pair] within the spin, and those with the other spin,
    to whose electrons the second pair belongs.
    """

    one: Array
    two: Array
    two_other: Array


class ListTables(NamedTuple):
    """What couplings among a list of determinants are found with.

    `links` are those of the spin whose groups give fewer candidates: of beta where `by_beta`.
    """

    alpha: StringGroups
    beta: StringGroups
    links: GroupLinks
    by_beta: bool

    @property
    def major(self) -> StringGroups:
        """The groups that `links` connects."""
        return self.beta if self.by_beta else self.alpha

    @property
    def minor(self) -> StringGroups:
        """The groups of the other spin."""
        return self.alpha if self.by_beta else self.beta

    @property
    def size_bytes(self) -> int:
        """The memory of all tables."""
        return sum(table.nbytes for part in self[:3] for table in part)


def spin_terms(integrals: Integrals) -> tuple[SpinTerms, SpinTerms]:
    """The integrals of alpha and of beta; both spins share their orbitals here."""
    terms = SpinTerms(integrals.one, integrals.two, integrals.two)
    return terms, terms


def list_tables(basis: DeterminantList) -> ListTables:
    """The tables of a list."""
    sets = basis.alpha_strings, basis.beta_strings
    ranks = [_ranks(strings) for strings in sets]
    alpha, beta = ranks[0][basis.alpha], ranks[1][basis.beta]
    words = [strings.words[np.argsort(rank)] for strings, rank in zip(sets, ranks, strict=True)]
    groups = _groups(alpha, beta, *words), _groups(beta, alpha, *words[::-1])
    links = [
        _links(strings, rank, group.begin) for strings, rank, group in zip(sets, ranks, groups, strict=True)
    ]
    candidates = [
        int(np.diff(group.begin) @ linked_members(link)) for group, link in zip(groups, links, strict=True)
    ]
    by_beta = candidates[1] < candidates[0]
    return ListTables(*groups, links[by_beta], by_beta)


def candidates(tables: ListTables) -> Array:
    """How many determinants each one is compared with."""
    total = linked_members(tables.links)[tables.major.number]
    for groups in (tables.alpha, tables.beta):
        total = total + np.diff(groups.begin)[groups.number]
    return np.asarray(total)


def _ranks(strings: StringSet) -> Array:
    """The place of each string in rising order."""
    ranks = np.empty(len(strings), np.int32)
    ranks[np.lexsort(strings.words.T)] = np.arange(len(strings), dtype=np.int32)
    return ranks


def _groups(number: Array, other: Array, own: Array, others: Array) -> StringGroups:
    """The groups of numbers; `own` and `others` are the words of strings by their numbers."""
    place = np.lexsort((other, number)).astype(np.int32)
    begin = np.concatenate([[0], np.cumsum(np.bincount(number, minlength=len(own)))]).astype(np.int64)
    words = np.ascontiguousarray(others[other[place]])
    return StringGroups(begin, place, words, np.ascontiguousarray(number), np.ascontiguousarray(own))


def _links(strings: StringSet, rank: Array, begin: Array) -> GroupLinks:
    """The links between the groups of strings in the order of their ranks."""
    bra, ket, create, destroy, sign = neighbours(strings)
    bra, ket = rank[bra], rank[ket]
    order = np.lexsort((ket, bra))
    bra, ket, create, destroy, sign = (table[order] for table in (bra, ket, create, destroy, sign))
    pairs = pair_number(create.astype(np.int64), destroy.astype(np.int64), strings.n_orbitals)
    start = np.searchsorted(bra, np.arange(len(strings) + 1)).astype(np.int64)
    offset = np.concatenate([[0], np.cumsum(np.diff(begin)[ket])]).astype(np.int64)
    return GroupLinks(start, ket, create, destroy, pairs.astype(np.int32), sign, offset)


def linked_members(links: GroupLinks) -> Array:
    """The members of all groups that each group is linked to."""
    return np.asarray(links.offset[links.start[1:]] - links.offset[links.start[:-1]])

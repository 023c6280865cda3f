"""Single excitations within a set of half-strings, by string and by pair of orbitals.

Knows strings and orbitals; no integrals and no states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.sbd.integrals import pair_count, pair_number
from executor.sbd.strings import StringSet
from executor.sbd.work import over_rows

Array = NDArray[Any]


@dataclass(frozen=True)
class Singles:
    """String i is sign[e] a+_create[e] a_destroy[e] of string other[e], for e in start[i] .. start[i+1]-1.

    `pairs[e]` is their pair of orbitals. Those of one string stand in the order of `rank[pair]`, which
    numbers all pairs by how many excitations of the whole set they have, the fewest first. `linked` counts
    the strings that are 0, 1 or 2 excitations away from each string.
    """

    start: Array
    other: Array
    create: Array
    destroy: Array
    sign: Array
    pairs: Array
    rank: Array
    linked: Array

    @property
    def most(self) -> int:
        """The most single excitations of one string."""
        return int(np.diff(self.start).max(initial=0))


@dataclass(frozen=True)
class Matching:
    """The same excitations by pair of orbitals: every string takes part in one of a pair at most.

    Pairs that have any are active, and stand in rising order of how many they have. Active pair a is
    `pairs[a]`, of two orbitals. Its excitations are e in start[2 a] .. start[2 a + 2]-1, the positive ones
    before start[2 a + 1]. String upper[e], which fills the higher orbital of the pair, is +-1 times the
    excitation of lower[e], which fills the lower one. `active[pair]` is a, or -1.
    """

    pairs: Array
    active: Array
    start: Array
    upper: Array
    lower: Array


def find_singles(strings: StringSet, threads: int) -> Singles:
    """All single excitations from one string of a set to another."""
    from executor.sbd import string_kernel

    n = len(strings)
    counts, linked = np.zeros(n, np.int64), np.zeros(n, np.int64)
    over_rows(
        n, threads, lambda first, last: string_kernel.count_links(strings.words, first, last, counts, linked)
    )
    start = np.concatenate([[0], np.cumsum(counts)])
    other = np.empty(start[-1], np.int32)
    create, destroy = np.empty(start[-1], np.int16), np.empty(start[-1], np.int16)
    sign = np.empty(start[-1], np.int8)
    tables = start, other, create, destroy, sign
    over_rows(n, threads, lambda first, last: string_kernel.fill_singles(strings.words, first, last, *tables))
    pairs = pair_number(create.astype(np.int64), destroy.astype(np.int64), strings.n_orbitals)
    sizes = np.bincount(pairs, minlength=pair_count(strings.n_orbitals))
    rank = np.empty(len(sizes), np.int64)
    rank[np.argsort(sizes, kind="stable")] = np.arange(len(sizes))
    order = np.lexsort((rank[pairs], np.repeat(np.arange(n), counts)))
    return Singles(
        start,
        other[order],
        create[order],
        destroy[order],
        sign[order],
        pairs.astype(np.int32)[order],
        rank,
        linked,
    )


def match_pairs(singles: Singles) -> Matching:
    """The excitations of a set of strings in order of their pairs."""
    up = np.flatnonzero(singles.create > singles.destroy)
    own = np.repeat(np.arange(len(singles.start) - 1, dtype=np.int32), np.diff(singles.start))[up]
    pairs, negative = singles.pairs[up].astype(np.int64), singles.sign[up] < 0
    ranks = singles.rank[pairs]
    order = np.lexsort((own, negative, ranks))
    keys = (2 * ranks + negative)[order]
    present = np.argsort(singles.rank)[np.unique(ranks)]
    bounds = (2 * singles.rank[present][:, None] + np.arange(2)).ravel()
    start = np.append(np.searchsorted(keys, bounds), len(keys))
    active = np.full(len(singles.rank), -1, np.int32)
    active[present] = np.arange(len(present))
    return Matching(present, active, start.astype(np.int64), own[order], singles.other[up][order])

"""Single excitations within a set of half-strings, by string and by pair of orbitals.

Knows strings and orbitals; no integrals and no states.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.sbd.basis.integrals import number_pairs, pair_count
from tnplan.executor.sbd.basis.strings import WORD, StringSet


class Singles(NamedTuple):
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

    def within(self, first: int, last: int) -> Singles:
        """Those from strings first .. last-1, which are numbered from 0."""
        is_inside = (self.other >= first) & (self.other < last)
        return self._replace(
            start=np.concatenate([[0], np.cumsum(is_inside)])[self.start],
            other=self.other[is_inside] - np.int32(first),
            **{name: getattr(self, name)[is_inside] for name in ("create", "destroy", "sign", "pairs")},
        )

    def between(self, targets: Array, sources: Array) -> Singles:
        """Those that lead from some strings to others, both numbered from 0 in the order given."""
        number = np.full(len(self.start) - 1, -1, np.int32)
        number[sources] = np.arange(len(sources))
        counts = self.start[targets + 1] - self.start[targets]
        ends = np.concatenate([[0], np.cumsum(counts)])
        entries = np.repeat(self.start[targets] - ends[:-1], counts) + np.arange(ends[-1])
        is_inside = number[self.other[entries]] >= 0
        entries = entries[is_inside]
        return self._replace(
            start=np.concatenate([[0], np.cumsum(is_inside)])[ends],
            other=number[self.other[entries]],
            **{name: getattr(self, name)[entries] for name in ("create", "destroy", "sign", "pairs")},
        )


class ActivePairs(NamedTuple):
    """The pairs that a set of strings has excitations of, in rising order of how many they have.

    Active pair a is `pairs[a]`; `active[pair]` is a, or -1.
    """

    pairs: Array
    active: Array


class Matching(NamedTuple):
    """The same excitations by pair of orbitals: every string takes part in one of a pair at most.

    Pairs that have any are active, and stand in rising order of how many they have. Active pair a is
    `pairs[a]`, of two orbitals. Its excitations are e in start[2 a] .. start[2 a + 2]-1, the positive ones
    before start[2 a + 1]. String upper[e], which fills the higher orbital of the pair, is +-1 times the
    excitation of lower[e], which fills the lower one. `active[pair]` is a, or -1, in either order of a pair.
    """

    pairs: Array
    active: Array
    start: Array
    upper: Array
    lower: Array


def find_singles(strings: StringSet, threads: int, ordered: bool = False) -> Singles:
    """All single excitations from one string of a set to another; pairs are numbered in order or not.

    Two strings are one apart where one without an electron equals the other without one: sorting all strings
    without each of their electrons brings those together, in N n log(N n) steps for N strings of n electrons.
    """
    n, n_orbitals = len(strings), strings.n_orbitals
    linked = strings.linked(threads)
    own, other, create, destroy, sign = neighbours(strings)
    n_pairs = n_orbitals**2 if ordered else pair_count(n_orbitals)
    pairs = number_pairs(create.astype(np.int64), destroy.astype(np.int64), n_orbitals, n_pairs)
    sizes = np.bincount(pairs, minlength=n_pairs)
    rank = np.empty(len(sizes), np.int64)
    # Pairs are ranked by how many excitations they have: within a string the rare ones come first.
    rank[np.argsort(sizes, kind="stable")] = np.arange(len(sizes))
    order = np.lexsort((rank[pairs], own))
    start = np.searchsorted(own[order], np.arange(n + 1))
    return Singles(
        start, other[order], create[order], destroy[order], sign[order], pairs.astype(np.int32)[order], rank,
        linked,
    )  # fmt: skip


def neighbours(strings: StringSet) -> tuple[Array, Array, Array, Array, Array]:
    """Every ordered pair of strings one excitation apart: string, other, create, destroy, sign."""
    # Each (string, electron) gives a key, the string without this electron. Equal keys are strings
    # one excitation apart: sorting brings them together. `electron` is the number of the electron in
    # its string, and (-1)^(place + place) is the sign of the move.
    own, orbital = (table.astype(np.int32) for table in np.nonzero(strings.occupied))
    electron = np.arange(len(own)) - np.searchsorted(own, own)
    keys = strings.words[own]
    keys[np.arange(len(own)), orbital // WORD] ^= np.uint64(1) << (orbital % WORD).astype(np.uint64)
    order = np.lexsort(keys.T)
    keys = keys[order]
    new = np.concatenate([[True], (keys[1:] != keys[:-1]).any(1)])[: len(own)]
    group = np.cumsum(new)
    entry_pairs = []
    # Entries at distance 1, 2, ... of the sorted keys, as long as they have the same key: all pairs
    # within a run.
    for distance in range(1, int(np.bincount(group).max(initial=1))):
        at = np.flatnonzero(group[distance:] == group[:-distance])
        entry_pairs += [(order[at], order[at + distance]), (order[at + distance], order[at])]
    bra, ket = (np.concatenate([pair[side] for pair in entry_pairs] or [order[:0]]) for side in (0, 1))
    sign = 1 - 2 * ((electron[bra] + electron[ket]) % 2)
    create, destroy = (orbital[entry].astype(np.int16) for entry in (bra, ket))
    return own[bra], own[ket], create, destroy, sign.astype(np.int8)


def active_pairs(singles: Singles) -> ActivePairs:
    """The pairs of the excitations, as they are numbered there."""
    present = np.argsort(singles.rank)[np.unique(singles.rank[singles.pairs])]
    active = np.full(len(singles.rank), -1, np.int32)
    active[present] = np.arange(len(present))
    return ActivePairs(present, active)


def match_between(singles: Singles, pairs: ActivePairs) -> tuple[Matching, Matching]:
    """Excitations from one set of strings to another by pair, pairs not being in order.

    First those to a string that fills the higher orbital: `upper` are numbers of targets. Then those to one
    that fills the lower: `lower` are.
    """
    own = np.repeat(np.arange(len(singles.start) - 1, dtype=np.int32), np.diff(singles.start))
    sides = []
    for is_up in (True, False):
        chosen = np.flatnonzero((singles.create > singles.destroy) == is_up)
        keys = 2 * pairs.active[singles.pairs[chosen]].astype(np.int64) + (singles.sign[chosen] < 0)
        order = np.argsort(keys, kind="stable")
        start = np.searchsorted(keys[order], np.arange(2 * len(pairs.pairs) + 1)).astype(np.int64)
        targets, sources = own[chosen][order], singles.other[chosen][order]
        sides.append(Matching(*pairs, start, *((targets, sources) if is_up else (sources, targets))))
    return sides[0], sides[1]


def match_pairs(singles: Singles) -> Matching:
    """The excitations of a set of strings in order of their pairs."""
    up = np.flatnonzero(singles.create > singles.destroy)
    own = np.repeat(np.arange(len(singles.start) - 1, dtype=np.int32), np.diff(singles.start))[up]
    pairs, negative = singles.pairs[up].astype(np.int64), singles.sign[up] < 0
    ranks = singles.rank[pairs]
    # By pair, then sign, then string: for each pair two runs of strings, one to add and one to subtract.
    order = np.lexsort((own, negative, ranks))
    keys = (2 * ranks + negative)[order]
    present = np.argsort(singles.rank)[np.unique(ranks)]
    bounds = (2 * singles.rank[present][:, None] + np.arange(2)).ravel()
    start = np.append(np.searchsorted(keys, bounds), len(keys))
    active = np.full(len(singles.rank), -1, np.int32)
    active[present] = np.arange(len(present))
    # Every excitation has its reverse in the set. Where pairs are numbered in order, both get one number.
    down = np.flatnonzero(singles.create < singles.destroy)
    width = int(singles.create.max(initial=0)) + 1
    raising = np.zeros(width * width, np.int64)
    raising[singles.create[up].astype(np.int64) * width + singles.destroy[up]] = singles.pairs[up]
    reverse = raising[singles.destroy[down].astype(np.int64) * width + singles.create[down]]
    active[singles.pairs[down]] = active[reverse]
    return Matching(present, active, start.astype(np.int64), own[order], singles.other[up][order])

"""Determinants that stand in a list together, so that the states of the list have a spin or a parity.

The exchange of all alpha and beta strings commutes with a Hamiltonian of common orbitals: states of a list
that is closed under it are even or odd. S^2 changes no orbital's number of electrons: states of a list that
is closed under all placements of spins in open shells have a total spin.

Knows keys of determinants; no Hamiltonian.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from math import comb

import numpy as np

from tnplan.common.arrays import Array

BITS = 64
"""Orbitals of a word."""


class Closure(Enum):
    """What a list is closed under."""

    NOTHING = "nothing"
    FLIPS = "flips"
    """The exchange of the alpha and the beta string."""
    PLACEMENTS = "placements"
    """All placements of the spins in the open shells."""


@dataclass(frozen=True)
class SpinFamilies:
    """Families of determinants: those that the closure makes of one of them.

    Keys are uint64 [determinant, word], alpha's words before beta's. The name of a family is a key's size:
    that of its only determinant, the smaller one of both, or the doubly and the singly filled orbitals.
    """

    closure: Closure
    n_alpha: int

    def names(self, keys: Array) -> Array:
        """The name of each determinant's family."""
        alpha, beta = np.split(keys, 2, axis=1)
        if self.closure is Closure.FLIPS:
            return np.where(_is_less(beta, alpha)[:, None], _flipped(keys), keys)
        if self.closure is Closure.PLACEMENTS:
            return np.concatenate([alpha & beta, alpha ^ beta], 1)
        return keys

    def counts(self, names: Array) -> Array:
        """How many determinants families have."""
        first, second = np.split(names, 2, axis=1)
        if self.closure is Closure.FLIPS:
            return 1 + (first != second).any(1)
        if self.closure is Closure.PLACEMENTS:
            kinds = zip(*(numbers.tolist() for numbers in self._shells(names)), strict=True)
            return np.array([comb(shells, n_up) for shells, n_up in kinds], np.int64)
        return np.ones(len(names), np.int64)

    def members(self, names: Array) -> Array:
        """The keys of all determinants of distinct families."""
        if self.closure is Closure.FLIPS:
            first, second = np.split(names, 2, axis=1)
            return np.concatenate([names, _flipped(names[(first != second).any(1)])])
        if self.closure is Closure.PLACEMENTS:
            shells, n_up = self._shells(names)
            kinds = {*zip(shells.tolist(), n_up.tolist(), strict=True)}
            keys = (
                _placements(names[(shells == n_shells) & (n_up == up)], n_shells, up)
                for n_shells, up in sorted(kinds)
            )
            return np.concatenate([names[:0], *keys])
        return names

    def closed(self, keys: Array) -> Array:
        """The keys of all determinants of the families that determinants are of."""
        names = self.names(keys)
        names = names[np.lexsort(names.T)]
        return self.members(names[_begins(names)])

    def largest(self, keys: Array, sizes: Array, max_determinants: int) -> tuple[Array, bool]:
        """Which determinants are of the families of largest sizes, `max_determinants` together at most.

        bool [determinant], and whether these are all. The size of a family is the largest of those given.
        """
        names = self.names(keys)
        order = np.lexsort(names.T)
        names = names[order]
        begins = _begins(names)
        first = np.flatnonzero(begins)
        if not len(first):
            return begins, True
        falling = np.argsort(-np.maximum.reduceat(sizes[order], first), kind="stable")
        n_chosen = int((np.cumsum(self.counts(names[first])[falling]) <= max_determinants).sum())
        is_chosen = np.zeros(len(first), bool)
        is_chosen[falling[:n_chosen]] = True
        chosen = np.empty(len(keys), bool)
        chosen[order] = is_chosen[np.cumsum(begins) - 1]
        return chosen, n_chosen == len(first)

    def _shells(self, names: Array) -> tuple[Array, Array]:
        """How many open shells families have, and how many of these spins are up."""
        doubly, singly = (
            np.bitwise_count(words).sum(1, dtype=np.int64) for words in np.split(names, 2, axis=1)
        )  # fmt: skip
        return singly, self.n_alpha - doubly


def _begins(names: Array) -> Array:
    """Which rows, in order, differ from the one before."""
    differs = np.ones(len(names), bool)
    np.any(names[1:] != names[:-1], axis=1, out=differs[1:])
    return differs


def _placements(names: Array, n_open: int, n_up: int) -> Array:
    """All determinants of families of so many open shells, so many of whose spins are up."""
    doubly, singly = np.split(names, 2, axis=1)
    bits = np.unpackbits(np.ascontiguousarray(singly, "<u8").view(np.uint8), axis=1, bitorder="little")
    shells = np.nonzero(bits)[1].reshape(len(names), n_open)
    chosen = np.array([*combinations(range(n_open), n_up)], np.int64).reshape(comb(n_open, n_up), n_up)
    up = np.zeros((len(names), len(chosen), doubly.shape[1]), np.uint64)
    family, choice = np.ogrid[: len(names), : len(chosen)]
    for column in chosen.T:
        orbital = shells[:, column]
        up[family, choice, orbital // BITS] |= np.uint64(1) << (orbital % BITS).astype(np.uint64)
    doubly, singly = doubly[:, None], singly[:, None]
    return np.concatenate([doubly | up, doubly | (singly & ~up)], 2).reshape(-1, names.shape[1])


def _flipped(keys: Array) -> Array:
    return np.concatenate(np.split(keys, 2, axis=1)[::-1], 1)


def _is_less(left: Array, right: Array) -> Array:
    """Whether rows of words come before others, the last word counting most."""
    less = np.zeros(len(left), bool)
    for low, high in zip(left.T, right.T, strict=True):
        less = np.where(low == high, less, low < high)
    return less

"""Random lists of determinants for tests, in an order of no meaning."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from tests.support.engines.sbd import Determinant, random_integrals, some_strings
from tnplan.executor.sbd.basis.determinants import DeterminantList, from_bits
from tnplan.executor.sbd.basis.integrals import Integrals, all_pairs, pair_count, pair_number

SPREAD = (0, 5, 31, 32, 33, 63, 64, 65, 99)
"""Where the orbitals of a small problem lie among a hundred: at both ends of words of 32 and of 64 bits."""


def random_list(
    n: int, electrons: tuple[int, int], strings: tuple[int, int], count: int, seed: int = 1
) -> tuple[Integrals, list[Determinant]]:
    """Integrals, and `count` pairs of so many alpha and beta strings."""
    integrals = random_integrals(n, *electrons, seed)
    sets = [some_strings(n, spin, size, seed) for spin, size in zip(electrons, strings, strict=True)]
    every = [(a, b) for a in sets[0] for b in sets[1]]
    return integrals, random.Random(seed).sample(every, count)


def as_list(
    determinants: list[Determinant], n: int, orbitals: tuple[int, ...] | None = None
) -> DeterminantList:
    """A list of determinants; orbital p is called orbitals[p] where these are given."""
    names = orbitals or tuple(range(n))
    bits = np.zeros((2, len(determinants), max(names) + 1), bool)
    for d, strings in enumerate(determinants):
        for spin, string in enumerate(strings):
            bits[spin, d, [names[p] for p in range(n) if string >> p & 1]] = True
    return from_bits(*bits)


def spread(integrals: Integrals, orbitals: tuple[int, ...]) -> Integrals:
    """The same Hamiltonian with orbital p called orbitals[p] among more, which nothing fills."""
    names, n = np.array(orbitals), max(orbitals) + 1
    high, low = all_pairs(len(names))
    number = pair_number(names[high], names[low], n)
    one, two = np.zeros((n, n)), np.zeros((pair_count(n),) * 2)
    one[np.ix_(names, names)] = integrals.one
    two[np.ix_(number, number)] = integrals.two
    return replace(integrals, one=one, two=two)

"""Symmetry-adapted orbitals, from the integrals alone: orbitals that have a representation each, and labels.

Files often state no ORBSYM, and their orbitals mix representations. Any matrix that is made of the integrals
in a way that no choice of orbitals changes has the symmetry of the molecule. Its eigenvectors have a
representation each, but for levels that symmetry makes degenerate. In such a level one vector is fixed, and
what is made with it has the symmetry that is left. Labels follow from which integrals are zero: a set of
orbitals may change its sign where every integral has an even number of them.

Knows integrals; no molecule, no group.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import inf

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.integrals import Integrals, OrbitalLabels, all_pairs, dense_two, number_pairs
from tnplan.executor.sbd.basis.orbitals import rotate_orbitals
from tnplan.executor.sbd.basis.sector import BROKEN

SAME = 1e-6
"""Eigenvalues of matrices with a norm of about 1 that belong to one level."""
DRAWS = 8
"""Random matrices that may divide a level."""
ATTEMPTS, STEPS, SETTLED = 16, 2000, 1e-14
"""Choices of levels and directions, of which that with the most symmetry is taken; steps to a direction, and
the last step."""
MOST_FIXED = 4
"""Vectors of degenerate levels that are fixed one after the other."""
BITS = 3
"""Signs that labels have room for: those of D2h."""


def adapted_orbitals(integrals: Integrals) -> tuple[Integrals, Array]:
    """The same Hamiltonian over symmetry-adapted orbitals, with their labels.

    The group is one with two-fold operations only, at most as large as D2h. The representation 1 is that of
    the first orbital; for nearly every molecule it is the symmetric one.

    Parameters
    ----------
    integrals : Integrals
        Real ones over orbitals that both spins share.

    Returns
    -------
    integrals : Integrals
        Over the new orbitals.
    matrix : array
        Orthogonal, [old orbital, new orbital].

    Raises
    ------
    InputError
        For complex integrals, and orbitals of each spin.
    """
    if integrals.is_complex or not integrals.has_common_orbitals or integrals.has_ordered_pairs:
        raise InputError(
            "rotation", "is adapted, which takes real integrals over orbitals that both spins share",
            "give a matrix, or leave it out",
        )  # fmt: skip
    fields, unlabelled, best = _Fields(integrals), replace(integrals, labels=OrbitalLabels()), None
    for _ in range(ATTEMPTS):
        matrix = fields.adapted()
        signs = _signs(rotate_orbitals(unlabelled, matrix))
        if best is None or len(signs) > len(best[1]):
            best = matrix, signs
        if len(signs) >= BITS or not fields.fixed:
            break
    assert best is not None
    matrix, labels = _near_given(*best)
    new = rotate_orbitals(unlabelled, matrix)
    return replace(new, labels=OrbitalLabels(tuple((labels + 1).tolist()), 1)), matrix


class _Fields:
    """Matrices over the given orbitals that have the symmetry of the integrals."""

    def __init__(self, integrals: Integrals) -> None:
        self._one, self._two = np.asarray(integrals.one), dense_two(integrals)
        self._random = np.random.default_rng(0)
        self._free: list[Array] = []
        self.fixed: list[Array] = []
        """Vectors of degenerate levels that the last orbitals were made with."""

    def adapted(self) -> Array:
        """Symmetry-adapted orbitals, [given orbital, new orbital], by a way that chance has a part in."""
        # Invariant: what is the same function of every orbital of a level has the symmetry, however the
        # orbitals are chosen within the level. So levels are told apart from coarse to fine.
        self.fixed.clear()
        if not self._free:
            self._free = self._split([np.eye(len(self._one))])
        levels = self._free
        while len(self.fixed) < MOST_FIXED:
            degenerate = [level for level in levels if level.shape[1] > 1]
            if not degenerate:
                break
            self.fixed.append(self._direction(degenerate[self._random.integers(len(degenerate))], levels))
            levels = self._split(levels)
        return np.hstack(levels)

    def _split(self, levels: list[Array]) -> list[Array]:
        """Finer levels, until no matrix tells more of them apart."""
        count = 0
        while len(levels) > count:
            count = len(levels)
            matrices = [self._matrix(levels) for _ in range(DRAWS)]
            levels = [part for level in levels for part in _parts(level, matrices)]
        return levels

    def _matrix(self, levels: list[Array]) -> Array:
        """A random matrix with the symmetry of the integrals that leaves the fixed vectors as they are."""
        draw = self._random.uniform
        of_levels = [draw(-1, 1) * level @ level.T for level in levels]
        density = np.sum([*of_levels, *(draw(0.5, 1) * np.outer(v, v) for v in self.fixed)], axis=0)
        coulomb = np.einsum("pqrs,rs->pq", self._two, density, optimize=True)
        exchange = np.einsum("prsq,rs->pq", self._two, density, optimize=True)
        terms = self._one, coulomb, exchange
        matrix = np.sum(
            [draw(0.5, 1.5) * term / max(float(np.linalg.norm(term, 2)), 1e-300) for term in terms], axis=0
        )
        # Delta orbitals stay degenerate in the field of a pi one, and are told apart by way of the others.
        matrix = matrix + matrix @ density @ matrix
        return np.asarray((matrix + matrix.T) / 2)

    def _direction(self, level: Array, levels: list[Array]) -> Array:
        """A vector of a degenerate level that much symmetry leaves as it is, or turns its sign.

        It is where sum_p f_p (vv|vp)^2 has a maximum, f random and the same within every level: along an axis
        or in a mirror plane, if there are some.
        """
        among = np.einsum("pqrs,pa,qb,rc->abcs", self._two, level, level, level, optimize=True)
        weights = np.sum([self._random.uniform(-1, 1) * each @ each.T for each in levels], axis=0)
        v = self._random.standard_normal((level.shape[1],))
        v = v / np.linalg.norm(v)
        value, shift = -inf, 0.0
        for _ in range(STEPS):
            # Three times the symmetric part of (vv|vp), without the last v.
            three = np.sum(
                [np.einsum(f"abcs,{x},{y}->{z}s", among, v, v) for x, y, z in ("abc", "acb", "bca")], axis=0
            )
            terms = v @ three
            if (new_value := float(terms @ weights @ terms)) < value:
                shift *= 2
            value, along = new_value, np.asarray(three @ weights @ terms)
            # A power iteration, shifted by so much that the form does not fall.
            shift = shift or float(np.linalg.norm(along)) or 1.0
            new = along + shift * v
            # In a level that is the same in every direction, the form is the same for all v.
            if np.linalg.norm(new) <= SAME * shift:
                break
            new /= np.linalg.norm(new)
            change, v = float(np.linalg.norm(new - v)), new
            if change < SETTLED:
                break
        return np.asarray(level @ v)


def _parts(level: Array, matrices: list[Array]) -> list[Array]:
    """A level in two by the matrix that tells most, or as it is where none tells.

    A matrix within a level has the symmetry too, whatever it has between levels.
    """
    best, largest = [level], SAME
    for matrix in matrices if level.shape[1] > 1 else ():
        energies, vectors = np.linalg.eigh(level.T @ matrix @ level)
        gaps = np.diff(energies)
        if gaps.max() > largest:
            largest, bound = float(gaps.max()), int(gaps.argmax()) + 1
            best = np.split(level @ vectors, [bound], axis=1)
    return best


def _signs(integrals: Integrals) -> list[Array]:
    """Independent sets of orbitals that may change sign together, at most `BITS`, as bits by orbital."""
    n = integrals.n_orbitals
    # Which orbitals stand an odd number of times in each pair pq, and in no pair.
    p, q = all_pairs(n)
    odd = np.zeros((len(integrals.two) + 1, n), bool)
    numbers = number_pairs(p, q, n, len(integrals.two))
    odd[numbers, p] = True
    odd[numbers, q] ^= True
    # Pairs that an integral joins change their sign together, those of h and pp not at all.
    joined = np.zeros((len(odd), len(odd)), bool)
    joined[:-1, :-1] = np.abs(integrals.two) > BROKEN
    joined[-1, numbers] = (np.abs(integrals.one[p, q]) > BROKEN) | (p == q)
    joined |= joined.T
    signs = _null_space(odd ^ odd[_first_of_each(joined)])
    # A sign of all orbitals together changes no state of N electrons: the first orbital keeps its own.
    signs = [sign for sign in (vector ^ vector[0] for vector in signs) if sign.any()]
    chosen: list[Array] = []
    for _ in range(min(BITS, len(_echelon(np.array(signs)))) if signs else 0):
        # Of more operations than labels can tell, those that divide the orbitals most evenly.
        sums = [first ^ second for first, second in combinations([*signs, np.zeros(n, bool)], 2)]
        new = [sign for sign in sums if len(_echelon(np.array([*chosen, sign]))) > len(chosen)]
        chosen.append(min(new, key=lambda sign: (np.bincount(_numbers([*chosen, sign], n)) ** 2).sum()))
    return chosen


def _near_given(matrix: Array, signs: list[Array]) -> tuple[Array, Array]:
    """Orbitals of the same labels, in the order of those given and as near to them as labels allow; labels.

    Selected lists need fewer determinants over the orbitals of a self-consistent field than over others.
    """
    n = len(matrix)
    labels = _numbers(signs, n)
    new, numbers = np.empty_like(matrix), np.empty(n)
    for label in np.unique(labels):
        own = labels == label
        # The given numbers of orbitals as an operator among those of one label.
        among = matrix[:, own]
        numbers[own], vectors = np.linalg.eigh(among.T @ (np.arange(n)[:, None] * among))
        new[:, own] = among @ vectors
    order = np.argsort(numbers, kind="stable")
    new, labels = new[:, order], labels[order]
    return new * np.where(new[np.abs(new).argmax(0), np.arange(n)] < 0, -1.0, 1.0), labels ^ labels[0]


def _numbers(signs: list[Array], n: int) -> Array:
    """A number of every orbital, whose bits are its signs."""
    return np.asarray(sum((sign.astype(int) << bit for bit, sign in enumerate(signs)), np.zeros(n, int)))


def _first_of_each(joined: Array) -> Array:
    """For every node of a graph the first node of its component."""
    first = np.arange(len(joined))
    for node in range(len(joined)):
        if first[node] < node:
            continue
        new, reached = joined[node].copy(), np.zeros(len(joined), bool)
        reached[node] = True
        while (new & ~reached).any():
            front = new & ~reached
            reached |= front
            new = joined[front].any(0)
        first[reached] = node
    return first


def _echelon(rows: Array) -> list[tuple[int, Array]]:
    """Independent sums of rows of bits that span all of them: the first bit of each, which no other has."""
    result: list[tuple[int, Array]] = []
    rows = np.unique(rows, axis=0)
    while (rows := rows[rows.any(1)]).size:
        row = rows[0]
        bit = int(row.argmax())
        rows = np.where(rows[:, bit, None], rows ^ row, rows)
        result = [(other, each ^ row if each[bit] else each) for other, each in result]
        result.append((bit, row))
    return result


def _null_space(rows: Array) -> list[Array]:
    """Bits that have an even number in common with every row: a basis of all such vectors."""
    pivots = _echelon(rows)
    n, bound = rows.shape[1], {bit for bit, _ in pivots}
    result = []
    for free in sorted({*range(n)} - bound):
        vector = np.zeros(n, bool)
        vector[free] = True
        for bit, row in pivots:
            vector[bit] = row[free]
        result.append(vector)
    return result

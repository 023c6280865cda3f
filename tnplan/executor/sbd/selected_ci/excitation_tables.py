"""Elements of single and double excitations, sorted so that small ones are skipped.

Elements of double excitations depend on the four orbitals alone. For every pair of orbitals that electrons
leave, the pairs that they can go to stand by falling magnitude (heat-bath sampling: Holmes, Tubman and
Umrigar, J. Chem. Theory Comput. 12, 3674 (2016), section 2). Whoever looks for elements above a threshold
stops at the first one below it.

Knows integrals; no determinants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.executor.sbd.basis.integrals import Integrals, number_pairs

HASH_SEED = 2016
"""Of the random words whose exclusive or over filled orbitals is a determinant's hash."""
ENTRY_BYTES = 4
"""Two orbitals of an entry."""
PEAK = 3
"""Memory while doubles of one row are sorted, in rows of all of them."""


class Doubles(NamedTuple):
    """Double excitations of two spins, or of one.

    Electrons leave orbitals q1 and q2, q1 < q2 where both are of one spin, for those of entries
    start[q1 n + q2] .. start[q1 n + q2 + 1]-1: create[entry] are p1 and p2, value[entry] is the element
    without its sign, (p1 q1|p2 q2), within one spin minus (p1 q2|p2 q1). Magnitudes fall.
    """

    start: Array
    create: Array
    value: Array


class SpinExcitations(NamedTuple):
    """Excitations of one spin.

    A single one from q to p has the element one[p, q] + the sum over filled orbitals k of its spin of
    same[p, q, k] + that of the other spin of other[p, q, k], without its sign.
    """

    one: Array
    same: Array
    other: Array
    doubles: Doubles


class DiagonalTerms(NamedTuple):
    """The energy of a determinant: one[p] of each spin, within[p, q] of pairs p < q, between[p, q]."""

    one_alpha: Array
    one_beta: Array
    within_alpha: Array
    within_beta: Array
    between: Array


class ExcitationTables(NamedTuple):
    """All excitations of a Hamiltonian; `words` [spin, orbital] are those of hashes."""

    alpha: SpinExcitations
    beta: SpinExcitations
    opposite: Doubles
    energies: DiagonalTerms
    words: Array

    @property
    def size_bytes(self) -> int:
        """The memory of all tables, those shared by the spins counted once."""
        spins = (self.alpha,) if self.alpha is self.beta else (self.alpha, self.beta)
        tables = [*self.opposite, *self.energies, self.words]
        for spin in spins:
            tables += [spin.one, spin.same, spin.other, *spin.doubles]
        return sum(table.nbytes for table in tables)


def excitation_tables(integrals: Integrals, least: float, memory_bytes: float) -> ExcitationTables:
    """The tables of integrals, with doubles above `least` Hartree alone.

    InputError where the memory of a rank cannot hold all doubles.
    """
    n, item = integrals.n_orbitals, integrals.two.itemsize
    rows = 1 if integrals.beta is None and not integrals.is_general else 2
    needed = int((1 + rows / 4) * n**4 * (ENTRY_BYTES + item) + PEAK * n**3 * item + 2 * rows * n**3 * item)
    if needed > memory_bytes:
        raise InputError(
            "memory",
            f"is {size_text(memory_bytes)}, but sorted integrals need {size_text(needed)}",
            "give more memory or fewer orbitals",
            topic="memory",
        )  # fmt: skip
    mixed = _Pairs(integrals.mixed, n)
    alpha = _of_spin(integrals, 0, mixed, least)
    beta = alpha if integrals.beta is None else _of_spin(integrals, 1, mixed, least)
    opposite = _doubles(n, least, mixed.leaving, False)
    number = np.arange(n)
    energies = DiagonalTerms(
        alpha.one.diagonal().real.copy(), beta.one.diagonal().real.copy(), _within(alpha), _within(beta),
        mixed.at(number[:, None], number[:, None], number, number).real.copy(),
    )  # fmt: skip
    words = np.random.default_rng(HASH_SEED).integers(1, 2**64, (2, n), np.uint64)
    return ExcitationTables(alpha, beta, opposite, energies, words)


class _Pairs:
    """Integrals [pair, pair] by orbitals."""

    def __init__(self, two: Array, n_orbitals: int) -> None:
        self.two, self.n_orbitals = two, n_orbitals

    def at(self, p: Array, q: Array | int, r: Array, s: Array) -> Array:
        """(pq|rs)."""
        n, n_pairs = self.n_orbitals, len(self.two)
        first, second = (number_pairs(left, right, n, n_pairs) for left, right in ((p, q), (r, s)))
        return np.asarray(self.two[first, second])

    def leaving(self, q1: int) -> Array:
        """(p1 q1|p2 q2) [q2, p1, p2]."""
        number = np.arange(self.n_orbitals)
        return self.at(number[:, None], q1, number, number[:, None, None])


def _of_spin(integrals: Integrals, spin: int, mixed: _Pairs, least: float) -> SpinExcitations:
    """Excitations of alpha (0) or beta (1)."""
    one, two = integrals.of_spin(spin)
    n, pairs = integrals.n_orbitals, _Pairs(two, integrals.n_orbitals)
    p, q, k = np.ogrid[:n, :n, :n]
    same = pairs.at(p, q, k, k) - pairs.at(p, k, k, q)
    other = mixed.at(p, q, k, k) if spin == 0 else mixed.at(k, k, p, q)

    def antisymmetric(q1: int) -> Array:
        direct = pairs.leaving(q1)
        return direct - direct.transpose(0, 2, 1)

    return SpinExcitations(np.ascontiguousarray(one), same, other, _doubles(n, least, antisymmetric, True))


def _within(spin: SpinExcitations) -> Array:
    """(pp|qq) - (pq|qp) [p, q]."""
    number = np.arange(len(spin.one))
    return np.ascontiguousarray(spin.same[number, number].real)


def _doubles(n: int, least: float, elements: Callable[[int], Array], same_spin: bool) -> Doubles:
    """Doubles from elements(q1) [q2, p1, p2], pair by pair."""
    creates, values, counts = [], [], np.zeros(n * n, np.int64)
    p1, p2 = (side.astype(np.int16).ravel() for side in np.indices((n, n)))
    allowed = p1 < p2 if same_spin else np.ones(n * n, bool)
    for q1 in range(n):
        rows = elements(q1)
        for q2 in range(q1 + 1 if same_spin else 0, n):
            row = rows[q2].ravel()
            sizes = np.abs(row)
            # Electrons do not stay where they are: those would be single excitations.
            stays = (p1 == q1) | (p2 == q2) | (same_spin & ((p1 == q2) | (p2 == q1)))
            chosen = np.flatnonzero(allowed & ~stays & (sizes > least))
            chosen = chosen[np.argsort(-sizes[chosen], kind="stable")]
            creates.append(np.stack([p1[chosen], p2[chosen]], 1))
            values.append(row[chosen])
            counts[q1 * n + q2] = len(chosen)
    start = np.concatenate([[0], np.cumsum(counts)])
    none = np.empty((0, 2), np.int16), np.empty(0, elements(0).dtype)
    return Doubles(start, np.concatenate([none[0], *creates]), np.concatenate([none[1], *values]))

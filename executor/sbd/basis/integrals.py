"""The Hamiltonian of a molecule: one- and two-electron integrals over real orbitals, and electron counts.

Knows the symmetry of integrals and how pairs of orbitals are numbered; no file, no determinant.

Pair numbers: p for the pair (p, p), so that number operators come first, then n + p (p - 1) / 2 + q for the
pair of p > q, n being the number of orbitals.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from tnplan.planner.common.arrays import Array
from tnplan.planner.common.checks import check_count, is_number
from tnplan.planner.common.errors import InputError

TOLERANCE = 1e-8
"""How far integrals that ought to be equal may differ, in Hartree or relative to their size."""
MOST_ORBITALS = 4096
"""Orbitals of a Hamiltonian."""


@dataclass(frozen=True)
class Integrals:
    """The Hamiltonian of a molecule over real orbitals; make one with `from_arrays` or from an FCIDUMP file.

    Parameters
    ----------
    n_alpha, n_beta
        Electrons of either spin.
    core
        The energy of nuclei and frozen electrons, in Hartree.
    one
        One-electron integrals, float64 [orbital, orbital], in Hartree; symmetric.
    two
        Two-electron integrals (pq|rs), float64 [pair, pair], in Hartree; symmetric.

    Examples
    --------
    >>> tnplan.from_arrays(np.eye(2), np.zeros((2, 2, 2, 2)), 1, 1)
    Integrals(2 orbitals, 1 alpha and 1 beta electrons)
    """

    n_alpha: int
    n_beta: int
    core: float
    one: Array
    two: Array

    def __repr__(self) -> str:
        return f"Integrals({self.n_orbitals} orbitals, {self.n_alpha} alpha and {self.n_beta} beta electrons)"

    @property
    def n_orbitals(self) -> int:
        """Spatial orbitals, shared by both spins."""
        return len(self.one)

    @property
    def identity(self) -> str:
        """The SHA-256 of the values."""
        digest = hashlib.sha256(np.array([self.n_alpha, self.n_beta, self.core]).tobytes())
        for values in (self.one, self.two):
            digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()


def spin_constant(integrals: Integrals) -> float:
    """Sz (Sz + 1) + N_beta: S^2 is this minus the sum over p, q of E^a_pq E^b_qp."""
    sz = (integrals.n_alpha - integrals.n_beta) / 2
    return sz * (sz + 1) + integrals.n_beta


def pair_count(n_orbitals: int) -> int:
    """The number of unordered pairs of orbitals, equal ones among them."""
    return n_orbitals * (n_orbitals + 1) // 2


def pair_number(p: Any, q: Any, n_orbitals: int) -> Any:
    """The number of the pair of p and q, for integers or arrays of them."""
    low, high = np.minimum(p, q), np.maximum(p, q)
    return np.where(low == high, low, n_orbitals + high * (high - 1) // 2 + low)


def all_pairs(n_orbitals: int) -> tuple[Array, Array]:
    """The orbitals p >= q of every pair number."""
    high, low = np.tril_indices(n_orbitals, -1)
    same = np.arange(n_orbitals)
    return np.concatenate([same, high]), np.concatenate([same, low])


def check_counts(place: str, n_orbitals: int, n_alpha: int, n_beta: int) -> None:
    """Refuse electron counts that the orbitals cannot hold."""
    for spin, count in (("alpha", n_alpha), ("beta", n_beta)):
        if not 0 <= count <= n_orbitals:
            raise InputError(
                place, f"asks for {count} {spin} electrons in {n_orbitals} orbitals",
                "give numbers of electrons that fit the orbitals",
            )  # fmt: skip


def from_arrays(one: Any, two: Any, n_alpha: int, n_beta: int, core: float = 0.0) -> Integrals:
    """Integrals from arrays as PySCF keeps them.

    Parameters
    ----------
    one
        One-electron integrals [p, q], in Hartree.
    two
        Two-electron integrals (pq|rs), in Hartree: [p, q, r, s], a matrix over pairs p >= q in the order of
        `numpy.tril_indices`, or the lower triangle of that matrix.
    n_alpha, n_beta
        Electrons of either spin.
    core
        The energy of nuclei and frozen electrons, in Hartree.

    Returns
    -------
    Integrals

    Raises
    ------
    InputError
        Where shapes disagree, a symmetry of real orbitals is missing, or electrons or the core energy are no
        such numbers.

    Examples
    --------
    >>> tnplan.from_arrays(np.eye(2), np.zeros((2, 2, 2, 2)), 1, 1).n_orbitals
    2
    """
    one_body = _numbers("one-electron integrals", one)
    if one_body.ndim != 2 or one_body.shape[0] != one_body.shape[1] or not len(one_body):
        raise InputError("one-electron integrals", f"have the shape {one_body.shape}", "give a square matrix")
    n = len(one_body)
    counts = check_count("n_alpha", n_alpha, 0), check_count("n_beta", n_beta, 0)
    check_counts("electrons", n, *counts)
    constant = np.asarray(core, object)[()]
    if not (is_number(constant) and np.isfinite(constant)):
        raise InputError("core", f"is {core!r}", "give a finite number of Hartrees")
    _check_equal("one-electron integrals", "[p, q] and [q, p]", one_body, one_body.T)
    packed = _pack(_numbers("two-electron integrals", two), n)
    _check_equal("two-electron integrals", "(pq|rs) and (rs|pq)", packed, packed.T)
    return Integrals(*counts, float(constant), one_body, (packed + packed.T) / 2)


def dense_two(integrals: Integrals) -> Array:
    """The two-electron integrals as [p, q, r, s]."""
    n = integrals.n_orbitals
    p, q = np.indices((n, n))
    pairs = pair_number(p, q, n).ravel()
    return np.ascontiguousarray(integrals.two[np.ix_(pairs, pairs)]).reshape(n, n, n, n)


def _numbers(name: str, values: Any) -> Array:
    try:
        if np.iscomplexobj(values):
            raise TypeError
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(name, "are no real numbers", "give an array of real numbers") from None
    if not np.isfinite(array).all():
        raise InputError(name, "hold values that are NaN or infinite", "mend the integrals")
    return array


def _check_equal(name: str, what: str, first: Array, second: Array) -> None:
    beyond = np.abs(first - second) - TOLERANCE * np.maximum(1.0, np.abs(first))
    if beyond.size and beyond.max() > 0:
        worst = np.abs(first - second).max()
        raise InputError(
            name, f"are not symmetric: {what} differ by {worst:.2g}", "give real, symmetric integrals"
        )


def _pack(two: Array, n: int) -> Array:
    """`two` of any accepted shape as a matrix over pair numbers."""
    pairs = pair_count(n)
    high, low = all_pairs(n)
    if two.shape == (n,) * 4:
        for axes in ((1, 0, 2, 3), (0, 1, 3, 2)):
            _check_equal("two-electron integrals", "(pq|rs) and (qp|rs)", two, two.transpose(axes))
        return np.ascontiguousarray(two[high, low][:, high, low])
    if two.shape == (pairs * (pairs + 1) // 2,):
        matrix = np.zeros((pairs, pairs))
        matrix[np.tril_indices(pairs)] = two
        two = matrix + np.tril(matrix, -1).T
    if two.shape != (pairs, pairs):
        raise InputError(
            "two-electron integrals", f"have the shape {two.shape}, which is none for {n} orbitals",
            f"give {(n,) * 4}, {(pairs, pairs)} or {(pairs * (pairs + 1) // 2,)}",
        )  # fmt: skip
    place = high * (high + 1) // 2 + low
    return np.ascontiguousarray(two[np.ix_(place, place)])

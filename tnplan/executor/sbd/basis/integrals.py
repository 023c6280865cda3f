"""The Hamiltonian of a molecule: one- and two-electron integrals, and electron counts.

Knows the symmetry of integrals and how pairs of orbitals are numbered; no file, no determinant.

Pair numbers: p for the pair (p, p), so that number operators come first, then n + p (p - 1) / 2 + q for the
pair of p > q, n being the number of orbitals. Over real orbitals (pq|rs) = (qp|rs), and these are all pairs.
Over complex orbitals the pairs of p < q have numbers of their own: those of (q, p), plus n (n - 1) / 2.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError

TOLERANCE = 1e-8
"""How far integrals that ought to be equal may differ, in Hartree or relative to their size."""
MOST_ORBITALS = 4096
"""Orbitals of a Hamiltonian."""
LARGEST_IRREP = 8
"""Of those that labels of orbitals number from 1."""


@dataclass(frozen=True)
class BetaIntegrals:
    """Integrals of beta orbitals that are not those of alpha.

    - `one`: One-electron integrals [orbital, orbital] of beta, in Hartree.
    - `two`: Two-electron integrals (pq|rs) [pair, pair] of beta, in Hartree.
    - `mixed`: (pq|rs) [pair of alpha, pair of beta], in Hartree.
    - `overlap`: Overlaps <p|q> [orbital of alpha, orbital of beta], which S^2 needs, or None.
    """

    one: Array
    two: Array
    mixed: Array
    overlap: Array | None = None


@dataclass(frozen=True)
class OrbitalLabels:
    """Symmetry labels of orbitals, as an FCIDUMP has them.

    - `irreps`: ORBSYM: 1 to 8 by orbital; the product of a and b is 1 + ((a - 1) xor (b - 1)). Empty if not
      known.
    - `wanted`: ISYM: the irreducible representation of the state looked for.
    - `momenta`: SYMLZ: the angular momentum about the axis by orbital. Empty if not known.
    """

    irreps: tuple[int, ...] = ()
    wanted: int = 1
    momenta: tuple[int, ...] = ()


class RealTables(NamedTuple):
    """What kernels take of a Hamiltonian: real integrals of alpha, of beta, and (alpha pair|beta pair)."""

    one_alpha: Array
    two_alpha: Array
    one_beta: Array
    two_beta: Array
    mixed: Array


@dataclass(frozen=True)
class Integrals:
    """The Hamiltonian of a molecule; make one with `from_arrays` or from an FCIDUMP file.

    Parameters
    ----------
    n_alpha, n_beta
        Electrons of either spin.
    core
        The energy of nuclei and frozen electrons, in Hartree.
    one
        One-electron integrals [orbital, orbital], in Hartree: float64, or complex128 and Hermitian.
    two
        Two-electron integrals (pq|rs) [pair, pair], in Hartree, symmetric. Over real orbitals a pair is two
        orbitals, otherwise two orbitals in order; then (pq|rs) is the conjugate of (qp|sr).
    beta
        Those of beta where it has orbitals of its own; `one` and `two` are then alpha's.
    is_general
        Orbitals are spin orbitals of both spins: all electrons count as alpha's.
    labels
        Symmetry labels of the orbitals.

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
    beta: BetaIntegrals | None = None
    is_general: bool = False
    labels: OrbitalLabels = OrbitalLabels()

    def __repr__(self) -> str:
        if self.is_general:
            return f"Integrals({self.n_orbitals} spin orbitals, {self.n_alpha} electrons)"
        return f"Integrals({self.n_orbitals} orbitals, {self.n_alpha} alpha and {self.n_beta} beta electrons)"

    @property
    def n_orbitals(self) -> int:
        """Orbitals of each spin, or spin orbitals of both where they are general."""
        return len(self.one)

    @property
    def is_complex(self) -> bool:
        """Whether some integral is no real number."""
        return np.iscomplexobj(self.two)

    @property
    def has_ordered_pairs(self) -> bool:
        """Whether (pq|rs) is not (qp|rs), so that pairs of p < q have numbers of their own."""
        return len(self.two) > pair_count(self.n_orbitals)

    @property
    def has_common_orbitals(self) -> bool:
        """Whether alpha and beta have the same orbitals."""
        return self.beta is None and not self.is_general

    @property
    def kind(self) -> str:
        """What is not as with real orbitals that both spins share, in words; empty where nothing is."""
        words = []
        if self.is_complex:
            words.append("complex integrals")
        elif self.has_ordered_pairs:
            words.append("complex orbitals")
        if self.beta is not None:
            words.append("orbitals of each spin")
        if self.is_general:
            words.append("general spin orbitals")
        return " over ".join(words)

    @property
    def identity(self) -> str:
        """The SHA-256 of the values."""
        digest = hashlib.sha256(np.array([self.n_alpha, self.n_beta, self.core]).tobytes())
        arrays = [self.one, self.two]
        if self.beta is not None:
            arrays += [self.beta.one, self.beta.two, self.beta.mixed]
        for values in arrays:
            digest.update(np.ascontiguousarray(values).data)
        if self.is_general:
            digest.update(b"general")
        return digest.hexdigest()

    @property
    def mixed(self) -> Array:
        """(pq|rs) [pair of alpha, pair of beta]."""
        return self.two if self.beta is None else self.beta.mixed

    def of_spin(self, spin: int) -> tuple[Array, Array]:
        """The one- and two-electron integrals of alpha (0) or beta (1)."""
        if spin == 0 or self.beta is None:
            return self.one, self.two
        return self.beta.one, self.beta.two

    @property
    def real(self) -> Integrals:
        """The integrals' real parts: H is H.real + i H.imaginary."""
        return self._part("real") if self.is_complex else self

    @property
    def imaginary(self) -> Integrals:
        """The integrals' imaginary parts, which change their sign with the order of pairs."""
        return self._part("imag")

    def _part(self, name: str) -> Integrals:
        def part(values: Array) -> Array:
            return np.ascontiguousarray(getattr(values, name))

        beta = self.beta
        if beta is not None:
            beta = BetaIntegrals(part(beta.one), part(beta.two), part(beta.mixed), beta.overlap)
        core = self.core if name == "real" else 0.0
        return replace(self, core=core, one=part(self.one), two=part(self.two), beta=beta)

    @property
    def tables(self) -> RealTables:
        """The arrays of real integrals that kernels take."""
        if self.is_complex:
            raise ValueError("integrals are complex: kernels take their real and imaginary parts")
        return RealTables(self.one, self.two, *self.of_spin(1), self.mixed)


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


def ordered_pair_number(p: Any, q: Any, n_orbitals: int) -> Any:
    """The number of the pair of p and q in this order, for integers or arrays of them."""
    return pair_number(p, q, n_orbitals) + np.where(np.less(p, q), n_orbitals * (n_orbitals - 1) // 2, 0)


def number_pairs(p: Any, q: Any, n_orbitals: int, n_pairs: int) -> Any:
    """The numbers of pairs where there are `n_pairs` in all: in order, or not."""
    number = ordered_pair_number if n_pairs > pair_count(n_orbitals) else pair_number
    return number(p, q, n_orbitals)


def turned_pairs(n_orbitals: int) -> Array:
    """The numbers of (q, p) for every ordered pair number of (p, q)."""
    n, half = n_orbitals, n_orbitals * (n_orbitals - 1) // 2
    up = n + np.arange(half)
    return np.concatenate([np.arange(n), up + half, up])


def all_pairs(n_orbitals: int) -> tuple[Array, Array]:
    """The orbitals p >= q of every pair number, unordered."""
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


def dense_two(integrals: Integrals) -> Array:
    """The two-electron integrals of alpha, or of both spins, as [p, q, r, s]."""
    return unpacked(integrals.two, integrals.n_orbitals)


def unpacked(two: Array, n_orbitals: int) -> Array:
    """Integrals [pair, pair] as [p, q, r, s]."""
    n = n_orbitals
    p, q = np.indices((n, n))
    pairs = number_pairs(p, q, n, len(two)).ravel()
    return np.ascontiguousarray(two[np.ix_(pairs, pairs)]).reshape(n, n, n, n)


def packed(four: Array, ordered: bool) -> Array:
    """Integrals [p, q, r, s] as [pair, pair]."""
    high, low = all_pairs(len(four))
    if ordered:
        n = len(four)
        high, low = np.concatenate([high, low[n:]]), np.concatenate([low, high[n:]])
    return np.ascontiguousarray(four[high, low][:, high, low])

"""The Hamiltonian of a molecule: one- and two-electron integrals, and electron counts.

Knows the symmetry of integrals and how pairs of orbitals are numbered; no file, no determinant. Arrays as
PySCF keeps them are checked for every symmetry that they ought to have.

Pair numbers: p for the pair (p, p), so that number operators come first, then n + p (p - 1) / 2 + q for the
pair of p > q, n being the number of orbitals. Over real orbitals (pq|rs) = (qp|rs), and these are all pairs.
Over complex orbitals the pairs of p < q have numbers of their own: those of (q, p), plus n (n - 1) / 2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.checks import check_count, is_finite
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


# Work of real numbers on complex states: on their real and on their imaginary parts.
#
# Knows arrays; not what the work is.


def real_parts(x: Array) -> tuple[Array, Array]:
    """The real and imaginary part of a complex array, each contiguous."""
    return np.ascontiguousarray(x.real), np.ascontiguousarray(x.imag)


def add_by_parts(add: Callable[[Array, Array], None], x: Array, y: Array) -> None:
    """Call add(x, y), which adds to y what is linear in x, for real arrays: of complex ones part by part."""
    if not np.iscomplexobj(y):
        add(x, y)
        return
    for part, target in zip(real_parts(x), (y.real, y.imag), strict=True):
        increment = np.zeros(y.shape)
        add(part, increment)
        target += increment


ONE, TWO = "one-electron integrals", "two-electron integrals"
FOLDS = (4, 8)


def from_arrays(
    one: Any, two: Any, n_alpha: int, n_beta: int, core: float = 0.0, *, fold: int = 8,
    general: bool = False, overlap: Any = None,
) -> Integrals:  # fmt: skip
    """Integrals from arrays as PySCF keeps them.

    Parameters
    ----------
    one
        One-electron integrals [p, q], in Hartree; or those of alpha and of beta, [spin, p, q].
    two
        Two-electron integrals (pq|rs), in Hartree: [p, q, r, s], a matrix over pairs p >= q in the order of
        `numpy.tril_indices`, or the lower triangle of that matrix. With `one` for each spin, three arrays:
        alpha's, (alpha's|beta's), and beta's.
    n_alpha, n_beta
        Electrons of either spin.
    core
        The energy of nuclei and frozen electrons, in Hartree.
    fold
        How many integrals symmetry makes equal. 8: orbitals are real. 4: they are complex, and (pq|rs) is
        not (qp|rs); `two` is then [p, q, r, s]. Complex arrays always have 4.
    general
        Orbitals are spin orbitals of both spins; `n_alpha` counts all electrons, and `n_beta` is 0.
    overlap
        With `one` for each spin: overlaps of alpha's orbitals and beta's, [p, q], for S^2.

    Returns
    -------
    Integrals

    Raises
    ------
    InputError
        Where shapes disagree, a symmetry is missing, or electrons or the core energy are no such numbers.

    Examples
    --------
    >>> tnplan.from_arrays(np.eye(2), np.zeros((2, 2, 2, 2)), 1, 1).n_orbitals
    2
    """
    if fold not in FOLDS:
        raise InputError("fold", f"is {fold!r}", "give 8 for real orbitals, 4 for complex ones")
    each_spin = _axes(one) == 3
    ones, twos = _of_spins(one, two) if each_spin else ([one], [two])
    is_complex = any(np.iscomplexobj(values) for values in (*ones, *twos))
    dtype = np.dtype(np.complex128 if is_complex else np.float64)
    ordered = fold == 4 or is_complex
    bodies = [_one_body(values, dtype) for values in ones]
    n = len(bodies[0])
    if any(len(body) != n for body in bodies):
        raise InputError(
            ONE, "have other shapes for alpha than for beta", "give both over the same number of orbitals"
        )
    counts = check_count("n_alpha", n_alpha, 0), check_count("n_beta", n_beta, 0)
    check_counts("electrons", n, *counts)
    constant = np.asarray(core, object)[()]
    if not is_finite(constant):
        raise InputError("core", f"is {core!r}", "give a finite number of Hartrees")
    if general and (counts[1] or each_spin):
        raise InputError(
            "general", "is set with electrons or integrals of beta", "count all electrons as n_alpha"
        )
    tables = [_two_body(values, n, ordered, dtype) for values in twos]
    beta = None
    for at in (0, 2)[: len(tables)]:
        _check_equal(TWO, "(pq|rs) and (rs|pq)", tables[at], tables[at].T)
        # Symmetric up to rounding becomes symmetric bit by bit.
        tables[at] = (tables[at] + tables[at].T) / 2
    if each_spin:
        beta = BetaIntegrals(bodies[1], tables[2], tables[1], _overlap(overlap, n))
    elif overlap is not None:
        raise InputError("overlap", "is given where both spins share orbitals", "leave it out")
    return Integrals(*counts, float(constant), bodies[0], tables[0], beta, general)


def _axes(values: Any) -> int:
    """How many axes an array has, or a list of arrays; 0 for what is none."""
    try:
        return np.ndim(values)
    except ValueError:
        return 0


def _of_spins(one: Any, two: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """Integrals of alpha and beta, and of alpha, (alpha|beta) and beta."""
    if len(one) != 2 or not hasattr(two, "__len__") or len(two) != 3:
        raise InputError(
            ONE, "are split by spin, but the two-electron integrals are not",
            "give 2 one-electron arrays (alpha, beta) and 3 of two electrons (alpha, alpha-beta, beta)",
        )  # fmt: skip
    return list(one), list(two)


def _overlap(values: Any, n: int) -> Array | None:
    if values is None:
        return None
    overlap = _numbers("overlap", values, np.dtype(np.complex128 if np.iscomplexobj(values) else np.float64))
    if overlap.shape != (n, n):
        raise InputError("overlap", f"has the shape {overlap.shape}", f"give an array of shape {(n, n)}")
    away = np.abs(overlap @ overlap.conj().T - np.eye(n)).max()
    if not away <= 1e-6:
        raise InputError(
            "overlap", f"is {away:.2g} from unitary", "give orbitals of both spins that span the same space"
        )
    return overlap


def _one_body(values: Any, dtype: np.dtype[Any]) -> Array:
    body = _numbers(ONE, values, dtype)
    if body.ndim != 2 or body.shape[0] != body.shape[1] or not len(body):
        raise InputError(ONE, f"have the shape {body.shape}", "give a square matrix")
    _check_equal(ONE, "[p, q] and [q, p]", body, body.T.conj())
    return (body + body.T.conj()) / 2 if np.iscomplexobj(body) else body


def _numbers(name: str, values: Any, dtype: np.dtype[Any]) -> Array:
    try:
        array = np.array(values, dtype=dtype)
    except (TypeError, ValueError):
        raise InputError(name, "are not real or complex numbers", "give an array of numbers") from None
    if not np.isfinite(array).all():
        raise InputError(name, "hold values that are NaN or infinite", "correct the integrals")
    return array


def _check_equal(name: str, symmetry: str, first: Array, second: Array) -> None:
    beyond = np.abs(first - second) - TOLERANCE * np.maximum(1.0, np.abs(first))
    if beyond.size and beyond.max() > 0:
        worst = np.abs(first - second).max()
        remedy = "give Hermitian integrals" if np.iscomplexobj(first) else "give real, symmetric integrals"
        raise InputError(name, f"are not symmetric: {symmetry} differ by {worst:.2g}", remedy)


def _two_body(values: Any, n: int, ordered: bool, dtype: np.dtype[Any]) -> Array:
    """Two-electron integrals of any accepted shape as a matrix over pair numbers."""
    two = _numbers(TWO, values, dtype)
    pairs = pair_count(n)
    if two.shape == (n,) * 4:
        if ordered:
            turned = two.transpose(1, 0, 3, 2).conj()
            _check_equal(TWO, "(pq|rs) and (qp|sr)*", two, turned)
            return packed((two + turned) / 2, True)
        for symmetry, axes in (("(pq|rs) and (qp|rs)", (1, 0, 2, 3)), ("(pq|rs) and (pq|sr)", (0, 1, 3, 2))):
            _check_equal(TWO, symmetry, two, two.transpose(axes))
        return packed(two, False)
    if two.shape == (pairs * (pairs + 1) // 2,):
        matrix = np.zeros((pairs, pairs), dtype)
        # PySCF's 8-fold storage: the lower triangle of the matrix over pairs p >= q.
        matrix[np.tril_indices(pairs)] = two
        two = matrix + np.tril(matrix, -1).T
    if two.shape != (pairs, pairs) or (ordered and n > 1):
        shapes = (
            f"{(n,) * 4}" if ordered else f"{(n,) * 4}, {(pairs, pairs)} or {(pairs * (pairs + 1) // 2,)}"
        )
        raise InputError(
            TWO, f"have the shape {two.shape} for {n} orbitals", f"give an array of shape {shapes}"
        )
    high, low = all_pairs(n)
    # PySCF numbers pairs row by row of the triangle; the numbers here are those of `all_pairs`.
    numbers = high * (high + 1) // 2 + low
    return np.ascontiguousarray(two[np.ix_(numbers, numbers)])

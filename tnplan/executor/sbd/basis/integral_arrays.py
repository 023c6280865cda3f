"""Integrals from arrays as PySCF keeps them, every symmetry that they ought to have being checked.

Knows shapes and symmetries of arrays; no file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.checks import check_count, is_finite
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.integrals import (
    TOLERANCE,
    BetaIntegrals,
    Integrals,
    all_pairs,
    check_counts,
    packed,
    pair_count,
)

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

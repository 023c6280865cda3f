"""Reduced density matrices of a state over products of half-strings, and what follows from them.

    one[p, q] = <p+ q>        two[p, q, r, s] = <p+ r+ s q>

with p, q of the first spin and r, s of the second, so that E = core + sum h[p, q] one[p, q] + 1/2 sum
(pq|rs) two[p, q, r, s] for sums over spins. Of a complex state they are complex. Knows the tables of a
`ProductTables`; no files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.sbd.basis.integrals import Integrals, all_pairs, real_parts, unpacked
from tnplan.executor.sbd.sigma.product_hamiltonian import ProductTables, Spin

OVERLAP_BYTES = 1 << 28
"""Overlaps of strings' rows are computed in blocks of rows of at most this."""


@dataclass(frozen=True)
class Densities:
    """Spin-resolved density matrices; `two_alpha_beta` has a pair of alpha orbitals, then one of beta."""

    alpha: Array
    beta: Array
    two_alpha: Array
    two_beta: Array
    two_alpha_beta: Array

    def __repr__(self) -> str:
        return f"Densities({len(self.alpha)} orbitals)"

    @property
    def one(self) -> Array:
        """The spin-summed one-body density matrix, for orbitals that both spins share."""
        return np.asarray(self.alpha + self.beta)

    @property
    def two(self) -> Array:
        """The spin-summed two-body density matrix, for orbitals that both spins share."""
        opposite = self.two_alpha_beta
        return np.asarray(self.two_alpha + self.two_beta + opposite + opposite.transpose(2, 3, 0, 1))

    def energy(self, integrals: Integrals) -> float:
        """The energy in Hartree that these densities give, the core's with it."""
        n = integrals.n_orbitals
        alpha, beta = integrals.of_spin(0), integrals.of_spin(1)
        terms = [
            (alpha[0], self.alpha), (beta[0], self.beta), (unpacked(integrals.mixed, n), self.two_alpha_beta),
            (unpacked(alpha[1], n) / 2, self.two_alpha), (unpacked(beta[1], n) / 2, self.two_beta),
        ]  # fmt: skip
        return float(integrals.core + sum(np.sum(values * matrix).real for values, matrix in terms))

    def spin_square(self, overlap: Array | None = None) -> float:
        """The expectation value of S^2.

        `overlap` [orbital of alpha, orbital of beta] is needed where each spin has orbitals of its own.
        """
        n_alpha, n_beta = np.trace(self.alpha).real, np.trace(self.beta).real
        sz = (n_alpha - n_beta) / 2
        shared = np.eye(len(self.alpha)) if overlap is None else overlap
        flips = np.einsum("ps,qr,pqrs->", shared, shared.conj(), self.two_alpha_beta, optimize=True)
        return float(sz * (sz + 1) + n_beta - flips.real)


def product_weights(x: Array) -> tuple[Array, Array]:
    """The probability of every alpha and of every beta string."""
    squared = np.abs(x) ** 2
    return squared.sum(1), squared.sum(0)


def product_densities(tables: ProductTables, bra: Array, ket: Array) -> Densities:
    """The density matrices between two normalized states [alpha, beta]."""
    return densities_of_parts(lambda left, right: _between(tables, left, right), bra, ket)


def densities_of_parts(between: Callable[[Array, Array], Densities], bra: Array, ket: Array) -> Densities:
    """The density matrices between two states, from products of operators between two real ones."""
    if not np.iscomplexobj(bra):
        return between(*(np.ascontiguousarray(state, np.float64) for state in (bra, ket)))
    # <u + i v|E|x + i y>, each of the four terms being real.
    (u, v), (x, y) = real_parts(bra), real_parts(ket)
    real, imaginary, uv, vu = (between(*pair) for pair in ((u, x), (v, y), (u, y), (v, x)))
    matrices = []
    for name in (field.name for field in fields(Densities)):
        components = [getattr(densities, name) for densities in (real, imaginary, uv, vu)]
        matrices.append(components[0] + components[1] + 1j * (components[2] - components[3]))
    return Densities(*matrices)


def _between(tables: ProductTables, bra: Array, ket: Array) -> Densities:
    """The same products of operators between two real states."""
    bra, ket = (np.ascontiguousarray(state, np.float64) for state in (bra, ket))
    alpha, two_alpha = _same_spin(tables.alpha, bra, ket)
    beta, two_beta = _same_spin(tables.beta, *(np.ascontiguousarray(state.T) for state in (bra, ket)))
    return Densities(alpha, beta, two_alpha, two_beta, _opposite_spin(tables, bra, ket))


def _same_spin(spin: Spin, bra: Array, ket: Array) -> tuple[Array, Array]:
    from tnplan.executor.sbd.properties import reduced_density_kernel

    n, count = spin.strings.n_orbitals, len(bra)
    one, two = np.zeros((n, n)), np.zeros((n, n, n, n))
    at_once = max(1, OVERLAP_BYTES // (8 * count))
    for first in range(0, count, at_once):
        last = min(count, first + at_once)
        reduced_density_kernel.same_spin_density(
            spin.strings.words, first, last, bra[first:last] @ ket.T, one, two
        )
    return one, two


def _opposite_spin(tables: ProductTables, bra: Array, ket: Array) -> Array:
    """<p+ q of alpha times r+ s of beta>, by a half-transformed row of the bra for each alpha string."""
    from tnplan.executor.sbd.properties import reduced_density_kernel

    alpha, beta, match = tables.alpha, tables.beta, tables.beta.matching
    n, n_pairs, singles = tables.integrals.n_orbitals, len(match.pairs), alpha.singles
    sums_of_rows: dict[int, Array] = {}

    def rows(first: int, last: int) -> None:
        sums = np.zeros((n * n, n + 2 * n_pairs))
        moved = np.empty((n + 2 * n_pairs, bra.shape[1]))
        filled = beta.filled.T.copy()
        for i in range(first, last):
            np.multiply(filled, bra[i], out=moved[:n])
            raised, lowered = moved[n : n + n_pairs], moved[n + n_pairs :]
            reduced_density_kernel.scatter_pairs(match, bra[i], raised, lowered)
            span = slice(int(singles.start[i]), int(singles.start[i + 1]))
            kets = np.concatenate([ket[i][None], ket[singles.other[span]] * singles.sign[span, None]])
            products = kets @ moved.T
            occupied = np.flatnonzero(alpha.strings.occupied[i])
            sums[occupied * (n + 1)] += products[0]
            sums[singles.create[span].astype(np.int64) * n + singles.destroy[span]] += products[1:]
        sums_of_rows[first] = sums

    over_rows(len(bra), tables.threads, rows)
    total = np.sum([sums_of_rows[first] for first in sorted(sums_of_rows)], axis=0)
    high, low = (side[match.pairs] for side in all_pairs(n))
    density = np.zeros((n * n, n * n))
    density[:, np.arange(n) * (n + 1)] = total[:, :n]
    density[:, high * n + low] = total[:, n : n + n_pairs]
    density[:, low * n + high] = total[:, n + n_pairs :]
    return density.reshape(n, n, n, n)

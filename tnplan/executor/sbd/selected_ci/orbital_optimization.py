"""Orbitals in which a list of determinants has the least energy: derivatives, and steps down.

Real orbitals that both spins share. Knows integrals and density matrices; solves nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.units import size_text
from tnplan.executor.sbd.basis.integrals import Integrals, OrbitalLabels, dense_two
from tnplan.executor.sbd.properties.reduced_density import Densities

STEPS, SAME = 30, 1e-5
"""Steps at most; one that lowers the energy by less than this, in Hartree, is the last."""
LONGEST, HISTORY = 0.3, 10
"""The largest element of a step, in radians, and how many steps tell of the curvature."""
LEAST_CURVATURE = 0.1
"""In Hartree: flatter directions count as this."""
DECREASE, SHORTEST = 1e-4, 1e-3
"""A step is taken that lowers the energy by this share of what its slope says, and shortened down to this."""
FIRST_LIST, LONGER = 50, 1.5
"""Determinants of the first list, at least, and how many times longer the others are each time."""
FOUR_INDEX_ARRAYS = 16
"""Arrays of n^4 numbers that a step makes, at most."""


class OrbitalDerivatives(NamedTuple):
    """An energy in Hartree, with its derivatives by the rotation of orbitals p and q into each other.

    Both are [orbital, orbital]: `gradient` is antisymmetric, and `curvature` is the Hessian's diagonal.
    """

    energy: float
    gradient: Array
    curvature: Array


def orbital_derivatives(
    integrals: Integrals, densities: Sequence[Densities], energy: float
) -> OrbitalDerivatives:
    """The derivatives of states' mean energy by kappa, over orbitals that exp(kappa) turns, at kappa = 0.

    dE = sum over p > q of gradient[p, q] kappa[p, q]; coefficients of determinants stay, and where they are
    those of the least energy, the gradient is that of the least energy. Helgaker, Jorgensen and Olsen,
    Molecular Electronic-Structure Theory (2000), sections 10.1 and 10.8.
    """
    h, g = integrals.one, dense_two(integrals)
    one, two = (sum(getattr(each, name) for each in densities) / len(densities) for name in ("one", "two"))
    # Only the part of the density matrices counts that has the symmetry of real integrals.
    one = (one + one.T) / 2
    for axes in ((1, 0, 2, 3), (0, 1, 3, 2), (2, 3, 0, 1)):
        two = (two + two.transpose(axes)) / 2
    # The second order of E(kappa) is sum of kappa_ap kappa_bq M_pq,ab + sum of F_pq (kappa^2)_pq, with
    # the Fock matrix F of the gradient and
    # M_pq,ab = D_pq h_ab + sum_rs Gamma_pqrs (ab|rs) + 2 sum_rs Gamma_prqs (ar|bs).
    fock = h @ one + np.tensordot(g, two, ((1, 2, 3), (1, 2, 3)))
    same = np.outer(h.diagonal(), one.diagonal())
    same += np.einsum("pprs,qqrs->pq", g, two, optimize=True)
    same += 2 * np.einsum("prps,qrqs->pq", g, two, optimize=True)
    crossed = h * one + np.einsum("pqrs,qprs->pq", g, two) + 2 * np.einsum("prqs,qrps->pq", g, two)
    level = fock.diagonal()
    curvature = 2 * (same + same.T - 2 * crossed - level[:, None] - level)
    return OrbitalDerivatives(energy, 2 * (fock - fock.T), curvature)


def descending_rotations(
    n_orbitals: int, labels: OrbitalLabels
) -> Generator[Array | None, OrbitalDerivatives, None]:
    """Rotations [old orbital, new orbital] to try, from the identity on; each is sent its derivatives.

    At the end comes None.

    A quasi-Newton method with limited memory (L-BFGS: Nocedal and Wright, Numerical Optimization (2006),
    algorithm 7.4) from the Hessian's diagonal, with steps that are shortened until the energy falls. Orbitals
    of different labels are not mixed.
    """
    n = n_orbitals
    p, q = np.tril_indices(n, -1)
    for names in (labels.irreps, labels.momenta):
        if names:
            alike = np.equal.outer(names, names)[p, q]
            p, q = p[alike], q[alike]
    rotation = np.eye(n)
    now, history = (yield rotation), list[tuple[Array, Array]]()
    for _ in range(STEPS):
        gradient = now.gradient[p, q]
        step = -_over_hessian(gradient, np.maximum(np.abs(now.curvature[p, q]), LEAST_CURVATURE), history)
        if not gradient @ step < 0:
            break
        step *= min(1.0, LONGEST / np.abs(step).max())
        slope, length = gradient @ step, 1.0
        while True:
            trial = rotation @ _turned(length * step, p, q, n)
            then = yield trial
            if then.energy <= now.energy + DECREASE * length * slope or length < SHORTEST:
                break
            # The lowest point of the parabola through both energies and the slope.
            rise = then.energy - now.energy - length * slope
            length *= float(np.clip(-slope * length / (2 * rise), 0.1, 0.5))
        if not then.energy < now.energy - SAME:
            break
        change = then.gradient[p, q] - gradient
        if change @ step > 0:
            history = [*history[1 - HISTORY :], (length * step, change)]
        rotation, now = trial, then
    yield None


def _over_hessian(gradient: Array, diagonal: Array, history: Sequence[tuple[Array, Array]]) -> Array:
    """The gradient over the Hessian that steps and changes of the gradient tell, the last ones at the end."""
    direction, shares = gradient.copy(), []
    for step, change in reversed(history):
        shares.append((step @ direction) / (step @ change))
        direction -= shares[-1] * change
    direction /= diagonal
    for (step, change), share in zip(history, reversed(shares), strict=True):
        direction += step * (share - (change @ direction) / (step @ change))
    return direction


def _turned(angles: Array, p: Array, q: Array, n: int) -> Array:
    """Orbitals that turn by angles of p into q: Cayley's transform, which is exp(kappa) to second order."""
    half = np.zeros((n, n))
    half[p, q], half[q, p] = angles / 2, -angles / 2
    return np.linalg.solve(np.eye(n) - half, np.eye(n) + half)


def check_optimizable(integrals: Integrals, memory_bytes: float) -> None:
    """Refuse orbitals that are not optimized, and those whose derivatives the memory does not hold."""
    place, needed_bytes = "--optimize-orbitals", 8 * FOUR_INDEX_ARRAYS * integrals.n_orbitals**4
    if integrals.kind:
        raise InputError(
            place, f"cannot be combined with {integrals.kind}", "give real orbitals of both spins"
        )
    if needed_bytes > memory_bytes:
        problem = f"takes {size_text(needed_bytes)} for {integrals.n_orbitals} orbitals"
        raise InputError(place, problem, "give more --memory, or leave it out")


def list_sizes(most: int) -> list[int]:
    """Determinants of the lists in which orbitals are optimized in turn, up to `most`."""
    sizes = [most]
    while sizes[0] >= FIRST_LIST * LONGER:
        sizes.insert(0, int(sizes[0] / LONGER))
    return sizes

"""Mean fields (unrestricted Hartree-Fock) over given orbitals: which of these electrons fill.

The determinant of least energy may be one of charge transfer, above which correlation lifts another one by
tenths of a Hartree. A mean field has the correlation of single excitations, and finds the other one.

Knows integrals of orbitals that both spins share; no lists.
"""

from __future__ import annotations

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.sbd.basis.integrals import Integrals, dense_two

STEPS, MIXED = 60, 0.3
"""Steps of a mean field at most, and the share of the new density in each."""
SETTLED = 1e-3
"""A density that changes by less is taken."""


class MeanField:
    """Unrestricted Hartree-Fock for any numbers of electrons."""

    def __init__(self, integrals: Integrals) -> None:
        self._one, two, n = integrals.one, dense_two(integrals), integrals.n_orbitals
        self._coulomb = two.transpose(0, 1, 3, 2).reshape(n * n, n * n)
        self._exchange = two.transpose(0, 3, 1, 2).reshape(n * n, n * n)

    def leading(self, n_alpha: int, n_beta: int) -> Array:
        """What electrons fill most: bool [spin, orbital].

        Densities begin with all orbitals filled alike, so that none is preferred. They need not settle: a
        determinant that is far from the best one costs time alone.
        """
        n, counts = len(self._one), (n_alpha, n_beta)
        densities = np.array([np.eye(n) * count / n for count in counts], self._one.dtype)
        for _ in range(STEPS):
            coulomb = self._coulomb @ densities.sum(0).ravel()
            change = 0.0
            for spin, count in enumerate(counts):
                exchange = self._exchange @ densities[spin].ravel()
                orbitals = np.linalg.eigh(self._one + (coulomb - exchange).reshape(n, n))[1][:, :count]
                step = MIXED * (orbitals @ orbitals.conj().T - densities[spin])
                densities[spin] += step
                change = max(change, float(np.abs(step).max(initial=0.0)))
            if change < SETTLED:
                break
        filled = np.zeros((2, n), bool)
        for spin, count in enumerate(counts):
            filled[spin, np.argsort(-densities[spin].diagonal().real, kind="stable")[:count]] = True
        return filled

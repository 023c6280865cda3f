"""The square of the total spin over products of half-strings, and the Hamiltonian with a penalty on it.

    S^2 = Sz (Sz + 1) + N_beta - sum over p, q of E^a_pq E^b_qp

Knows the tables of a `ProductHamiltonian`; nothing of solvers.
"""

from __future__ import annotations

import numpy as np

from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.sbd.basis.determinants import OneRank
from tnplan.executor.sbd.properties.reduced_density import densities
from tnplan.executor.sbd.sigma.product_hamiltonian import EVEN, NEITHER, ODD, ProductHamiltonian
from tnplan.planner.common.arrays import Array


def apply_spin_square(hamiltonian: ProductHamiltonian, x: Array) -> Array:
    """S^2 x within the space, a new array; for orbitals that both spins share."""
    from tnplan.executor.sbd.properties import pair_sum_kernel

    if np.iscomplexobj(x):
        return apply_spin_square(hamiltonian, x.real) + 1j * apply_spin_square(hamiltonian, x.imag)
    alpha, beta = hamiltonian.alpha, hamiltonian.beta
    x = np.ascontiguousarray(x, np.float64)
    flipped = (alpha.filled @ beta.filled.T) * x
    tables = alpha.singles, beta.matching
    over_rows(
        len(x), hamiltonian.threads,
        lambda first, last: pair_sum_kernel.exchange_spins(first, last, *tables, x, flipped),
    )  # fmt: skip
    return np.asarray(_spin_constant(hamiltonian) * x - flipped)


def spin_square(hamiltonian: ProductHamiltonian, x: Array) -> float | None:
    """The expectation value of S^2 in a normalized state.

    None where it is not known: for general spin orbitals, and for orbitals of each spin without overlaps.
    """
    integrals = hamiltonian.integrals
    if integrals.has_common_orbitals:
        return float(np.vdot(x, apply_spin_square(hamiltonian, x)).real)
    if integrals.beta is None or integrals.beta.overlap is None:
        return None
    return densities(hamiltonian, x).spin_square(integrals.beta.overlap)


def _spin_constant(hamiltonian: ProductHamiltonian) -> float:
    """Sz (Sz + 1) + N_beta."""
    n_alpha, n_beta = (spin.strings.n_electrons for spin in (hamiltonian.alpha, hamiltonian.beta))
    sz = (n_alpha - n_beta) / 2
    return sz * (sz + 1) + n_beta


class PenalizedHamiltonian(OneRank):
    """H + weight (S^2 - wanted)^power: states of other spin lie higher. Energies are to be taken from H.

    States of equally many alpha and beta electrons are even under exchange of the strings where the total
    spin is even, and odd where it is odd. With equal sets those of the other parity are left out, unless
    `every_state` is set.
    """

    def __init__(
        self, hamiltonian: ProductHamiltonian, wanted: float, weight: float, power: int = 2,
        every_state: bool = False,
    ) -> None:  # fmt: skip
        """`wanted` is s (s + 1); `weight` is in Hartree."""
        self._hamiltonian = hamiltonian
        self.wanted, self.weight, self.power = wanted, weight, power
        self.every_state = every_state
        self.shape = hamiltonian.shape
        parity = ODD if self.least_open % 4 == 2 else EVEN
        is_one = parity in hamiltonian.parities and not every_state
        self.parities: tuple[int, ...] = (parity,) if is_one else hamiltonian.parities

    @property
    def least_open(self) -> int:
        """How many singly occupied orbitals the states looked for need."""
        if self.every_state:
            return 0
        return round(float(np.sqrt(1 + 4 * self.wanted))) - 1

    def open_shells(self) -> Array:
        """The numbers of singly occupied orbitals of all determinants."""
        alpha, beta = self._hamiltonian.alpha, self._hamiltonian.beta
        n_electrons = alpha.strings.n_electrons + beta.strings.n_electrons
        return np.asarray(n_electrons - 2 * alpha.filled @ beta.filled.T)

    def n_states(self) -> int:
        """How many states of its parities there are among determinants of enough open shells."""
        enough = self.open_shells() >= self.least_open
        if self.parities[0] == NEITHER:
            return int(enough.sum())
        return sum(int(enough.sum() + parity * enough.trace()) // 2 for parity in self.parities)

    def apply(self, x: Array, parity: int, out: Array | None = None) -> Array:
        """The product with a vector of that parity, a new array or `out`."""
        y = self._hamiltonian.apply(x, parity, out)
        away = x
        for _ in range(self.power):
            away = apply_spin_square(self._hamiltonian, away) - self.wanted * away
        y += self.weight * away
        y[:] = self.project(y, parity)
        return y

    def diagonal(self) -> Array:
        """That of H, and of the penalty as far as S^2 is diagonal."""
        alpha, beta = self._hamiltonian.alpha, self._hamiltonian.beta
        away = _spin_constant(self._hamiltonian) - alpha.filled @ beta.filled.T - self.wanted
        return np.asarray(self._hamiltonian.diagonal() + self.weight * away**self.power)

    def project(self, x: Array, parity: int) -> Array:
        """The part of x that has a parity."""
        return self._hamiltonian.project(x, parity)

"""The square of the total spin, and the Hamiltonian with a penalty on it.

    S^2 = Sz (Sz + 1) + N_beta - sum over p, q of E^a_pq E^b_qp

Knows operators and parities; nothing of solvers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.sbd.basis.determinants import NEITHER
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.lists.listed_rows import ListedRows
from tnplan.executor.sbd.properties.measure import densities
from tnplan.executor.sbd.sigma.product_hamiltonian import EVEN, ODD, ProductHamiltonian
from tnplan.executor.sbd.sigma.sector_hamiltonian import SectorHamiltonian, SectorProduct
from tnplan.executor.sbd.solver.davidson import Operator

Array = Any
"""An array where the operator's vectors lie."""


class SpinOperator(Operator, Protocol):
    """A Hamiltonian on the ranks of a group whose states have spin orbitals."""

    @property
    def parities(self) -> tuple[int, ...]:
        """The parities that occur."""

    def apply_spin_square(self, x: Array) -> Array:
        """S^2 x within the space, a new array."""

    def spin_diagonal(self) -> Array:
        """The diagonal of S^2."""


def spin_square(hamiltonian: ProductHamiltonian | ListHamiltonian, x: NDArray[Any]) -> float | None:
    """The expectation value of S^2 in a whole normalized state on the host.

    None where it is not known: for general spin orbitals, and for orbitals of each spin without overlaps.
    """
    integrals = hamiltonian.integrals
    if integrals.has_common_orbitals:
        if isinstance(hamiltonian, SectorProduct):
            vector = hamiltonian.in_sector.blocks.vector(x)
            return float(np.vdot(vector, hamiltonian.in_sector.apply_spin_square(vector)))
        return float(np.vdot(x, hamiltonian.alone().apply_spin_square(x)).real)
    if integrals.beta is None or integrals.beta.overlap is None:
        return None
    return densities(hamiltonian, x).spin_square(integrals.beta.overlap)


@dataclass(frozen=True)
class SpinTarget:
    """The spin that a penalty leaves alone: `wanted` is s (s + 1), `weight` in Hartree.

    States of equally many alpha and beta electrons are even under exchange of the strings where the total
    spin is even, and odd where it is odd. With equal sets those of the other parity are left out, unless
    `every_state` is set.
    """

    wanted: float
    weight: float
    power: int = 2
    every_state: bool = False

    @property
    def least_open(self) -> int:
        """How many singly occupied orbitals the states looked for need."""
        if self.every_state:
            return 0
        return round(float(np.sqrt(1 + 4 * self.wanted))) - 1

    def parities(self, present: tuple[int, ...]) -> tuple[int, ...]:
        """Those of a Hamiltonian's parities that the states looked for have."""
        parity = ODD if self.least_open % 4 == 2 else EVEN
        return (parity,) if parity in present and not self.every_state else present

    def count(self, hamiltonian: ProductHamiltonian | SectorHamiltonian | ListHamiltonian) -> NDArray[Any]:
        """Local determinants of enough open shells, and of these the ones with two equal strings."""
        shape = (hamiltonian.rows[1] - hamiltonian.rows[0], *hamiltonian.shape[1:])
        enough = np.broadcast_to(True, shape)
        if self.least_open:
            enough = hamiltonian.open_shells() >= self.least_open
        if isinstance(hamiltonian, SectorHamiltonian):
            twins = hamiltonian.blocks.trace(enough)
        else:
            twins = enough.trace(hamiltonian.rows[0]) if enough.ndim == 2 else 0
        return np.array([enough.sum(), twins], np.int64)

    def n_states(self, counts: NDArray[Any], present: tuple[int, ...]) -> int:
        """How many states of its parities there are, from the counts of all ranks."""
        parities = self.parities(present)
        if parities[0] == NEITHER:
            return int(counts[0])
        return sum(int(counts[0] + parity * counts[1]) // 2 for parity in parities)


def dense_matrix(hamiltonian: ListedRows, target: SpinTarget | None) -> NDArray[Any]:
    """All elements of H among a few basis states, with the penalty of a target."""
    matrix = hamiltonian.dense()
    if target is None:
        return matrix
    squares = np.array([hamiltonian.apply_spin_square(unit) for unit in np.eye(len(matrix))])
    away = squares - target.wanted * np.eye(len(matrix))
    return np.asarray(matrix + target.weight * np.linalg.matrix_power(away, target.power))


class PenalizedHamiltonian:
    """H + weight (S^2 - wanted)^power: states of other spin lie higher. Energies are to be taken from H."""

    def __init__(self, hamiltonian: SpinOperator, target: SpinTarget) -> None:
        self._hamiltonian, self._target = hamiltonian, target
        self.shape = hamiltonian.shape
        self.parities = target.parities(hamiltonian.parities)
        self.total, self.same, self.project = hamiltonian.total, hamiltonian.same, hamiltonian.project

    def apply(self, x: Array, parity: int, out: Array | None = None) -> Array:
        """The product with a vector of that parity, a new array or `out`."""
        y = self._hamiltonian.apply(x, parity, out)
        away = x
        for _ in range(self._target.power):
            away = self._hamiltonian.apply_spin_square(away) - self._target.wanted * away
        away *= self._target.weight
        y += away
        y[:] = self.project(y, parity)
        return y

    def diagonal(self) -> Array:
        """That of H, and of the penalty as far as S^2 is diagonal."""
        away = self._hamiltonian.spin_diagonal() - self._target.wanted
        return self._hamiltonian.diagonal() + self._target.weight * away**self._target.power

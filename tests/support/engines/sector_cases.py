"""Strings of random molecules whose orbitals have representations, and their products of one of these."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.engines.sbd import every_string, some_strings, string_set
from tests.support.engines.symmetric_molecules import determinants_of, symmetric_molecule
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.sector import Sector, string_irreps
from tnplan.executor.sbd.sigma.product_hamiltonian import ProductTables
from tnplan.executor.sbd.sigma.sector_hamiltonian import SectorHamiltonian


class Case:
    """Strings of a random molecule, and their products of a representation."""

    def __init__(self, group: str, n: int, counts: tuple[int, int], equal: bool, seed: int) -> None:
        self.integrals: Integrals = symmetric_molecule(group, n, counts, seed)
        sizes = [max(1, int(0.85 * len(every_string(n, count)))) for count in counts]
        self.alpha = some_strings(n, counts[0], sizes[0], seed)
        self.beta = self.alpha if equal else some_strings(n, counts[1], sizes[1], seed + 1)
        self.sets = [string_set(values, self.integrals) for values in (self.alpha, self.beta)]
        self.equal = equal

    def pairs(self, irrep: int) -> list[tuple[int, int]]:
        return determinants_of(self.integrals, self.alpha, self.beta, irrep)

    def sector(self, irrep: int, **options: Any) -> SectorHamiltonian:
        alpha, beta = self.sets[0], None if self.equal else self.sets[1]
        tables = ProductTables(self.integrals, alpha, beta, threads=1)
        return SectorHamiltonian(tables, self.labelled(irrep), **options)

    def labelled(self, irrep: int) -> Sector:
        alpha, beta = (string_irreps(strings, self.integrals.labels.irreps) for strings in self.sets)
        return Sector(alpha, beta, irrep - 1)

    def listed(self, whole: np.ndarray, irrep: int) -> np.ndarray:
        """The elements of a whole state in the order of the pairs."""
        return np.array([whole[self.alpha.index(a), self.beta.index(b)] for a, b in self.pairs(irrep)])

    def irreps(self) -> list[int]:
        return [irrep for irrep in range(1, 9) if self.pairs(irrep)]

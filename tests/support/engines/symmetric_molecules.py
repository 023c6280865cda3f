"""Random Hamiltonians whose orbitals have representations of an abelian group, and references by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.engines.sbd import Determinant, move, random_integrals, reference_matrix
from tnplan.executor.sbd.basis.integrals import Integrals, OrbitalLabels, dense_two, from_arrays

GROUPS = {"C1": 1, "Cs": 2, "C2v": 4, "D2h": 8}
"""Groups of two-fold rotations and reflections, and how many representations they have."""


def symmetric_molecule(group: str, n: int, counts: tuple[int, int], seed: int) -> Integrals:
    """Random integrals that random labels of a group allow."""
    labels = np.random.default_rng(seed).integers(1, GROUPS[group] + 1, n)
    made, pairs = random_integrals(n, *counts, seed), (labels - 1)[:, None] ^ (labels - 1)
    two = dense_two(made) * (pairs[:, :, None, None] == pairs)
    integrals = from_arrays(made.one * (pairs == 0), two, *counts, 0.25)
    return replace(integrals, labels=OrbitalLabels(tuple(map(int, labels)), 1))


def irrep_of(integrals: Integrals, determinant: Determinant) -> int:
    """The representation of a determinant, from 1: the product of those of the orbitals that it fills."""
    result = 0
    for string, (p, label) in product(determinant, enumerate(integrals.labels.irreps)):
        result ^= (label - 1) * (string >> p & 1)
    return result + 1


def determinants_of(
    integrals: Integrals, alpha: Sequence[int], beta: Sequence[int], irrep: int
) -> list[Determinant]:
    """The products of strings that have a representation."""
    return [pair for pair in product(alpha, beta) if irrep_of(integrals, pair) == irrep]


def dense_states(integrals: Integrals, determinants: Sequence[Determinant]) -> Any:
    """All energies and states, as columns, among determinants."""
    energies, states = np.linalg.eigh(reference_matrix(integrals, determinants))
    return energies + integrals.core, states


def spin_square_matrix(integrals: Integrals, determinants: Sequence[Determinant]) -> NDArray[Any]:
    """S^2 = Sz (Sz + 1) + N_beta - sum over p, q of E^a_pq E^b_qp among determinants."""
    number = {determinant: at for at, determinant in enumerate(determinants)}
    sz = (integrals.n_alpha - integrals.n_beta) / 2
    matrix = (sz * (sz + 1) + integrals.n_beta) * np.eye(len(number))
    orbitals = range(integrals.n_orbitals)
    for (alpha, beta), column in number.items():
        for p, q in product(orbitals, orbitals):
            (new_alpha, sign), (new_beta, other) = move(alpha, p, q), move(beta, q, p)
            if sign and other and (new_alpha, new_beta) in number:
                matrix[number[new_alpha, new_beta], column] -= sign * other
    return matrix

"""Vectors to start a solve from: the lowest states among the determinants of least energy.

Knows operators' diagonals and lists of determinants; not how a solve goes on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.sbd.determinants import DeterminantList, ListHamiltonian, from_product
from executor.sbd.integrals import Integrals
from executor.sbd.product import EVEN, NEITHER, ODD, ProductHamiltonian
from executor.sbd.spin import PenalizedHamiltonian, apply_spin_square

Array = NDArray[Any]

DETERMINANTS = 300
"""So many determinants of least energy are diagonalized exactly; smaller spaces whole."""
NEAR = 1e-8
"""Determinants within this of each other in energy, in Hartree, are taken together."""


def lowest_of_list(
    hamiltonian: ListHamiltonian, integrals: Integrals, n_roots: int
) -> list[tuple[Array, int]]:
    """At least `n_roots` start vectors, where the space has so many, in a list of determinants."""
    basis = hamiltonian.basis
    chosen = _lowest(hamiltonian.diagonal(), max(DETERMINANTS, 2 * n_roots))
    few = DeterminantList(
        basis.alpha_strings, basis.beta_strings, basis.alpha[chosen], basis.beta[chosen], chosen
    )
    _, columns = np.linalg.eigh(ListHamiltonian(integrals, few, threads=hamiltonian.threads).dense())
    vectors = []
    for column in columns.T[:n_roots]:
        vector = np.zeros(len(basis))
        vector[chosen] = column
        vectors.append((vector, NEITHER))
    return vectors


def lowest_of_product(
    hamiltonian: ProductHamiltonian, n_roots: int, penalized: PenalizedHamiltonian | None = None
) -> list[tuple[Array, int]]:
    """At least `n_roots` start vectors with their parities, where the space has so many.

    With a penalty they are those of `penalized`, among determinants of as many open shells as its spin needs.
    """
    shape = hamiltonian.shape
    parities = hamiltonian.parities if penalized is None else penalized.parities
    diagonal = hamiltonian.diagonal()
    if penalized is not None:
        diagonal[penalized.open_shells() < penalized.least_open] = np.inf
    chosen = _lowest(diagonal.ravel(), max(DETERMINANTS, 2 * n_roots))
    chosen = chosen[np.isfinite(diagonal.ravel()[chosen])]
    if hamiltonian.symmetric:
        row, column = np.divmod(chosen, shape[1])
        chosen = np.unique(np.concatenate([chosen, column * shape[1] + row]))
    alpha, beta = hamiltonian.alpha.strings, hamiltonian.beta.strings
    basis = from_product(alpha, beta, chosen)
    chosen = chosen[basis.given]
    matrix = ListHamiltonian(hamiltonian.integrals, basis, threads=hamiltonian.threads).dense()
    if penalized is not None:
        away = _spin_matrix(hamiltonian, basis) - penalized.wanted * np.eye(len(matrix))
        matrix = matrix + penalized.weight * away @ away
    found = []
    for parity in parities:
        frame = _frame(chosen, shape[1], parity)
        if not frame.shape[1]:
            continue
        energies, columns = np.linalg.eigh(frame.T @ matrix @ frame)
        for energy, vector in zip(energies[:n_roots], (frame @ columns).T, strict=False):
            found.append((float(energy), parity, vector))
    vectors = []
    for _, parity, values in sorted(found, key=lambda entry: entry[0])[:n_roots]:
        whole = np.zeros(shape)
        whole.ravel()[chosen] = values
        vectors.append((whole, parity))
    return vectors


def _spin_matrix(hamiltonian: ProductHamiltonian, basis: DeterminantList) -> Array:
    """S^2 among a list of determinants."""
    few = ProductHamiltonian(
        hamiltonian.integrals,
        basis.alpha_strings,
        basis.beta_strings,
        threads=hamiltonian.threads,
        dense=False,
    )
    rows = [apply_spin_square(few, basis.embed(unit))[basis.alpha, basis.beta] for unit in np.eye(len(basis))]
    return np.array(rows)


def given_start(
    operator: ProductHamiltonian | PenalizedHamiltonian, states: list[Array]
) -> list[tuple[Array, int]]:
    """Given states as start vectors, split by parity."""
    parts = []
    for state in states:
        for parity in operator.parities:
            part = operator.project(state, parity)
            if np.linalg.norm(part) > 1e-3 * np.linalg.norm(state):
                parts.append((part, parity))
    return parts


def _lowest(diagonal: Array, count: int) -> Array:
    """The numbers of the `count` smallest values, and of those just as small as the last, in rising order."""
    if count >= len(diagonal):
        return np.arange(len(diagonal))
    last = np.partition(diagonal, count - 1)[count - 1]
    near = np.flatnonzero(diagonal <= last + NEAR)
    if len(near) > 2 * count:
        near = np.argsort(diagonal, kind="stable")[:count]
    return np.sort(near)


def _frame(chosen: Array, n_columns: int, parity: int) -> Array:
    """Orthonormal columns over the chosen determinants that span those of a parity."""
    count = len(chosen)
    if parity == NEITHER:
        return np.eye(count)
    order = {int(number): at for at, number in enumerate(chosen)}
    columns: list[tuple[tuple[int, float], ...]] = []
    for number, at in order.items():
        row, column = divmod(number, n_columns)
        if row == column and parity == EVEN:
            columns.append(((at, 1.0),))
        elif row > column:
            other = order[column * n_columns + row]
            columns.append(((at, np.sqrt(0.5)), (other, np.sqrt(0.5) * (-1 if parity == ODD else 1))))
    frame = np.zeros((count, len(columns)))
    for place, entries in enumerate(columns):
        for at, factor in entries:
            frame[at, place] = factor
    return frame

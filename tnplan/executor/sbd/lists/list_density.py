"""Density matrices and occupations of a state over a list of determinants.

Knows the tables of a `ListHamiltonian`; no files.
"""

from __future__ import annotations

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.sbd.basis.integrals import all_pairs
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.properties.reduced_density import Densities, densities_of_parts


def list_densities(hamiltonian: ListHamiltonian, x: Array) -> Densities:
    """The density matrices of a whole normalized state x[determinant]."""
    h = hamiltonian.alone()
    return densities_of_parts(lambda bra, ket: _between(h, bra, ket), x)


def _between(h: ListHamiltonian, bra: Array, ket: Array) -> Densities:
    """The same products of operators between two real states."""
    from tnplan.executor.sbd.lists import list_density_kernel

    n, cells = h.integrals.n_orbitals, h.cells
    high, low = (np.append(side, side[n:]).astype(np.int32) for side in all_pairs(n))
    bounds = np.linspace(0, len(bra), h.threads + 1).astype(int)
    parts: list[list[Array]] = [[] for _ in range(h.threads)]

    def share(first: int, last: int) -> None:
        for number in range(first, last):
            parts[number] = [np.zeros((n,) * axes) for axes in (2, 2, 4, 4, 4)]
            rows = int(bounds[number]), int(bounds[number + 1])
            list_density_kernel.add_densities(*rows, h.tables, cells, low, high, bra, ket, *parts[number])

    over_rows(h.threads, h.threads, share)
    return Densities(*(np.sum(same, axis=0) for same in zip(*parts, strict=True)))


def list_weights(hamiltonian: ListHamiltonian, x: Array) -> tuple[Array, Array]:
    """The probability of every alpha and of every beta string."""
    basis, squared = hamiltonian.basis, np.abs(x) ** 2
    n_alpha, n_beta = basis.product_shape
    return np.bincount(basis.alpha, squared, n_alpha), np.bincount(basis.beta, squared, n_beta)

"""What is measured in a state of either space: products of strings, or a list of determinants.

Knows both kinds of Hamiltonian; no files.
"""

from __future__ import annotations

from tnplan.common.arrays import Array
from tnplan.executor.sbd.basis.strings import StringSet
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian, list_densities, list_weights
from tnplan.executor.sbd.properties.reduced_density import Densities, product_densities, product_weights
from tnplan.executor.sbd.sigma.product_hamiltonian import ProductHamiltonian
from tnplan.executor.sbd.sigma.sector_hamiltonian import SectorHamiltonian

FermionHamiltonian = ProductHamiltonian | SectorHamiltonian | ListHamiltonian


def densities(hamiltonian: FermionHamiltonian, x: Array, ket: Array | None = None) -> Densities:
    """The density matrices of a whole normalized state, or <x|...|ket> between two."""
    ket = x if ket is None else ket
    if isinstance(hamiltonian, ListHamiltonian):
        return list_densities(hamiltonian, x, ket)
    tables = hamiltonian.tables if isinstance(hamiltonian, SectorHamiltonian) else hamiltonian
    return product_densities(tables, x, ket)


def string_weights(hamiltonian: FermionHamiltonian, x: Array) -> tuple[Array, Array]:
    """The probability of every alpha and of every beta string."""
    return list_weights(hamiltonian, x) if isinstance(hamiltonian, ListHamiltonian) else product_weights(x)


def string_sets(hamiltonian: FermionHamiltonian) -> tuple[StringSet, StringSet]:
    """The alpha and the beta strings."""
    if isinstance(hamiltonian, ListHamiltonian):
        return hamiltonian.basis.alpha_strings, hamiltonian.basis.beta_strings
    return hamiltonian.alpha.strings, hamiltonian.beta.strings


def occupations(hamiltonian: FermionHamiltonian, x: Array) -> tuple[Array, Array]:
    """Mean occupation numbers of the orbitals by alpha and by beta electrons, of a normalized state."""
    weights, sets = string_weights(hamiltonian, x), string_sets(hamiltonian)
    alpha, beta = (weight @ strings.occupied for weight, strings in zip(weights, sets, strict=True))
    return alpha, beta

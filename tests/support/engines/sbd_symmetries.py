"""Random Hamiltonians with symmetries that their integrals do not name, in random spaces.

Translations over sites or momenta, orbitals in groups, degenerate orbitals, Hubbard rings with a flux, and
none; real and complex; whole products of strings, some strings, unequal sets, and lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.engines.sbd import every_string
from tnplan.executor.sbd.basis.determinants import from_product
from tnplan.executor.sbd.basis.integrals import Integrals, from_arrays
from tnplan.executor.sbd.basis.strings import StringSet, from_integers
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.properties.measure import FermionHamiltonian
from tnplan.executor.sbd.sigma.complex_hamiltonian import product_hamiltonian

Array = NDArray[Any]

KINDS = ("sites", "momenta", "groups", "degenerate", "hubbard", "none")
SPACES = ("whole", "whole", "some", "unequal", "list")


@dataclass(frozen=True)
class Problem:
    """A Hamiltonian in a space, its strings where that is a product, and its energies from a dense matrix."""

    name: str
    hamiltonian: FermionHamiltonian
    strings: tuple[StringSet, StringSet] | None
    energies: Array

    @property
    def integrals(self) -> Integrals:
        """What the Hamiltonian is made of."""
        return self.hamiltonian.integrals


def random_problem(seed: int, most: int = 300) -> Problem:
    """A problem of up to so many determinants."""
    chance = np.random.default_rng(seed)
    kind, space = chance.choice(KINDS), chance.choice(SPACES)
    is_complex = bool(chance.integers(2)) or kind == "momenta"
    one, two = _integrals(chance, kind, is_complex)
    n = len(one)
    n_alpha = int(chance.integers(1, n))
    n_beta = n_alpha if chance.random() < 0.6 else int(chance.integers(0, n))
    integrals = from_arrays(one, two, n_alpha, n_beta)
    alpha, beta = every_string(n, n_alpha), every_string(n, n_beta)
    share = chance.uniform(0.4, 1) if space in ("some", "unequal") else 1.0
    alpha = _some(chance, alpha, min(share * len(alpha), most**0.5))
    equal = n_alpha == n_beta and space != "unequal"
    beta = alpha if equal else _some(chance, beta, min(share * len(beta), most**0.5))
    sets = from_integers(alpha, n), from_integers(beta, n)
    size = len(alpha) * len(beta)
    numbers = np.arange(size)
    if space == "list":
        numbers = np.sort(chance.choice(size, int(chance.uniform(0.3, 1) * (size - 1)) + 1, replace=False))
        if equal and chance.random() < 0.7:
            row, column = np.divmod(numbers, len(beta))
            numbers = np.unique(np.concatenate([numbers, column * len(beta) + row]))
    listed = ListHamiltonian(integrals, from_product(*sets, numbers), threads=1)
    energies = np.linalg.eigvalsh(listed.dense()) + integrals.core
    name = f"{seed}: {kind}, {'complex' if is_complex else 'real'}, {space}, {len(numbers)} determinants"
    if space == "list":
        return Problem(name, listed, None, energies)
    return Problem(name, product_hamiltonian(integrals, *sets, threads=1), sets, energies)


def linked_atoms(seed: int, link: float) -> Integrals:
    """Two atoms, of four electrons in three degenerate orbitals each, as a molecule that dissociates: O2.

    With the interaction of Kanamori (1963), Hund's rules give 9 states an atom, so that 27 of the 225 states
    lie close. Electrons hop by random elements of the size `link`.
    """
    n, repulsion, exchange = 3, 0.6, 0.1
    two = np.zeros((2 * n,) * 4)
    for first in (0, n):
        for p, q in product(range(first, first + n), repeat=2):
            two[p, p, q, q] = repulsion - 2 * exchange * (p != q)
            if p != q:
                two[p, q, p, q] = two[p, q, q, p] = exchange
    hop = link * np.random.default_rng(seed).standard_normal((n, n))
    one = np.kron([[0, 1], [1, 0]], hop + hop.T)
    bonds = np.kron([[1, 1], [1, -1]], np.eye(n)) / np.sqrt(2)
    two = np.einsum("pqrs,pa,qb,rc,sd->abcd", two, bonds, bonds, bonds, bonds, optimize=True)
    return from_arrays(bonds.T @ one @ bonds, two, 4, 4)


def _some(chance: np.random.Generator, strings: Sequence[int], count: float) -> list[int]:
    return sorted(int(one) for one in chance.choice(strings, max(1, int(count)), replace=False))


def _integrals(chance: np.random.Generator, kind: str, is_complex: bool) -> tuple[Array, Array]:
    """h[p, q] and (pq|rs) of a kind, of random strengths."""
    n, strength = int(chance.integers(4, 8)), float(chance.choice([0.05, 0.2, 0.5]))
    levels = float(chance.choice([0, 0.3, 1, 3])) * np.arange(n)
    if kind == "hubbard":
        hop = np.exp(2j * np.pi * chance.random()) if is_complex else 1.0
        one, two = -hop * np.roll(np.eye(n), 1, 0), np.zeros((n, n, n, n))
        two[(np.arange(n),) * 4] = chance.choice([-4, 0.5, 2, 8, 20])
        return one + one.conj().T, two
    if kind == "degenerate":
        n = n // 2
    one, two = (chance.standard_normal((n,) * rank) + 0j for rank in (2, 4))
    if is_complex:
        one += 1j * chance.standard_normal(one.shape)
        two += 1j * chance.standard_normal(two.shape)
    two *= strength
    for axes in ((2, 3, 0, 1), (1, 0, 2, 3), (0, 1, 3, 2))[: 1 if is_complex else 3]:
        two = two + two.transpose(axes)
    two = two + two.transpose(1, 0, 3, 2).conj()
    one = one + one.conj().T
    if kind == "degenerate":
        each = np.eye(2)
        one = np.kron(one + np.diag(levels[:n]), each)
        two = np.einsum("pqrs,ab,cd->paqbrcsd", two, each, each).reshape((2 * n,) * 4)
    elif kind == "sites":
        moved = [np.roll(np.arange(n), step) for step in range(n)]
        one = sum(one[np.ix_(p, p)] for p in moved) / n
        two = sum(two[np.ix_(p, p, p, p)] for p in moved) / n
    else:
        labels = np.arange(n) if kind == "momenta" else np.zeros(n, int)
        labels = chance.integers(0, chance.choice([2, 4, 8]), n) if kind == "groups" else labels
        p, q, r, s = (labels.reshape([-1 if at == axis else 1 for at in range(4)]) for axis in range(4))
        allowed = (p ^ q ^ r ^ s) == 0 if kind == "groups" else (p - q + r - s) % n == 0
        one = one * (labels[:, None] == labels) + np.diag(levels)
        two = two * allowed if kind != "none" else two
    return (one, two) if is_complex else (one.real, two.real)

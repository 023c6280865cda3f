"""What tests of selected-basis diagonalization share: random Hamiltonians and slow, obvious references.

The references apply creation and annihilation operators one by one to determinants written as integers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.sbd.basis.integrals import Integrals, all_pairs, dense_two, pair_count
from tnplan.executor.sbd.basis.strings import StringSet, from_integers

Array = NDArray[Any]

Determinant = tuple[int, int]


def random_integrals(n: int, n_alpha: int, n_beta: int, seed: int) -> Integrals:
    """Integrals of no molecule, with the symmetries that real orbitals give."""
    chance = np.random.default_rng(seed)
    one = chance.standard_normal((n, n))
    factors = chance.standard_normal((4, pair_count(n))) / 2
    two = factors.T @ factors + 0.1 * np.diag(chance.standard_normal(pair_count(n)))
    return Integrals(n_alpha, n_beta, 0.75, one + one.T + 3 * np.diag(np.arange(n)), two)


def every_string(n: int, n_electrons: int) -> list[int]:
    """All strings of so many electrons, rising."""
    return sorted(sum(1 << p for p in chosen) for chosen in combinations(range(n), n_electrons))


def some_strings(n: int, n_electrons: int, count: int, seed: int) -> list[int]:
    """Distinct random strings in random order."""
    return random.Random(seed).sample(every_string(n, n_electrons), count)


def string_set(values: Sequence[int], integrals: Integrals) -> StringSet:
    """Strings of the orbitals of some integrals."""
    return from_integers(values, integrals.n_orbitals)


def move(string: int, create: int, destroy: int) -> tuple[int, int]:
    """a+_create a_destroy on a string: the new string and its sign, 0 where it vanishes."""
    if not string >> destroy & 1:
        return 0, 0
    sign = (-1) ** (string & ((1 << destroy) - 1)).bit_count()
    string ^= 1 << destroy
    if string >> create & 1:
        return 0, 0
    sign *= (-1) ** (string & ((1 << create) - 1)).bit_count()
    return string | 1 << create, sign


def moves(determinant: Determinant, n: int) -> list[tuple[int, int, int, Determinant, int]]:
    """Every E_pq of one spin that does not vanish: spin, p, q, the new determinant, its sign."""
    found = []
    for spin, p, q in product((0, 1), range(n), range(n)):
        string, sign = move(determinant[spin], p, q)
        if sign:
            new = (string, determinant[1]) if spin == 0 else (determinant[0], string)
            found.append((spin, p, q, new, sign))
    return found


def reference_matrix(integrals: Integrals, determinants: Sequence[Determinant]) -> Array:
    """H = sum h_pq E_pq + 1/2 sum (pq|rs) (E_pq E_rs - delta_qr E_ps), without the core energy."""
    n, two = integrals.n_orbitals, dense_two(integrals)
    place = {determinant: at for at, determinant in enumerate(determinants)}
    folded = integrals.one - np.einsum("prrq->pq", two) / 2
    matrix = np.zeros((len(place), len(place)))
    for ket, column in place.items():
        for _, r, s, middle, sign in moves(ket, n):
            if middle in place:
                matrix[place[middle], column] += sign * folded[r, s]
            for _, p, q, bra, other in moves(middle, n):
                if bra in place:
                    matrix[place[bra], column] += sign * other * two[p, q, r, s] / 2
    return matrix


def reference_densities(
    n: int, determinants: Sequence[Determinant], x: Array, left: Array | None = None
) -> tuple[Array, Array]:
    """one[spin, p, q] = <p+ q> and two[spin, spin', p, q, r, s] = <p+ r+ s q> of a state x over a list.

    With `left`: <left|...|x>.
    """
    weights = dict(zip(determinants, np.conj(x if left is None else left).ravel(), strict=True))
    dtype = np.result_type(x, np.float64)
    one, two = np.zeros((2, n, n), dtype), np.zeros((2, 2, n, n, n, n), dtype)
    for ket, amplitude in zip(determinants, x.ravel(), strict=True):
        for second, r, s, middle, sign in moves(ket, n):
            one[second, r, s] += amplitude * sign * weights.get(middle, 0.0)
            for first, p, q, bra, other in moves(middle, n):
                two[first, second, p, q, r, s] += amplitude * sign * other * weights.get(bra, 0.0)
    for spin, p, q, s in product((0, 1), range(n), range(n), range(n)):
        two[spin, spin, p, q, q, s] -= one[spin, p, s]
    return one, two


def fcidump_text(integrals: Integrals, header: str | None = None) -> str:
    """An FCIDUMP file of integrals, every value that symmetry does not give."""
    n = integrals.n_orbitals
    electrons, spin = integrals.n_alpha + integrals.n_beta, integrals.n_alpha - integrals.n_beta
    lines = [header or f" &FCI NORB={n},NELEC={electrons},MS2={spin},\n  ORBSYM={'1,' * n}\n  ISYM=1,\n &END"]
    high, low = all_pairs(n)
    for i, j in zip(*np.tril_indices(len(high)), strict=True):
        indices = high[i] + 1, low[i] + 1, high[j] + 1, low[j] + 1
        lines.append(f"{integrals.two[i, j]:.17g} {' '.join(map(str, indices))}")
    lines += [
        f"{integrals.one[p, q]:.17g} {p + 1} {q + 1} 0 0" for p, q in zip(*np.tril_indices(n), strict=True)
    ]
    return "\n".join([*lines, f"{integrals.core:.17g} 0 0 0 0", ""])


def lines_of(values: Sequence[int], n: int) -> str:
    """A file of strings."""
    return "".join(f"{value:0{n}b}\n" for value in values)


def interleaved(determinants: Sequence[Determinant], n: int) -> str:
    """A file of determinants, alpha and beta bits in turn."""
    lines = []
    for alpha, beta in determinants:
        bits = [str(spin >> p & 1) for p in range(n) for spin in (alpha, beta)]
        lines.append("".join(reversed(bits)) + "\n")
    return "".join(lines)

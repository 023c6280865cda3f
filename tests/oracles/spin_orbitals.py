"""Hamiltonians over spin orbitals by creation and annihilation operators one by one: slow, and of any kind.

    H = sum h[p, q] a+_p a_q + 1/2 sum (pq|rs) a+_p a+_r a_s a_q

over spin orbitals p = 0 .. 2 n - 1, alpha's first. Knows determinants as integers; nothing of symmetries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Bodies = tuple[Array, Array, Array, Array, Array]
"""h of alpha and beta, then (pq|rs) of alpha, of alpha with beta, and of beta, [p, q, r, s]."""


def destroyed(determinant: int, p: int) -> tuple[int, int]:
    """a_p on a determinant: the new one and its sign, 0 where it vanishes."""
    sign = 1 - 2 * ((determinant & ((1 << p) - 1)).bit_count() % 2)
    return determinant ^ 1 << p, sign * (determinant >> p & 1)


def created(determinant: int, p: int) -> tuple[int, int]:
    """a+_p on a determinant: the new one and its sign, 0 where it vanishes."""
    sign = 1 - 2 * ((determinant & ((1 << p) - 1)).bit_count() % 2)
    return determinant ^ 1 << p, sign * (1 - (determinant >> p & 1))


def of_spin_orbitals(bodies: Bodies) -> tuple[Array, Array]:
    """h[p, q] and (pq|rs) over all spin orbitals."""
    h_alpha, h_beta, alpha, mixed, beta = bodies
    n = len(h_alpha)
    one, two = np.zeros((2 * n,) * 2, complex), np.zeros((2 * n,) * 4, complex)
    one[:n, :n], one[n:, n:] = h_alpha, h_beta
    two[:n, :n, :n, :n], two[n:, n:, n:, n:] = alpha, beta
    two[:n, :n, n:, n:], two[n:, n:, :n, :n] = mixed, mixed.transpose(2, 3, 0, 1)
    return one, two


def matrix_over(one: Array, two: Array, determinants: Sequence[int]) -> Array:
    """H among determinants, bit p being spin orbital p."""
    n = len(one)
    place = {determinant: at for at, determinant in enumerate(determinants)}
    matrix = np.zeros((len(place), len(place)), complex)
    for ket, column in place.items():
        for q in range(n):
            without, first = destroyed(ket, q)
            if not first:
                continue
            for p in range(n):
                bra, last = created(without, p)
                if last and bra in place:
                    matrix[place[bra], column] += first * last * one[p, q]
            for s in range(n):
                rest, second = destroyed(without, s)
                if not second:
                    continue
                for r in range(n):
                    middle, third = created(rest, r)
                    if not third:
                        continue
                    for p in range(n):
                        bra, last = created(middle, p)
                        if last and bra in place:
                            sign = first * second * third * last
                            matrix[place[bra], column] += sign * two[p, q, r, s] / 2
    return matrix


def matrix_of_spins(bodies: Bodies, determinants: Sequence[tuple[int, int]]) -> Array:
    """H among determinants of an alpha and a beta string."""
    n = len(bodies[0])
    return matrix_over(*of_spin_orbitals(bodies), [alpha | beta << n for alpha, beta in determinants])


def spin_square_of(overlap: Array, determinants: Sequence[tuple[int, int]]) -> Array:
    """S^2 among determinants; `overlap` [orbital of alpha, orbital of beta]."""
    n = len(overlap)
    whole = [alpha | beta << n for alpha, beta in determinants]
    raised: list[dict[int, complex]] = []
    for ket in whole:
        found: dict[int, complex] = {}
        for p in range(n):
            for s in range(n):
                without, first = destroyed(ket, n + s)
                bra, last = created(without, p)
                if first * last:
                    found[bra] = found.get(bra, 0) + first * last * overlap[p, s]
        raised.append(found)
    matrix = np.zeros((len(whole), len(whole)), complex)
    for i, left in enumerate(raised):
        for j, right in enumerate(raised):
            matrix[i, j] = sum(np.conj(value) * right.get(bra, 0) for bra, value in left.items())
    sz = (determinants[0][0].bit_count() - determinants[0][1].bit_count()) / 2
    return matrix + sz * (sz + 1) * np.eye(len(whole))

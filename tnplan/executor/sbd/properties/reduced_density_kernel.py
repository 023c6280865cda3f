"""The numba kernels of density matrices: overlaps of strings' rows put to their orbitals.

Imported lazily (numba loads slowly).
"""

from __future__ import annotations

from typing import Any

from tnplan.executor.device.cpu.bits_kernel import jit
from tnplan.executor.sbd.basis.string_kernel import distance, double_sign, is_filled, move_sign, only_in


@jit
def add_same_spin(bra: Any, ket: Any, differing: int, product: float, one: Any, two: Any) -> None:
    """Add what a product of amplitudes gives, of strings that fill 0, 2 or 4 orbitals differently."""
    # Gamma[p, q, r, s] = <a+_p a+_r a_s a_q> is antisymmetric in p and r, and in q and s. So a
    # double excitation gives four elements, two with a minus.
    n = len(one)
    g = product
    if differing == 4:
        p1, p2 = only_in(bra, ket, 0), only_in(bra, ket, 1)
        q1, q2 = only_in(ket, bra, 0), only_in(ket, bra, 1)
        g *= double_sign(ket, p1, q1, p2, q2)
        two[p1, q1, p2, q2] += g
        two[p2, q2, p1, q1] += g
        two[p1, q2, p2, q1] -= g
        two[p2, q1, p1, q2] -= g
    elif differing == 2:
        p, q = only_in(bra, ket, 0), only_in(ket, bra, 0)
        g *= move_sign(ket, p, q)
        one[p, q] += g
        for k in range(n):
            if k != q and is_filled(ket, k):
                two[p, q, k, k] += g
                two[k, k, p, q] += g
                two[p, k, k, q] -= g
                two[k, q, p, k] -= g
    else:
        for p in range(n):
            if is_filled(ket, p):
                one[p, p] += g
                for r in range(n):
                    if r != p and is_filled(ket, r):
                        two[p, p, r, r] += g
                        two[p, r, r, p] -= g


@jit
def same_spin_density(words: Any, first: int, last: int, overlap: Any, one: Any, two: Any) -> None:
    """Add to one[p, q] = <p+ q> and two[p, q, r, s] = <p+ r+ s q> what bra strings first .. last-1 give.

    `overlap[i, j]` is the sum over the other spin's strings of x[first + i, :] x[j, :].
    """
    for i in range(first, last):
        bra = words[i]
        for j in range(len(words)):
            ket = words[j]
            differing = distance(bra, ket)
            if differing > 4:
                continue
            add_same_spin(bra, ket, differing, overlap[i - first, j], one, two)


@jit
def scatter_pairs(matching: Any, row: Any, raised: Any, lowered: Any) -> None:
    """raised[a, j] = +-row[i], lowered[a, i] = +-row[j] for every excitation of pair a from string j to i.

    Raising moves an electron to the higher orbital of the pair. The other elements are set to 0.
    """
    # With these, the sum over strings of raised[a, j] y[j] is <x|E_pq|y>, p being the higher orbital, for all
    # pairs at once: a product of matrices. No two excitations of a pair touch one string.
    _, _, start, upper, lower = matching
    raised[:] = 0.0
    lowered[:] = 0.0
    for a in range(len(raised)):
        for e in range(start[2 * a], start[2 * a + 2]):
            i, j = upper[e], lower[e]
            sign = 1.0 if e < start[2 * a + 1] else -1.0
            raised[a, j] = sign * row[i]
            lowered[a, i] = sign * row[j]

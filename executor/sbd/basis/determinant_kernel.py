"""The numba kernels over lists of determinants: elements between two of them, and sparse products.

Imported lazily (numba loads slowly). Determinants stand in order of their alpha string a, then of beta b:
those of alpha string a are d in begin[a] .. begin[a+1]-1, with beta string beta[d].
"""

from __future__ import annotations

from typing import Any

from tnplan.executor.device.cpu.bits_kernel import jit
from tnplan.executor.sbd.basis.string_kernel import (
    diagonal,
    distance,
    element,
    is_filled,
    move_sign,
    only_in,
    pair_of,
)


@jit
def own_energy(alpha: Any, beta: Any, integrals: Any) -> Any:
    """The energy of one determinant."""
    one_alpha, two_alpha, one_beta, two_beta, mixed = integrals
    energy = diagonal(alpha, one_alpha, two_alpha) + diagonal(beta, one_beta, two_beta)
    n = len(one_alpha)
    for p in range(n):
        if is_filled(alpha, p):
            for r in range(n):
                if is_filled(beta, r):
                    energy += mixed[p, r]
    return energy


@jit
def same_spin_value(bra: Any, ket: Any, other: Any, differing: int, is_alpha: bool, integrals: Any) -> Any:
    """The element between determinants that differ in one spin only, by 2 or 4; `other` is the other spin."""
    one_alpha, two_alpha, one_beta, two_beta, mixed = integrals
    if is_alpha:
        value = element(bra, ket, differing, one_alpha, two_alpha)
    else:
        value = element(bra, ket, differing, one_beta, two_beta)
    if differing == 2:
        n = len(one_alpha)
        p, q = only_in(bra, ket, 0), only_in(ket, bra, 0)
        both = pair_of(p, q, n, len(mixed))
        other_spin = 0.0
        for r in range(n):
            if is_filled(other, r):
                other_spin += mixed[both, r] if is_alpha else mixed[r, both]
        value += other_spin * move_sign(ket, p, q)
    return value


@jit
def opposite_spin_value(bra_a: Any, ket_a: Any, bra_b: Any, ket_b: Any, mixed: Any, n: int) -> Any:
    """The element between determinants that differ by one orbital in each spin."""
    p, q = only_in(bra_a, ket_a, 0), only_in(ket_a, bra_a, 0)
    r, s = only_in(bra_b, ket_b, 0), only_in(ket_b, bra_b, 0)
    value = mixed[pair_of(p, q, n, len(mixed)), pair_of(r, s, n, len(mixed))]
    return value * move_sign(ket_a, p, q) * move_sign(ket_b, r, s)


@jit
def assemble_rows(
    first: int, last: int, fill: bool, alpha_words: Any, beta_words: Any, alpha: Any, beta: Any, begin: Any,
    integrals: Any, counts: Any, start: Any, column: Any, value: Any,
) -> None:  # fmt: skip
    """Rows first .. last-1 of the Hamiltonian: their numbers of elements, or if `fill` the elements."""
    for d in range(first, last):
        at = start[d] if fill else 0
        a, b = alpha_words[alpha[d]], beta_words[beta[d]]
        for other in range(len(alpha_words)):
            differing_a = distance(a, alpha_words[other])
            if differing_a > 4:
                continue
            for e in range(begin[other], begin[other + 1]):
                differing_b = distance(b, beta_words[beta[e]])
                if differing_a + differing_b > 4:
                    continue
                if fill:
                    ket_a, ket_b = alpha_words[other], beta_words[beta[e]]
                    column[at] = e
                    if differing_a + differing_b == 0:
                        value[at] = own_energy(a, b, integrals)
                    elif differing_b == 0:
                        value[at] = same_spin_value(a, ket_a, b, differing_a, True, integrals)
                    elif differing_a == 0:
                        value[at] = same_spin_value(b, ket_b, a, differing_b, False, integrals)
                    else:
                        n = len(integrals.one_alpha)
                        value[at] = opposite_spin_value(a, ket_a, b, ket_b, integrals.mixed, n)
                at += 1
        if not fill:
            counts[d] = at


@jit
def sparse_product(first: int, last: int, start: Any, column: Any, value: Any, x: Any, out: Any) -> None:
    """out[d] = the sum over e of value[e] x[column[e]] for rows first .. last-1."""
    for d in range(first, last):
        total = 0.0
        for e in range(start[d], start[d + 1]):
            total += value[e] * x[column[e]]
        out[d] = total

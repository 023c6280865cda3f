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
    pair,
)


@jit
def own_energy(alpha: Any, beta: Any, one: Any, two: Any) -> Any:
    """The energy of one determinant."""
    energy = diagonal(alpha, one, two) + diagonal(beta, one, two)
    n = len(one)
    for p in range(n):
        if is_filled(alpha, p):
            for r in range(n):
                if is_filled(beta, r):
                    energy += two[p, r]
    return energy


@jit
def same_spin_value(bra: Any, ket: Any, other: Any, differing: int, one: Any, two: Any) -> Any:
    """The element between determinants that differ in one spin only, by 2 or 4; `other` is the other spin."""
    value = element(bra, ket, differing, one, two)
    if differing == 2:
        n = len(one)
        p, q = only_in(bra, ket, 0), only_in(ket, bra, 0)
        both = pair(p, q, n)
        other_spin = 0.0
        for r in range(n):
            if is_filled(other, r):
                other_spin += two[both, r]
        value += other_spin * move_sign(ket, p, q)
    return value


@jit
def opposite_spin_value(bra_a: Any, ket_a: Any, bra_b: Any, ket_b: Any, two: Any, n: int) -> Any:
    """The element between determinants that differ by one orbital in each spin."""
    p, q = only_in(bra_a, ket_a, 0), only_in(ket_a, bra_a, 0)
    r, s = only_in(bra_b, ket_b, 0), only_in(ket_b, bra_b, 0)
    return two[pair(p, q, n), pair(r, s, n)] * move_sign(ket_a, p, q) * move_sign(ket_b, r, s)


@jit
def assemble_rows(
    first: int, last: int, fill: bool, alpha_words: Any, beta_words: Any, alpha: Any, beta: Any, begin: Any,
    one: Any, two: Any, counts: Any, start: Any, column: Any, value: Any,
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
                        value[at] = own_energy(a, b, one, two)
                    elif differing_b == 0:
                        value[at] = same_spin_value(a, ket_a, b, differing_a, one, two)
                    elif differing_a == 0:
                        value[at] = same_spin_value(b, ket_b, a, differing_b, one, two)
                    else:
                        value[at] = opposite_spin_value(a, ket_a, b, ket_b, two, len(one))
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

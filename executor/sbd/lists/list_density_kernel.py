"""The numba kernel of density matrices over lists of determinants: what every couple adds.

Imported lazily (numba loads slowly). `tables` and candidates are those of `list_kernel`.
"""

from __future__ import annotations

from typing import Any

from tnplan.executor.device.cpu.bits_kernel import jit
from tnplan.executor.sbd.basis.string_kernel import is_filled, move_sign, only_in
from tnplan.executor.sbd.lists.list_kernel import differing
from tnplan.executor.sbd.properties.reduced_density_kernel import add_same_spin


@jit
def add_within(
    groups: Any, group: int, own: Any, weight: float, is_beta: bool, x: Any, one: Any, two: Any, mixed: Any
) -> None:
    """What excitations of a determinant's other string, `own`, within its group give; `weight` is its own x.

    The group's string is of the other spin. `is_beta` says whether the excited spin is beta.
    """
    n, held = len(one), groups.own[group]
    for k in range(groups.begin[group], groups.begin[group + 1]):
        apart = differing(own, groups.words, k)
        if apart != 2 and apart != 4:
            continue
        ket, product = groups.words[k], weight * x[groups.place[k]]
        add_same_spin(own, ket, apart, product, one, two)
        if apart == 2:
            p, q = only_in(own, ket, 0), only_in(ket, own, 0)
            product *= move_sign(ket, p, q)
            for r in range(n):
                if is_filled(held, r):
                    if is_beta:
                        mixed[r, r, p, q] += product
                    else:
                        mixed[p, q, r, r] += product


@jit
def add_across(
    groups: Any, links: Any, group: int, own: Any, weight: float, by_beta: bool, x: Any, mixed: Any
) -> None:
    """What excitations of both spins give, for links of alpha or of beta."""
    for link in range(links.start[group], links.start[group + 1]):
        other, p, q = links.other[link], links.create[link], links.destroy[link]
        for k in range(groups.begin[other], groups.begin[other + 1]):
            if differing(own, groups.words, k) == 2:
                ket = groups.words[k]
                r, s = only_in(own, ket, 0), only_in(ket, own, 0)
                product = weight * x[groups.place[k]] * (links.sign[link] * move_sign(ket, r, s))
                if by_beta:
                    mixed[r, s, p, q] += product
                else:
                    mixed[p, q, r, s] += product


@jit
def add_densities(
    first: int, last: int, tables: Any, x: Any, one_alpha: Any, one_beta: Any, two_alpha: Any, two_beta: Any,
    mixed: Any,
) -> None:  # fmt: skip
    """Add what rows first .. last-1 of a state give to its density matrices, of one spin and of both."""
    alpha, beta, links, by_beta = tables
    n = len(one_alpha)
    for d in range(first, last):
        a, b, weight = alpha.number[d], beta.number[d], x[d]
        string_a, string_b = alpha.own[a], beta.own[b]
        add_same_spin(string_a, string_a, 0, weight * weight, one_alpha, two_alpha)
        add_same_spin(string_b, string_b, 0, weight * weight, one_beta, two_beta)
        for p in range(n):
            if is_filled(string_a, p):
                for r in range(n):
                    if is_filled(string_b, r):
                        mixed[p, p, r, r] += weight * weight
        add_within(alpha, a, string_b, weight, True, x, one_beta, two_beta, mixed)
        add_within(beta, b, string_a, weight, False, x, one_alpha, two_alpha, mixed)
        if by_beta:
            add_across(beta, links, b, string_a, weight, True, x, mixed)
        else:
            add_across(alpha, links, a, string_b, weight, False, x, mixed)

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
    # gamma[p, q] = <a+_p a_q>, Gamma[p, q, r, s] = <a+_p a+_r a_s a_q>, to which a pair of
    # determinants with product c_bra c_ket adds as to an element of H. `mixed` is [pq of alpha, rs
    # of beta].
    n, group_string = len(one), groups.own[group]
    for k in range(groups.begin[group], groups.begin[group + 1]):
        apart = differing(own, groups.words, k)
        if apart != 2 and apart != 4:
            continue
        ket, product = groups.words[k], weight * x[groups.determinants[k]]
        add_same_spin(own, ket, apart, product, one, two)
        # A single excitation pq also meets each electron r of the other spin, in a+_p a_q n_r.
        if apart == 2:
            p, q = only_in(own, ket, 0), only_in(ket, own, 0)
            product *= move_sign(ket, p, q)
            for r in range(n):
                if is_filled(group_string, r):
                    if is_beta:
                        mixed[r, r, p, q] += product
                    else:
                        mixed[p, q, r, r] += product


@jit
def add_across(
    cells: Any, links: Any, d: int, b: int, low: Any, high: Any, weight: float, x: Any, mixed: Any
) -> None:
    """What excitations of both spins give in row d, of beta string b; low and high orbitals of pairs."""
    # Excitations of both spins give one element of `mixed` alone: pq from the code of the entry
    # (alpha), rt from the link (beta).
    s, base = cells.start[d], cells.base[d]
    for link in range(links.start[b], links.start[b + 1]):
        r, t = links.create[link], links.destroy[link]
        for e in range(base + cells.cells[s, 0], base + cells.cells[s, 1]):
            determinant, code = cells.entries[e, 0], cells.entries[e, 1]
            product = weight * x[determinant] * links.sign[link] * (1 - 2 * (code & 1))
            p, q = low[code >> 2], high[code >> 2]
            # The pair is stored as (low, high); the code tells which of the two is created.
            if code & 2:
                p, q = q, p
            mixed[p, q, r, t] += product
        s += 1


@jit
def add_densities(
    first: int, last: int, tables: Any, cells: Any, low: Any, high: Any, bra: Any, ket: Any,
    one_alpha: Any, one_beta: Any, two_alpha: Any, two_beta: Any, mixed: Any,
) -> None:  # fmt: skip
    """Add what rows first .. last-1 of one state and another state give, of one spin and of both.

    `low` and `high` are the orbitals of pairs.
    """
    # Invariant: `cells` are those of all rows, as row d is read at start[d]; each thread has
    # density matrices of its own, which are added afterwards.
    alpha, beta, _, beta_links = tables
    n = len(one_alpha)
    for d in range(first, last):
        a, b, weight = alpha.number[d], beta.number[d], bra[d]
        string_a, string_b = alpha.own[a], beta.own[b]
        own = weight * ket[d]
        add_same_spin(string_a, string_a, 0, own, one_alpha, two_alpha)
        add_same_spin(string_b, string_b, 0, own, one_beta, two_beta)
        for p in range(n):
            if is_filled(string_a, p):
                for r in range(n):
                    if is_filled(string_b, r):
                        mixed[p, p, r, r] += own
        add_within(alpha, a, string_b, weight, True, ket, one_beta, two_beta, mixed)
        add_within(beta, b, string_a, weight, False, ket, one_alpha, two_alpha, mixed)
        add_across(cells, beta_links, d, b, low, high, weight, ket, mixed)

"""The numba kernels over lists of determinants: which couple, the elements between them, and products.

Imported lazily (numba loads slowly). Tables are those of `list_tables`, cells those of `list_cells`. The
elements of a row stand in this order: the diagonal, excitations of beta, of alpha, of both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.executor.device.cpu.bits_kernel import ONE, count_bits, inline, jit
from tnplan.executor.sbd.basis.string_kernel import (
    diagonal,
    double_value,
    is_filled,
    move_sign,
    single_value,
)

COUNT, FILL, PRODUCT = 0, 1, 2
"""Modes of a row: the number of its elements, these with their columns, or their sum with a state."""


# Determinants are pairs (a, b) of an alpha and a beta string. `alpha` and `beta` are
# `StringGroups`: group g of alpha has all determinants with alpha string g, and its `words` are
# their beta strings. H couples (a, b) to
#       (a, b')   within the alpha group, b' one or two excitations from b;
#       (a', b)   within the beta group, in the same way;
#       (a', b')  with both one excitation away: the opposite-spin part, from `cells`.
# These three sets are disjoint, and with the diagonal they are all that the rules of Slater and
# Condon leave.
@inline
def differing(own: Any, words: Any, k: int) -> Any:
    """How many orbitals a string and string k of a table fill differently."""
    count = count_bits(own[0] ^ words[k, 0])
    for w in range(1, own.size):
        count += count_bits(own[w] ^ words[k, w])
    return count


@jit
def own_energy(alpha: Any, beta: Any, alpha_terms: Any, beta_terms: Any) -> Any:
    """The energy of one determinant."""
    # The energy of each string alone, then sum_{p in alpha, r in beta} (pp|rr): opposite spins have
    # no exchange term. Invariant: diagonal pairs are numbered first, so that two_other[p, r] is
    # (pp|rr).
    energy = diagonal(alpha, alpha_terms.one, alpha_terms.two)
    energy += diagonal(beta, beta_terms.one, beta_terms.two)
    n = len(alpha_terms.one)
    for p in range(n):
        if is_filled(alpha, p):
            for r in range(n):
                if is_filled(beta, r):
                    energy += alpha_terms.two_other[p, r]
    return energy


@jit
def fill_singles(first: int, last: int, own: Any, links: Any, one: Any, two: Any, singles: Any) -> None:
    """The elements between strings first .. last-1 of one spin and those linked to them, by link."""
    for string in range(first, last):
        for link in range(links.start[string], links.start[string + 1]):
            singles[link] = single_value(own[string], own[links.other[link]], one, two)


@jit
def over_filled(string: Any, row: Any) -> Any:
    """The sum of row[r] over the orbitals r that a string fills."""
    # Bit by bit, lowest first: `word & -word` isolates a bit, xor removes it.
    total = 0.0
    for w in range(string.size):
        word = string[w]
        while word:
            low = word & (~word + ONE)
            total += row[w * 64 + count_bits(low - ONE)]
            word ^= low
    return total


@jit
def same_spin_row(
    mode: int, groups: Any, group: int, number: int, others: Any, links: Any, terms: Any, x: Any, at: int,
    column: Any, value: Any,
) -> Any:  # fmt: skip
    """Elements of a determinant within a group, by excitations of its other string, which is `number`.

    `others` are the groups of that spin, `links` and `terms` its links and integrals. Members of a group and
    links of a string both stand in rising order of strings.
    """
    # The list holds no bounds on which members couple: each is compared, which costs a few word
    # operations. `link` goes through the links of the string beside the members.
    # Invariant: both stand in rising order of strings, so that `link` only moves forward; every
    # member that is a single excitation away is linked, so that it never runs past the end.
    total, link = 0.0, links.start[number]
    group_string, own = groups.own[group], others.own[number]
    for k in range(groups.begin[group], groups.begin[group + 1]):
        # 2: a single excitation; 4: a double one; 0: the determinant itself, which is the diagonal.
        apart = differing(own, groups.words, k)
        if apart != 2 and apart != 4:
            continue
        if mode != COUNT:
            # A double excitation of one spin does not see the other. A single one does: sum over
            # the other spin's electrons r of (pq|rr), which is `field`.
            if apart == 4:
                element = double_value(own, groups.words[k], terms.one, terms.two)
            else:
                other = others.number[groups.determinants[k]]
                while links.other[link] < other:
                    link += 1
                field = over_filled(group_string, terms.two_other[links.pairs[link]])
                element = terms.singles[link] + field * links.sign[link]
            if mode == FILL:
                column[at] = groups.determinants[k]
                value[at] = element
            else:
                total += element * x[groups.determinants[k]]
        at += 1
    return at, total


@jit
def opposite_spin_row(
    mode: int, cells: Any, links: Any, i: int, b: int, two: Any, x: Any, at: int, column: Any, value: Any
) -> Any:
    """Elements of local row i, of beta string b, by excitations of both spins.

    `links` are those of beta, `two` integrals [pair of beta, pair of alpha].
    """
    # <a b|H|a' b'> = +-(pq|rs) with a = +-a+_p a_q a', b = +-a+_r a_s b'. The entries of a cell
    # share b', so the sign and the pair of beta are those of the link.
    total, s, base = 0.0, cells.start[i], cells.base[i]
    for link in range(links.start[b], links.start[b + 1]):
        first, last = base + cells.cells[s, 0], base + cells.cells[s, 1]
        s += 1
        if first == last:
            continue
        # A code is 4 pair + 2 (creates the higher orbital) + (has a minus). The second bit is not
        # needed here, as real integrals have (pq|rs) = (qp|rs); ordered pairs have it in their
        # number.
        pair, link_sum = links.pairs[link], 0.0
        for e in range(first, last):
            determinant, code = cells.entries[e, 0], cells.entries[e, 1]
            element = two[pair, code >> 2] * (1 - 2 * (code & 1))
            if mode == FILL:
                column[at] = determinant
                value[at] = element * links.sign[link]
                at += 1
            else:
                link_sum += element * x[determinant]
        total += link_sum * links.sign[link]
    return at, total


@jit
def couple_row(
    d: int, above: int, mode: int, tables: Any, cells: Any, alpha_terms: Any, beta_terms: Any, x: Any,
    at: int, column: Any, value: Any,
) -> Any:  # fmt: skip
    """The elements of row d of the Hamiltonian: the number after the last one, and their sum with x.

    The sum is without the diagonal. Row `above` is the first local one.
    """
    # One function for three modes, so that counting, filling and multiplying visit the same
    # elements in the same order. Invariant: COUNT gives exactly the number of elements that FILL
    # writes.
    alpha, beta, alpha_links, beta_links = tables
    a, b = alpha.number[d], beta.number[d]
    if mode == FILL:
        column[at] = d
        value[at] = own_energy(alpha.own[a], beta.own[b], alpha_terms, beta_terms)
    at += 1
    at, total = same_spin_row(mode, alpha, a, b, beta, beta_links, beta_terms, x, at, column, value)
    at, added = same_spin_row(mode, beta, b, a, alpha, alpha_links, alpha_terms, x, at, column, value)
    total += added
    if mode == COUNT:
        for s in range(cells.start[d - above], cells.start[d - above + 1]):
            at += cells.cells[s, 1] - cells.cells[s, 0]
        return at, total
    at, added = opposite_spin_row(
        mode, cells, beta_links, d - above, b, beta_terms.two_other, x, at, column, value
    )
    return at, total + added


@jit
def count_rows(
    first: int, last: int, above: int, tables: Any, cells: Any, alpha_terms: Any, beta_terms: Any,
    counts: Any, x: Any, column: Any,
) -> None:  # fmt: skip
    """The numbers of elements of rows first .. last-1; row `above` is counts[0]."""
    for d in range(first, last):
        counts[d - above] = couple_row(
            d, above, COUNT, tables, cells, alpha_terms, beta_terms, x, 0, column, x
        )[0]


@jit
def fill_rows(
    first: int, last: int, above: int, tables: Any, cells: Any, alpha_terms: Any, beta_terms: Any, start: Any,
    x: Any, column: Any, value: Any,
) -> None:  # fmt: skip
    """The elements of rows first .. last-1; those of row `above` begin at start[0]."""
    for d in range(first, last):
        at = start[d - above]
        couple_row(d, above, FILL, tables, cells, alpha_terms, beta_terms, x, at, column, value)


@jit
def add_rows(
    first: int, last: int, above: int, tables: Any, cells: Any, alpha_terms: Any, beta_terms: Any, x: Any,
    column: Any, out: Any,
) -> None:  # fmt: skip
    """Add rows first .. last-1 of the Hamiltonian times x to out, whose first row is `above`.

    Without the diagonal.
    """
    for d in range(first, last):
        out[d - above] += couple_row(
            d, above, PRODUCT, tables, cells, alpha_terms, beta_terms, x, 0, column, x
        )[1]


@jit
def add_sparse(first: int, last: int, start: Any, column: Any, value: Any, x: Any, out: Any) -> None:
    """out[d] += the sum over e of value[e] x[column[e]] for rows first .. last-1."""
    # Compressed sparse rows; a row is summed in one variable and in one order, whatever
    # the threads.
    for d in range(first, last):
        total = 0.0
        for e in range(start[d], start[d + 1]):
            total += value[e] * x[column[e]]
        out[d] += total


@jit
def fill_energies(
    first: int, last: int, above: int, tables: Any, alpha_terms: Any, beta_terms: Any, out: Any
) -> None:
    """The energies of determinants first .. last-1."""
    alpha, beta, _, _ = tables
    for d in range(first, last):
        own = alpha.own[alpha.number[d]], beta.own[beta.number[d]]
        out[d - above] = own_energy(own[0], own[1], alpha_terms, beta_terms)


@jit
def count_open(first: int, last: int, above: int, tables: Any, out: Any) -> None:
    """The numbers of singly occupied orbitals of determinants first .. last-1."""
    # An orbital is open where the alpha and the beta string differ.
    alpha, beta, _, _ = tables
    for d in range(first, last):
        out[d - above] = differing(alpha.own[alpha.number[d]], beta.own, beta.number[d])


@inline
def compare(first: Any, p: int, q: int, words: Any, k: int) -> Any:
    """Whether a string with bits p and q changed is below (-1), equal to (0) or above (1) string k."""
    # Strings are compared as whole numbers, from the highest word on: the order in which
    # `list_tables` sorts.
    for back in range(first.size):
        w = first.size - 1 - back
        word = first[w]
        if p // 64 == w:
            word ^= ONE << np.uint64(p % 64)
        if q // 64 == w:
            word ^= ONE << np.uint64(q % 64)
        if word != words[k, w]:
            return -1 if word < words[k, w] else 1
    return 0


@jit
def exchange_row(d: int, tables: Any, x: Any) -> Any:
    """The sum over p != q of the elements of E^a_pq E^b_qp in row d, times x."""
    # S^2 = const - sum_p n_pa n_pb - sum_{p != q} E^a_pq E^b_qp (see `properties.spin_square`): an
    # exchange moves alpha's electron from q to p and beta's from p to q.
    alpha, beta, links, _ = tables
    own, group = beta.own[beta.number[d]], alpha.number[d]
    total = 0.0
    for link in range(links.start[group], links.start[group + 1]):
        # Read from row d: b = +-a+_q a_p b', so b has q filled and p empty, and b' is b with both
        # bits changed.
        p, q = links.create[link], links.destroy[link]
        if is_filled(own, p) or not is_filled(own, q):
            continue
        # Bisection for b' among the members of alpha group a'. Invariant: members are sorted by
        # string.
        low, high = alpha.begin[links.other[link]], alpha.begin[links.other[link] + 1]
        while low < high:
            middle = (low + high) // 2
            order = compare(own, p, q, alpha.words, middle)
            if order == 0:
                sign = links.sign[link] * move_sign(alpha.words[middle], q, p)
                total += x[alpha.determinants[middle]] * sign
                break
            if order > 0:
                low = middle + 1
            else:
                high = middle
    return total


@jit
def add_exchange(first: int, last: int, above: int, factor: float, tables: Any, x: Any, out: Any) -> None:
    """out[d] += factor times the sum over p != q of E^a_pq E^b_qp x, for rows first .. last-1."""
    for d in range(first, last):
        out[d - above] += factor * exchange_row(d, tables, x)

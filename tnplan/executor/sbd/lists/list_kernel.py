"""The numba kernels over lists of determinants: which couple, the elements between them, and products.

Imported lazily (numba loads slowly). Tables and cells are those of `list_tables`; `matrix` are the
`RowTables` of rows. The elements of a row stand in this order: the diagonal, excitations of beta, of alpha,
of both. At the end are the kernels that sort excitations into cells, and those of density matrices.
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
    only_in,
    single_value,
)
from tnplan.executor.sbd.properties.reduced_density_kernel import add_same_spin

COUNT, FILL, PRODUCT = 0, 1, 2
"""Modes of a row: the number of its elements, these with their columns, or their sum with a state."""


# Determinants are pairs (a, b) of an alpha and a beta string. The groups of alpha and of beta are
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
    # The energy of each string alone, then sum_{p in alpha, r in beta} (pp|rr): opposite spins have no
    # exchange term. Invariant: diagonal pairs are numbered first, so that two_other[p, r] is (pp|rr).
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
def fill_singles(first: int, last: int, spin: Any) -> None:
    """The elements between strings first .. last-1 of one spin and those linked to them, by link."""
    own, links, terms = spin.groups.own, spin.links, spin.terms
    for string in range(first, last):
        for link in range(links.start[string], links.start[string + 1]):
            terms.singles[link] = single_value(own[string], own[links.other[link]], terms.one, terms.two)


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
def same_spin_row(mode: int, d: int, groups: Any, spin: Any, elements: Any, at: int) -> Any:
    """Elements of determinant d by excitations of `spin`, within its group by the other spin's string."""
    # The list holds no bounds on which members couple: each is compared, which costs a few word
    # operations. `link` goes through the links of the string beside the members.
    # Invariant: both stand in rising order of strings, so that `link` only moves forward; every
    # member that is a single excitation away is linked, so that it never runs past the end.
    others, links, terms = spin
    group, number = groups.number[d], others.number[d]
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
                elements.column[at] = groups.determinants[k]
                elements.value[at] = element
            else:
                total += element * elements.x[groups.determinants[k]]
        at += 1
    return at, total


@jit
def opposite_spin_row(mode: int, i: int, b: int, matrix: Any, elements: Any, at: int) -> Any:
    """Elements of local row i, of beta string b, by excitations of both spins."""
    # <a b|H|a' b'> = +-(pq|rs) with a = +-a+_p a_q a', b = +-a+_r a_s b'. The entries of a cell
    # share b', so the sign and the pair of beta are those of the link.
    cells, links, two = matrix.cells, matrix.beta.links, matrix.beta.terms.two_other
    total, s, base = 0.0, cells.start[i], cells.base[i]
    for link in range(links.start[b], links.start[b + 1]):
        first, last = base + cells.cells[s, 0], base + cells.cells[s, 1]
        s += 1
        if first == last:
            continue
        # A code is 4 pair + 2 (creates the higher orbital) + (has a minus). The second bit is not needed
        # here, as real integrals have (pq|rs) = (qp|rs); ordered pairs have it in their number.
        pair, link_sum = links.pairs[link], 0.0
        for e in range(first, last):
            determinant, code = cells.entries[e, 0], cells.entries[e, 1]
            element = two[pair, code >> 2] * (1 - 2 * (code & 1))
            if mode == FILL:
                elements.column[at] = determinant
                elements.value[at] = element * links.sign[link]
                at += 1
            else:
                link_sum += element * elements.x[determinant]
        total += link_sum * links.sign[link]
    return at, total


@jit
def couple_row(mode: int, d: int, i: int, matrix: Any, elements: Any, at: int) -> Any:
    """The elements of row d of the Hamiltonian, local row i: the number after the last, and their sum with x.

    The sum is without the diagonal.
    """
    # One function for three modes, so that counting, filling and multiplying visit the same elements in the
    # same order. Invariant: COUNT gives exactly the number of elements that FILL writes.
    alpha, beta, cells = matrix
    a, b = alpha.groups.number[d], beta.groups.number[d]
    if mode == FILL:
        elements.column[at] = d
        elements.value[at] = own_energy(alpha.groups.own[a], beta.groups.own[b], alpha.terms, beta.terms)
    at += 1
    at, total = same_spin_row(mode, d, alpha.groups, beta, elements, at)
    at, added = same_spin_row(mode, d, beta.groups, alpha, elements, at)
    total += added
    if mode == COUNT:
        for s in range(cells.start[i], cells.start[i + 1]):
            at += cells.cells[s, 1] - cells.cells[s, 0]
        return at, total
    at, added = opposite_spin_row(mode, i, b, matrix, elements, at)
    return at, total + added


@jit
def count_rows(first: int, last: int, above: int, matrix: Any, counts: Any, elements: Any) -> None:
    """The numbers of elements of rows first .. last-1; row `above` is counts[0]."""
    for d in range(first, last):
        counts[d - above] = couple_row(COUNT, d, d - above, matrix, elements, 0)[0]


@jit
def fill_rows(first: int, last: int, above: int, matrix: Any, start: Any, elements: Any) -> None:
    """The elements of rows first .. last-1; those of row `above` begin at start[0]."""
    for d in range(first, last):
        couple_row(FILL, d, d - above, matrix, elements, start[d - above])


@jit
def add_rows(first: int, last: int, above: int, matrix: Any, elements: Any, out: Any) -> None:
    """Add rows first .. last-1 of the Hamiltonian times x to out, whose first row is `above`.

    Without the diagonal.
    """
    for d in range(first, last):
        out[d - above] += couple_row(PRODUCT, d, d - above, matrix, elements, 0)[1]


@jit
def add_sparse(first: int, last: int, matrix: Any, x: Any, out: Any) -> None:
    """out[d] += the sum over e of value[e] x[column[e]] for rows first .. last-1 of a `SparseMatrix`."""
    # Compressed sparse rows; a row is summed in one variable and in one order, whatever the threads.
    start, column, value = matrix
    for d in range(first, last):
        total = 0.0
        for e in range(start[d], start[d + 1]):
            total += value[e] * x[column[e]]
        out[d] += total


@jit
def fill_energies(first: int, last: int, above: int, alpha: Any, beta: Any, out: Any) -> None:
    """The energies of determinants first .. last-1."""
    for d in range(first, last):
        string_a, string_b = alpha.groups.own[alpha.groups.number[d]], beta.groups.own[beta.groups.number[d]]
        out[d - above] = own_energy(string_a, string_b, alpha.terms, beta.terms)


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
    # Strings are compared as whole numbers, from the highest word on: the order in which `list_tables` sorts.
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
        # Bisection for b' among the members of alpha group a'. Invariant: members are sorted by string.
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


@jit
def fill_entries(group: int, groups: Any, links: Any, scratch: Any, entries: Any) -> int:
    """Entries of an alpha group, sorted by beta string; how many strings have some."""
    # A counting sort by beta string, in time of the entries and not of all strings: `present` lists
    # the strings that occur, so that only these are looked at and reset.
    beta_of, counts, ends, present = scratch
    n_present = 0
    # First run: how many entries each beta string has.
    for link in range(links.start[group], links.start[group + 1]):
        other = links.other[link]
        for k in range(groups.begin[other], groups.begin[other + 1]):
            b = beta_of[k]
            if counts[b] == 0:
                present[n_present] = b
                n_present += 1
            counts[b] += 1
    # Then where the entries of each begin.
    at = 0
    for i in range(n_present):
        ends[present[i]] = at
        at += counts[present[i]]
    # Second run: write them; ends[b] ends where the cell ends. The codes are those of `ListCells`.
    for link in range(links.start[group], links.start[group + 1]):
        other, rises = links.other[link], links.create[link] > links.destroy[link]
        code = 4 * links.pairs[link] + 2 * rises + (links.sign[link] < 0)
        for k in range(groups.begin[other], groups.begin[other + 1]):
            b = beta_of[k]
            entries[ends[b], 0] = groups.determinants[k]
            entries[ends[b], 1] = code
            ends[b] += 1
    return n_present


@jit
def fill_cells(first: int, last: int, rows: Any, tables: Any, listed: Any, scratch: Any) -> None:
    """Entries of alpha groups first .. last-1 that have rows[0] .. rows[1]-1, and their cells.

    `listed` are the `ListCells`, their `base` by group; `scratch` is a `CellScratch`.
    """
    groups, _, links, beta_links = tables
    entries, base, start, cells = listed
    # Invariant: counts is zero everywhere at the start of each group, and is set to it again at its end.
    beta_of, counts, ends, present = scratch
    for group in range(first, last):
        n_present = 0
        if base[group + 1] > base[group]:
            # Groups without local rows have no entries in `base`, and cost nothing.
            own = entries[base[group] : base[group + 1]]
            n_present = fill_entries(group, groups, links, scratch, own)
        for k in range(groups.begin[group], groups.begin[group + 1]):
            d = groups.determinants[k]
            if d < rows[0] or d >= rows[1]:
                continue
            # The cells of a row: one for each link of its beta string, empty where no determinant of a linked
            # alpha string has that beta string. Bounds are relative to base[group], to fit 32 bits.
            s = start[d - rows[0]]
            for link in range(beta_links.start[beta_of[k]], beta_links.start[beta_of[k] + 1]):
                b = beta_links.other[link]
                cells[s, 0] = ends[b] - counts[b] if counts[b] else 0
                cells[s, 1] = ends[b] if counts[b] else 0
                s += 1
        for i in range(n_present):
            counts[present[i]] = 0


@jit
def add_within(d: int, is_beta: bool, matrix: Any, weight: float, x: Any, densities: Any) -> None:
    """What excitations of one spin of determinant d give, within its group; `weight` is its own x."""
    # gamma[p, q] = <a+_p a_q>, Gamma[p, q, r, s] = <a+_p a+_r a_s a_q>, to which a pair of determinants with
    # product c_bra c_ket adds as to an element of H. `mixed` is [pq of alpha, rs of beta].
    one_alpha, one_beta, two_alpha, two_beta, mixed = densities
    alpha, beta = matrix.alpha.groups, matrix.beta.groups
    groups, excited = (alpha, beta) if is_beta else (beta, alpha)
    one, two = (one_beta, two_beta) if is_beta else (one_alpha, two_alpha)
    group, own = groups.number[d], excited.own[excited.number[d]]
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
def add_across(d: int, above: int, pairs: Any, matrix: Any, weight: float, x: Any, mixed: Any) -> None:
    """What excitations of both spins give in row d; `pairs` are their lower and their higher orbitals."""
    # Excitations of both spins give one element of `mixed` alone: pq from the code of the entry
    # (alpha), rt from the link (beta).
    (low, high), cells, links = pairs, matrix.cells, matrix.beta.links
    b, s, base = matrix.beta.groups.number[d], cells.start[d - above], cells.base[d - above]
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
    first: int, last: int, above: int, matrix: Any, pairs: Any, states: Any, densities: Any
) -> None:  # fmt: skip
    """Add what rows first .. last-1 of one state and another state give, of one spin and of both.

    `above` is the first row that has cells.
    """
    # Invariant: each thread has density matrices of its own, which are added afterwards.
    bra, ket = states
    one_alpha, one_beta, two_alpha, two_beta, mixed = densities
    alpha, beta, n = matrix.alpha.groups, matrix.beta.groups, len(one_alpha)
    for d in range(first, last):
        string_a, string_b, weight = alpha.own[alpha.number[d]], beta.own[beta.number[d]], bra[d]
        own = weight * ket[d]
        add_same_spin(string_a, string_a, 0, own, one_alpha, two_alpha)
        add_same_spin(string_b, string_b, 0, own, one_beta, two_beta)
        for p in range(n):
            if is_filled(string_a, p):
                for r in range(n):
                    if is_filled(string_b, r):
                        mixed[p, p, r, r] += own
        add_within(d, True, matrix, weight, ket, densities)
        add_within(d, False, matrix, weight, ket, densities)
        add_across(d, above, pairs, matrix, weight, ket, mixed)

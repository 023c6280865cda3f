"""The numba kernels over pairs of half-strings: links, signs, and elements of the same-spin Hamiltonian.

Imported lazily (numba loads slowly). Each kernel is one call over flat arrays and releases the interpreter
lock. Strings are rows of 64-bit words; integrals are numbered as `integrals` says.

The sign of an excitation is that of moving an electron past those between the two orbitals.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.executor.device.cpu.bits_kernel import ONE, count_bits, jit


# Words: orbital p is bit p % 64 of word p // 64. Bits beyond the last orbital are 0.
# Operators: a string stands for a+_p1 a+_p2 ... |vacuum>, p1 < p2 < ... . So a+_p a_q has the sign
# (-1)^m, where m counts the electrons strictly between p and q.
# Integrals: `one` is h[p, q], `two` is (pq|rs) in chemists' notation, by the numbers of the pairs
# pq and rs.
# Elements follow the rules of Slater (1929) and Condon (1930); see Szabo and Ostlund, Modern
# Quantum Chemistry, table 2.4.
@jit
def distance(first: Any, second: Any) -> Any:
    """How many orbitals two strings of one length fill differently, and 6 for more than 4."""
    # Two strings with the same number of electrons differ in an even number of orbitals: 2 for a single
    # excitation, 4 for a double one. Beyond that elements of H are 0, so that counting may stop.
    count = np.int64(0)
    # `word & -word` is the lowest set bit; the number of bits below it is its number in the word.
    for w in range(first.size):
        count += count_bits(first[w] ^ second[w])
        if count > 4:
            return np.int64(6)
    return count


@jit
def only_in(first: Any, second: Any, skip: int) -> Any:
    """The orbital that `first` fills and `second` does not, after `skip` lower ones."""
    for w in range(first.size):
        word = first[w] & ~second[w]
        while word:
            low = word & (~word + ONE)
            if skip == 0:
                return w * 64 + count_bits(low - ONE)
            skip -= 1
            word ^= low
    return -1


@jit
def filled_below(string: Any, p: int) -> Any:
    """How many orbitals below p are filled."""
    count = np.int64(0)
    for w in range(p // 64):
        count += count_bits(string[w])
    offset = np.uint64(p % 64)
    if offset:
        count += count_bits(string[p // 64] & ((ONE << offset) - ONE))
    return count


@jit
def move_sign(string: Any, create: int, destroy: int) -> Any:
    """The sign of moving an electron of `string` from `destroy` to `create`: +1 or -1."""
    # filled_below(high) - filled_below(low + 1) counts the electrons strictly between the two
    # orbitals. Invariant: `destroy` is filled and `create` is empty; neither is counted, so either
    # string of the two gives the same sign.
    low, high = min(create, destroy), max(create, destroy)
    between = filled_below(string, high) - filled_below(string, low + 1)
    return 1 - 2 * (between & 1)


@jit
def double_sign(string: Any, p1: int, q1: int, p2: int, q2: int) -> Any:
    """The sign of moving q1 to p1, then q2 to p2."""
    # The second move passes the electrons that the first has left behind: one more where p1 lies
    # between, one less where q1 does. Both change the parity in the same way.
    low, high = min(p2, q2), max(p2, q2)
    moved = (low < p1 < high) + (low < q1 < high)
    return move_sign(string, p1, q1) * move_sign(string, p2, q2) * (1 - 2 * (moved & 1))


@jit
def pair(p: int, q: int, n: int) -> Any:
    """The number of the pair of p and q."""
    # Diagonal pairs are numbered first, p by itself: so row[r] of a row of `two` is (pq|rr).
    # Kernels rely on it. Other pairs follow in the order of a triangle.
    if p == q:
        return p
    high = max(p, q)
    return n + high * (high - 1) // 2 + min(p, q)


@jit
def pair_of(p: int, q: int, n: int, n_pairs: int) -> Any:
    """The number of the pair of p and q where there are `n_pairs` in all: in order, or not."""
    # Real integrals have (pq|rs) = (qp|rs), and a pair needs one number. Complex ones do not: then
    # pairs with p < q come in a second triangle, behind that of p > q.
    number = pair(p, q, n)
    if p < q and n_pairs > n * (n + 1) // 2:
        number += n * (n - 1) // 2
    return number


@jit
def is_filled(string: Any, p: int) -> Any:
    """Whether orbital p is filled."""
    return (string[p // 64] >> np.uint64(p % 64)) & ONE != 0


@jit
def diagonal(string: Any, one: Any, two: Any) -> Any:
    """The energy of one string alone."""
    # E = sum_p h_pp + sum_{p > r} [(pp|rr) - (pr|rp)]; the exchange term is there since both
    # electrons have one spin. In Hartree.
    n = len(one)
    energy = 0.0
    for p in range(n):
        if is_filled(string, p):
            energy += one[p, p]
            for r in range(p):
                if is_filled(string, r):
                    energy += two[p, r] - two[pair_of(p, r, n, len(two)), pair_of(r, p, n, len(two))]
    return energy


@jit
def single_value(bra: Any, ket: Any, one: Any, two: Any) -> Any:
    """The same-spin element between strings that differ by one orbital."""
    # <bra|H|ket> = +-{h_pq + sum_k [(pq|kk) - (pk|kq)]} for bra = +-a+_p a_q ket, k over the
    # electrons that both have. k = q is left out: its two terms would cancel.
    n = len(one)
    p, q = only_in(bra, ket, 0), only_in(ket, bra, 0)
    both = pair_of(p, q, n, len(two))
    value = one[p, q]
    for k in range(n):
        if is_filled(ket, k) and k != q:
            value += two[both, k] - two[pair_of(p, k, n, len(two)), pair_of(k, q, n, len(two))]
    return value * move_sign(ket, p, q)


@jit
def double_value(bra: Any, ket: Any, one: Any, two: Any) -> Any:
    """The same-spin element between strings that differ by two orbitals."""
    # <bra|H|ket> = +-[(p1 q1|p2 q2) - (p1 q2|p2 q1)] for bra = +-a+_p1 a_q1 a+_p2 a_q2 ket.
    # Invariant: p1 < p2 and q1 < q2, as `only_in` counts from below; `double_sign` pairs them in this order.
    n, n_pairs = len(one), len(two)
    p1, p2 = only_in(bra, ket, 0), only_in(bra, ket, 1)
    q1, q2 = only_in(ket, bra, 0), only_in(ket, bra, 1)
    direct = two[pair_of(p1, q1, n, n_pairs), pair_of(p2, q2, n, n_pairs)]
    value = direct - two[pair_of(p1, q2, n, n_pairs), pair_of(p2, q1, n, n_pairs)]
    return value * double_sign(ket, p1, q1, p2, q2)


@jit
def element(bra: Any, ket: Any, differing: int, one: Any, two: Any) -> Any:
    """The same-spin element between strings that fill `differing` (0, 2 or 4) orbitals differently."""
    if differing == 0:
        return diagonal(bra, one, two)
    if differing == 2:
        return single_value(bra, ket, one, two)
    return double_value(bra, ket, one, two)


@jit
def count_links(words: Any, first: int, last: int, linked: Any) -> None:
    """For strings first .. last-1: how many strings are 0, 1 or 2 excitations away."""
    # All pairs of strings are compared: N^2 steps of a few word operations each.
    for i in range(first, last):
        for j in range(len(words)):
            if distance(words[i], words[j]) <= 4:
                linked[i] += 1


@jit
def fill_energies(words: Any, one: Any, two: Any, energies: Any) -> None:
    """The energy of every string alone."""
    for i in range(len(words)):
        energies[i] = diagonal(words[i], one, two)


@jit
def fill_dense(words: Any, first: int, last: int, above: int, integrals: Any, matrix: Any) -> None:
    """Rows first .. last-1 of the same-spin Hamiltonian; row `above` of it is row 0 of the dense matrix."""
    one, two = integrals
    for i in range(first, last):
        for j in range(len(words)):
            differing = distance(words[i], words[j])
            matrix[i - above, j] = element(words[i], words[j], differing, one, two) if differing <= 4 else 0.0


@jit
def fill_sparse(words: Any, first: int, last: int, above: int, integrals: Any, matrix: Any) -> None:
    """Rows first .. last-1 of the same-spin Hamiltonian, linked strings only; row `above` has start[0]."""
    (one, two), (start, column, value) = integrals, matrix
    for i in range(first, last):
        # Invariant: start comes from `count_links` over the same words, so that the range of a row is of
        # exactly its elements; columns rise within a row.
        e = start[i - above]
        for j in range(len(words)):
            differing = distance(words[i], words[j])
            if differing <= 4:
                column[e] = j
                value[e] = element(words[i], words[j], differing, one, two)
                e += 1


@jit
def sparse_rows(first: int, last: int, matrix: Any, x: Any, out: Any) -> None:
    """out[i] += the sum over e of value[e] x[column[e]] for rows first .. last-1 of x[j, b]."""
    # Whole rows of x are added, since the beta strings are contiguous: the inner loop becomes
    # vector instructions.
    start, column, value = matrix
    for i in range(first, last):
        for e in range(start[i], start[i + 1]):
            factor, row = value[e], x[column[e]]
            for b in range(row.size):
                out[i, b] += factor * row[b]

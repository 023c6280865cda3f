"""The numba kernels of a qubit Hamiltonian in a list of bit strings: its elements, and its products.

Imported lazily (numba loads slowly). Strings are a `StringTable`, words `WordGroups`. A row has its diagonal
element first, then one of each group that leads to a string of the list, in the order of the groups. `units`
are 1 and i, or 1 and 0 where elements are real, in the type of the elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.executor.device.cpu.bits_kernel import ONE, count_bits, inline, jit

MIX = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: its multiples are spread evenly."""
HALF = np.uint64(32)
LOW = np.uint64(63)
SIX = np.uint64(6)
ZERO = np.uint64(0)


# H = sum over words of c i^|x & z| X^x Z^z in the space of some bit strings. X^x takes string j to
# j ^ x, so words with the same x lead to the same string: they are one group with one flip, and an
# element is the sum of their signs (-1)^|z & row| times factors. Words of a group stand in two
# parts: those whose factor is real, then (from `middle`) those whose factor is imaginary.
@inline
def hash_of(words: Any, row: Any, flips: Any, g: int) -> Any:
    """The hash of string `row` with the bits of flip g flipped."""
    # Made of the row and the flip word by word, so that the flipped string is nowhere written down.
    mixed = ZERO
    for w in range(words.shape[1]):
        mixed = (mixed ^ words[row, w] ^ flips[g, w]) * MIX
        mixed ^= mixed >> HALF
    return mixed * MIX


@inline
def find(strings: Any, row: Any, flips: Any, g: int) -> Any:
    """The number of string `row` with the bits of flip g flipped; -1 where it is not in the list."""
    # Most flips lead out of the list. A sieve of bits, one hash function of a Bloom filter, says so
    # with one access; the table is searched where its bit is set. Invariant: both sizes are powers
    # of two, and the table has a free slot, so that the search ends.
    mixed = hash_of(strings.words, row, flips, g)
    bit = mixed >> HALF & np.uint64(strings.sieve.size * 64 - 1)
    if not strings.sieve[bit >> SIX] >> (bit & LOW) & ONE:
        return -1
    last = np.uint64(strings.slots.size - 1)
    at = mixed >> HALF & last
    while True:
        number = strings.slots[at]
        if number < 0:
            return -1
        differ = ZERO
        for w in range(strings.words.shape[1]):
            differ |= strings.words[number, w] ^ strings.words[row, w] ^ flips[g, w]
        if differ == ZERO:
            return np.int64(number)
        at = at + ONE & last


@jit
def fill_table(strings: Any) -> None:
    """Put all strings into the empty table and its sieve."""
    none = np.zeros((1, strings.words.shape[1]), np.uint64)
    last = np.uint64(strings.slots.size - 1)
    for number in range(len(strings.words)):
        mixed = hash_of(strings.words, number, none, 0)
        bit = mixed >> HALF & np.uint64(strings.sieve.size * 64 - 1)
        strings.sieve[bit >> SIX] |= ONE << (bit & LOW)
        at = mixed >> HALF & last
        while strings.slots[at] >= 0:
            at = at + ONE & last
        strings.slots[at] = number


@inline
def signed_sum(words: Any, row: Any, groups: Any, first: Any, last: Any) -> Any:
    """The sum over words first .. last-1 of the operator in a row."""
    # The parity of |row & z| by xor of the counts of words: only the lowest bit matters.
    total = 0.0
    for t in range(first, last):
        odd = 0
        for w in range(words.shape[1]):
            odd ^= count_bits(words[row, w] & groups.signs[t, w])
        total += groups.value[t] * (1.0 - 2.0 * (odd & 1))
    return total


@inline
def element(words: Any, row: Any, groups: Any, g: int, units: Any) -> Any:
    """The element of a group in a row."""
    middle = groups.middle[g]
    real = signed_sum(words, row, groups, groups.start[g], middle)
    return real * units[0] + signed_sum(words, row, groups, middle, groups.start[g + 1]) * units[1]


@jit
def fill_diagonal(first: int, last: int, above: int, strings: Any, words: Any, out: Any) -> None:
    """The diagonal elements of strings first .. last-1."""
    for row in range(first, last):
        out[row - above] = signed_sum(strings.words, row, words, 0, len(words.value))


@jit
def count_rows(first: int, last: int, above: int, strings: Any, groups: Any, counts: Any) -> None:
    """The numbers of elements of rows first .. last-1."""
    for row in range(first, last):
        count = 1
        for g in range(len(groups.flips)):
            count += find(strings, row, groups.flips, g) >= 0
        counts[row - above] = count


@jit
def fill_rows(first: int, last: int, above: int, operator: Any, sparse: Any) -> None:
    """Elements of rows first .. last-1 of a `QubitOperator`, into a `SparseMatrix`."""
    strings, groups, units, diagonal = operator
    start, column, value = sparse
    for row in range(first, last):
        e = start[row - above]
        column[e] = row
        value[e] = diagonal[row - above] * units[0]
        for g in range(len(groups.flips)):
            other = find(strings, row, groups.flips, g)
            if other >= 0:
                e += 1
                column[e] = other
                value[e] = element(strings.words, row, groups, g, units)


@jit
def add_rows(first: int, last: int, above: int, operator: Any, x: Any, out: Any) -> None:
    """Add rows first .. last-1 of a product with x to out; elements are computed for it."""
    # Nothing is stored: a row's elements are computed and used. The order of groups is that of `fill_rows`.
    strings, groups, units, diagonal = operator
    for row in range(first, last):
        total = diagonal[row - above] * x[row]
        for g in range(len(groups.flips)):
            other = find(strings, row, groups.flips, g)
            if other >= 0:
                total += element(strings.words, row, groups, g, units) * x[other]
        out[row - above] += total


@jit
def visit_outside(first: int, last: int, operator: Any, visit: Any, ends: Any, found: Any) -> None:
    """Terms H_ai c_i of strings i = first .. last-1 that lead to strings a outside the list.

    Those above a threshold in a part of all strings are counted in ends[i], or, where `found` has room, put
    from ends[i] on, which moves: the row, the group and the term of each. `visit` has the c, the threshold,
    and which hashes the part has: those whose lowest bits are a number.
    """
    strings, groups, units, _ = operator
    state, epsilon, number, mask = visit
    rows, flips_of, terms = found
    for row in range(first, last):
        limit = epsilon / max(abs(state[row]), 1e-300)
        for g in range(len(groups.flips)):
            if hash_of(strings.words, row, groups.flips, g) & mask != number:
                continue
            value = element(strings.words, row, groups, g, units)
            # The element of the row is H_ia, and H_ai is its conjugate.
            if not abs(value) > limit or find(strings, row, groups.flips, g) >= 0:
                continue
            if len(terms):
                at = ends[row]
                rows[at], flips_of[at] = row, g
                terms[at] = value.conjugate() * state[row]
            ends[row] += 1

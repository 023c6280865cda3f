"""The numba kernels that visit what a list of determinants couples to, and keep it in a hash table.

Imported lazily (numba loads slowly). A key is a determinant's alpha words, then its beta words. A table of
2^k slots holds keys [slot, word], all zero where the slot is free, and a value of each. A determinant's first
slot is its hash modulo 2^k; the slots after it follow. The highest bits of the hash say which part of all
determinants it belongs to, so that parts are made one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.executor.device.cpu.bits_kernel import ONE, inline, jit
from tnplan.executor.sbd.basis.string_kernel import double_sign, is_filled, move_sign

SUM, LARGEST = 0, 1
"""What is kept of the terms H_ai c_i of a determinant: their sum, or the one of largest magnitude."""
FULLEST = 0.6
"""The share of a table's slots that are filled at most."""
STOPPED = -1
"""The number of determinants where there are more than a table may hold."""


@jit
def hash_of(key: Any, n_words: int, words: Any) -> Any:
    """The hash of a determinant."""
    found = np.uint64(0)
    for spin in range(2):
        for p in range(words.shape[1]):
            if is_filled(key[spin * n_words : (spin + 1) * n_words], p):
                found ^= words[spin, p]
    return found


@jit
def find(keys: Any, key: Any, found: Any) -> Any:
    """The slot of a key of that hash; where it is missing, -1 minus the free slot that it would take."""
    mask = np.uint64(len(keys) - 1)
    slot = np.int64(found & mask)
    while True:
        is_free, is_same = True, True
        for w in range(key.size):
            word = keys[slot, w]
            is_free &= word == 0
            is_same &= word == key[w]
        if is_same:
            return slot
        if is_free:
            return -1 - slot
        slot = np.int64(np.uint64(slot + 1) & mask)


@inline
def turn(key: Any, first: int, p: int) -> None:
    """Fill or free orbital p of the spin whose words begin at `first`."""
    key[first + p // 64] ^= ONE << np.uint64(p % 64)


@jit
def put(keys: Any, values: Any, key: Any, found: Any, term: Any, mode: int) -> int:
    """Take in a term; 1 where its determinant is new."""
    slot = find(keys, key, found)
    if slot < 0:
        slot = -1 - slot
        keys[slot] = key
        values[slot] = term
        return 1
    if mode == SUM:
        values[slot] += term
    elif abs(term) > abs(values[slot]):
        values[slot] = term
    return 0


@jit
def enlarged(keys: Any, values: Any, n_words: int, words: Any) -> Any:
    """A table of twice the slots with the same content."""
    larger, moved = np.zeros((2 * len(keys), keys.shape[1]), np.uint64), np.zeros(2 * len(keys), values.dtype)
    for slot in range(len(keys)):
        is_free = True
        for w in range(keys.shape[1]):
            is_free &= keys[slot, w] == 0
        if not is_free:
            to = -1 - find(larger, keys[slot], hash_of(keys[slot], n_words, words))
            larger[to] = keys[slot]
            moved[to] = values[slot]
    return larger, moved


@jit
def single_element(excitations: Any, p: int, q: int, own: Any, n_own: int, others: Any, n_others: int) -> Any:
    """The element of a single excitation from q to p over lists of filled orbitals, without its sign."""
    element = excitations.one[p, q]
    for k in range(n_own):
        element += excitations.same[p, q, own[k]]
    for k in range(n_others):
        element += excitations.other[p, q, others[k]]
    return element


@jit
def add_singles(
    spin: int, part: Any, shift: Any, mode: int, limit: float, weight: Any, key: Any, own_hash: Any,
    filled: Any, orbitals: Any, counts: Any, excitations: Any, words: Any, keys: Any, values: Any,
) -> int:  # fmt: skip
    """Take in all single excitations of a spin whose elements are above the limit; how many are new."""
    n, n_words, first = words.shape[1], key.size // 2, spin * (key.size // 2)
    new = 0
    for k in range(counts[spin]):
        q = orbitals[spin, k]
        for p in range(n):
            found = own_hash ^ words[spin, q] ^ words[spin, p]
            if filled[spin, p] or found >> shift != part:
                continue
            element = single_element(
                excitations, p, q, orbitals[spin], counts[spin], orbitals[1 - spin], counts[1 - spin]
            )
            if not abs(element) > limit:
                continue
            sign = move_sign(key[first : first + n_words], p, q)
            turn(key, first, q)
            turn(key, first, p)
            new += put(keys, values, key, found, element * (weight * sign), mode)
            turn(key, first, q)
            turn(key, first, p)
    return new


@jit
def add_doubles(
    spin1: int, spin2: int, q1: int, q2: int, part: Any, shift: Any, mode: int, limit: float, weight: Any,
    key: Any, own_hash: Any, filled: Any, doubles: Any, words: Any, keys: Any, values: Any,
) -> int:  # fmt: skip
    """Take in the double excitations from q1 and q2 whose elements are above the limit; how many are new."""
    n, n_words = words.shape[1], key.size // 2
    first, second = spin1 * n_words, spin2 * n_words
    base, new = own_hash ^ words[spin1, q1] ^ words[spin2, q2], 0
    for e in range(doubles.start[q1 * n + q2], doubles.start[q1 * n + q2 + 1]):
        element = doubles.value[e]
        if not abs(element) > limit:
            break
        p1, p2 = np.int64(doubles.create[e, 0]), np.int64(doubles.create[e, 1])
        if filled[spin1, p1] or filled[spin2, p2]:
            continue
        found = base ^ words[spin1, p1] ^ words[spin2, p2]
        if found >> shift != part:
            continue
        if spin1 == spin2:
            sign = double_sign(key[first : first + n_words], p1, q1, p2, q2)
        else:
            sign = move_sign(key[first : first + n_words], p1, q1)
            sign *= move_sign(key[second : second + n_words], p2, q2)
        turn(key, first, q1)
        turn(key, first, p1)
        turn(key, second, q2)
        turn(key, second, p2)
        new += put(keys, values, key, found, element * (weight * sign), mode)
        turn(key, first, q1)
        turn(key, first, p1)
        turn(key, second, q2)
        turn(key, second, p2)
    return new


@jit
def room_for(
    more: int, filled: int, most: int, keys: Any, values: Any, n_words: int, words: Any, stop: Any
) -> Any:
    """The table, enlarged until `more` determinants fit besides those filled; sets stop[0] beyond `most`."""
    while filled + more > FULLEST * len(keys):
        if 2 * len(keys) > most:
            stop[0] = 1
            break
        keys, values = enlarged(keys, values, n_words, words)
    return keys, values


@jit
def collect(
    part: Any, bits: int, mode: int, epsilon: float, members: Any, weights: Any, tables: Any, keys: Any,
    values: Any, most: int, stop: Any,
) -> Any:  # fmt: skip
    """Determinants of one of 2^bits parts that couple to members i by |H_ai weights[i]| > epsilon.

    The table, which may have `most` slots, and how many determinants are in it. The members are not left out.
    Stops where stop[0] is set, and sets it where the table is too small.
    """
    words = tables.words
    n, n_words, shift = words.shape[1], members.shape[1] // 2, np.uint64(64 - bits)
    filled, orbitals = np.zeros((2, n), np.bool_), np.empty((2, n), np.int64)
    counts, key, number = np.zeros(2, np.int64), np.empty(members.shape[1], np.uint64), np.uint64(part)
    total, pairs = 0, n * n
    for i in range(len(members)):
        weight = weights[i]
        if stop[0]:
            return keys, values, STOPPED
        if abs(weight) == 0.0:
            continue
        limit = epsilon / abs(weight)
        key[:] = members[i]
        own_hash = hash_of(key, n_words, words)
        for spin in range(2):
            counts[spin] = 0
            for p in range(n):
                filled[spin, p] = is_filled(key[spin * n_words : (spin + 1) * n_words], p)
                if filled[spin, p]:
                    orbitals[spin, counts[spin]] = p
                    counts[spin] += 1
        for spin in range(2):
            excitations = tables.alpha if spin == 0 else tables.beta
            keys, values = room_for(pairs, total, most, keys, values, n_words, words, stop)
            if stop[0]:
                return keys, values, STOPPED
            total += add_singles(
                spin, number, shift, mode, limit, weight, key, own_hash, filled, orbitals, counts,
                excitations, words, keys, values,
            )  # fmt: skip
            for second in range(spin, 2):
                doubles = excitations.doubles if spin == second else tables.opposite
                for k in range(counts[spin]):
                    for j in range(k + 1 if spin == second else 0, counts[second]):
                        keys, values = room_for(pairs, total, most, keys, values, n_words, words, stop)
                        if stop[0]:
                            return keys, values, STOPPED
                        total += add_doubles(
                            spin, second, orbitals[spin, k], orbitals[second, j], number, shift, mode, limit,
                            weight, key, own_hash, filled, doubles, words, keys, values,
                        )  # fmt: skip
    return keys, values, total


@jit
def energy_of(key: Any, n_words: int, energies: Any, orbitals: Any) -> float:
    """The energy of a determinant, without the core's. `orbitals` is scratch [spin, orbital]."""
    n_alpha, n_beta, n = 0, 0, len(energies.one_alpha)
    for p in range(n):
        if is_filled(key[:n_words], p):
            orbitals[0, n_alpha] = p
            n_alpha += 1
        if is_filled(key[n_words:], p):
            orbitals[1, n_beta] = p
            n_beta += 1
    total = 0.0
    for k in range(n_alpha):
        p = orbitals[0, k]
        total += energies.one_alpha[p]
        for j in range(k):
            total += energies.within_alpha[p, orbitals[0, j]]
        for j in range(n_beta):
            total += energies.between[p, orbitals[1, j]]
    for k in range(n_beta):
        p = orbitals[1, k]
        total += energies.one_beta[p]
        for j in range(k):
            total += energies.within_beta[p, orbitals[1, j]]
    return total


@jit
def fill_table(members: Any, words: Any, keys: Any) -> None:
    """Put the members into an empty table that has room for them."""
    for i in range(len(members)):
        found = hash_of(members[i], members.shape[1] // 2, words)
        slot = find(keys, members[i], found)
        if slot < 0:
            keys[-1 - slot] = members[i]


@jit
def outside(keys: Any, known: Any, words: Any, chosen: Any) -> int:
    """The slots of a table whose determinants are not in the known table; how many there are."""
    count, n_words = 0, keys.shape[1] // 2
    for slot in range(len(keys)):
        is_free = True
        for w in range(keys.shape[1]):
            is_free &= keys[slot, w] == 0
        if not is_free and find(known, keys[slot], hash_of(keys[slot], n_words, words)) < 0:
            chosen[count] = slot
            count += 1
    return count


@jit
def correction(keys: Any, values: Any, known: Any, energy: float, tables: Any) -> Any:
    """The sum of |values|^2 / (energy - H_aa) over what is not in the known table, and how many those are."""
    total, count, n_words = 0.0, 0, keys.shape[1] // 2
    orbitals = np.empty((2, tables.words.shape[1]), np.int64)
    for slot in range(len(keys)):
        is_free = True
        for w in range(keys.shape[1]):
            is_free &= keys[slot, w] == 0
        if is_free or find(known, keys[slot], hash_of(keys[slot], n_words, tables.words)) >= 0:
            continue
        size = abs(values[slot])
        total += size * size / (energy - energy_of(keys[slot], n_words, tables.energies, orbitals))
        count += 1
    return total, count

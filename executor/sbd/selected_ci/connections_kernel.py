"""The numba kernels that visit what a list of determinants couples to, and keep it in a hash table.

Imported lazily (numba loads slowly). A key is a determinant's alpha words, then its beta words. A table of
2^k slots holds keys [slot, word], all zero where the slot is free, and a value of each. A determinant's first
slot is its hash modulo 2^k; the slots after it follow. The highest bits of the hash say which part of all
determinants it belongs to, so that parts are made one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tnplan.executor.device.cpu.bits_kernel import ONE, count_bits, inline, jit

SUM, LARGEST = 0, 1
"""What is kept of the terms H_ai c_i of a determinant: their sum, or the one of largest magnitude."""
FULLEST = 0.6
"""The share of a table's slots that are filled at most."""


class Source(NamedTuple):
    """A determinant that excitations lead from: its key, and by spin what it fills.

    filled [spin, orbital]; orbitals [spin, number] are counts[spin] filled ones; below [spin, orbital] counts
    those below an orbital.
    """

    key: Any
    filled: Any
    orbitals: Any
    counts: Any
    below: Any


def empty_source(n_orbitals: int, n_key_words: int) -> Source:
    """Scratch for one thread."""
    return Source(
        np.zeros(n_key_words, np.uint64), np.zeros((2, n_orbitals), np.bool_),
        np.zeros((2, n_orbitals), np.int64), np.zeros(2, np.int64), np.zeros((2, n_orbitals), np.int64),
    )  # fmt: skip


@jit
def hash_of(key: Any, words: Any) -> Any:
    """The hash of a determinant."""
    found, n_words = np.uint64(0), key.size // 2
    for spin in range(2):
        for w in range(n_words):
            word = key[spin * n_words + w]
            while word:
                low = word & (~word + ONE)
                found ^= words[spin, w * 64 + count_bits(low - ONE)]
                word ^= low
    return found


@inline
def is_free(keys: Any, slot: int) -> bool:
    """Whether a slot holds no determinant."""
    found = np.uint64(0)
    for w in range(keys.shape[1]):
        found |= keys[slot, w]
    return found == 0


@jit
def find(keys: Any, key: Any, found: Any) -> Any:
    """The slot of a key of that hash; where it is missing, -1 minus the free slot that it would take."""
    mask = np.uint64(len(keys) - 1)
    slot = np.int64(found & mask)
    while True:
        any_bits, other_bits = np.uint64(0), np.uint64(0)
        for w in range(key.size):
            any_bits |= keys[slot, w]
            other_bits |= keys[slot, w] ^ key[w]
        if other_bits == 0:
            return slot
        if any_bits == 0:
            return -1 - slot
        slot = np.int64(np.uint64(slot + 1) & mask)


@inline
def turn(key: Any, first: int, p: int) -> None:
    """Fill or free orbital p of the spin whose words begin at `first`."""
    key[first + p // 64] ^= ONE << np.uint64(p % 64)


@inline
def move_sign(source: Any, spin: int, create: int, destroy: int) -> Any:
    """The sign of moving an electron of a spin past those between the two orbitals: +1 or -1."""
    low, high = min(create, destroy), max(create, destroy)
    return 1 - 2 * ((source.below[spin, high] - source.below[spin, low + 1]) & 1)


@jit
def put(keys: Any, values: Any, key: Any, found: Any, term: Any, mode: int) -> int:
    """Take in a term; 1 where its determinant is new."""
    slot = find(keys, key, found)
    if slot < 0:
        slot = -1 - slot
        for w in range(key.size):
            keys[slot, w] = key[w]
        values[slot] = term
        return 1
    if mode == SUM:
        values[slot] += term
    elif abs(term) > abs(values[slot]):
        values[slot] = term
    return 0


@jit
def enlarged(keys: Any, values: Any, words: Any) -> Any:
    """A table of twice the slots with the same content."""
    larger, moved = np.zeros((2 * len(keys), keys.shape[1]), np.uint64), np.zeros(2 * len(keys), values.dtype)
    for slot in range(len(keys)):
        if not is_free(keys, slot):
            to = -1 - find(larger, keys[slot], hash_of(keys[slot], words))
            larger[to] = keys[slot]
            moved[to] = values[slot]
    return larger, moved


@jit
def room_for(more: int, count: int, keys: Any, values: Any, words: Any, most: int, stop: Any) -> Any:
    """The table, enlarged until `more` determinants fit besides `count`; sets stop[0] beyond `most` slots."""
    while count + more > FULLEST * len(keys) and not stop[0]:
        if 2 * len(keys) > most:
            stop[0] = 1
        else:
            keys, values = enlarged(keys, values, words)
    return keys, values


@jit
def set_source(source: Any, member: Any) -> None:
    """Write down what a determinant fills."""
    n_words = member.size // 2
    for w in range(member.size):
        source.key[w] = member[w]
    for spin in range(2):
        count = 0
        for p in range(source.filled.shape[1]):
            source.below[spin, p] = count
            here = (member[spin * n_words + p // 64] >> np.uint64(p % 64)) & ONE != 0
            source.filled[spin, p] = here
            if here:
                source.orbitals[spin, count] = p
                count += 1
        source.counts[spin] = count


@jit
def add_singles(
    source: Any, spin: int, weight: Any, own_hash: Any, wanted: Any, excitations: Any, words: Any,
    keys: Any, values: Any, count: int, stop: Any,
) -> Any:  # fmt: skip
    """Take in the single excitations of a spin whose terms are above the threshold.

    The table, and how many determinants are in it. `wanted` is that of `collect`.
    """
    part, shift, mode, epsilon, most = wanted
    key, n, first = source.key, words.shape[1], spin * (source.key.size // 2)
    own, others = source.orbitals[spin], source.orbitals[1 - spin]
    n_own, n_others = source.counts[spin], source.counts[1 - spin]
    limit = epsilon / abs(weight)
    keys, values = room_for(n_own * (n - n_own), count, keys, values, words, most, stop)
    if stop[0]:
        return keys, values, count
    for k in range(n_own):
        q = own[k]
        for p in range(n):
            found = own_hash ^ words[spin, q] ^ words[spin, p]
            if source.filled[spin, p] or found >> shift != part:
                continue
            element = excitations.one[p, q]
            for j in range(n_own):
                element += excitations.same[p, q, own[j]]
            for j in range(n_others):
                element += excitations.other[p, q, others[j]]
            if abs(element) > limit:
                turn(key, first, q)
                turn(key, first, p)
                term = element * (weight * move_sign(source, spin, p, q))
                count += put(keys, values, key, found, term, mode)
                turn(key, first, q)
                turn(key, first, p)
    return keys, values, count


@jit
def add_doubles(
    source: Any, spin1: int, spin2: int, weight: Any, own_hash: Any, wanted: Any, doubles: Any, words: Any,
    keys: Any, values: Any, count: int, stop: Any,
) -> Any:  # fmt: skip
    """Take in the double excitations of one spin, or of alpha (0) and beta (1), above the threshold.

    Elements below it are not visited. The table, and how many determinants are in it.
    """
    part, shift, mode, epsilon, most = wanted
    key, n, n_words = source.key, words.shape[1], source.key.size // 2
    first, second = spin1 * n_words, spin2 * n_words
    limit = epsilon / abs(weight)
    for k in range(source.counts[spin1]):
        q1 = source.orbitals[spin1, k]
        for j in range(k + 1 if spin1 == spin2 else 0, source.counts[spin2]):
            q2 = source.orbitals[spin2, j]
            base = own_hash ^ words[spin1, q1] ^ words[spin2, q2]
            begin, end = doubles.start[q1 * n + q2], doubles.start[q1 * n + q2 + 1]
            if count + end - begin > FULLEST * len(keys):
                keys, values = room_for(end - begin, count, keys, values, words, most, stop)
                if stop[0]:
                    return keys, values, count
            for e in range(begin, end):
                element = doubles.value[e]
                if not abs(element) > limit:
                    break
                p1, p2 = np.int64(doubles.create[e, 0]), np.int64(doubles.create[e, 1])
                found = base ^ words[spin1, p1] ^ words[spin2, p2]
                if found >> shift != part or source.filled[spin1, p1] or source.filled[spin2, p2]:
                    continue
                sign = move_sign(source, spin1, p1, q1) * move_sign(source, spin2, p2, q2)
                if spin1 == spin2:
                    low, high = min(p2, q2), max(p2, q2)
                    sign *= 1 - 2 * (((low < p1 < high) + (low < q1 < high)) & 1)
                turn(key, first, q1)
                turn(key, first, p1)
                turn(key, second, q2)
                turn(key, second, p2)
                count += put(keys, values, key, found, element * (weight * sign), mode)
                turn(key, first, q1)
                turn(key, first, p1)
                turn(key, second, q2)
                turn(key, second, p2)
    return keys, values, count


@jit
def collect(
    part: int, bits: int, mode: int, epsilon: float, members: Any, weights: Any, tables: Any, keys: Any,
    values: Any, source: Any, most: int, stop: Any,
) -> Any:  # fmt: skip
    """Determinants of one of 2^bits parts that couple to members i by |H_ai weights[i]| > epsilon.

    The table, which may have `most` slots, and how many determinants are in it. The members are not left out.
    `source` is scratch. Stops where stop[0] is set, and sets it where the table is too small.
    """
    words, count = tables.words, 0
    wanted = np.uint64(part), np.uint64(64 - bits), mode, epsilon, most
    for i in range(len(members)):
        weight = weights[i]
        if abs(weight) == 0.0:
            continue
        set_source(source, members[i])
        own_hash = hash_of(members[i], words)
        keys, values, count = add_singles(
            source, 0, weight, own_hash, wanted, tables.alpha, words, keys, values, count, stop
        )
        keys, values, count = add_singles(
            source, 1, weight, own_hash, wanted, tables.beta, words, keys, values, count, stop
        )
        keys, values, count = add_doubles(
            source, 0, 0, weight, own_hash, wanted, tables.alpha.doubles, words, keys, values, count, stop
        )
        keys, values, count = add_doubles(
            source, 1, 1, weight, own_hash, wanted, tables.beta.doubles, words, keys, values, count, stop
        )
        keys, values, count = add_doubles(
            source, 0, 1, weight, own_hash, wanted, tables.opposite, words, keys, values, count, stop
        )
        if stop[0]:
            break
    return keys, values, count


@jit
def energy_of(source: Any, energies: Any) -> float:
    """The energy of a determinant, without the core's."""
    total = 0.0
    n_alpha, n_beta = source.counts[0], source.counts[1]
    for k in range(n_alpha):
        p = source.orbitals[0, k]
        total += energies.one_alpha[p]
        for j in range(k):
            total += energies.within_alpha[p, source.orbitals[0, j]]
        for j in range(n_beta):
            total += energies.between[p, source.orbitals[1, j]]
    for k in range(n_beta):
        p = source.orbitals[1, k]
        total += energies.one_beta[p]
        for j in range(k):
            total += energies.within_beta[p, source.orbitals[1, j]]
    return total


@jit
def fill_table(members: Any, words: Any, keys: Any) -> None:
    """Put distinct members into an empty table that has room for them."""
    for i in range(len(members)):
        keys[-1 - find(keys, members[i], hash_of(members[i], words))] = members[i]


@jit
def outside(keys: Any, known: Any, words: Any, chosen: Any) -> int:
    """The slots of a table whose determinants are not in the known table; how many there are."""
    count = 0
    for slot in range(len(keys)):
        if not is_free(keys, slot) and find(known, keys[slot], hash_of(keys[slot], words)) < 0:
            chosen[count] = slot
            count += 1
    return count


@jit
def correction(keys: Any, values: Any, known: Any, energy: float, tables: Any, source: Any) -> Any:
    """The sum of |values|^2 / (energy - H_aa) over what is not in the known table, and how many those are."""
    total, count = 0.0, 0
    for slot in range(len(keys)):
        if is_free(keys, slot) or find(known, keys[slot], hash_of(keys[slot], tables.words)) >= 0:
            continue
        set_source(source, keys[slot])
        size = abs(values[slot])
        total += size * size / (energy - energy_of(source, tables.energies))
        count += 1
    return total, count

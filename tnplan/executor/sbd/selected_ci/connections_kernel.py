"""The numba kernels that visit what a list of determinants couples to, and keep it in a hash table.

Imported lazily (numba loads slowly). A key is a determinant's alpha words, then its beta words. A table of
2^k slots holds keys [slot, word], all zero where the slot is free, and a value of each. A determinant's first
slot is its hash modulo 2^k; the slots after it follow. The highest bits of the hash say which shard a
determinant belongs to, so that shards are visited one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tnplan.executor.device.cpu.bits_kernel import ONE, count_bits, inline, jit

SUM, LARGEST, SQUARES = 0, 1, 2
"""What a table holds of a determinant: the sum of its terms H_ai weight, the largest of these in magnitude,
or the sum of |H_ai|^2 weight."""
FULLEST = 0.6
"""The share of a table's slots that are filled at most."""


class SourceDeterminant(NamedTuple):
    """A determinant that excitations lead from: its key, and by spin what it fills.

    filled [spin, orbital]; orbitals [spin, number] are counts[spin] filled ones; below [spin, orbital] counts
    those below an orbital.
    """

    key: Any
    filled: Any
    orbitals: Any
    counts: Any
    below: Any


class HashTable(NamedTuple):
    """A table of determinants: keys [slot, word], values [slot]; `words` are those of hashes.

    With `half`, of a determinant and its spin flip only one is taken: that of the larger alpha string.
    """

    keys: Any
    values: Any
    words: Any
    half: Any


class Filters(NamedTuple):
    """What is taken of a determinant i: the terms H_ai weight of those a in the shard with |H_ai| > limit.

    The shard of a hash are its bits from `shift` on; `own_hash` is that of i, `mode` what the table holds.
    """

    shard: Any
    shift: Any
    mode: Any
    limit: Any
    weight: Any
    own_hash: Any


def empty_source(n_orbitals: int, n_key_words: int) -> SourceDeterminant:
    """Scratch for one thread."""
    return SourceDeterminant(
        np.zeros(n_key_words, np.uint64), np.zeros((2, n_orbitals), np.bool_),
        np.zeros((2, n_orbitals), np.int64), np.zeros(2, np.int64), np.zeros((2, n_orbitals), np.int64),
    )  # fmt: skip


# Heat-bath selection (Holmes, Tubman and Umrigar, J. Chem. Theory Comput. 12, 3674 (2016)): from
# each member i of a list, visit the determinants a with |H_ai c_i| > epsilon, and no others. Double
# excitations are sorted by |H| beforehand, so that a visit ends at the first one below. Single
# excitations have elements that depend on all electrons; they are few, and each is visited.
# Keys: the words of the alpha string, then those of the beta string.
@jit
def hash_of(key: Any, words: Any) -> Any:
    """The hash of a determinant."""
    # Zobrist hashing: the xor of a random word for each filled orbital of each spin. So the hash of an
    # excited determinant is that of its source, xor the words of the orbitals left and entered: four at most.
    hash_value, n_words = np.uint64(0), key.size // 2
    for spin in range(2):
        for w in range(n_words):
            word = key[spin * n_words + w]
            while word:
                low = word & (~word + ONE)
                hash_value ^= words[spin, w * 64 + count_bits(low - ONE)]
                word ^= low
    return hash_value


@inline
def is_free(keys: Any, slot: int) -> bool:
    """Whether a slot holds no determinant."""
    bits = np.uint64(0)
    for w in range(keys.shape[1]):
        bits |= keys[slot, w]
    return bits == 0


@jit
def find(keys: Any, key: Any, hash_value: Any) -> Any:
    """The slot of a key of that hash; where it is missing, -1 minus the free slot that it would take."""
    # Open addressing with linear probing. Invariant: the number of slots is a power of two, and at least one
    # is free (see FULLEST), so that the search ends. No determinant has an all-zero key, as it has electrons.
    mask = np.uint64(len(keys) - 1)
    slot = np.int64(hash_value & mask)
    # Words are compared without branches: the or of all words tells a free slot, the or of all
    # differences another key.
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
    # As in `string_kernel`, from counts of electrons that `set_source` has written once for all excitations.
    low, high = min(create, destroy), max(create, destroy)
    return 1 - 2 * ((source.below[spin, high] - source.below[spin, low + 1]) & 1)


@inline
def order_of_spins(key: Any) -> int:
    """1 where the alpha string is the larger one, 0 where both are the same, or -1."""
    # Words of a key rise in weight: the last one that differs decides.
    order, n_words = 0, key.size // 2
    for w in range(n_words):
        if key[w] != key[n_words + w]:
            order = 1 if key[w] > key[n_words + w] else -1
    return order


@jit
def put(table: Any, key: Any, hash_value: Any, term: Any, mode: int) -> int:
    """Take in a term; 1 where its determinant is new."""
    # SUM: the numerators of perturbation theory, sum_i H_ai c_i. LARGEST: the measure of selection,
    # max_i |H_ai c_i|.
    keys, values, _, half = table
    if half and order_of_spins(key) < 0:
        return 0
    slot = find(keys, key, hash_value)
    if slot < 0:
        slot = -1 - slot
        for w in range(key.size):
            keys[slot, w] = key[w]
        values[slot] = term
        return 1
    if mode != LARGEST:
        values[slot] += term
    elif abs(term) > abs(values[slot]):
        values[slot] = term
    return 0


@inline
def term_of(element: Any, sign: Any, weight: Any, mode: int) -> Any:
    """What an element adds to a table."""
    return element * np.conj(element) * weight if mode == SQUARES else element * (weight * sign)


@jit
def move_all(table: Any, larger: Any) -> None:
    """Put all of a table into a larger one, which is empty."""
    # Invariant: keys are distinct and `larger` is empty at first, so `find` always answers a free slot.
    keys, values, words, _ = table
    for slot in range(len(keys)):
        if not is_free(keys, slot):
            to = -1 - find(larger.keys, keys[slot], hash_of(keys[slot], words))
            for w in range(keys.shape[1]):
                larger.keys[to, w] = keys[slot, w]
            larger.values[to] = values[slot]


@jit
def set_source(source: Any, member: Any) -> None:
    """Write down what a determinant fills."""
    # Once for each member: which orbitals are filled, the list of these, and how many lie below
    # each orbital. Excitations then need no bit operations.
    n_words = member.size // 2
    for w in range(member.size):
        source.key[w] = member[w]
    for spin in range(2):
        count = 0
        for p in range(source.filled.shape[1]):
            source.below[spin, p] = count
            is_filled = (member[spin * n_words + p // 64] >> np.uint64(p % 64)) & ONE != 0
            source.filled[spin, p] = is_filled
            if is_filled:
                source.orbitals[spin, count] = p
                count += 1
        source.counts[spin] = count


@jit
def add_singles(source: Any, spin: int, k: int, filters: Any, excitations: Any, table: Any) -> int:
    """Take in the single excitations of the k-th electron of a spin whose terms are above the threshold.

    How many determinants are new.
    """
    # H_ai = +-{h_pq + sum over the same spin of [(pq|kk) - (pk|kq)] + sum over the other spin of (pq|rr)};
    # tables `same` and `other` hold the terms in brackets. For k = q the one in `same` is 0.
    shard, shift, mode, limit, weight, own_hash = filters
    words = table.words
    key, n, first, count = source.key, words.shape[1], spin * (source.key.size // 2), 0
    q = source.orbitals[spin, k]
    for p in range(n):
        # The highest bits of the hash choose the shard; other shards are filled in other visits.
        hash_value = own_hash ^ words[spin, q] ^ words[spin, p]
        if source.filled[spin, p] or hash_value >> shift != shard:
            continue
        element = excitations.one[p, q]
        for j in range(source.counts[spin]):
            element += excitations.same[p, q, source.orbitals[spin, j]]
        for j in range(source.counts[1 - spin]):
            element += excitations.other[p, q, source.orbitals[1 - spin, j]]
        if abs(element) > limit:
            # The key is changed in place and changed back: it is not copied.
            turn(key, first, q)
            turn(key, first, p)
            term = term_of(element, move_sign(source, spin, p, q), weight, mode)
            count += put(table, key, hash_value, term, mode)
            turn(key, first, q)
            turn(key, first, p)
    return count


@jit
def add_doubles(source: Any, spins: Any, holes: Any, filters: Any, doubles: Any, table: Any) -> int:
    """Take in the double excitations from two orbitals, of two spins, whose terms are above the threshold.

    Elements below it are not visited. How many determinants are new.
    """
    # Candidates (p1, p2) of the pair (q1, q2) stand by falling |H_ai|, so that the first one below
    # the limit ends the visit (the heat-bath rule). Of one spin the element is (p1 q1|p2 q2) - (p1
    # q2|p2 q1), of two spins (p1 q1|p2 q2). Invariant: `doubles.value` falls in magnitude within
    # start[q1 n + q2] .. start[q1 n + q2 + 1] - 1.
    shard, shift, mode, limit, weight, own_hash = filters
    (spin1, spin2), (q1, q2), words = spins, holes, table.words
    key, n, n_words, count = source.key, words.shape[1], source.key.size // 2, 0
    first, second = spin1 * n_words, spin2 * n_words
    base = own_hash ^ words[spin1, q1] ^ words[spin2, q2]
    for e in range(doubles.start[q1 * n + q2], doubles.start[q1 * n + q2 + 1]):
        element = doubles.value[e]
        if not abs(element) > limit:
            break
        # Cheap tests first: most candidates fail on the shard or on a filled orbital.
        p1, p2 = np.int64(doubles.create[e, 0]), np.int64(doubles.create[e, 1])
        hash_value = base ^ words[spin1, p1] ^ words[spin2, p2]
        if hash_value >> shift != shard or source.filled[spin1, p1] or source.filled[spin2, p2]:
            continue
        # Two spins move past their own electrons only: the product of the signs of both moves.
        sign = move_sign(source, spin1, p1, q1) * move_sign(source, spin2, p2, q2)
        if spin1 == spin2:
            # The first electron's move changes how many the second one passes.
            crossed = ((p1 > p2) != (p1 > q2)) != ((q1 > p2) != (q1 > q2))
            sign *= 1 - 2 * crossed
        # As with single excitations: there and back.
        turn(key, first, q1)
        turn(key, first, p1)
        turn(key, second, q2)
        turn(key, second, p2)
        count += put(table, key, hash_value, term_of(element, sign, weight, mode), mode)
        turn(key, first, q1)
        turn(key, first, p1)
        turn(key, second, q2)
        turn(key, second, p2)
    return count


@jit
def collect(shard: Any, visit: Any, table: Any, count: int, cursor: Any, source: Any) -> int:
    """Determinants of a shard that couple to members i of a `Visit` by |H_ai| > limits[i].

    `shard` is its number, and b where there are 2^b. Determinants go into a table that holds `count` of them;
    how many it holds then. The members are not left out. Goes on at `cursor`: a member, and how many of its
    steps are done, each the singles of an electron or the doubles of two. Where a step does not fit the
    table, it ends with the cursor there. `source` is scratch.
    """
    # Steps are numbered in a fixed order, so that a visit that ended for want of slots goes on at
    # the same step in a larger table. Invariant: a step adds at most n determinants (singles), or
    # as many as its pair has (doubles), and begins only with so many free slots below FULLEST.
    members, weights, mode, limits, tables, _ = visit
    words, max_filled = table.words, np.int64(FULLEST * len(table.keys))
    n, number, shift = words.shape[1], np.uint64(shard[0]), np.uint64(64 - shard[1])
    for i in range(cursor[0], len(members)):
        weight, step = weights[i], 0
        if abs(weight) == 0.0:
            continue
        set_source(source, members[i])
        # Invariant: bits >= 1 (see `shards.by_shards`), as a shift by 64 bits has no defined result.
        filters = Filters(number, shift, mode, limits[i], weight, hash_of(members[i], words))
        for spin in range(2):
            excitations = tables.alpha if spin == 0 else tables.beta
            for k in range(source.counts[spin]):
                step += 1
                if step > cursor[1]:
                    if count + n > max_filled:
                        cursor[0], cursor[1] = i, step - 1
                        return count
                    count += add_singles(source, spin, k, filters, excitations, table)
            # Pairs of electrons: alpha-alpha, alpha-beta, beta-beta. Within a spin each pair is
            # taken once, q1 below q2.
            for other in range(spin, 2):
                doubles = excitations.doubles if spin == other else tables.opposite
                for k in range(source.counts[spin]):
                    q1 = source.orbitals[spin, k]
                    for j in range(k + 1 if spin == other else 0, source.counts[other]):
                        q2 = source.orbitals[other, j]
                        step += 1
                        if step <= cursor[1]:
                            continue
                        if count + doubles.start[q1 * n + q2 + 1] - doubles.start[q1 * n + q2] > max_filled:
                            cursor[0], cursor[1] = i, step - 1
                            return count
                        count += add_doubles(source, (spin, other), (q1, q2), filters, doubles, table)
        cursor[1] = 0
    cursor[0] = len(members)
    return count


@jit
def energy_of(source: Any, energies: Any) -> float:
    """The energy of a determinant, without the core's."""
    # H_aa = sum_p h_pp + sum of pairs of one spin of [(pp|rr) - (pr|rp)] + sum of pairs of two
    # spins of (pp|rr); the tables `within` hold the difference.
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
    """Put distinct members into an empty table that is large enough."""
    for i in range(len(members)):
        keys[-1 - find(keys, members[i], hash_of(members[i], words))] = members[i]


@jit
def outside(keys: Any, members: Any, words: Any, chosen: Any) -> int:
    """The slots of a table whose determinants are not among the members; how many there are."""
    count = 0
    for slot in range(len(keys)):
        if not is_free(keys, slot) and find(members, keys[slot], hash_of(keys[slot], words)) < 0:
            chosen[count] = slot
            count += 1
    return count


@jit
def correction(table: Any, mode: int, members: Any, energy: float, tables: Any, source: Any) -> Any:
    """The sum of |values|^2 / (energy - H_aa) over what is not among the members, and how many those are.

    Of a table of squares, that of values / (energy - H_aa). With `half`, flips count too.
    """
    # Epstein and Nesbet's second order: sum_a |sum_i H_ai c_i|^2 / (E - H_aa) over the determinants
    # a outside the list. Negative where E is below all H_aa. In Hartree.
    keys, values, _, half = table
    total, count = 0.0, 0
    for slot in range(len(keys)):
        if is_free(keys, slot) or find(members, keys[slot], hash_of(keys[slot], tables.words)) >= 0:
            continue
        set_source(source, keys[slot])
        size = abs(values[slot])
        numerator = values[slot].real if mode == SQUARES else size * size
        times = 2 if half and order_of_spins(keys[slot]) > 0 else 1
        total += times * (numerator / (energy - energy_of(source, tables.energies)))
        count += times
    return total, count

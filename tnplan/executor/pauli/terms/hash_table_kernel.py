"""The numba kernels of one shard of terms in a hash table: splits, meetings, Cliffords, sweeps.

`rows` are the `ShardArrays` of a shard. A term i has the row keys[i]
(W words of x, W of z; columns are contiguous), its coefficient, its frequency and the tag of its row, a
linear hash of 32 bits: that of P Q is the xor of theirs. `slots` is a table of 2^k entries, k at most 32,
with linear probing: 0 is free, else the low 32 bits are i + 1 and the high 32 the tag. Rows are 0 .. n-1, of
which the `n_spare` in `spare` are free: their coefficients are 0, and `where` says DEAD of them.

A step is done in two halves. The first reads terms, writes the branches that they send to other words as a
list (number of the term, value, frequency), and scales the terms. The second takes a list, here or in the
shard that owns its words, and adds each value to its word or makes a term of it. A word receives at most one
value of a list, and lists are taken in a fixed order, so that a result has the same bits in every run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.vector_operations import prefetch
from tnplan.executor.device.cpu.bits_kernel import ONE, count_bits, inline, jit

MIX = np.uint64(0x9E3779B97F4A7C15)
"""The multiplier of Fibonacci hashing, 2^64 over the golden ratio."""
HALF = np.uint64(32)
LOW = np.uint64((1 << 32) - 1)
FREE = np.uint64(0)
DEAD, NONE = np.uint32(0xFFFFFFFF), np.uint32(0xFFFFFFFE)
"""What `where` says of a row that is free, and of one that no list has."""
BLOCK = 64
"""Values of a list whose memory is prefetched together."""


# A word (Pauli string) with bit masks x and z is i^|x & z| X^x Z^z, so that it is Hermitian: bit q
# of x and z tells I, X, Z or Y (both) on qubit q. Its row has W words of x, then W of z. Two words
# anticommute if |x1 & z2| + |z1 & x2| is odd; their product has the masks x1 ^ x2 and z1 ^ z2, and
# a power of i.
# Rotation rule, backwards (Heisenberg picture), with U = exp(-i t G / 2):
#       U^dagger P U = P                       where G and P commute,
#       U^dagger P U = cos(t) P + i sin(t) G P where they anticommute.
# Then G P = i s Q with s = +1 or -1, and the second term is -s sin(t) Q.
@inline
def stirred(value: Any) -> Any:
    """A linear bijection of 64 bits, a round of xorshift."""
    # Marsaglia's xorshift (J. Stat. Softw. 8, 14 (2003)) with shifts 13, 7, 17. Only shifts and
    # xors: it is linear over bits, stirred(a ^ b) = stirred(a) ^ stirred(b). So the tag of a
    # product is the xor of tags, and the tag of Q = G P needs no look at the words of Q.
    value ^= value << np.uint64(13)
    value ^= value >> np.uint64(7)
    return value ^ (value << np.uint64(17))


@jit
def tag_of(row: Any) -> Any:
    """The tag of a row, a linear hash of 32 bits."""
    value = FREE
    for word in row:
        value = stirred(stirred(value ^ word))
    value = stirred(stirred(value))
    return np.uint32((value ^ (value >> HALF)) & LOW)


@jit
def tag_all(keys: Any, n: int, tags: Any) -> None:
    """Write the tags of the first `n` rows."""
    for i in range(n):
        tags[i] = tag_of(keys[i])


@inline
def home(tag: Any, mask: Any) -> Any:
    """Where the search for a tag begins; `mask` is one less than the entries of the table."""
    # Fibonacci hashing (Knuth, The Art of Computer Programming 3, section 6.4) spreads the tags over the
    # table. Invariant: the table has at most 2^32 entries, as 32 bits are left after the shift.
    return ((np.uint64(tag) * MIX) >> HALF) & mask


@inline
def entry(tag: Any, i: Any) -> Any:
    """What stands in the table for term i."""
    # Never 0, as i + 1 is at least 1: 0 marks a free entry.
    return np.uint64(tag) << HALF | np.uint64(i + 1)


@inline
def term(slot: Any) -> Any:
    """The term that an entry stands for."""
    return np.int64(slot & LOW) - 1


@inline
def tag_at(slots: Any, tag: Any, mask: Any) -> Any:
    """The first slot of an entry with this tag, or the free slot behind those that may have it."""
    # Linear probing. Invariant: at least half of the entries are free (SLOTS_A_TERM), so that the
    # search ends, mostly within a line of memory.
    at = home(tag, mask)
    while slots[at] != FREE and slots[at] >> HALF != np.uint64(tag):
        at = (at + ONE) & mask
    return at


@jit
def slot_of(slots: Any, tag: Any, i: Any) -> Any:
    """The slot of term i."""
    mask = np.uint64(slots.size - 1)
    at = home(tag, mask)
    while slots[at] != entry(tag, i):
        at = (at + ONE) & mask
    return at


@jit
def rebuild(tags: Any, where: Any, n: int, slots: Any) -> None:
    """Enter the rows 0 .. n-1 that are terms, which are distinct, into a table."""
    # Rows are known to be distinct, so that tags need not be compared.
    slots[:] = FREE
    mask = np.uint64(slots.size - 1)
    for i in range(n):
        if where[i] == DEAD:
            continue
        at = home(tags[i], mask)
        while slots[at] != FREE:
            at = (at + ONE) & mask
        slots[at] = entry(tags[i], i)


@jit
def anticommuting(keys: Any, n: int, generator: Any, hits: Any, columns: Any) -> int:
    """Write the numbers of the terms that anticommute with `generator` to `hits`; return how many.

    Reads those columns of `keys` alone that `generator` looks at: z where it has x, and x where it has z.
    """
    # Columns of `keys` are contiguous: each is read in order, and most generators look at one or two of them.
    words = generator.size // 2
    used = 0
    for w in range(generator.size):
        if generator[w] != FREE:
            # x of the generator looks at z of the row, and z at x: column w + words, modulo 2
            # words. generator[column - words] is its other half: where column < words the index is
            # negative, and counts from the end as in Python.
            columns[used] = (w + words) % generator.size
            used += 1
    count = 0
    if used == 1:
        a, mask = keys[:, columns[0]], generator[columns[0] - words]
        # Without a branch, whose outcome is random: each number is written, and stays where the
        # parity is odd. Invariant: `hits` has at least n elements, and count <= i.
        for i in range(n):
            hits[count] = i
            count += count_bits(a[i] & mask) & 1
    elif used == 2:
        a, mask = keys[:, columns[0]], generator[columns[0] - words]
        b, other = keys[:, columns[1]], generator[columns[1] - words]
        for i in range(n):
            hits[count] = i
            count += count_bits((a[i] & mask) ^ (b[i] & other)) & 1
    # Up to 128 qubits, four columns are read without the inner loop.
    elif generator.size == 4:
        x0, x1, z0, z1 = generator[0], generator[1], generator[2], generator[3]
        for i in range(n):
            both = (keys[i, 0] & z0) ^ (keys[i, 1] & z1) ^ (keys[i, 2] & x0) ^ (keys[i, 3] & x1)
            hits[count] = i
            count += count_bits(both) & 1
    else:
        for i in range(n):
            both = FREE
            for u in range(used):
                both ^= keys[i, columns[u]] & generator[columns[u] - words]
            hits[count] = i
            count += count_bits(both) & 1
    return count


@jit
def unite(keys: Any, n: int, union: Any) -> None:
    """The bits that any row has."""
    # The union is never made smaller when terms go: it may be too large, which costs time and no correctness.
    for w in range(union.size):
        bits = FREE
        for i in range(n):
            bits |= keys[i, w]
        union[w] = bits


@inline
def may_split(union: Any, generator: Any) -> Any:
    """Whether a row with bits of `union` may anticommute with `generator`."""
    words = generator.size // 2
    shared = FREE
    for w in range(words):
        shared |= (union[w] & generator[words + w]) | (union[words + w] & generator[w])
    return shared != FREE


@jit
def split(rows: Any, n_hits: int, follow: bool, rotation: Any, cut: float) -> Any:
    """P becomes cosine P - s sine Q with G P = i s Q, for the terms of `hits`: scale them, list -s sine Q.

    `rotation` are the generator, the cosine and the sine. Returns the branches listed, and the L1 norm,
    squares and number of those below `cut`, which are not, but zeros. `where` has the positions of terms in
    the list. Frequencies are counted where they are followed.
    """
    keys, coefficients, _, frequencies, _, where, _, _, hits, senders, values, counts, _, used = rows
    generator, cosine, sine = rotation
    words = generator.size // 2
    # G P = i^(|gx & gz| + |x & z| - |qx & qz|) (-1)^|gz & x| Q, with q = g ^ p: the factors of i that make
    # words Hermitian, and a sign for each Z of G that passes an X of P. The power is odd, as G and P
    # anticommute: 1 stands for s = +1, 3 for s = -1. Words of 64 qubits that G leaves alone cancel.
    n_used, generator_power = 0, np.int64(0)
    for w in range(words):
        if generator[w] | generator[words + w] != FREE:
            generator_power += count_bits(generator[w] & generator[words + w])
            used[n_used] = w
            n_used += 1
    n = dropped = 0
    l1 = squares = 0.0
    for h in range(n_hits):
        i = hits[h]
        # The coefficient before the rotation gives both terms: read before it is scaled.
        branch = sine * coefficients[i]
        coefficients[i] *= cosine
        if follow:
            frequencies[i] += 1
        # The ledger bounds the error by the L1 norm of what is dropped, as a word has operator norm 1.
        if abs(branch) < cut:
            l1, squares = l1 + abs(branch), squares + abs(branch) ** 2
            dropped += int(branch != 0)
            continue
        power = generator_power
        for u in range(n_used):
            w = used[u]
            x, z = keys[i, w], keys[i, words + w]
            power += count_bits(x & z) - count_bits((x ^ generator[w]) & (z ^ generator[words + w]))
            power += 2 * count_bits(generator[words + w] & x)
        senders[n], where[i] = i, n
        values[n] = -branch if power & 3 == 1 else branch
        if follow:
            counts[n] = frequencies[i]
        n += 1
    return n, l1, squares, dropped


@inline
def is_product(row: Any, j: Any, source: Any, i: Any, generator: Any) -> Any:
    """Whether row j is the product of row i of `source` with `generator`."""
    different = FREE
    for w in range(generator.size):
        different |= row[j, w] ^ source[i, w] ^ generator[w]
    return different == FREE


@jit
def merge_branches(rows: Any, numbers: Any, branches: Any, is_own: bool, follow: bool) -> Any:
    """Add each value of `Branches` to its word; make terms of words not there.

    `numbers` are those of rows, of spare ones, and of hits. Writes where each value went to `targets`, and
    new terms behind these first ones of `hits`. Returns the rows, the spare ones, the number of new terms,
    and of values that met a term. `is_own`: the list is this shard's newest, so that of two terms that send
    branches to each other the first finds the other for both.

    Goes in blocks, whose entries and rows are prefetched, so that the processor waits for many lines of
    memory at once.
    """
    # Branches go from P to Q = G P and back: if both are terms, P's branch meets Q and Q's meets P.
    # Where both are in this list (`is_own`), where[i] is the position of term i's branch, so that the
    # first of the two serves both; the second sees that where[i] is no longer its position.
    keys, coefficients, tags, frequencies, slots, where, spare, union, hits = rows[:9]
    sources, source_tags, senders, values, counts, generator = branches
    targets, (n, n_spare, n_hits) = rows.targets, numbers
    mask, generator_tag = np.uint64(slots.size - 1), tag_of(generator)
    fresh = merged = 0
    for begin in range(0, senders.size, BLOCK):
        end = min(senders.size, begin + BLOCK)
        look_ahead(rows, branches, begin, end, generator_tag, is_own)
        for b in range(begin, end):
            i = np.int64(senders[b])
            if is_own and np.int64(where[i]) != b:
                continue
            # The tag of the product, by linearity.
            tag = source_tags[i] ^ generator_tag
            at = tag_at(slots, tag, mask)
            # Equal tags need not be equal words: rows are compared.
            while slots[at] != FREE and (
                slots[at] >> HALF != np.uint64(tag)
                or not is_product(keys, term(slots[at]), sources, i, generator)
            ):
                at = (at + ONE) & mask
            # The word is a term: add the value, and the value of the branch back, if it is in this list.
            if slots[at] != FREE:
                targets[b] = j = term(slots[at])
                add(rows, j, branches, b, follow)
                merged += 1
                back = np.int64(where[j])
                if is_own and back < senders.size and np.int64(senders[back]) == j:
                    targets[back], where[j] = i, NONE
                    add(rows, i, branches, back, follow)
                    merged += 1
                continue
            # A new term takes a spare row, or one behind the last: then n_spare goes below 0 and
            # counts these. Invariant: the arrays have as many free rows as the list has values.
            n_spare -= 1
            j = np.int64(spare[n_spare]) if n_spare >= 0 else n - 1 - n_spare
            for w in range(generator.size):
                keys[j, w] = word = sources[i, w] ^ generator[w]
                union[w] |= word
            coefficients[j], tags[j], where[j] = values[b], tag, NONE
            if follow:
                frequencies[j] = counts[b]
            # `at` is the free entry where the search ended. Invariant: no entry has moved since then.
            slots[at] = entry(tag, j)
            targets[b] = hits[n_hits + fresh] = j
            fresh += 1
    return n - min(n_spare, 0), max(n_spare, 0), fresh, merged


@jit
def meet(rows: Any, branches: Any, follow: bool) -> int:
    """Add each value of `Branches` whose word is there to it; the others move to the front of the list.

    Returns how many those are.
    """
    keys, slots = rows.keys, rows.slots
    sources, source_tags, senders, values, counts, generator = branches
    mask, generator_tag = np.uint64(slots.size - 1), tag_of(generator)
    # Invariant: n_others <= b, so that nothing is overwritten that is still to be read.
    n_others = 0
    for b in range(senders.size):
        i = np.int64(senders[b])
        tag = source_tags[i] ^ generator_tag
        at = tag_at(slots, tag, mask)
        while slots[at] != FREE and (
            slots[at] >> HALF != np.uint64(tag)
            or not is_product(keys, term(slots[at]), sources, i, generator)
        ):
            at = (at + ONE) & mask
        if slots[at] != FREE:
            add(rows, term(slots[at]), branches, b, follow)
        else:
            senders[n_others], values[n_others], counts[n_others] = senders[b], values[b], counts[b]
            n_others += 1
    return n_others


@jit
def look_ahead(rows: Any, branches: Any, begin: int, end: int, generator_tag: Any, is_own: bool) -> None:
    """Ask for the entries and the rows that values begin .. end-1 of a list will meet."""
    # A table of millions of terms lies in main memory: each access takes about as long as hundreds
    # of instructions. A block asks for all its entries first, then for the rows that they name; the
    # accesses overlap. Nothing is changed here.
    keys, coefficients, slots, where = rows.keys, rows.coefficients, rows.slots, rows.where
    source_tags, senders = branches.tags, branches.senders
    mask = np.uint64(slots.size - 1)
    for b in range(begin, end):
        prefetch(slots, np.int64(home(source_tags[senders[b]] ^ generator_tag, mask)))
    for b in range(begin, end):
        if is_own and np.int64(where[senders[b]]) != b:
            continue
        slot = slots[tag_at(slots, source_tags[senders[b]] ^ generator_tag, mask)]
        if slot != FREE:
            j = term(slot)
            prefetch(coefficients, j)
            prefetch(where, j)
            for w in range(keys.shape[1]):
                # `keys` as one axis: column w begins at w times the capacity.
                prefetch(keys, w * keys.shape[0] + j)


@inline
def add(rows: Any, j: Any, branches: Any, b: Any, follow: bool) -> None:
    """Add value b of a list to term j."""
    rows.coefficients[j] += branches.values[b]
    if follow:
        rows.frequencies[j] = min(rows.frequencies[j], branches.counts[b])


@inline
def letters(keys: Any, i: Any) -> Any:
    """On how many qubits a row acts, and how many letters X and Y it has."""
    words = keys.shape[1] // 2
    weight = xy = 0
    for w in range(words):
        weight += count_bits(keys[i, w] | keys[i, words + w])
        xy += count_bits(keys[i, w])
    return weight, xy


@jit
def sweep(rows: Any, n: int, n_spare: int, limits: Any, follow: bool, changed: Any) -> Any:
    """Remove terms that are zero or past the `TermLimits`; that of frequency where they are followed.

    `changed` are two numbers. Looks at all terms where the second is negative, else at so many of `hits`, of
    which as many as the first says have the letters that they had. Returns the spare rows, and the L1 norm,
    squares and number of the terms removed that were not zero.
    """
    # After a sweep, only terms that a rotation touched can have become too small or too frequent; the letters
    # of the terms that it split have not changed, those of new terms have to be looked at.
    keys, coefficients, tags, frequencies, slots, where, spare, _, hits = rows[:9]
    l1 = squares = 0.0
    dropped, (n_hits, n_changed) = 0, changed
    is_full = n_changed < 0
    mask, n_dead = np.uint64(slots.size - 1), n_spare
    looked = n if is_full else n_changed
    for begin in range(0, looked, BLOCK):
        for k in range(begin, min(looked, begin + BLOCK)):
            i = k if is_full else np.int64(hits[k])
            size = np.float64(abs(coefficients[i]))
            is_dropped = size < limits.merged_cut or size == 0
            is_dropped = is_dropped or (follow and frequencies[i] > limits.max_frequency)
            if limits.has_letters and not is_dropped and (is_full or k >= n_hits):
                weight, xy = letters(keys, i)
                is_dropped = weight > limits.max_weight or xy > limits.max_xy
            # A row may be named twice in `hits`: it goes once.
            if is_dropped and where[i] != DEAD:
                l1, squares, dropped = l1 + size, squares + size**2, dropped + int(size > 0)
                coefficients[i], where[i] = 0, DEAD
                prefetch(slots, np.int64(home(tags[i], mask)))
                spare[n_dead] = i
                n_dead += 1
        # Second half of the block: the entries prefetched above have arrived.
        for k in range(n_spare, n_dead):
            i = np.int64(spare[k])
            free(slots, slot_of(slots, tags[i], i))
            for w in range(keys.shape[1]):
                keys[i, w] = FREE
        n_spare = n_dead
    return n_spare, l1, squares, dropped


@jit
def free(slots: Any, hole: Any) -> None:
    """Free an entry; entries behind it move up so that no search meets a free one before its row."""
    # Deletion from a table with linear probing (Knuth, section 6.4, algorithm R): an entry behind the hole
    # moves into it unless its home lies between them. So no marks of deleted entries are needed.
    mask = np.uint64(slots.size - 1)
    at = (hole + ONE) & mask
    while slots[at] != FREE:
        start = home(slots[at] >> HALF, mask)
        if ((at - start) & mask) >= ((at - hole) & mask):
            slots[hole] = slots[at]
            hole = at
        at = (at + ONE) & mask
    slots[hole] = FREE


@jit
def close_gaps(rows: Any, n: int, n_spare: int) -> int:
    """Put the last terms into the spare rows; return the number of terms."""
    # Invariant: after it rows 0 .. left-1 are terms, with no gap. The order of terms changes, in
    # the same way in every run.
    keys, coefficients, tags, frequencies, slots, where, spare = rows[:7]
    n_terms, last = n - n_spare, n - 1
    for k in range(n_spare):
        i = np.int64(spare[k])
        if i >= n_terms:
            continue
        while where[last] == DEAD:
            last -= 1
        slots[slot_of(slots, tags[last], last)] = entry(tags[last], i)
        for w in range(keys.shape[1]):
            keys[i, w] = keys[last, w]
        coefficients[i], tags[i], frequencies[i] = coefficients[last], tags[last], frequencies[last]
        where[i] = NONE
        last -= 1
    return n_terms

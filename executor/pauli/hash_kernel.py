"""The numba kernels of one shard of terms in a hash table: splits, meetings, Cliffords, sweeps.

Imported lazily (numba loads slowly). A term i has the row keys[i] (W words of x, W of z; columns are
contiguous), its coefficient and its frequency; terms are 0 .. n-1. `slots` is a table of 2^k entries, k at
most 32, with linear probing: 0 is free, else the low 32 bits are i + 1 and the high 32 the hash, whose last k
bits are the entry's home.

A step is done in two halves. The first reads terms, writes the branches that they send to other words as a
list (index of the term, value, frequency), and scales the terms. The second takes a list, here or in the
shard that owns its words, and adds each value to its word or appends the word. A word receives at most one
value of a list, and lists are taken in a fixed order, so that a result has the same bits in every run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from executor.device.bits_kernel import ONE, count_bits, inline, jit

MIX = np.uint64(0x9E3779B97F4A7C15)
STIR = np.uint64(0xBF58476D1CE4E5B9)
HALF = np.uint64(32)
LOW = np.uint64((1 << 32) - 1)
FREE = np.uint64(0)
BLOCK = 64


@inline
def hash_row(row: Any) -> Any:
    """A 32-bit hash of a row."""
    value = MIX
    for w in range(row.size):
        value = (value ^ row[w]) * STIR
        value ^= value >> HALF
    return (value * MIX) >> HALF


@inline
def same(a: Any, b: Any) -> Any:
    """Whether two rows are equal."""
    different = FREE
    for w in range(a.size):
        different |= a[w] ^ b[w]
    return different == FREE


@inline
def entry(value: Any, i: Any) -> Any:
    """What stands in the table for term i, whose row has the hash `value`."""
    return value << HALF | np.uint64(i + 1)


@jit
def find(keys: Any, slots: Any, row: Any, value: Any) -> Any:
    """The place in `slots` of `row`, whose hash is `value`, or the free one where it belongs."""
    mask = np.uint64(slots.size - 1)
    at = value & mask
    while slots[at] != FREE:
        if slots[at] >> HALF == value and same(keys[np.int64(slots[at] & LOW) - 1], row):
            break
        at = (at + ONE) & mask
    return at


@jit
def place(keys: Any, slots: Any, i: Any) -> Any:
    """The place in `slots` of term i."""
    value = hash_row(keys[i])
    mask = np.uint64(slots.size - 1)
    at = value & mask
    while slots[at] != entry(value, i):
        at = (at + ONE) & mask
    return at


@jit
def rebuild(keys: Any, n: int, slots: Any) -> None:
    """Enter all terms, which are distinct, into a table."""
    slots[:] = FREE
    mask = np.uint64(slots.size - 1)
    for i in range(n):
        value = hash_row(keys[i])
        at = value & mask
        while slots[at] != FREE:
            at = (at + ONE) & mask
        slots[at] = entry(value, i)


@jit
def anticommuting(keys: Any, n: int, generator: Any, hits: Any) -> int:
    """Write the numbers of the terms that anticommute with `generator` to `hits`; return how many.

    Reads those columns of `keys` alone that `generator` looks at: z where it has x, and x where it has z.
    """
    words = generator.size // 2
    columns, masks = np.zeros(generator.size, np.int64), np.zeros(generator.size, np.uint64)
    used = 0
    for w in range(generator.size):
        if generator[w] != FREE:
            columns[used], masks[used] = (w + words) % generator.size, generator[w]
            used += 1
    count = 0
    if used == 1:
        a, mask = keys[:, columns[0]], masks[0]
        for i in range(n):
            hits[count] = i
            count += count_bits(a[i] & mask) & 1
    elif used == 2:
        a, b, mask, other = keys[:, columns[0]], keys[:, columns[1]], masks[0], masks[1]
        for i in range(n):
            hits[count] = i
            count += count_bits((a[i] & mask) ^ (b[i] & other)) & 1
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
                both ^= keys[i, columns[u]] & masks[u]
            hits[count] = i
            count += count_bits(both) & 1
    return count


@jit
def split(
    keys: Any, coefficients: Any, frequencies: Any, generator: Any, cosine: float, sine: float, cut: float,
    hits: Any, n_hits: int, index: Any, values: Any, counts: Any,
) -> Any:  # fmt: skip
    """P becomes cosine P - s sine Q with G P = i s Q, for the terms of `hits`: scale them, list -s sine Q.

    Returns the branches listed, and the L1 norm and squares of those below `cut`, which are not.
    """
    words = generator.size // 2
    own = 0
    for w in range(words):
        own += count_bits(generator[w] & generator[words + w])
    n = 0
    l1 = squares = 0.0
    for h in range(n_hits):
        i = hits[h]
        branch = sine * coefficients[i]
        coefficients[i] *= cosine
        frequencies[i] += 1
        if abs(branch) < cut:
            l1, squares = l1 + abs(branch), squares + abs(branch) ** 2
            continue
        power = own
        for w in range(words):
            x, z = keys[i, w], keys[i, words + w]
            power += count_bits(x & z) - count_bits((x ^ generator[w]) & (z ^ generator[words + w]))
            power += 2 * count_bits(generator[words + w] & x)
        index[n] = i
        values[n] = -branch if power & 3 == 1 else branch
        counts[n] = frequencies[i]
        n += 1
    return n, l1, squares


@jit
def local_word(row: Any, qubits: Any) -> Any:
    """The number of the local word that a row has on `qubits`."""
    words = row.size // 2
    word = np.int64(0)
    for j in range(qubits.size):
        w, bit = qubits[j] >> 6, np.uint64(qubits[j] & 63)
        word |= np.int64((row[w] >> bit) & ONE) << (2 * j)
        word |= np.int64((row[words + w] >> bit) & ONE) << (2 * j + 1)
    return word


@jit
def clifford(keys: Any, coefficients: Any, n: int, images: Any, powers: Any, touched: Any) -> None:
    """Every row becomes the product of the images of its factors; see `frame.Layer`."""
    words = touched.size
    out = np.empty(2 * words, np.uint64)
    for i in range(n):
        power = np.int64(0)
        for w in range(words):
            out[w], out[words + w] = keys[i, w] & ~touched[w], keys[i, words + w] & ~touched[w]
            power += count_bits(keys[i, w] & keys[i, words + w] & touched[w])
        for w in range(words):
            rest = (keys[i, w] | keys[i, words + w]) & touched[w]
            while rest != FREE:
                bit = count_bits((rest & (~rest + ONE)) - ONE)
                rest &= rest - ONE
                for part in range(2):
                    if (keys[i, part * words + w] >> np.uint64(bit)) & ONE:
                        row = 64 * (part * words + w) + bit
                        power += powers[row] + multiply(out, images[row])
        for w in range(words):
            keys[i, w], keys[i, words + w] = out[w], out[words + w]
        if power & 2:
            coefficients[i] = -coefficients[i]


@jit
def multiply(row: Any, other: Any) -> int:
    """Multiply a word by another in place; the power of i that the product has."""
    words = row.size // 2
    power = 0
    for w in range(words):
        power += count_bits(row[w] & row[words + w]) + count_bits(other[w] & other[words + w])
        power += 2 * count_bits(row[words + w] & other[w])
        row[w] ^= other[w]
        row[words + w] ^= other[words + w]
        power -= count_bits(row[w] & row[words + w])
    return power


@jit
def branches(
    keys: Any, coefficients: Any, frequencies: Any, n: int, qubits: Any, weights: Any, cut: float,
    index: Any, values: Any, counts: Any,
) -> Any:  # fmt: skip
    """List weights[a] times each term of local word a with another than 0.

    Returns the branches listed, and the L1 norm and number of those below `cut`, which are not.
    """
    listed = dropped = 0
    l1 = 0.0
    for i in range(n):
        weight = weights[local_word(keys[i], qubits)]
        if weight == 0:
            continue
        branch = weight * coefficients[i]
        if abs(branch) < cut:
            l1, dropped = l1 + abs(branch), dropped + 1
            continue
        index[listed], values[listed], counts[listed] = i, branch, frequencies[i]
        listed += 1
    return listed, l1, dropped


@jit
def scale(keys: Any, coefficients: Any, n: int, qubits: Any, factors: Any, splits: Any) -> int:
    """Multiply each term by the factor of its local word; return how many have a word that splits."""
    count = 0
    for i in range(n):
        word = local_word(keys[i], qubits)
        coefficients[i] *= factors[word]
        count += splits[word]
    return count


@jit
def meet(
    keys: Any, coefficients: Any, frequencies: Any, n: int, slots: Any, sources: Any, index: Any,
    values: Any, counts: Any, generator: Any, listed: int, targets: Any,
) -> Any:  # fmt: skip
    """Add each value of a list to the word sources[index] times `generator`; append the words not there.

    Writes where each went to `targets`, and returns the number of terms. Goes in blocks, whose entries of the
    table are all read once ahead, so that the processor waits for many places of memory at once.
    """
    words = generator.size
    rows = np.empty((BLOCK, words), np.uint64)
    hashes, ahead = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    mask = np.uint64(slots.size - 1)
    for begin in range(0, listed, BLOCK):
        size = min(BLOCK, listed - begin)
        for k in range(size):
            for w in range(words):
                rows[k, w] = sources[index[begin + k], w] ^ generator[w]
            hashes[k] = hash_row(rows[k])
        for k in range(size):
            ahead[k] = slots[hashes[k] & mask]
        for k in range(size):
            b, at = begin + k, find(keys, slots, rows[k], hashes[k])
            if slots[at] != FREE:
                targets[b] = j = np.int64(slots[at] & LOW) - 1
                coefficients[j] += values[b]
                frequencies[j] = min(frequencies[j], counts[b])
                continue
            for w in range(words):
                keys[n, w] = rows[k, w]
            coefficients[n], frequencies[n] = values[b], counts[b]
            slots[at] = entry(hashes[k], n)
            targets[b] = n
            n += 1
    return n


@jit
def sweep(
    keys: Any, coefficients: Any, frequencies: Any, n: int, slots: Any, cut: float, max_weight: int,
    max_xy: int, max_frequency: int, has_letters: bool, touched: Any, n_touched: int, first: int,
) -> Any:  # fmt: skip
    """Remove terms that are zero or past a limit; the last term takes the place of one removed.

    Looks at the terms from `first` on and at those of `touched`, which rise and are below. Returns the
    number of terms, and the L1 norm, squares and number of those removed that were not zero.
    """
    words = keys.shape[1] // 2
    l1 = squares = 0.0
    dropped = 0
    last, total = n - 1, n - first + n_touched
    for k in range(total):
        i = last - k if last - k >= first else touched[total - 1 - k]
        size = np.float64(abs(coefficients[i]))
        gone = size < cut or size == 0 or frequencies[i] > max_frequency
        if has_letters and not gone:
            weight = xy = 0
            for w in range(words):
                weight += count_bits(keys[i, w] | keys[i, words + w])
                xy += count_bits(keys[i, w])
            gone = weight > max_weight or xy > max_xy
        if gone:
            l1, squares, dropped = l1 + size, squares + size**2, dropped + int(size > 0)
            n -= 1
            remove(keys, coefficients, frequencies, n, slots, i)
    return n, l1, squares, dropped


@jit
def remove(keys: Any, coefficients: Any, frequencies: Any, last: int, slots: Any, i: int) -> None:
    """Put the last term in the place of term i."""
    free(slots, place(keys, slots, i))
    if i != last:
        at = place(keys, slots, last)
        slots[at] = entry(slots[at] >> HALF, i)
        for w in range(keys.shape[1]):
            keys[i, w] = keys[last, w]
        coefficients[i], frequencies[i] = coefficients[last], frequencies[last]


@jit
def free(slots: Any, hole: Any) -> None:
    """Free an entry; entries behind it move up so that no search meets a free one before its row."""
    mask = np.uint64(slots.size - 1)
    at = (hole + ONE) & mask
    while slots[at] != FREE:
        home = (slots[at] >> HALF) & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            slots[hole] = slots[at]
            hole = at
        at = (at + ONE) & mask
    slots[hole] = FREE

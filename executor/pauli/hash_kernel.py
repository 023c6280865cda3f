"""The numba kernels of terms in a hash table: scans, rotations, Cliffords, transfers, sweeps.

Imported lazily (numba loads slowly). A term i has the row keys[i] (W words of x, W of z), its coefficient and
its frequency; terms are 0 .. n-1. `slots` is a table of 2^k entries with linear probing: 0 is free, else the
low 40 bits are i + 1 and the high 24 the top of the hash; the hash's low bits are the entry's home.
Everything runs in the order of the terms, so that a result is the same in every run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from executor.device.bits_kernel import ONE, count_bits, inline, jit

MIX = np.uint64(0x9E3779B97F4A7C15)
STIR = np.uint64(0xBF58476D1CE4E5B9)
SHIFT = np.uint64(40)
LOW = np.uint64((1 << 40) - 1)
HALF = np.uint64(32)
FREE = np.uint64(0)

@inline
def hash_row(row: Any) -> Any:
    """A 64-bit hash of a row."""
    value = MIX
    for w in range(row.size):
        value = (value ^ row[w]) * STIR
        value ^= value >> HALF
    value *= MIX
    return value ^ (value >> HALF)


@inline
def same(a: Any, b: Any) -> Any:
    """Whether two rows are equal."""
    different = FREE
    for w in range(a.size):
        different |= a[w] ^ b[w]
    return different == FREE


@jit
def find(keys: Any, slots: Any, row: Any, value: Any) -> Any:
    """The entry of `slots` that holds `row`, whose hash is `value`, or the free one where it belongs."""
    mask = np.uint64(slots.size - 1)
    at = value & mask
    while True:
        slot = slots[at]
        if slot == FREE:
            return at
        if slot >> SHIFT == value >> SHIFT and same(keys[np.int64(slot & LOW) - 1], row):
            return at
        at = (at + ONE) & mask


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
        slots[at] = (value >> SHIFT) << SHIFT | np.uint64(i + 1)


@jit
def anticommuting(keys: Any, n: int, generator: Any, hits: Any) -> int:
    """Write the numbers of the terms that anticommute with `generator` to `hits`; return how many."""
    words = generator.size // 2
    used = np.empty(words, np.int64)
    n_used = 0
    for w in range(words):
        if generator[w] | generator[words + w]:
            used[n_used] = w
            n_used += 1
    count = 0
    for i in range(n):
        both = FREE
        for u in range(n_used):
            w = used[u]
            both ^= (keys[i, w] & generator[words + w]) ^ (keys[i, words + w] & generator[w])
        hits[count] = i
        count += count_bits(both) & 1
    return count


@jit
def rotate(
    keys: Any, coefficients: Any, frequencies: Any, n: int, slots: Any, generator: Any, cosine: float,
    sine: float, cut: float, hits: Any, n_hits: int,
) -> Any:  # fmt: skip
    """P becomes cosine P - s sine Q with G P = i s Q, for the anticommuting terms; in place where Q exists.

    A contribution to Q, the branch, is dropped below `cut`. Returns the number of terms, pairs that met, and
    the L1 norm, squares and number of dropped branches, among which no word occurs twice.
    """
    words = generator.size // 2
    row = np.empty(2 * words, np.uint64)
    own = 0
    for w in range(words):
        own += count_bits(generator[w] & generator[words + w])
    met = dropped = 0
    l1 = squares = 0.0
    for h in range(n_hits):
        i = hits[h]
        power = own
        for w in range(words):
            x, z = keys[i, w], keys[i, words + w]
            row[w], row[words + w] = x ^ generator[w], z ^ generator[words + w]
            power += count_bits(x & z) - count_bits(row[w] & row[words + w])
            power += 2 * count_bits(generator[words + w] & x)
        turned = -sine if power & 3 == 1 else sine
        value = hash_row(row)
        at = find(keys, slots, row, value)
        branch = turned * coefficients[i]
        if slots[at] != FREE:
            j = np.int64(slots[at] & LOW) - 1
            if j < i:
                continue
            met += 1
            back = -turned * coefficients[j]
            coefficients[i] *= cosine
            coefficients[j] *= cosine
            if abs(branch) >= cut:
                coefficients[j] += branch
            else:
                l1, squares, dropped = l1 + abs(branch), squares + abs(branch) ** 2, dropped + 1
            if abs(back) >= cut:
                coefficients[i] += back
            else:
                l1, squares, dropped = l1 + abs(back), squares + abs(back) ** 2, dropped + 1
            frequencies[i] = frequencies[j] = min(frequencies[i], frequencies[j]) + 1
            continue
        coefficients[i] *= cosine
        frequencies[i] += 1
        if abs(branch) >= cut:
            keys[n] = row
            coefficients[n] = branch
            frequencies[n] = frequencies[i]
            slots[at] = (value >> SHIFT) << SHIFT | np.uint64(n + 1)
            n += 1
        else:
            l1, squares, dropped = l1 + abs(branch), squares + abs(branch) ** 2, dropped + 1
    return n, met, l1, squares, dropped


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
def set_local(row: Any, qubits: Any, word: int) -> None:
    """Put a local word on `qubits` of a row."""
    words = row.size // 2
    for j in range(qubits.size):
        w, bit = qubits[j] >> 6, np.uint64(qubits[j] & 63)
        row[w] = row[w] & ~(ONE << bit) | (np.uint64(word >> (2 * j) & 1) << bit)
        row[words + w] = row[words + w] & ~(ONE << bit) | (np.uint64(word >> (2 * j + 1) & 1) << bit)


@jit
def clifford(
    keys: Any, coefficients: Any, n: int, begin: Any, qubits: Any, base: Any, images: Any, signs: Any
) -> None:
    """Apply gates one after another in one pass; gate g has qubits[begin[g]:begin[g+1]], images[base[g]:]."""
    for i in range(n):
        for g in range(begin.size - 1):
            on = qubits[begin[g] : begin[g + 1]]
            at = base[g] + local_word(keys[i], on)
            set_local(keys[i], on, images[at])
            coefficients[i] *= signs[at]


@jit
def scale(keys: Any, coefficients: Any, n: int, qubits: Any, factors: Any) -> None:
    """Multiply each term by the factor of its local word."""
    for i in range(n):
        coefficients[i] *= factors[local_word(keys[i], qubits)]


@jit
def count_images(keys: Any, n: int, qubits: Any, counts: Any) -> int:
    """How many words all terms become together, at most; counts[a] are those of local word a."""
    total = 0
    for i in range(n):
        total += counts[local_word(keys[i], qubits)]
    return total


@jit
def transfer(
    keys: Any, coefficients: Any, frequencies: Any, n: int, qubits: Any, matrix: Any, cut: float,
    new_keys: Any, new_coefficients: Any, new_frequencies: Any, slots: Any,
) -> Any:  # fmt: skip
    """Local word a becomes the sum of matrix[b, a] b, into new terms and an empty table.

    Returns the number of terms, those that branched, branches that met a term, and L1 norm and number of
    those dropped: branches to another word, below `cut`.
    """
    m = branched = met = dropped = 0
    l1 = 0.0
    row = np.empty(keys.shape[1], np.uint64)
    for i in range(n):
        a = local_word(keys[i], qubits)
        row[:] = keys[i]
        images = 0
        for b in range(matrix.shape[0]):
            if matrix[b, a] == 0:
                continue
            images += 1
            part = matrix[b, a] * coefficients[i]
            if b != a and abs(part) < cut:
                l1, dropped = l1 + abs(part), dropped + 1
                continue
            set_local(row, qubits, b)
            value = hash_row(row)
            at = find(new_keys, slots, row, value)
            if slots[at] != FREE:
                j = np.int64(slots[at] & LOW) - 1
                new_coefficients[j] += part
                new_frequencies[j] = min(new_frequencies[j], frequencies[i])
                met += 1
            else:
                new_keys[m] = row
                new_coefficients[m] = part
                new_frequencies[m] = frequencies[i]
                slots[at] = (value >> SHIFT) << SHIFT | np.uint64(m + 1)
                m += 1
        branched += images > 1
    return m, branched, met, l1, dropped


@jit
def sweep(
    keys: Any, coefficients: Any, frequencies: Any, n: int, slots: Any, cut: float, max_weight: int,
    max_xy: int, max_frequency: int, has_letters: bool,
) -> Any:  # fmt: skip
    """Remove terms that are zero or past a limit; the last term takes the place of one removed.

    Returns the number of terms, and the L1 norm, squares and number of those removed that were not zero.
    """
    words = keys.shape[1] // 2
    l1 = squares = 0.0
    dropped = 0
    for i in range(n - 1, -1, -1):
        size = abs(coefficients[i])
        gone = size < cut or size == 0 or frequencies[i] > max_frequency
        if has_letters and not gone:
            weight = xy = 0
            for w in range(words):
                weight += count_bits(keys[i, w] | keys[i, words + w])
                xy += count_bits(keys[i, w])
            gone = weight > max_weight or xy > max_xy
        if gone:
            l1, squares, dropped = l1 + size, squares + size**2, dropped + (size > 0)
            forget(keys, slots, find(keys, slots, keys[i], hash_row(keys[i])))
            n -= 1
            if i != n:
                at = find(keys, slots, keys[n], hash_row(keys[n]))
                slots[at] = (slots[at] >> SHIFT) << SHIFT | np.uint64(i + 1)
                keys[i], coefficients[i], frequencies[i] = keys[n], coefficients[n], frequencies[n]
    return n, l1, squares, dropped


@jit
def forget(keys: Any, slots: Any, hole: Any) -> None:
    """Free an entry; entries behind it move up so that no search meets a free entry before its row."""
    mask = np.uint64(slots.size - 1)
    at = (hole + ONE) & mask
    while slots[at] != FREE:
        home = hash_row(keys[np.int64(slots[at] & LOW) - 1]) & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            slots[hole] = slots[at]
            hole = at
        at = (at + ONE) & mask
    slots[hole] = FREE

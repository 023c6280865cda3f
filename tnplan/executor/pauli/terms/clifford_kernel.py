"""The numba kernels of maps that take every row of a shard: Cliffords, transfers of a few qubits, symmetries.

Rows are those of `hash_table_kernel`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.executor.device.cpu.bits_kernel import ONE, count_bits, jit

NOTHING = np.uint64(0)


@jit
def local_word(row: Any, qubits: Any) -> Any:
    """The number of the local word that a row has on `qubits`."""
    # Two bits for each qubit: x at 2 j, z at 2 j + 1, so that 0 is I, 1 is X, 2 is Z and 3 is Y.
    words = row.size // 2
    word = np.int64(0)
    for j in range(qubits.size):
        w, bit = qubits[j] >> 6, np.uint64(qubits[j] & 63)
        word |= np.int64((row[w] >> bit) & ONE) << (2 * j)
        word |= np.int64((row[words + w] >> bit) & ONE) << (2 * j + 1)
    return word


@jit
def clifford(keys: Any, coefficients: Any, n: int, layer: Any, out: Any) -> None:
    """Every row becomes the product of the images of its factors, by a `tableau.CliffordLayer`.

    `out` is scratch for a row.
    """
    # C^dagger P C is the product of the images of P's factors: i^|x & z| times an X for each bit of
    # x and a Z for each bit of z, qubit by qubit. Qubits that no gate touches keep their letters.
    # Invariant: a Hermitian word has a Hermitian image, so that the power of i is even in the end:
    # 0 or 2, a sign.
    images, powers, touched = layer
    words = touched.size
    for i in range(n):
        power = np.int64(0)
        for w in range(words):
            out[w], out[words + w] = keys[i, w] & ~touched[w], keys[i, words + w] & ~touched[w]
            power += count_bits(keys[i, w] & keys[i, words + w] & touched[w])
        for w in range(words):
            support = (keys[i, w] | keys[i, words + w]) & touched[w]
            while support != NOTHING:
                # The lowest qubit still in `support`; `support & (support - 1)` removes it.
                bit = count_bits((support & (~support + ONE)) - ONE)
                support &= support - ONE
                for letter in range(2):
                    if (keys[i, letter * words + w] >> np.uint64(bit)) & ONE:
                        row = 64 * (letter * words + w) + bit
                        power += powers[row] + multiply(out, images[row])
        for w in range(words):
            keys[i, w], keys[i, words + w] = out[w], out[words + w]
        if power & 2:
            coefficients[i] = -coefficients[i]


@jit
def multiply(row: Any, other: Any) -> int:
    """Multiply a word by another in place; the power of i that the product has."""
    # P1 P2 = i^power P3 in the convention of words i^|x & z| X^x Z^z: the factors of i of both,
    # less that of the product, and (-1)^|z1 & x2| for each Z that passes an X.
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
def branches(rows: Any, n: int, qubits: Any, weights: Any, cut: float, lists: Any) -> Any:
    """List weights[a] times each term of local word a with another than 0.

    `rows` are the `ShardArrays`, `lists` the senders, values and frequencies of branches.

    Returns the branches listed, and the L1 norm and number of those below `cut`, which are not, but zeros.
    """
    # A transfer matrix T maps local words: word a becomes sum_b T[b, a] b. Branches with b = a ^ d
    # share d: they go to the word times the local word d, which is one generator for all of them.
    keys, coefficients, (senders, values, counts) = rows.keys, rows.coefficients, lists
    listed = dropped = 0
    l1 = 0.0
    for i in range(n):
        weight = weights[local_word(keys[i], qubits)]
        if weight == 0:
            continue
        branch = weight * coefficients[i]
        if abs(branch) < cut:
            l1, dropped = l1 + abs(branch), dropped + int(branch != 0)
            continue
        senders[listed], values[listed], counts[listed] = i, branch, rows.frequencies[i]
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
def least_images(keys: Any, images: Any, scratch: Any, out: Any) -> None:
    """Write the least row, by its words in order, to which a permutation takes each row.

    Element g of the group takes qubit q to `images[g, q]`; `scratch` has two rows.
    """
    words, row, best = keys.shape[1] // 2, scratch[0], scratch[1]
    for i in range(keys.shape[0]):
        best[:] = keys[i]
        for g in range(images.shape[0]):
            row[:] = NOTHING
            for column in range(keys.shape[1]):
                half = column // words * words
                bits = keys[i, column]
                while bits != NOTHING:
                    # The number of the lowest bit; `bits & (bits - 1)` removes it.
                    bit = count_bits((bits & (~bits + ONE)) - ONE)
                    bits &= bits - ONE
                    image = images[g, 64 * (column - half) + bit]
                    row[half + (image >> 6)] |= ONE << np.uint64(image & 63)
            for column in range(keys.shape[1]):
                if row[column] != best[column]:
                    if row[column] < best[column]:
                        best[:] = row
                    break
        out[i] = best

"""The numba kernels of maps that take every row of a shard: Cliffords, and transfers of a few qubits.

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
    words = row.size // 2
    word = np.int64(0)
    for j in range(qubits.size):
        w, bit = qubits[j] >> 6, np.uint64(qubits[j] & 63)
        word |= np.int64((row[w] >> bit) & ONE) << (2 * j)
        word |= np.int64((row[words + w] >> bit) & ONE) << (2 * j + 1)
    return word


@jit
def clifford(keys: Any, coefficients: Any, n: int, images: Any, powers: Any, touched: Any, out: Any) -> None:
    """Every row becomes the product of the images of its factors; see `tableau.CliffordLayer`.

    `out` is room for a row.
    """
    words = touched.size
    for i in range(n):
        power = np.int64(0)
        for w in range(words):
            out[w], out[words + w] = keys[i, w] & ~touched[w], keys[i, words + w] & ~touched[w]
            power += count_bits(keys[i, w] & keys[i, words + w] & touched[w])
        for w in range(words):
            rest = (keys[i, w] | keys[i, words + w]) & touched[w]
            while rest != NOTHING:
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
    senders: Any, values: Any, counts: Any,
) -> Any:  # fmt: skip
    """List weights[a] times each term of local word a with another than 0.

    Returns the branches listed, and the L1 norm and number of those below `cut`, which are not, but zeros.
    """
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
        senders[listed], values[listed], counts[listed] = i, branch, frequencies[i]
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

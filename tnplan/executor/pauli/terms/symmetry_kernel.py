"""The numba kernel that finds which of the words that permutations of qubits take a word to is the least.

Rows are those of `hash_table_kernel`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.executor.device.cpu.bits_kernel import ONE, count_bits, jit

NOTHING = np.uint64(0)


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

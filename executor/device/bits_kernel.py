"""What numba kernels over packed bits share: how they are compiled, and the count of set bits.

Imported lazily (numba loads slowly).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

ONE = np.uint64(1)
ODD = np.uint64(0x5555555555555555)
PAIRS = np.uint64(0x3333333333333333)
NIBBLES = np.uint64(0x0F0F0F0F0F0F0F0F)
BYTES = np.uint64(0x0101010101010101)

jit = numba.njit(nogil=True, cache=True, error_model="numpy")
inline = numba.njit(nogil=True, cache=True, error_model="numpy", inline="always")


@inline
def count_bits(word: Any) -> Any:
    """How many bits of a 64-bit word are set."""
    word = word - ((word >> ONE) & ODD)
    word = (word & PAIRS) + ((word >> np.uint64(2)) & PAIRS)
    word = (word + (word >> np.uint64(4))) & NIBBLES
    return np.int64((word * BYTES) >> np.uint64(56))

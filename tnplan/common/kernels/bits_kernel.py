"""The count of set bits of a word, for kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.kernel import kernel

PAIRS, FOURS, BYTES = (
    np.uint64(mask) for mask in (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F)
)
"""Every other bit, every other two bits, the lower half of every byte."""
EVERY_BYTE = np.uint64(0x0101010101010101)
ONE, TWO, FOUR, TOP_BYTE = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)


@kernel(nogil=True, error_model="numpy")
def count_bits(word: Any) -> Any:
    """How many bits of a 64-bit word are set."""
    # The classical sum in parallel (H. S. Warren, Hacker's Delight, section 5-1). LLVM knows this form and
    # makes the processor's own instruction of it, so it takes no longer than one asked for by name.
    bits = np.uint64(word)
    bits -= (bits >> ONE) & PAIRS
    bits = (bits & FOURS) + ((bits >> TWO) & FOURS)
    bits = (bits + (bits >> FOUR)) & BYTES
    return np.int64((bits * EVERY_BYTE) >> TOP_BYTE)

"""64-bit words in kernels: the count of their set bits, and random ones.

Random words are those of xorshift128+ (Vigna, 2017), whose state is two words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.kernels.kernel import kernel

PAIRS, FOURS, BYTES = (
    np.uint64(mask) for mask in (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F)
)
"""Every other bit, every other two bits, the lower half of every byte."""
EVERY_BYTE = np.uint64(0x0101010101010101)
ONE, TWO, FOUR, TOP_BYTE = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)
jit = kernel(nogil=True, error_model="numpy")


@kernel(nogil=True, error_model="numpy")
def count_bits(word: Any) -> Any:
    """How many bits of a 64-bit word are set."""
    # The classical sum in parallel (H. S. Warren, Hacker's Delight, section 5-1). LLVM knows this form and
    # makes the processor's own instruction of it, so it takes no longer than that instruction's intrinsic.
    bits = np.uint64(word)
    bits -= (bits >> ONE) & PAIRS
    bits = (bits & FOURS) + ((bits >> TWO) & FOURS)
    bits = (bits + (bits >> FOUR)) & BYTES
    return np.int64((bits * EVERY_BYTE) >> TOP_BYTE)


def generator(seed: int | tuple[int, ...]) -> NDArray[np.uint64]:
    """The state of a generator, two words that are not both 0."""
    state: NDArray[np.uint64] = np.random.SeedSequence(seed).generate_state(2, np.uint64).astype(np.uint64)
    return state


@jit
def draw_word(state: Any) -> Any:
    """64 random bits."""
    a, b = state[0], state[1]
    state[0] = b
    a ^= a << np.uint64(23)
    state[1] = a ^ b ^ (a >> np.uint64(17)) ^ (b >> np.uint64(26))
    return state[1] + b


@jit
def draw_below(state: Any, n: int) -> Any:
    """A random integer from 0 to n - 1, of n below 2**31."""
    return np.int64(((draw_word(state) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@jit
def draw_uniform(state: Any) -> float:
    """A random number from 0 to 1, without 1."""
    return np.float64(draw_word(state) >> np.uint64(11)) * 2.0**-53


@jit
def shuffle(state: Any, numbers: Any) -> None:
    """Put 0, 1, 2, ... into an array in random order."""
    for i in range(numbers.size):
        j = draw_below(state, i + 1)
        numbers[i] = numbers[j]
        numbers[j] = i

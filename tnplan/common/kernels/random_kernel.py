"""Random numbers for kernels: xorshift128+ (Vigna, 2017), whose state is two words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.kernels.kernel import kernel

jit = kernel(nogil=True, error_model="numpy")


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

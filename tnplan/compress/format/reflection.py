"""Whether an array equals its own reversal bit for bit, as it is or with all signs flipped.

Intermediates of MaxCut-QAOA do: flipping every spin changes no cut, and flips the sign of one Z. It is
detected, never assumed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

REFLECTIONS = ("none", "equal", "negated")
"""T[i] against T[n - 1 - i]: nothing known, the same bits, the same bits but for the sign."""

FIRST_LOOK = 1 << 10
PART = 1 << 20


def reflection_of(values: NDArray[np.floating], components: int) -> str:
    """Which of `REFLECTIONS` flat real numbers are, components interleaved; 'none' for one element."""
    return next((kind for kind in REFLECTIONS[1:] if _is_reflected(values, components, kind)), REFLECTIONS[0])


def fill_reflected(values: NDArray[np.floating], components: int, stored: int, kind: str) -> None:
    """Fill the elements from number `stored` on from those before them."""
    words = _words(values, components)
    words[stored:] = words[: words.shape[0] - stored][::-1]
    if kind == "negated":
        words[stored:] ^= _sign(words)


def reflected(values: NDArray[np.floating], components: int, kind: str) -> NDArray[np.floating]:
    """A copy of flat real numbers in reverse order of elements, as a mirrored array repeats them."""
    copied = values.copy()
    words = _words(copied, components)
    words[:] = words[::-1].copy()
    if kind == "negated":
        words ^= _sign(words)
    return copied


def _is_reflected(values: NDArray[np.floating], components: int, kind: str) -> bool:
    words = _words(values, components)
    half = words.shape[0] // 2
    if not half:
        return False
    behind = words[::-1]
    start, part = 0, FIRST_LOOK
    while start < half:
        stop = min(half, start + part)
        other = behind[start:stop]
        if not np.array_equal(words[start:stop], other if kind == "equal" else other ^ _sign(words)):
            return False
        start, part = stop, PART
    return True


def _words(values: NDArray[np.floating], components: int) -> NDArray[Any]:
    return values.view(np.uint32 if values.itemsize == 4 else np.uint64).reshape(-1, components)


def _sign(words: NDArray[Any]) -> np.unsignedinteger[Any]:
    sign: np.unsignedinteger[Any] = words.dtype.type(1 << (8 * words.itemsize - 1))
    return sign

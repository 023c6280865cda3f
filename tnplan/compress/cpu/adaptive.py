"""Residuals that are nearly all 0, by adaptive binary arithmetic coding (`cpu.adaptive_kernel`).

Layout: words of 16 bits. One sequence of decisions, so that a GPU does not read or write it: there is no
table, and no state but one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu.workspace import workspace
from tnplan.compress.format.stream import damaged_unless

MOST_STEPS = 1.0
"""Decisions for each number, beyond which tables of frequencies (`cpu.rans`) are faster."""


def _work() -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    from tnplan.compress.cpu import adaptive_kernel as kernel

    return np.empty(2 * kernel.CONTEXTS, np.int64), np.empty(3 * kernel.ROW, np.int32)


def encode(q: NDArray[np.int32], most_bytes: int) -> bytes | None:
    """The bytes of residuals q (components, tiles * 4096); None where they are more than `most_bytes`, or
    where too few of them are 0."""
    from tnplan.compress.cpu import adaptive_kernel as kernel

    numbers, (states, above) = q.reshape(-1), _work()
    flags = np.zeros(numbers.size // kernel.ROW + 2, np.uint8)
    words = workspace("words", (most_bytes // 2 + kernel.ROOM,), "<u2")
    count = kernel.encode(numbers, flags, int(MOST_STEPS * numbers.size), states, above, words)
    return words[:count].tobytes() if 0 <= 2 * count <= most_bytes else None


def decode(data: NDArray[np.uint8], q: NDArray[np.int32], place: str) -> None:
    """Fill q from what `encode` returned; StreamError, naming `place`, where it makes no sense."""
    from tnplan.compress.cpu import adaptive_kernel as kernel

    damaged_unless(data.size % 2 == 0, place)
    words: Any = np.zeros(data.size // 2 + 1, "<u2")
    words[:-1] = data.view("<u2")
    damaged_unless(kernel.decode(words, *_work(), q.reshape(-1)) == data.size // 2, place)

"""Memory for the numbers of a frame, which each thread keeps.

A system clears the pages that it gives away, and allocators give large ones back each time: 800 pages for an
array of 600,000 numbers, a tenth of the time of compressing it.
"""

from __future__ import annotations

import threading
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_KEPT_BYTES = 1 << 22
"""Of each name; what is larger is allocated each time."""


class _Kept(threading.local):
    """The bytes of each name that this thread keeps."""

    def __init__(self) -> None:
        self.of_name: dict[str, NDArray[np.uint8]] = {}


_kept = _Kept()


def workspace(name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array with any content. Invariant: the one before of this name and thread is no longer used."""
    array_bytes = prod(shape) * np.dtype(dtype).itemsize
    if array_bytes > MOST_KEPT_BYTES:
        return np.empty(shape, dtype)
    buffer = _kept.of_name.get(name)
    if buffer is None or buffer.size < array_bytes:
        buffer = _kept.of_name[name] = np.empty(array_bytes, np.uint8)
    return buffer[:array_bytes].view(dtype).reshape(shape)

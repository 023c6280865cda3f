"""Arrays: their type, the bytes of elements, and the multiples at which buffers begin."""

from __future__ import annotations

from math import prod
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
"""A NumPy array; what it holds, and of which shape, is said where it is used."""
ITEM_BYTES = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
"""Bytes of an element by dtype."""
ALIGNMENT_BYTES = 256
"""CUDA allocates at multiples of it, and libraries read as widely as they can from there."""
CACHE_LINE_BYTES = 64
"""Arrays of a CPU, streams of a codec and small arrays of zeros begin at multiples of it."""


def round_up(size: int, unit: int) -> int:
    """The least multiple of `unit` that is at least `size`."""
    return -(-size // unit) * unit


def round_down(size: int, unit: int) -> int:
    """The greatest multiple of `unit` that is at most `size`."""
    return size // unit * unit


def times_along(array: Any, axis: int, matrix: Any) -> Any:
    """An array, of NumPy or CuPy, whose axis is multiplied with a matrix from the left."""
    shape = array.shape
    rows = array.reshape(prod(shape[:axis]), shape[axis], -1)
    return (matrix @ rows).reshape(*shape[:axis], len(matrix), *shape[axis + 1 :])

"""Arrays of other types than streams have, as arrays of those: every value stays what it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.format.errors import CodecError

LARGEST_EXACT = 1 << 53
"""Every integer of no larger magnitude is a float64."""


def widened(array: Any, bound: float) -> Any:
    """The array in native order, float16 as float32 and integers as floating point; others as they are.

    Integers are compressed without loss alone: CodecError where the bound is not 0, or where one of 64 bits
    is no float64.
    """
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        return array
    if array.dtype.kind in "iu":
        return _from_integers(array, bound)
    if array.dtype.kind == "f" and array.dtype.itemsize == 2:
        return array.astype(np.float32)
    if array.dtype.kind in "fc" and not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    return array


def _from_integers(array: NDArray[Any], bound: float) -> NDArray[Any]:
    if bound != 0:
        raise CodecError("array", f"holds integers ({array.dtype})", "give the bound 0")
    if array.dtype.itemsize < 4:
        return array.astype(np.float32)
    if array.size and max(int(array.max()), -int(array.min())) > LARGEST_EXACT:
        problem = f"holds integers beyond 2^53 ({array.dtype})"
        raise CodecError("array", problem, "give smaller ones, or floating point")
    return array.astype(np.float64)

"""From a bound to quantizers: how coarsely each component may be stored so that no element errs by more.

Absolute bounds (Tao et al., IPDPS 2017: linear-scale quantization): q = rint(x / step), x' = q * step, both
rounded once in the array's own precision, which a CPU and a GPU do alike. The step is twice the bound less
what these roundings can add, so that |x - x'| <= bound for |q| <= LARGEST_Q; the kernel checks it all the
same, and stores what fails exactly.

Point-wise relative bounds: the bits of a positive float, read as a whole number, are a piecewise linear
logarithm. Bits that differ by d belong to values that differ by at most d * 2^-mantissa relative to either,
so bits in steps of bits_step = floor(2^(mantissa + 1) bound) keep the bound, in whole numbers. Zero stays
zero; denormals are stored exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.format.box import SHIFT
from tnplan.compress.format.errors import CodecError
from tnplan.compress.format.stream import MODES, Quantizer

# Arrays of other types than streams have, as arrays of those: every value stays what it is.


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
        raise CodecError("array", problem, "give smaller integers, or floating point")
    return array.astype(np.float64)


LARGEST_Q = {np.dtype(np.float32): 1 << 20, np.dtype(np.float64): 1 << 30}
"""Of absolute bounds: larger magnitudes are stored exactly. Roundings stay below half the bound."""
LARGEST_BITS_Q = 1 << 30
ROUNDING = {np.dtype(np.float32): 2.0**-22, np.dtype(np.float64): 2.0**-51}
"""Errors that q * step and x / step add, relative to |x|: less than this."""
MARGIN = 2.0**-20
"""Share of the bound that is always given up, so that x = bound counts as beyond it."""
PART = 1 << 16
"""Elements looked at in one go."""


@dataclass(frozen=True)
class Extent:
    """What the finite values of one component reach: least and greatest value, least magnitude of a normal
    number, and whether there are values at all, and values that are not finite."""

    least: float
    greatest: float
    least_normal: float
    any_finite: bool
    any_nonfinite: bool

    @property
    def range(self) -> float:
        """Greatest less least value; infinite where it overflows."""
        return self.greatest - self.least if self.any_finite else 0.0

    @property
    def magnitude(self) -> float:
        """The greatest magnitude."""
        return max(abs(self.least), abs(self.greatest)) if self.any_finite else 0.0


def check_bound(bound: float, mode: str) -> float:
    """The bound as a float; CodecError where it bounds nothing."""
    if mode not in MODES[1:]:
        raise CodecError("mode", f"is {mode!r}", f"choose from {', '.join(MODES[1:])}")
    try:
        value = float(bound)
    except (TypeError, ValueError):
        raise CodecError("bound", f"is {bound!r}", "give a number of 0 or more") from None
    except OverflowError:
        value = inf
    if not isfinite(value) or value < 0:
        raise CodecError("bound", f"is {value}", "give a finite number of 0 or more; 0 is lossless")
    return value


def extent(values: NDArray[np.floating], normals: bool) -> Extent:
    """The extent of a component, a 1-D view of any stride; the least normal magnitude only with `normals`."""
    tiny = np.finfo(values.dtype).tiny
    least, greatest, normal = np.inf, -np.inf, np.inf
    any_nonfinite = False
    for start in range(0, values.size, PART):
        # Numbers next to one another are compared by vector instructions.
        chunk = np.ascontiguousarray(values[start : start + PART])
        low, high = chunk.min(), chunk.max()
        if not (np.isfinite(low) and np.isfinite(high)):
            any_nonfinite = True
            chunk = chunk[np.isfinite(chunk)]
            if not chunk.size:
                continue
            low, high = chunk.min(), chunk.max()
        least, greatest = min(least, float(low)), max(greatest, float(high))
        if normals:
            magnitudes = np.abs(chunk)
            normal = min(normal, float(np.min(magnitudes, where=magnitudes >= tiny, initial=np.inf)))
    return Extent(least, greatest, normal, least <= greatest, any_nonfinite)


def quantizer(reach: Extent, bound: float, mode: str, dtype: np.dtype[np.floating]) -> Quantizer | None:
    """The quantizer of a component, or None where the bound is too fine for the dtype: store it exactly."""
    if mode == "pointwise":
        return _pointwise(reach, bound, dtype)
    if reach.least == reach.greatest or not reach.any_finite:
        constant = np.array(reach.least if reach.any_finite and reach.least else 0.0, dtype)
        return Quantizer(zero_bits=int(constant.view(_bits(dtype))))
    limit = error_limit(reach, bound, mode)
    shrunk = limit * (1 - MARGIN) - min(reach.magnitude, 2 * limit * LARGEST_Q[dtype]) * ROUNDING[dtype]
    step = round_down(2 * shrunk, dtype)
    # A normal step has an inverse.
    if step < float(np.finfo(dtype).tiny):
        return None
    return Quantizer(step=step)


def fine_quantizer(rule: Quantizer, dtype: np.dtype[np.floating]) -> Quantizer:
    """The same for the fine numbers of a predictor, of which 2^SHIFT and one more make a step."""
    return Quantizer(step=round_down(rule.step / ((1 << SHIFT) + 1), dtype))


def error_limit(reach: Extent, bound: float, mode: str) -> float:
    """The largest error of an element of this component, rounded down."""
    if mode == "absolute":
        return bound
    if not isfinite(reach.range):
        raise CodecError("bound", "is relative to a range that overflows", "give an absolute bound")
    return bound * reach.range * (1 - 2.0**-50)


def round_down(value: float, dtype: np.dtype[np.floating]) -> float:
    """The largest number of `dtype` that is no greater than a positive value."""
    top = float(np.finfo(dtype).max)
    if value >= top:
        return top
    rounded = dtype.type(value)
    return float(rounded if float(rounded) <= value else np.nextafter(rounded, dtype.type(0)))


def pointwise_step(bound: float, dtype: np.dtype[np.floating]) -> int:
    """The step of bits of a point-wise bound: half a binade is as coarse as it keeps its meaning."""
    return int(min(bound, 0.5) * 2 ** (int(np.finfo(dtype).nmant) + 1))


def _pointwise(reach: Extent, bound: float, dtype: np.dtype[np.floating]) -> Quantizer | None:
    bits_step = pointwise_step(bound, dtype)
    if bits_step < 2:
        return None
    if not isfinite(reach.least_normal):
        return Quantizer(bits_step=bits_step, base_bits=int(np.finfo(dtype).tiny.view(_bits(dtype))))
    base, top = (
        int(np.array(value, dtype).view(_bits(dtype))) for value in (reach.least_normal, reach.magnitude)
    )
    if (top - base) // bits_step >= LARGEST_BITS_Q - 1:
        return None
    return Quantizer(bits_step=bits_step, base_bits=base)


def _bits(dtype: np.dtype[np.floating]) -> type[np.unsignedinteger]:
    return np.uint32 if dtype.itemsize == 4 else np.uint64

"""Arrays of any shape, layout and byte order that hold anything, with a bound each; by seeds."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.support.kernels.compress_arrays import DTYPES, KINDS, MODES, make_array
from tests.support.kernels.smooth_arrays import smooth_array

EXTENTS = (0, 1, 2, 2, 3, 5, 7, 8, 9, 16, 17, 31, 61, 97, 256, 1009)
MOST_ELEMENTS = 20_000
BOUNDS = (0.0, 1e-300, 1e-12, 1e-7, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 3.0, 1e30)


class Hostile(NamedTuple):
    """An array, what it holds as a C array in native order, and how to compress it."""

    array: NDArray[Any]
    plain: NDArray[Any]
    bound: float
    options: dict[str, Any]


def hostile_array(seed: int) -> Hostile:
    """The array of a seed."""
    r = np.random.default_rng(seed)
    shape = tuple(int(n) for n in r.choice(EXTENTS, r.integers(0, 8), p=_chances()))
    while prod(shape) > MOST_ELEMENTS:
        shape = tuple(max(n // 2, 2) if n == max(shape) else n for n in shape)
    dtype, smooth = str(r.choice(DTYPES)), r.random() < 0.75
    if smooth and shape:
        plain = smooth_array(shape, dtype, seed, wild=bool(r.random() < 0.5))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            plain = (plain * plain.real.dtype.type(r.choice([1, 1, 1e-30, 1e20, 1e-38]))).astype(dtype)
    else:
        plain = make_array(str(r.choice(KINDS)), prod(shape), dtype, seed).reshape(shape)
    mode = str(r.choice(MODES, p=(0.5, 0.4, 0.1)))
    bound = float(r.choice(BOUNDS))
    if mode == "absolute":
        finite = np.abs(plain.real[np.isfinite(plain.real)])
        bound *= float(np.sort(finite)[finite.size // 2]) if finite.size else 1.0
    options = {
        "mode": mode, "setting": str(r.choice(("small", "small", "auto", "fast"))),
        "frame_log2": int(r.integers(12, 23)),
    }  # fmt: skip
    return Hostile(_laid_out(plain, r), plain, min(bound, 1e300), options)


def _chances() -> NDArray[np.float64]:
    """An extent of 0 is rare, as it leaves nothing, and long ones are frequent."""
    chances = np.array([0.1 if n == 0 else 1.0 if n < 8 else 2.0 for n in EXTENTS])
    return chances / chances.sum()


def _laid_out(plain: NDArray[Any], r: np.random.Generator) -> NDArray[Any]:
    """The same values in another layout or byte order, or as they are."""
    layout = r.integers(5)
    if layout == 1 and plain.ndim:
        return np.asfortranarray(plain)
    if layout == 2:
        return plain.astype(plain.dtype.newbyteorder())
    if layout == 3 and plain.ndim:
        return np.repeat(plain, 2, axis=-1)[..., ::2]
    if layout == 4 and plain.ndim:
        return np.ascontiguousarray(plain[::-1])[::-1]
    return plain

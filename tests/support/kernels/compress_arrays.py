"""Arrays that codecs must survive, and the exact check of a bound."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

DTYPES = ("float32", "float64", "complex64", "complex128")
MODES = ("range", "absolute", "pointwise")
BOUNDS = (0.0, 1e-300, 1e-12, 1e-6, 1e-3, 5e-3, 0.01, 0.3, 0.5, 3.0, 1e30)
KINDS = (
    "normal", "sparse", "constant", "denormal", "huge range", "nonfinite", "all nan", "whole", "grid", "zero",
    "mirrored", "product", "extreme", "one large",
)  # fmt: skip
SIZES = (0, 1, 2, 3, 31, 32, 33, 255, 1000, 4095, 4096, 4097, 8192)

Array = NDArray[Any]


def real_values(kind: str, size: int, dtype: np.dtype[Any], generator: np.random.Generator) -> Array:
    """One component of `size` values."""
    info = np.finfo(dtype)
    x = generator.normal(size=size)
    if kind == "sparse":
        x *= generator.random(size) < 0.1
    elif kind == "constant":
        x[:] = generator.normal()
    elif kind == "denormal":
        x *= float(info.tiny) / 8
    elif kind == "huge range":
        exponents = generator.uniform(info.minexp / 2, info.maxexp / 2, size)
        x = np.sign(x) * np.exp2(exponents)
    elif kind == "nonfinite":
        x[generator.random(size) < 0.2] = np.nan
        x[generator.random(size) < 0.1] = np.inf
        x[generator.random(size) < 0.1] = -np.inf
    elif kind == "all nan":
        x[:] = np.nan
    elif kind == "whole":
        x = np.rint(20 * x)
    elif kind == "grid":
        x = np.rint(20 * x) * 0.005
    elif kind == "zero":
        x *= 0.0
    elif kind == "product":
        x = np.exp(2 * x)
    elif kind == "extreme":
        x = generator.choice([-float(info.max), float(info.max), 0.0, float(info.tiny)], size)
    elif kind == "one large":
        x[: size // 100 + 1] = 1e30
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(x, dtype)


def make_array(kind: str, size: int, dtype: str, seed: int) -> Array:
    """An array of a kind, complex ones with parts of a kind each."""
    generator = np.random.default_rng(seed)
    array = np.empty(size, dtype)
    real = array.real.dtype
    array.real[:] = real_values(kind, size, real, generator)
    if dtype.startswith("complex"):
        other = random.Random(seed).choice((kind, "normal", "zero"))
        array.imag[:] = real_values(other, size, real, generator)
    if kind == "mirrored":
        array[(size + 1) // 2 :] = array[: size // 2][::-1]
    return array


def parts(array: Array) -> list[Array]:
    """Real part, and imaginary part where there is one."""
    return [array.real, array.imag] if np.iscomplexobj(array) else [array]


def bits(array: Array) -> Array:
    """The bytes of an array."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def holds_bound(array: Array, again: Array, bound: float, mode: str) -> None:
    """Assert that every element is within its bound, in exact arithmetic for the worst ones."""
    assert (again.shape, again.dtype) == (array.shape, array.dtype)
    if bound == 0:
        assert np.array_equal(bits(again), bits(array))
        return
    for x, y in zip(map(np.ravel, parts(array)), map(np.ravel, parts(again)), strict=True):
        finite = np.isfinite(x)
        assert np.array_equal(bits(x[~finite]), bits(y[~finite]))
        x, y = x[finite], y[finite]
        assert np.isfinite(y).all()
        if not x.size:
            continue
        wide = np.abs(x.astype(np.longdouble) - y.astype(np.longdouble))
        if mode == "pointwise":
            wide = np.where(wide > 0, wide / np.maximum(np.abs(x), np.finfo(x.dtype).smallest_subnormal), 0)
        reach = Fraction(float(x.max())) - Fraction(float(x.min()))
        for worst in np.argsort(wide)[-3:]:
            value = Fraction(float(x[worst]))
            limit = Fraction(bound) * {"range": reach, "absolute": 1, "pointwise": abs(value)}[mode]
            error = abs(value - Fraction(float(y[worst])))
            assert error <= limit, (float(value), float(y[worst]), float(error), float(limit))


def overflows(array: Array) -> bool:
    """Whether the range of a part has no finite value."""
    for x in parts(array):
        finite = x[np.isfinite(x)].astype(float)
        with np.errstate(over="ignore"):
            if finite.size and not np.isfinite(finite.max() - finite.min()):
                return True
    return False


def product_tensor(axes: int, telling: tuple[int, ...], seed: int) -> np.ndarray:
    """A complex64 tensor whose magnitude depends on all binary axes but those in `telling`."""
    generator = np.random.default_rng(seed)
    numbers = np.arange(1 << axes)
    size = np.ones(1 << axes)
    for axis in range(axes):
        if axis not in telling:
            size *= np.where(numbers >> axis & 1, generator.uniform(0.05, 0.5), 1.0)
    values = generator.normal(size=(1 << axes, 2)) * size[:, None]
    return np.ascontiguousarray(values).view(np.complex128)[:, 0].astype(np.complex64)

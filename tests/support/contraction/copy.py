"""What tests of permuting copies share: random values, and a box of a larger array with its permuted copy."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tnplan.executor.device.protocols.copy import Axis, row_major

Array = np.ndarray[Any, np.dtype[Any]]


def random_values(rng: np.random.Generator, shape: int | Sequence[int], dtype: str) -> Array:
    """Normal values of a dtype."""
    values: Array = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def box_case(
    rng: np.random.Generator, dtype: str, extents: list[int], whole: list[int], order: list[int]
) -> tuple[Array, list[Axis], int, Array]:
    """A box of `extents` somewhere in a row-major source of the extents `whole`, its axes in `order`.

    The flat source, the axes of the copy, where the box starts in the source, and the flat copy.
    """
    first = [int(rng.integers(0, w - e + 1)) for e, w in zip(extents, whole, strict=True)]
    source = random_values(rng, prod(whole), dtype)
    strides = row_major(whole)
    target_strides = [0] * len(extents)
    for axis, stride in zip(order, row_major([extents[axis] for axis in order]), strict=True):
        target_strides[axis] = stride
    start = sum(f * s for f, s in zip(first, strides, strict=True))
    block = source.reshape(whole)[tuple(slice(f, f + e) for f, e in zip(first, extents, strict=True))]
    axes = list(zip(extents, strides, target_strides, strict=True))
    return source, axes, start, np.ascontiguousarray(block.transpose(order)).ravel()

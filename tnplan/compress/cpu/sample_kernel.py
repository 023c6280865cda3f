"""The numba kernels that look at a sample of an array along its binary axes. Imported lazily.

Classes are bit lengths of an element's magnitudes as whole numbers, their sum over components, at most
CLASSES - 1 (`format.bit_tiling`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.numba_cache import cached_njit
from tnplan.compress.cpu.quantize_kernel import pointwise_number
from tnplan.compress.format.bit_tiling import CLASSES

jit = cached_njit(nogil=True, error_model="numpy")
int64: Any = np.int64
uint8: Any = np.uint8


@jit
def add_linear(
    values: Any, components: Any, c: Any, step: Any, inverse: Any, limit: Any, largest: Any, sums: Any
) -> None:
    """Add to sums, in the values' precision, magnitudes of component c under steps of one width."""
    # As `absolute_number`, in the values' precision and without branches, so that it becomes vector
    # instructions.
    zero = values.dtype.type(0)
    for i in range(sums.size):
        x = values[components * i + c]
        scaled = np.rint(x * inverse)
        good = (np.abs(scaled) <= largest) & (np.abs(x - scaled * step) < limit)
        sums[i] += np.abs(scaled) if good else zero


@jit
def add_pointwise(
    bits: Any, components: Any, c: Any, sign_bit: Any, least: Any, infinite: Any, bits_step: Any, base:
    Any, sums: Any
) -> None:  # fmt: skip
    """The same under steps of bits."""
    for i in range(sums.size):
        number, good = pointwise_number(bits[components * i + c], sign_bit, least, infinite, bits_step, base)
        if good:
            sums[i] += abs(number)


@jit
def fill_classes(sums: Any, classes: Any) -> None:
    """Classes of sums of magnitudes."""
    # A bit length is the number of powers of two that the value reaches: CLASSES - 1 comparisons,
    # each a vector instruction.
    classes[:] = 0
    for length in range(CLASSES - 1):
        least = sums.dtype.type((1 << length) - 1)
        for i in range(sums.size):
            classes[i] += uint8(sums[i] > least)


@jit
def gather(values: Any, components: Any, elements: Any, bit: Any, sample: Any) -> None:
    """The values of elements, bit by bit flipped by `bit`."""
    for k in range(elements.size):
        for c in range(components):
            sample[components * k + c] = values[components * (int64(elements[k]) ^ bit) + c]


@jit
def count_pairs(own: Any, beside: Any, counts: Any) -> None:
    """Add to counts (classes * classes) pairs of classes."""
    for k in range(own.size):
        counts[own[k] * CLASSES + beside[k]] += 1


@jit
def count_neighbours(classes: Any, elements: Any, counts: Any) -> None:
    """The same along every axis (axes, classes * classes), of elements of which all classes are known."""
    # Along a binary axis the neighbour is the element with one bit of its number flipped.
    for k in range(elements.size):
        element = int64(elements[k])
        row = int64(classes[element]) * CLASSES
        for axis in range(counts.shape[0]):
            counts[axis, row + classes[element ^ (int64(1) << axis)]] += 1

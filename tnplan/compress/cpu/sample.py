"""Pairs of classes along an array's binary axes, from a sample of its elements (`format.bit_tiling`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.format.bit_tiling import CLASSES, sampled
from tnplan.compress.format.bounds import LARGEST_Q, round_down
from tnplan.compress.format.stream import Header

Values = NDArray[np.floating]
WHOLE = 1 << 21
"""Of arrays of so many elements or fewer all classes are found, of larger ones those that are asked for."""


def count_classes(
    values: Values, header: Header, limits: tuple[float, ...], n_axes: int
) -> NDArray[np.int64]:
    """How often pairs of classes occur (axes, classes, classes) in an array's flat real numbers."""
    from tnplan.compress.cpu import sample_kernel as kernel

    n = header.components
    elements = sampled(header.stored >> n_axes << n_axes)
    counts = np.zeros((n_axes, CLASSES * CLASSES), np.int64)
    if header.stored <= WHOLE:
        kernel.count_neighbours(classes_of(values[: n * header.stored], header, limits), elements, counts)
        return counts.reshape(-1, CLASSES, CLASSES)
    sample = np.empty(n * elements.size, values.dtype)
    kernel.gather(values, n, elements, 0, sample)
    own = classes_of(sample, header, limits)
    for axis in range(n_axes):
        kernel.gather(values, n, elements, 1 << axis, sample)
        kernel.count_pairs(own, classes_of(sample, header, limits), counts[axis])
    return counts.reshape(-1, CLASSES, CLASSES)


def classes_of(values: Values, header: Header, limits: tuple[float, ...]) -> NDArray[np.uint8]:
    """The class of each element of flat real numbers."""
    from tnplan.compress.cpu import sample_kernel as kernel

    n, real, bits_type = header.components, values.dtype.type, f"u{values.itemsize}"
    sums = np.zeros(values.size // n, values.dtype)
    for c, rule in enumerate(header.quantizers):
        if rule.bits_step:
            sign_bit = np.array(1 << (8 * values.itemsize - 1), bits_type)[()]
            least, infinite = (int(np.array(x, real).view(bits_type)) for x in (np.finfo(real).tiny, np.inf))
            kernel.add_pointwise(
                values.view(bits_type), n, c, sign_bit, least, infinite, rule.bits_step, rule.base_bits, sums
            )
        elif rule.step:
            step, limit = real(rule.step), real(round_down(limits[c], values.dtype))
            kernel.add_linear(values, n, c, step, real(1) / step, limit, real(LARGEST_Q[values.dtype]), sums)
    classes = np.empty(sums.size, np.uint8)
    kernel.fill_classes(sums, classes)
    return classes

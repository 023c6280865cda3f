"""The numba kernels between values and whole numbers, a frame at a time, and those of samples.

A frame's values are a flat array of its real numbers, components interleaved: component c of element e at
`components * e + c`. Quantized numbers are in tile order (`format.bit_tiling`), one row a component; places
beyond the last element hold 0. Every kernel decodes what it encodes and appends the place of each element
that would miss its bound to `places`; it returns how many there are, also where they are more than fit.

Samples are taken along the binary axes of an array. Classes are bit lengths of an element's magnitudes as
whole numbers, their sum over components, at most CLASSES - 1 (`format.bit_tiling`). Imported lazily.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tnplan.common.kernels.kernel import kernel
from tnplan.compress.format.bit_tiling import CLASSES

jit = kernel(keeps_subnormals=True, nogil=True, error_model="numpy")
inline = kernel(keeps_subnormals=True, nogil=True, error_model="numpy", inline="always")
int64: Any = np.int64
uint8: Any = np.uint8


class TileOrder(NamedTuple):
    """The values of component c of `components` in tile order (`format.bit_tiling`): tiles[t] + local[j] is
    the element at place j of tile t."""

    components: Any
    c: Any
    local: Any
    tiles: Any


class LinearRule(NamedTuple):
    """Steps of one width: x becomes rint(x * inverse), at most `largest`, and errs by less than `limit`."""

    step: Any
    inverse: Any
    limit: Any
    largest: Any


class BitRule(NamedTuple):
    """Steps in the bits of the magnitude, from `base`; `least` and `infinite` are the bits of the least
    normal number and of infinity."""

    sign_bit: Any
    least: Any
    infinite: Any
    step: Any
    base: Any


# Every kernel decodes each number in the same arithmetic as a decoder would and compares with the
# bound: rounding of the steps is part of the test. What misses it is stored as it is, and its
# number is 0.
@inline
def absolute_number(x: Any, rule: Any) -> Any:
    """rint(x / step) in the values' precision, and whether it keeps the bound; 0 where it is too large."""
    # np.abs(nan) <= largest is false: what is no number is stored as it is.
    scaled = np.rint(x * rule.inverse)
    if np.abs(scaled) <= rule.largest:
        return int64(scaled), np.abs(x - scaled * rule.step) < rule.limit
    return int64(0), False


@inline
def pointwise_number(word: Any, rule: Any) -> Any:
    """The number of a value with these bits, and whether it keeps the bound."""
    # The bits of an IEEE number without its sign rise with its magnitude, nearly as its logarithm:
    # equal steps of the bits are steps relative to the value, exact in whole numbers.
    sign_bit, least, infinite, bits_step, base = rule
    magnitude = int64(word & ~sign_bit)
    if least <= magnitude < infinite:
        steps = (magnitude - base + bits_step // 2) // bits_step
        again = base + steps * bits_step
        good = again < infinite and 2 * abs(again - magnitude) <= bits_step
        return (-(steps + 1) if word & sign_bit else steps + 1), good
    return int64(0), magnitude == 0


@jit
def quantize_absolute(values: Any, order: Any, rule: Any, q: Any, places: Any, n_missed: Any) -> Any:
    """q = rint(x / step) in the values' precision, by a `LinearRule`."""
    # Invariant: with `n_missed` past the end of `places` counting goes on, so that the caller knows how many
    # there are.
    components, c, local, tiles = order
    n = values.size // components
    for t in range(tiles.size):
        for j in range(local.size):
            position = t * local.size + j
            element = tiles[t] + local[j]
            if element >= n:
                q[position] = 0
                continue
            number, good = absolute_number(values[components * element + c], rule)
            q[position] = number if good else 0
            if not good:
                if n_missed < places.size:
                    places[n_missed] = position
                n_missed += 1
    return n_missed


@jit
def quantize_constant(bits: Any, order: Any, constant: Any, q: Any, places: Any, n_missed: Any) -> Any:
    """q = 0 everywhere; elements are appended that differ from a constant: its bits, and those checked."""
    (components, c, local, tiles), (zero_bits, checked) = order, constant
    n = bits.size // components
    for t in range(tiles.size):
        for j in range(local.size):
            position = t * local.size + j
            element = tiles[t] + local[j]
            q[position] = 0
            if element < n and (bits[components * element + c] ^ zero_bits) & checked:
                if n_missed < places.size:
                    places[n_missed] = position
                n_missed += 1
    return n_missed


@jit
def quantize_pointwise(bits: Any, order: Any, rule: Any, q: Any, places: Any, n_missed: Any) -> Any:
    """Steps in the bits of the magnitude, by a `BitRule`."""
    components, c, local, tiles = order
    n = bits.size // components
    for t in range(tiles.size):
        for j in range(local.size):
            position = t * local.size + j
            element = tiles[t] + local[j]
            q[position] = 0
            if element >= n:
                continue
            word = bits[components * element + c]
            number, good = pointwise_number(word, rule)
            if good:
                q[position] = number
                continue
            if n_missed < places.size:
                places[n_missed] = position
            n_missed += 1
    return n_missed


@jit
def dequantize_absolute(q: Any, order: Any, step: Any, zero: Any, values: Any) -> None:
    """x' = q * step, or `zero` where q is 0."""
    components, c, local, tiles = order
    n = values.size // components
    for t in range(tiles.size):
        for j in range(local.size):
            element = tiles[t] + local[j]
            if element < n:
                number = q[t * local.size + j]
                values[components * element + c] = step * values.dtype.type(number) if number else zero


@jit
def dequantize_pointwise(q: Any, order: Any, rule: Any, bits: Any) -> None:
    """Bits base + (|q| - 1) step with the sign of q; zero where q is 0."""
    components, c, local, tiles = order
    n = bits.size // components
    for t in range(tiles.size):
        for j in range(local.size):
            element = tiles[t] + local[j]
            if element < n:
                number = int64(q[t * local.size + j])
                where = components * element + c
                bits[where] = rule.base + (abs(number) - 1) * rule.step if number else 0
                if number < 0:
                    bits[where] |= rule.sign_bit



@jit
def add_linear(values: Any, components: Any, c: Any, rule: Any, sums: Any) -> None:
    """Add to sums, in the values' precision, magnitudes of component c under steps of one width."""
    # As `absolute_number`, in the values' precision and without branches, so that it becomes vector
    # instructions.
    zero = values.dtype.type(0)
    step, inverse, limit, largest = rule
    for i in range(sums.size):
        x = values[components * i + c]
        scaled = np.rint(x * inverse)
        good = (np.abs(scaled) <= largest) & (np.abs(x - scaled * step) < limit)
        sums[i] += np.abs(scaled) if good else zero


@jit
def add_pointwise(bits: Any, components: Any, c: Any, rule: Any, sums: Any) -> None:
    """The same under steps of bits."""
    for i in range(sums.size):
        number, good = pointwise_number(bits[components * i + c], rule)
        if good:
            sums[i] += abs(number)


@jit
def fill_classes(sums: Any, classes: Any) -> None:
    """Classes of sums of magnitudes."""
    # A bit length is the number of powers of two that the value reaches: CLASSES - 1 comparisons,
    # each a vector instruction.
    for i in range(sums.size):
        classes[i] = uint8(0)
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

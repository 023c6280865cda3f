"""The operations of `vector_operations` as plain loops, with the same operands: what they are held against.

They are as fast as a loop in a kernel can be: the number of lanes is a constant, and all offsets are without
sign, so that numba does not look whether they count from the end. Sums are made in the types of the arrays,
and may differ from those of vectors in the last bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

WORD_VECTORS = np.uint64(8)
PRODUCT_LANES = 16
UNSIGNED = {f"n{number}": np.uint64(number) for number in (0, 16, 63, 64, 128, 256, 511, 512, 768)}
"""Constants of `CALLS`: a number with a sign would make a float of a sum."""
ONE, THREE, ROW = np.uint64(1), np.uint64(3), np.uint64(12)


def plain_operations(  # noqa: C901 (one short loop for each operation)
    lanes: int,
) -> dict[str, Callable[..., Any]]:
    """The loops for vectors of so many lanes, by the names of the operations."""
    count, half_count, twice = np.uint64(lanes), np.uint64(lanes // 2), np.uint64(2 * lanes)

    def copy(operands: Any) -> None:
        (re, im), to, (from_re, from_im), offset = operands
        for k in range(count):
            re[to + k] = from_re[offset + k]
            im[to + k] = from_im[offset + k]

    def rotate(operands: Any) -> None:
        (re, im), first, second, (a, b, c, d) = operands
        for k in range(count):
            i, j = first + k, second + k
            p, q, s, t = re[i], im[i], re[j], im[j]
            re[i], im[i] = a * p + b * s, a * q + b * t
            re[j], im[j] = c * p + d * s, c * q + d * t

    def rotate_with_phase(operands: Any) -> None:
        (re, im), first, second, (a, b, c, d), (u, v) = operands
        for k in range(count):
            i, j = first + k, second + k
            p, q, s, t = re[i], im[i], re[j] * u - im[j] * v, re[j] * v + im[j] * u
            re[i], im[i] = a * p + b * s, a * q + b * t
            re[j], im[j] = c * p + d * s, c * q + d * t

    def rotate_with_lane_phases(operands: Any) -> None:
        (re, im), first, second, (a, b, c, d), (u, v), (low_re, low_im, low) = operands
        for k in range(count):
            i, j, m, n = first + k, second + k, low_re[low + k], low_im[low + k]
            x, y = m * u - n * v, m * v + n * u
            p, q, s, t = re[i], im[i], re[j] * x - im[j] * y, re[j] * y + im[j] * x
            re[i], im[i] = a * p + b * s, a * q + b * t
            re[j], im[j] = c * p + d * s, c * q + d * t

    def multiply_phases(operands: Any) -> None:
        (re, im), offset, (u, v), (low_re, low_im, low) = operands
        for k in range(count):
            i, m, n = offset + k, low_re[low + k], low_im[low + k]
            x, y = m * u - n * v, m * v + n * u
            re[i], im[i] = re[i] * x - im[i] * y, re[i] * y + im[i] * x

    def rotate_lane_bit(bit: int) -> Callable[..., None]:
        place, own = np.uint64(bit), np.uint64(1 << bit)

        def rotate_bit(operands: Any) -> None:
            (re, im), offset, (a, b, c, d), (u, v), (low_re, low_im, low) = operands
            for k in range(half_count):
                lane = (k >> place << place + ONE) + (k & own - ONE)
                i, other = offset + lane, lane + own
                j, m, n = offset + other, low_re[low + other], low_im[low + other]
                x, y = m * u - n * v, m * v + n * u
                p, q, s, t = re[i], im[i], re[j] * x - im[j] * y, re[j] * y + im[j] * x
                re[i], im[i] = a * p + b * s, a * q + b * t
                re[j], im[j] = c * p + d * s, c * q + d * t

        return rotate_bit

    def exchange_lane_bit(bit: int) -> Callable[..., None]:
        place, own = np.uint64(bit), np.uint64(1 << bit)

        def exchange_bit(operands: Any) -> None:
            (re, im), first, second = operands
            for k in range(half_count):
                lane = (k >> place << place + ONE) + (k & own - ONE)
                i, j = first + lane + own, second + lane
                re[i], re[j] = re[j], re[i]
                im[i], im[j] = im[j], im[i]

        return exchange_bit

    def multiply_matrix(operands: Any) -> None:
        (re, im), elements, first_element, i0, i1, i2, i3 = operands
        for k in range(count):
            p0, p1, p2, p3 = re[i0 + k], re[i1 + k], re[i2 + k], re[i3 + k]
            q0, q1, q2, q3 = im[i0 + k], im[i1 + k], im[i2 + k], im[i3 + k]
            row = first_element
            for i in (i0, i1, i2, i3):
                second, third, fourth = row + THREE, row + THREE + THREE, row + THREE + THREE + THREE
                a, b, c, d = elements[row], elements[second], elements[third], elements[fourth]
                e, f = elements[row + ONE], elements[second + ONE]
                g, h = elements[third + ONE], elements[fourth + ONE]
                re[i + k] = a * p0 - e * q0 + b * p1 - f * q1 + c * p2 - g * q2 + d * p3 - h * q3
                im[i + k] = a * q0 + e * p0 + b * q1 + f * p1 + c * q2 + g * p2 + d * q3 + h * p3
                row += ROW

    def word_products(operands: Any) -> None:
        totals, bra, ket, turned_ket, signs, bra_offset, ket_offset, high = operands
        for step in range(WORD_VECTORS):
            offset = (bra_offset + step * count) ^ high
            for k in range(count):
                signed = signs[step] * bra[offset + k]
                totals[k] += signed * ket[ket_offset + step * count + k]
                totals[count + k] += signed * turned_ket[ket_offset + step * count + k]

    def sum_rotate(with_z: bool) -> Callable[..., None]:
        def sum_and_rotate(operands: Any) -> None:
            (re, im, half), (totals, to), first, second, (a, b, c, d) = operands
            for k in range(count):
                i, j = first + k, second + k
                p, q, s, t = re[i], im[i], re[j], im[j]
                e, f, g, h = re[half + i], im[half + i], re[half + j], im[half + j]
                totals[to + k] += (g * p + h * q) - (e * s + f * t)
                if with_z:
                    totals[to + twice + k] += (e * q - f * p) - (g * t - h * s)
                re[i], im[i] = a * p + b * s, a * q + b * t
                re[j], im[j] = c * p + d * s, c * q + d * t
                re[half + i], im[half + i] = a * e + b * g, a * f + b * h
                re[half + j], im[half + j] = c * e + d * g, c * f + d * h

        return sum_and_rotate

    def sum_rotate_lane_bit(with_z: bool, bit: int) -> Callable[..., None]:
        place, own = np.uint64(bit), np.uint64(1 << bit)

        def sum_and_rotate_bit(operands: Any) -> None:
            (re, im, half), (totals, to), offset, (a, b, c, d), (u, v), (low_re, low_im, low) = operands
            for k in range(half_count):
                lane = (k >> place << place + ONE) + (k & own - ONE)
                other = lane + own
                i, j, m, n = offset + lane, offset + other, low_re[low + other], low_im[low + other]
                x, y = m * u - n * v, m * v + n * u
                p, q, s, t = re[i], im[i], re[j] * x - im[j] * y, re[j] * y + im[j] * x
                e, f = re[half + i], im[half + i]
                g, h = re[half + j] * x - im[half + j] * y, re[half + j] * y + im[half + j] * x
                totals[to + lane] += g * p + h * q
                totals[to + other] += e * s + f * t
                if with_z:
                    totals[to + twice + lane] += e * q - f * p
                    totals[to + twice + other] += g * t - h * s
                re[i], im[i] = a * p + b * s, a * q + b * t
                re[j], im[j] = c * p + d * s, c * q + d * t
                re[half + i], im[half + i] = a * e + b * g, a * f + b * h
                re[half + j], im[half + j] = c * e + d * g, c * f + d * h

        return sum_and_rotate_bit

    def sum_imaginary(operands: Any) -> None:
        (re, im, half), (totals, to), ket, bra, sign = operands
        for k in range(count):
            product = re[half + bra + k] * im[ket + k] - im[half + bra + k] * re[ket + k]
            totals[to + k] += product * sign

    def sum_real(operands: Any) -> None:
        (re, im, half), (totals, to), ket, bra, sign = operands
        for k in range(count):
            product = re[half + bra + k] * re[ket + k] + im[half + bra + k] * im[ket + k]
            totals[to + k] += product * sign

    def imaginary_products(operands: Any) -> None:
        (re, im, half), offset, out = operands
        for i in range(offset, offset + count):
            out[i] = re[half + i] * im[i] - im[half + i] * re[i]

    def signed_sum(operands: Any) -> None:
        products, offset, signs, first_sign, totals, to = operands
        for step in range(WORD_VECTORS):
            for k in range(count):
                totals[to + k] += signs[first_sign + step] * products[offset + step * count + k]

    lane_bits = range(lanes.bit_length() - 1)
    return {
        "copy": copy,
        "rotate": rotate,
        "rotate with phase": rotate_with_phase,
        "rotate with lane phases": rotate_with_lane_phases,
        "multiply_phases": multiply_phases,
        **{f"rotate_lane_bit_{bit}": rotate_lane_bit(bit) for bit in lane_bits},
        **{f"exchange_lane_bit_{bit}": exchange_lane_bit(bit) for bit in lane_bits},
        "multiply_matrix": multiply_matrix,
        "word_products": word_products,
        "sum_y_rotate": sum_rotate(False),
        "sum_yz_rotate": sum_rotate(True),
        **{f"sum_y_rotate_lane_bit_{bit}": sum_rotate_lane_bit(False, bit) for bit in lane_bits},
        **{f"sum_yz_rotate_lane_bit_{bit}": sum_rotate_lane_bit(True, bit) for bit in lane_bits},
        "sum_imaginary": sum_imaginary,
        "sum_real": sum_real,
        "imaginary_products": imaginary_products,
        "signed_sum": signed_sum,
    }


def sum_signed_products(weights: Any, values: Any, entries: Any, first: int, middle: int, last: int) -> Any:
    """The sum of weights times values over entries and lanes; entries from `middle` on count with a minus."""
    total = weights.dtype.type(0)
    for e in range(first, last):
        w, v, part = entries[e, 0], entries[e, 1], weights.dtype.type(0)
        for lane in range(PRODUCT_LANES):
            part += weights[w, lane] * values[v, lane]
        total = total + part if e < middle else total - part
    return total


def plain_prefetch(array: Any, place: int) -> None:
    """Nothing: the processor waits for the element when it is read."""


CALLS = {
    "copy": "(x, i, y, (i + n16 * r) & n511)",
    "rotate": "(x, i, i + n256, m)",
    "rotate with phase": "(x, i, i + n256, m, p)",
    "rotate with lane phases": "(x, i, i + n256, m, p, (low_re, low_im, i & n63))",
    "multiply_phases": "(x, i, p, (low_re, low_im, i & n63))",
    **{f"rotate_lane_bit_{bit}": "(x, i, m, p, (low_re, low_im, i & n63))" for bit in range(4)},
    **{f"exchange_lane_bit_{bit}": "(x, i, i + n256)" for bit in range(4)},
    "multiply_matrix": "(x, elements, n0, i, i + n256, i + n512, i + n768)",
    "word_products": "(totals, x[0], y[0], y[1], low_re, (i & n128), (i & n128), n256)",
    "sum_y_rotate": "((x[0], x[1], n512), (totals, i & n16), i, i + n256, m)",
    "sum_yz_rotate": "((x[0], x[1], n512), (totals, i & n16), i, i + n256, m)",
    **{
        f"sum_{about}_rotate_lane_bit_{bit}":
        "((x[0], x[1], n512), (totals, i & n16), i, m, p, (low_re, low_im, i & n63))"
        for about in ("y", "yz") for bit in range(4)
    },
    "sum_imaginary": "((x[0], x[1], n512), (totals, i & n16), i, i ^ n64, -1.0)",
    "sum_real": "((x[0], x[1], n512), (totals, i & n16), i, i ^ n64, -1.0)",
    "imaginary_products": "((x[0], x[1], n512), i, y[0])",
    "signed_sum": "(x[0], i & n128, low_re, n0, totals, n16)",
}  # fmt: skip
"""How each operation is called for vectors i of 256 numbers, with the operands of `operands_of`."""


def driver(call: str, operation: Any, lanes: int, repeats: int) -> Callable[..., None]:
    """A compiled function of `operands_of` that calls an operation for every vector, some times over."""
    import numba

    text = (
        "def run(x, y, m, p, low_re, low_im, elements, totals):\n"
        "    for r in range(repeats):\n"
        "        for i in range(n0, n256, lanes):\n"
        f"            operation({call})\n"
    )
    names = {"operation": operation, "lanes": np.uint64(lanes), "repeats": np.uint64(repeats), **UNSIGNED}
    exec(text, names)
    options: dict[str, Any] = {"_nrt": False, "error_model": "numpy", "fastmath": {"contract"}}
    compiled: Callable[..., None] = numba.njit(**options)(names["run"])
    return compiled


def operands_of(dtype: str, seed: int) -> list[Any]:
    """Random arrays of 1024 numbers, an orthogonal matrix, a phase, and arrays that sums grow in."""
    draw = np.random.default_rng(seed)
    real = np.dtype(dtype).type

    def numbers(*shape: int) -> Any:
        return draw.standard_normal(shape).astype(dtype)

    angle = draw.uniform(0, 6)
    c, s = real(np.cos(angle)), real(np.sin(angle))
    elements = numbers(48) / 4
    elements[2::3] = -elements[1::3]  # a complex element is its two parts, and minus the latter
    phases = np.exp(1j * draw.uniform(0, 6, 128))
    return [
        (numbers(1024), numbers(1024)), (numbers(1024), numbers(1024)), (c, -s, s, c),
        (real(0.6), real(-0.8)), phases.real.astype(dtype), phases.imag.astype(dtype), elements,
        numbers(128),
    ]  # fmt: skip

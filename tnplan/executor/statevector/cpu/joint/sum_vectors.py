"""Steps on whole vectors of both states of a sweep back: rotations that also sum, and sums alone.

Numbers of lambda lie `half` behind those of psi. The sums of a rotation are the imaginary parts of
<lambda| Y |psi> and, with two, <lambda| Z |psi> on its bit, taken after the phases and before the matrix; the
second's totals are two vectors behind the first's. Lanes of a vector are summed apart. `Vectors` has what a
step is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tnplan.executor.statevector.cpu.vector_kernel import WORD_VECTORS, Parts, Vectors, turn_of, vector_step


def _grow(v: Vectors, totals: Any, at: Any, value: Any) -> None:
    v.store(v.builder.fadd(v.load(totals, at), value), totals, at)


def _offset(v: Vectors, place: Any, count: int) -> Any:
    return v.builder.add(place, v.ir.Constant(place.type, count))


def _imaginary(v: Vectors, p: Parts, x: Parts) -> Any:
    """The imaginary part of conj(p) x."""
    return v.sum_of_products((p[0], x[1]), (v.builder.fneg(p[1]), x[0]))


def _real(v: Vectors, p: Parts, x: Parts) -> Any:
    """The real part of conj(p) x."""
    return v.sum_of_products((p[0], x[0]), (p[1], x[1]))


def _sum_rotate(with_z: bool, v: Vectors, given: Sequence[Any]) -> None:
    re, im, half, totals, at, first, second = given[:7]
    matrix, turn = given[7:11], turn_of(v, given[11:])
    places = [(place, v.builder.add(place, half)) for place in (first, second)]
    (x, p), (y, q) = ([v.load_parts((re, im), place) for place in pair] for pair in places)
    if turn is not None:
        y, q = v.product(y, turn), v.product(q, turn)
    _grow(v, totals, at, v.builder.fsub(_real(v, q, x), _real(v, p, y)))
    if with_z:
        about_z = v.builder.fsub(_imaginary(v, p, x), _imaginary(v, q, y))
        _grow(v, totals, _offset(v, at, 2 * v.lanes), about_z)
    for number, (above, below) in enumerate(((x, y), (p, q))):
        for value, pair in zip(v.real_rows(matrix, above, below), places, strict=True):
            v.store_parts(value, (re, im), pair[number])


def _sum_lane_rotate(with_z: bool, bit: int, v: Vectors, given: Sequence[Any]) -> None:
    re, im, half, totals, at, place = given[:6]
    a, b, c, d = (v.every(one) for one in given[6:10])
    turn = turn_of(v, given[10:])
    assert turn is not None
    lanes = [lane ^ 1 << bit for lane in range(v.lanes)]
    own, other = v.chosen(a, d, bit), v.chosen(b, c, bit)
    both, crossed = [], []
    for where in (place, v.builder.add(place, half)):
        x = v.load_parts((re, im), where)
        turned = v.product(x, turn)
        x = v.chosen(x[0], turned[0], bit), v.chosen(x[1], turned[1], bit)
        across = v.shuffled(x[0], x[0], lanes), v.shuffled(x[1], x[1], lanes)
        both.append(x)
        crossed.append(across)
        parts = [
            v.sum_of_products((part, own), (moved, other)) for part, moved in zip(x, across, strict=True)
        ]
        v.store_parts((parts[0], parts[1]), (re, im), where)
    _grow(v, totals, at, _real(v, crossed[1], both[0]))
    if with_z:
        _grow(v, totals, _offset(v, at, 2 * v.lanes), _imaginary(v, both[1], both[0]))


def _cross_products(imaginary: bool, v: Vectors, given: Sequence[Any]) -> None:
    re, im, half, totals, at, here, there, sign = given
    x = v.load_parts((re, im), here)
    p = v.load_parts((re, im), v.builder.add(there, half))
    product = (_imaginary if imaginary else _real)(v, p, x)
    if sign.type != v.vector.element:
        sign = v.builder.fptrunc(sign, v.vector.element)
    _grow(v, totals, at, v.builder.fmul(product, v.every(sign)))


def _products(v: Vectors, given: Sequence[Any]) -> None:
    re, im, half, place, out = given
    x, p = v.load_parts((re, im), place), v.load_parts((re, im), v.builder.add(place, half))
    v.store(_imaginary(v, p, x), out, place)


def _signed_sum(v: Vectors, given: Sequence[Any]) -> None:
    products, place, signs, at, totals, to = given
    pairs = [
        (v.load(products, _offset(v, place, step * v.lanes)), v.number(signs, at, step))
        for step in range(WORD_VECTORS)
    ]
    total = v.builder.fadd(v.sum_of_products(*pairs[::2]), v.sum_of_products(*pairs[1::2]))
    _grow(v, totals, to, total)


def _add_lanes(count: int, v: Vectors, given: Sequence[Any]) -> None:
    totals, at, signs, row, out, column, sign = given
    builder, ir, lanes = v.builder, v.ir, v.lanes
    double = ir.VectorType(ir.DoubleType(), lanes)
    parts = [v.load(totals, _offset(v, at, number * lanes)) for number in range(count)]
    wide = [part if part.type == double else builder.fpext(part, double) for part in parts]
    total = wide[0] if count == 1 else builder.fadd(*wide)
    place = builder.bitcast(builder.gep(signs, [row]), ir.PointerType(double))
    total = builder.fmul(total, builder.load(place, align=8))
    while lanes > 1:
        lanes //= 2
        below, above = (v.shuffled(total, total, range(first, first + lanes)) for first in (0, lanes))
        total = builder.fadd(below, above)
    value = builder.fmul(builder.extract_element(total, ir.Constant(v.index, 0)), sign)
    place = builder.gep(out, [column])
    builder.store(builder.fadd(builder.load(place), value), place)


y_rotate, yz_rotate = (vector_step(partial(_sum_rotate, with_z)) for with_z in (False, True))
"""(re, im, half, totals, at, first, second, a, b, c, d, ...): a real matrix at two places of both states.

It may be followed by a phase of the second, (turn_re, turn_im), or by phases of each lane,
(turn_re, turn_im, low_re, low_im, low).
"""
(
    y_lane_rotate_0, y_lane_rotate_1, y_lane_rotate_2, y_lane_rotate_3,
    yz_lane_rotate_0, yz_lane_rotate_1, yz_lane_rotate_2, yz_lane_rotate_3,
) = (
    vector_step(partial(_sum_lane_rotate, with_z, bit)) for with_z in (False, True) for bit in range(4)
)  # fmt: skip
"""(re, im, half, totals, at, place, a, b, c, d, turn_re, turn_im, low_re, low_im, low): on a bit of the
lane's number; lanes where it is 1 count with a minus."""
cross_imaginary, cross_real = (vector_step(partial(_cross_products, one)) for one in (True, False))
"""(re, im, half, totals, at, here, there, sign): the imaginary or real part of conj(lambda[there]) psi[here],
times a float64 sign."""
products: Any = vector_step(_products)
"""(re, im, half, place, out): out[place] = the imaginary part of conj(lambda[place]) psi[place]."""
signed_sum: Any = vector_step(_signed_sum)
"""(products, place, signs, at, totals, to): WORD_VECTORS vectors from `place` on, each times a sign."""
add_lanes, add_lanes_of_two = (vector_step(partial(_add_lanes, count)) for count in (1, 2))
"""(totals, at, signs, row, out, column, sign): out[column] += the sum of the lanes of one or two vectors,
each times a number of float64 `signs` from `row` on, times a sign."""

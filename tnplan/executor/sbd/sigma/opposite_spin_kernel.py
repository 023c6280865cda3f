"""The numba kernel of the opposite-spin part on a CPU: products of excitations, some alpha ones at once.

Imported lazily (numba loads slowly). Of every beta string, `bounds[2 b] .. bounds[2 b + 2] - 1` are its
excitations, the positive ones before `bounds[2 b + 1]`; `entries[e]` are their active pair and their source.
Each element of the result is summed by one thread, in one order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from tnplan.executor.device.cpu.bits_kernel import jit
from tnplan.executor.sbd.sigma.opposite_spin import LINE_BYTES, SIMD_LANES

ROWS_TRANSPOSED = 4
"""Rows whose values are brought to SIMD lanes at once."""


def _sum_lanes(builder: Any, vector: Any) -> Any:
    """The sum of a vector's lanes, halves being added to each other."""
    count = vector.type.count
    while count > 1:
        count //= 2
        halves = [
            builder.shuffle_vector(
                vector, ir.Constant(vector.type, ir.Undefined),
                ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(first, first + count))),
            )
            for first in (0, count)
        ]  # fmt: skip
        vector = builder.fadd(*halves)
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


def _products(
    typing_context: Any, weights: Any, values: Any, entries: Any, first: Any, middle: Any, last: Any
) -> tuple[Any, Callable[..., Any]]:
    """The sum of weights[pair, lane] values[source, lane] over lanes and entries first .. last-1.

    Those from `middle` on are subtracted. Written as vector instructions, since the lanes are to stay in one
    register from entry to entry.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        index = ir.IntType(64)
        one, two = ir.Constant(index, 1), ir.Constant(index, 2)
        vector = ir.VectorType(context.get_value_type(weights.dtype), SIMD_LANES)
        zero = ir.Constant(vector, [0.0] * SIMD_LANES)
        starts = [
            context.make_array(kind)(context, builder, array).data
            for kind, array in zip((weights, values, entries), arguments[:3], strict=True)
        ]
        lanes = [builder.bitcast(start, vector.as_pointer()) for start in starts[:2]]

        def product(e: Any) -> Any:
            entry = builder.gep(starts[2], [builder.mul(e, two)])
            factors = []
            for side, rows in enumerate(lanes):
                place = builder.gep(entry, [ir.Constant(index, side)])
                factor = builder.load(builder.gep(rows, [builder.sext(builder.load(place), index)]))
                factor.align = LINE_BYTES
                factors.append(factor)
            return builder.fmul(*factors, flags=("contract",))

        sums = []
        for begin, end in (arguments[3:5], arguments[4:6]):
            total = cgutils.alloca_once_value(builder, zero)
            builder.store(zero, total)
            with cgutils.for_range_slice(builder, begin, end, one, index) as (e, _):
                builder.store(builder.fadd(builder.load(total), product(e), flags=("contract",)), total)
            sums.append(builder.load(total))
        return _sum_lanes(builder, builder.fsub(*sums))

    return weights.dtype(weights, values, entries, first, middle, last), generate


_sum_products: Any = intrinsic(_products)


@jit
def _add_span(
    first: int, last: int, factor: Any, weights: Any, values: Any, bounds: Any, entries: Any, out: Any
) -> None:
    """out[b] += factor times the products of the excitations of beta strings first .. last-1."""
    for b in range(first, last):
        total = _sum_products(weights, values, entries, bounds[2 * b], bounds[2 * b + 1], bounds[2 * b + 2])
        out[b] += factor * total


@jit
def _load_lanes(
    at: int, begin: int, end: int, place: int, number_weights: Any, singles: Any, active: Any, x: Any,
    scratch: Any,
) -> None:  # fmt: skip
    """Fill the lanes with excitations from `at` on, and with the string itself before `begin`.

    From `end` on weights are 0 and values are any finite ones.
    """
    other, pairs, sign, (rows, weights, values) = singles.other, singles.pairs, singles.sign, scratch
    for k in range(SIMD_LANES):
        e = at + k
        if e < begin:
            rows[k] = place
            for a in range(len(weights)):
                weights[a, k] = number_weights[a]
        elif e < end:
            rows[k] = other[e]
            factor, coefficients = sign[e], active[pairs[e]]
            for a in range(len(weights)):
                weights[a, k] = factor * coefficients[a]
        else:
            weights[:, k] = 0
            rows[k] = rows[0]
    for k in range(0, min(SIMD_LANES, end - at), ROWS_TRANSPOSED):
        first, second, third, fourth = x[rows[k]], x[rows[k + 1]], x[rows[k + 2]], x[rows[k + 3]]
        for b in range(len(values)):
            values[b, k] = first[b]
            values[b, k + 1] = second[b]
            values[b, k + 2] = third[b]
            values[b, k + 3] = fourth[b]


@jit
def add_opposite_spin(
    first: int, last: int, above: int, below: int, half: bool, singles: Any, tables: Any, x: Any,
    scratch: Any, y: Any,
) -> None:  # fmt: skip
    """Add the opposite-spin part to rows first .. last-1 of y, of which row 0 is alpha string `above`.

    Row 0 of x is alpha string `below`; the `Singles` are excitations from the rows of x. `tables` are an
    `OppositeSpinTables`: coefficients are numbers[pair, b] with the number operators of beta string b,
    active[pair, a] with active pair a, and number_weights[row, a] of the number operators of a row,
    filled[row, p]. `scratch` is for the lanes: their rows, weights and values. With `half`, elements are made
    of which y plus or minus its transpose is the whole; those with excitations of both spins for one half of
    the beta strings, from that of the row on and round, so that all rows have nearly the same work.
    """
    start, other, pairs, sign = singles.start, singles.other, singles.pairs, singles.sign
    numbers, active, number_weights, filled, bounds, entries = tables
    _, weights, values = scratch
    n_beta = y.shape[1]
    for row in range(first, last):
        i, out = row + above, y[row]
        place, begin, end = i - below, start[i], start[i + 1]
        here = 0 <= place < len(x)
        for e in range(begin, end):
            _add_numbers(sign[e], numbers[pairs[e]], x[other[e]], out)
        if here:
            for p in range(filled.shape[1]):
                if filled[row, p] != 0:
                    _add_numbers(0.5 if half else 1.0, numbers[p], x[place], out)
        for at in range(begin - (here and not half), end, SIMD_LANES):
            _load_lanes(at, begin, end, place, number_weights[row], singles, active, x, scratch)
            if half:
                stop = i + (n_beta + 1) // 2 + (n_beta % 2 == 0 and i < n_beta // 2)
                _add_span(i, i + 1, 0.5, weights, values, bounds, entries, out)
                _add_span(i + 1, min(stop, n_beta), 1.0, weights, values, bounds, entries, out)
                _add_span(0, stop - n_beta, 1.0, weights, values, bounds, entries, out)
            else:
                _add_span(0, n_beta, 1.0, weights, values, bounds, entries, out)


@jit
def _add_numbers(factor: Any, numbers: Any, source: Any, out: Any) -> None:
    """out += factor times numbers times source, element by element."""
    for b in range(out.size):
        out[b] += factor * numbers[b] * source[b]


@jit
def add_transpose(first: int, last: int, step: int, parity: int, y: Any) -> None:
    """y[i, j] += parity y[j, i] and y[j, i] += parity y[i, j] for first <= i < last and j <= i, by tiles."""
    for i_tile in range(first, last, step):
        for j_tile in range(0, i_tile + 1, step):
            for i in range(i_tile, min(last, i_tile + step)):
                for j in range(j_tile, min(j_tile + step, i + 1)):
                    below, above = y[i, j], y[j, i]
                    y[i, j] = below + parity * above
                    y[j, i] = above + parity * below

"""Steps on whole vectors of a processor: what numba lacks, to say which numbers one instruction takes.

A vector has one part of neighbouring amplitudes, 64 bytes: 2^LANE_BITS numbers, its lanes. A step is called
with one tuple: arrays, places in them (counted in numbers), and numbers. It reads vectors, computes in
registers, and writes them back. LLVM divides vectors that are wider than those of the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tnplan.common.kernels.kernel import Late

VECTOR_BYTES = 64
LANE_BITS = {4: 4, 8: 3}
"""The bits of a lane's number, by the bytes of a number."""
Parts = tuple[Any, Any]
"""Real and imaginary parts, a vector each."""
WORD_VECTORS = 8
"""Vectors that `word_products` takes."""
FUSED = ("contract",)
"""Multiplications and additions may be one instruction."""


class Vectors:
    """Writes the code of one step, for numbers of one type."""

    def __init__(self, builder: Any, real: Any, lanes: int) -> None:
        from llvmlite import ir

        self.ir, self.builder, self.lanes = ir, builder, lanes
        self.vector = ir.VectorType(real, lanes)
        self.index = ir.IntType(32)

    def load(self, data: Any, place: Any) -> Any:
        """A vector of an array."""
        return self.builder.load(self._at(data, place), align=4)

    def store(self, value: Any, data: Any, place: Any) -> None:
        """Write a vector of an array."""
        self.builder.store(value, self._at(data, place), align=4)

    def _at(self, data: Any, place: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(data, [place]), self.ir.PointerType(self.vector))

    def load_parts(self, arrays: Parts, place: Any) -> Parts:
        """Both parts."""
        return self.load(arrays[0], place), self.load(arrays[1], place)

    def store_parts(self, value: Parts, arrays: Parts, place: Any) -> None:
        """Write both parts."""
        self.store(value[0], arrays[0], place)
        self.store(value[1], arrays[1], place)

    def number(self, data: Any, place: Any, offset: int) -> Any:
        """The number of an array at place + offset, in every lane."""
        at = self.builder.add(place, self.ir.Constant(place.type, offset))
        return self.every(self.builder.load(self.builder.gep(data, [at])))

    def every(self, value: Any) -> Any:
        """A number in every lane."""
        nothing = self.ir.Constant(self.vector, self.ir.Undefined)
        one = self.builder.insert_element(nothing, value, self.ir.Constant(self.index, 0))
        return self.shuffled(one, one, [0] * self.lanes)

    def shuffled(self, a: Any, b: Any, chosen: Sequence[int]) -> Any:
        """Chosen lanes of both after each other."""
        mask = self.ir.Constant(self.ir.VectorType(self.index, len(chosen)), list(chosen))
        return self.builder.shuffle_vector(a, b, mask)

    def sum_of_products(self, *pairs: tuple[Any, Any]) -> Any:
        """The sum of products."""
        total = self.builder.fmul(*pairs[0], flags=FUSED)
        for a, b in pairs[1:]:
            total = self.builder.fadd(self.builder.fmul(a, b, flags=FUSED), total, flags=FUSED)
        return total

    def product(self, a: Parts, b: Parts) -> Parts:
        """The product of complex numbers."""
        minus = self.builder.fneg(b[1])
        return self.sum_of_products((a[0], b[0]), (a[1], minus)), self.sum_of_products(
            (a[0], b[1]), (a[1], b[0])
        )

    def real_rows(self, matrix: Sequence[Any], x: Parts, y: Parts) -> tuple[Parts, Parts]:
        """A real 2 x 2 matrix, row by row, times two complex vectors."""
        a, b, c, d = (self.every(one) for one in matrix)
        above = [self.sum_of_products((p, a), (q, b)) for p, q in zip(x, y, strict=True)]
        below = [self.sum_of_products((p, c), (q, d)) for p, q in zip(x, y, strict=True)]
        return (above[0], above[1]), (below[0], below[1])

    def chosen(self, low: Any, high: Any, bit: int) -> Any:
        """`high` in the lanes whose number has a bit, `low` in the others."""
        n = self.lanes
        return self.shuffled(low, high, [lane + n * (lane >> bit & 1) for lane in range(n)])


def vector_step(body: Callable[[Vectors, Sequence[Any]], None]) -> Late:
    """A step whose code `body` writes."""

    def typing(typing_context: Any, given: Any) -> tuple[Any, Callable[..., Any]]:
        from numba import types

        kind = given.types[0].dtype

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            values = []
            for position, one in enumerate(given.types):
                value = builder.extract_value(arguments[0], position)
                if isinstance(one, types.Array):
                    value = context.make_array(one)(context, builder, value).data
                elif isinstance(one, types.Integer):
                    value = context.cast(builder, value, one, types.int64)
                values.append(value)
            body(Vectors(builder, context.get_value_type(kind), 8 * VECTOR_BYTES // kind.bitwidth), values)
            return context.get_dummy_value()

        return types.void(given), generate

    def make() -> Any:
        from numba.extending import intrinsic

        return intrinsic(typing)

    return Late(make)


def _copy(v: Vectors, given: Sequence[Any]) -> None:
    re, im, to, from_re, from_im, at = given
    v.store_parts(v.load_parts((from_re, from_im), at), (re, im), to)


def turn_of(v: Vectors, given: Sequence[Any]) -> Parts | None:
    """Phases of all lanes (their parts), and of each (arrays of parts, and a place), if any."""
    if not given:
        return None
    turn_re, turn_im, *low = given
    if not low:
        return v.every(turn_re), v.every(turn_im)
    return v.product(v.load_parts((low[0], low[1]), low[2]), (v.every(turn_re), v.every(turn_im)))


def _rotate(v: Vectors, given: Sequence[Any]) -> None:
    re, im, first, second = given[:4]
    x, y = (v.load_parts((re, im), at) for at in (first, second))
    matrix, turn = given[4:8], turn_of(v, given[8:])
    if turn is not None:
        y = v.product(y, turn)
    for value, at in zip(v.real_rows(matrix, x, y), (first, second), strict=True):
        v.store_parts(value, (re, im), at)


def _turned(v: Vectors, given: Sequence[Any]) -> tuple[Parts, Parts]:
    """A vector, and it times phases."""
    re, im, place, *turns = given
    x, turn = v.load_parts((re, im), place), turn_of(v, turns)
    assert turn is not None
    return x, v.product(x, turn)


def _turn_all(v: Vectors, given: Sequence[Any]) -> None:
    v.store_parts(_turned(v, given)[1], (given[0], given[1]), given[2])


def _lane_rotate(bit: int, v: Vectors, given: Sequence[Any]) -> None:
    re, im, place, a, b, c, d, *turns = given
    x, turned = _turned(v, (re, im, place, *turns))
    x = v.chosen(x[0], turned[0], bit), v.chosen(x[1], turned[1], bit)
    own = v.chosen(v.every(a), v.every(d), bit)
    other = v.chosen(v.every(b), v.every(c), bit)
    lanes = [lane ^ 1 << bit for lane in range(v.lanes)]
    parts = [v.sum_of_products((part, own), (v.shuffled(part, part, lanes), other)) for part in x]
    v.store_parts((parts[0], parts[1]), (re, im), place)


def _lane_exchange(bit: int, v: Vectors, given: Sequence[Any]) -> None:
    re, im, first, second = given
    n = v.lanes
    low = [lane if not lane >> bit & 1 else n + (lane ^ 1 << bit) for lane in range(n)]
    high = [lane | 1 << bit if not lane >> bit & 1 else n + lane for lane in range(n)]
    for array in (re, im):
        x, y = v.load(array, first), v.load(array, second)
        v.store(v.shuffled(x, y, low), array, first)
        v.store(v.shuffled(x, y, high), array, second)


def _multiply(v: Vectors, given: Sequence[Any]) -> None:
    re, im, numbers, at, *places = given
    x = [v.load_parts((re, im), place) for place in places]
    side = len(places)
    for row, place in enumerate(places):
        terms_re: list[tuple[Any, Any]] = []
        terms_im: list[tuple[Any, Any]] = []
        for column, (p, q) in enumerate(x):
            m_re, m_im, minus = (v.number(numbers, at, 3 * (side * row + column) + part) for part in range(3))
            terms_re += [(p, m_re), (q, minus)]
            terms_im += [(q, m_re), (p, m_im)]
        v.store_parts((v.sum_of_products(*terms_re), v.sum_of_products(*terms_im)), (re, im), place)


def _word_products(v: Vectors, given: Sequence[Any]) -> None:
    totals, others, own, turned, signs, there, here, high = given
    index, builder = there.type, v.builder

    def constant(value: int) -> Any:
        return v.ir.Constant(index, value)

    products: list[list[tuple[Any, Any]]] = [[], []]
    for step in range(WORD_VECTORS):
        place = builder.xor(builder.add(there, constant(step * v.lanes)), high)
        signed = builder.fmul(v.load(others, place), v.number(signs, constant(0), step))
        for part, array in zip(products, (own, turned), strict=True):
            part.append((signed, v.load(array, builder.add(here, constant(step * v.lanes)))))
    for part, at in zip(products, (constant(0), constant(v.lanes)), strict=True):
        total = builder.fadd(v.sum_of_products(*part[::2]), v.sum_of_products(*part[1::2]))
        v.store(builder.fadd(v.load(totals, at), total), totals, at)


copy: Any = vector_step(_copy)
"""(re, im, to, from_re, from_im, at): both parts of a vector into other arrays."""
rotate: Any = vector_step(_rotate)
"""(re, im, first, second, a, b, c, d): a real matrix times the amplitudes at two places. The second are
multiplied before by a phase, (..., turn_re, turn_im), and by one of each lane, (..., low_re, low_im, low)."""
turn_all: Any = vector_step(_turn_all)
"""(re, im, place, turn_re, turn_im, low_re, low_im, low): phases of all lanes."""
lane_rotate_0, lane_rotate_1, lane_rotate_2, lane_rotate_3 = (
    vector_step(partial(_lane_rotate, bit)) for bit in range(4)
)
"""(re, im, place, a, b, c, d, turn_re, turn_im, low_re, low_im, low): on a bit of the lane's number."""
lane_exchange_0, lane_exchange_1, lane_exchange_2, lane_exchange_3 = (
    vector_step(partial(_lane_exchange, bit)) for bit in range(4)
)
"""(re, im, first, second): a bit of the lane's number changes places with that between two places."""
multiply: Any = vector_step(_multiply)
"""(re, im, numbers, at, place, ...): a complex matrix times the amplitudes at some places.

An element is three numbers of `numbers` from `at` on: its real and imaginary part, and minus the latter.
"""
word_products: Any = vector_step(_word_products)
"""(totals, others, own, turned, signs, there, here, high): two vectors of totals grow by the products of
`others` with `own` and with `turned`, lane by lane, over WORD_VECTORS vectors. Those of `others` are at the
numbers there ^ high, the two others from `here` on; each has a sign.
"""

"""The operations that kernels have and numba lacks, each with a name: the one file that writes LLVM's code.

Most work on vectors: 64 bytes of neighbouring numbers, its lanes (8 of float64, 16 of float32). An operation
takes one tuple of arrays, offsets into them (counted in numbers, not in vectors) and numbers; tuples in it
stand for their entries. It loads vectors, computes in registers and stores. LLVM splits vectors that are
wider than the registers of the processor.

Why no loops: LLVM's vectorizer has to prove that arrays do not overlap and that exchanged lanes stay in one
vector. It can do neither here. Each operation has a plain loop with the same result in the tests
(`tests/support/kernels/plain_operations.py`), which is also what it was measured against.

`flush_subnormals` alone is done around kernels and not in them.

Conventions
-----------
State vectors are kept as real parts `re` and imaginary parts `im`. A gate on bit k of the amplitude's index
joins the amplitudes i and i | 1 << k. The lowest bits of i number the lane: a bit of the *lane number* is a
qubit whose two amplitudes lie in one vector. A real matrix [[a, b], [c, d]] acts on such a pair. Before it,
the amplitude where the bit is 1 is multiplied by a phase, if one is given. `phase` is (re, im), the same in
all lanes; `lane_phases` is (re, im, offset): arrays with a factor of its own for each lane.

Where an operation sums, both states of a backward sweep lie in one array: psi first, lambda `half` numbers
behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from tnplan.common.kernels.kernel import Late

VECTOR_BYTES = 64
LANE_BITS = {4: 4, 8: 3}
"""log2 of the lanes of a vector, by the bytes of a number."""
WORD_VECTORS = 8
"""Vectors that `word_products` and `signed_sum` add up at a time."""
PRODUCT_LANES = 16
"""Columns that `sum_signed_products` takes at once, whatever the type of numbers."""
WORD_BYTES = 8
Complex = tuple[Any, Any]
"""Vectors of real and imaginary parts."""
Generate = Callable[..., Any]
FUSED = ("contract",)
"""LLVM's leave to make one fused multiply-add of a product and a sum: the only freedom with rounding."""


class Vectors:
    """Writes the code of one operation, for numbers of one type.

    - `builder`: Where the code goes.
    - `real`: The type of a number, float or double.
    - `lanes`: Numbers of a vector.
    """

    def __init__(self, builder: Any, real: Any, lanes: int) -> None:
        from llvmlite import ir

        self.ir, self.builder, self.lanes = ir, builder, lanes
        self.vector = ir.VectorType(real, lanes)
        self.index = ir.IntType(32)

    def load(self, array: Any, offset: Any) -> Any:
        """The vector of an array that begins at `offset`."""
        # Alignment 4: scratch arrays and slices begin anywhere. Unaligned loads cost nothing within a line.
        return self.builder.load(self._address(array, offset), align=4)

    def store(self, value: Any, array: Any, offset: Any) -> None:
        """Write a vector to an array."""
        self.builder.store(value, self._address(array, offset), align=4)

    def _address(self, array: Any, offset: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(array, [offset]), self.ir.PointerType(self.vector))

    def load_complex(self, arrays: Complex, offset: Any) -> Complex:
        """Real and imaginary parts."""
        return self.load(arrays[0], offset), self.load(arrays[1], offset)

    def store_complex(self, value: Complex, arrays: Complex, offset: Any) -> None:
        """Write real and imaginary parts."""
        self.store(value[0], arrays[0], offset)
        self.store(value[1], arrays[1], offset)

    def add_to(self, totals: Any, offset: Any, value: Any) -> None:
        """totals[offset + lane] += value[lane], with a rounding of its own."""
        self.store(self.builder.fadd(self.load(totals, offset), value), totals, offset)

    def number(self, array: Any, offset: Any, further: int) -> Any:
        """The number of an array at offset + further, in every lane."""
        return self.broadcast(self.builder.load(self.builder.gep(array, [self.shifted(offset, further)])))

    def shifted(self, offset: Any, count: int) -> Any:
        """An offset and a constant."""
        return self.builder.add(offset, self.ir.Constant(offset.type, count))

    def broadcast(self, value: Any) -> Any:
        """A number in every lane."""
        undefined = self.ir.Constant(self.vector, self.ir.Undefined)
        first = self.builder.insert_element(undefined, value, self.ir.Constant(self.index, 0))
        return self.shuffle(first, first, [0] * self.lanes)

    def shuffle(self, a: Any, b: Any, chosen: Sequence[int]) -> Any:
        """The chosen lanes of a and b, where those of b are numbered behind those of a."""
        mask = self.ir.Constant(self.ir.VectorType(self.index, len(chosen)), list(chosen))
        return self.builder.shuffle_vector(a, b, mask)

    def select_by_bit(self, zero: Any, one: Any, bit: int) -> Any:
        """`one` in the lanes whose number has a bit, `zero` in the others."""
        n = self.lanes
        return self.shuffle(zero, one, [lane + n * (lane >> bit & 1) for lane in range(n)])

    def exchange_by_bit(self, value: Any, bit: int) -> Any:
        """Every lane takes the value of the lane whose number differs in one bit."""
        return self.shuffle(value, value, [lane ^ 1 << bit for lane in range(self.lanes)])

    def sum_of_products(self, *pairs: tuple[Any, Any]) -> Any:
        """The sum of products, in turn."""
        total = self.builder.fmul(*pairs[0], flags=FUSED)
        for a, b in pairs[1:]:
            total = self.builder.fadd(self.builder.fmul(a, b, flags=FUSED), total, flags=FUSED)
        return total

    def product(self, a: Complex, b: Complex) -> Complex:
        """The product of complex numbers."""
        minus = self.builder.fneg(b[1])
        return self.sum_of_products((a[0], b[0]), (a[1], minus)), self.sum_of_products(
            (a[0], b[1]), (a[1], b[0])
        )

    def real_of_overlap(self, bra: Complex, ket: Complex) -> Any:
        """The real part of conj(bra) ket."""
        return self.sum_of_products((bra[0], ket[0]), (bra[1], ket[1]))

    def imaginary_of_overlap(self, bra: Complex, ket: Complex) -> Any:
        """The imaginary part of conj(bra) ket."""
        return self.sum_of_products((bra[0], ket[1]), (self.builder.fneg(bra[1]), ket[0]))

    def real_matrix(self, matrix: Sequence[Any], x: Complex, y: Complex) -> tuple[Complex, Complex]:
        """(a x + b y, c x + d y) with real a, b, c, d."""
        a, b, c, d = (self.broadcast(element) for element in matrix)
        above = [self.sum_of_products((p, a), (q, b)) for p, q in zip(x, y, strict=True)]
        below = [self.sum_of_products((p, c), (q, d)) for p, q in zip(x, y, strict=True)]
        return (above[0], above[1]), (below[0], below[1])

    def sum_lanes(self, vector: Any) -> Any:
        """The sum of a vector's lanes.

        Halves are added to each other: lane k + lanes/2 to lane k, and so on. The order is fixed, as the bits
        of a result must not depend on the processor.
        """
        lanes = vector.type.count
        while lanes > 1:
            lanes //= 2
            low, high = (self.shuffle(vector, vector, range(first, first + lanes)) for first in (0, lanes))
            vector = self.builder.fadd(low, high)
        return self.builder.extract_element(vector, self.ir.Constant(self.index, 0))


def _intrinsic(typing: Callable[..., Any]) -> Late:
    """An intrinsic of numba from its typing function, made when a kernel that uses it is compiled."""

    def make() -> Any:
        from numba.extending import intrinsic

        return intrinsic(typing)

    return Late(make)


def _entries(kind: Any, value: Any, builder: Any) -> Iterator[tuple[Any, Any]]:
    """The types and values of a tuple's entries; tuples in it are opened."""
    from numba import types

    if isinstance(kind, types.BaseTuple):
        inner_kinds: Any = kind
        for position, inner in enumerate(inner_kinds.types):
            yield from _entries(inner, builder.extract_value(value, position), builder)
    else:
        yield kind, value


def vector_operation(write: Callable[[Vectors, Sequence[Any]], None]) -> Late:
    """An operation for kernels, of which `write` writes the code.

    The type of the first array is that of all vectors. `write` gets arrays as addresses and integers as
    64-bit integers.
    """

    def typing(typing_context: Any, operands: Any) -> tuple[Any, Generate]:
        from numba import types

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            values, real = [], None
            for kind, value in _entries(operands, arguments[0], builder):
                if isinstance(kind, types.Array):
                    real = real or kind.dtype
                    values.append(context.make_array(kind)(context, builder, value).data)
                elif isinstance(kind, types.Integer):
                    values.append(context.cast(builder, value, kind, types.int64))
                else:
                    values.append(value)
            assert real is not None
            write(Vectors(builder, context.get_value_type(real), 8 * VECTOR_BYTES // real.bitwidth), values)
            return context.get_dummy_value()

        return types.void(operands), generate

    return _intrinsic(typing)


def _phase_of(v: Vectors, operands: Sequence[Any]) -> Complex | None:
    """The factor of (phase_re, phase_im), or times those of each lane, (.., re, im, offset); None for ()."""
    if not operands:
        return None
    phase_re, phase_im, *of_lanes = operands
    phase = v.broadcast(phase_re), v.broadcast(phase_im)
    if not of_lanes:
        return phase
    return v.product(v.load_complex((of_lanes[0], of_lanes[1]), of_lanes[2]), phase)


def _copy(v: Vectors, operands: Sequence[Any]) -> None:
    re, im, to, from_re, from_im, offset = operands
    v.store_complex(v.load_complex((from_re, from_im), offset), (re, im), to)


def _rotate(v: Vectors, operands: Sequence[Any]) -> None:
    re, im, *offsets = operands[:4]
    x, y = (v.load_complex((re, im), offset) for offset in offsets)
    matrix, phase = operands[4:8], _phase_of(v, operands[8:])
    if phase is not None:
        y = v.product(y, phase)
    for value, offset in zip(v.real_matrix(matrix, x, y), offsets, strict=True):
        v.store_complex(value, (re, im), offset)


def _phased(v: Vectors, arrays: Complex, offset: Any, phases: Sequence[Any]) -> tuple[Complex, Complex]:
    """A vector, and it times its phases."""
    x, phase = v.load_complex(arrays, offset), _phase_of(v, phases)
    assert phase is not None
    return x, v.product(x, phase)


def _multiply_phases(v: Vectors, operands: Sequence[Any]) -> None:
    re, im, offset, *phases = operands
    v.store_complex(_phased(v, (re, im), offset, phases)[1], (re, im), offset)


def _rotate_lane_bit(bit: int, v: Vectors, operands: Sequence[Any]) -> None:
    re, im, offset, a, b, c, d, *phases = operands
    x, phased = _phased(v, (re, im), offset, phases)
    x = v.select_by_bit(x[0], phased[0], bit), v.select_by_bit(x[1], phased[1], bit)
    # Lane l becomes own[l] x[l] + other[l] x[l with the bit exchanged]: a and b where the bit is 0, d and c.
    own = v.select_by_bit(v.broadcast(a), v.broadcast(d), bit)
    other = v.select_by_bit(v.broadcast(b), v.broadcast(c), bit)
    rotated = [v.sum_of_products((y, own), (v.exchange_by_bit(y, bit), other)) for y in x]
    v.store_complex((rotated[0], rotated[1]), (re, im), offset)


def _exchange_lane_bit(bit: int, v: Vectors, operands: Sequence[Any]) -> None:
    re, im, first, second = operands
    n = v.lanes
    low = [lane if not lane >> bit & 1 else n + (lane ^ 1 << bit) for lane in range(n)]
    high = [lane | 1 << bit if not lane >> bit & 1 else n + lane for lane in range(n)]
    for array in (re, im):
        x, y = v.load(array, first), v.load(array, second)
        v.store(v.shuffle(x, y, low), array, first)
        v.store(v.shuffle(x, y, high), array, second)


def _multiply_matrix(v: Vectors, operands: Sequence[Any]) -> None:
    re, im, elements, first_element, *offsets = operands
    # Invariant: all inputs are in registers before the first output is stored, as both have the same memory.
    x = [v.load_complex((re, im), offset) for offset in offsets]
    side = len(offsets)
    for row, offset in enumerate(offsets):
        terms_re: list[tuple[Any, Any]] = []
        terms_im: list[tuple[Any, Any]] = []
        for column, (p, q) in enumerate(x):
            # Three numbers an element: with -im in memory, all of y = M x is fused multiply-adds
            # without a change of sign.
            m_re, m_im, minus_m_im = (
                v.number(elements, first_element, 3 * (side * row + column) + number) for number in range(3)
            )
            terms_re += [(p, m_re), (q, minus_m_im)]
            terms_im += [(q, m_re), (p, m_im)]
        value = v.sum_of_products(*terms_re), v.sum_of_products(*terms_im)
        v.store_complex(value, (re, im), offset)


def _word_products(v: Vectors, operands: Sequence[Any]) -> None:
    totals, bra, ket, turned_ket, signs, bra_offset, ket_offset, high = operands
    builder = v.builder

    def constant(value: int) -> Any:
        return v.ir.Constant(bra_offset.type, value)

    products: list[list[tuple[Any, Any]]] = [[], []]
    for step in range(WORD_VECTORS):
        offset = builder.xor(v.shifted(bra_offset, step * v.lanes), high)
        signed = builder.fmul(v.load(bra, offset), v.number(signs, constant(0), step))
        for pairs, array in zip(products, (ket, turned_ket), strict=True):
            pairs.append((signed, v.load(array, v.shifted(ket_offset, step * v.lanes))))
    # Two chains of additions, so that the processor need not wait for each sum before the next.
    for pairs, offset in zip(products, (constant(0), constant(v.lanes)), strict=True):
        even, odd = v.sum_of_products(*pairs[::2]), v.sum_of_products(*pairs[1::2])
        v.add_to(totals, offset, builder.fadd(even, odd))


copy: Any = vector_operation(_copy)
"""((re, im), to, (from_re, from_im), offset): a vector of both parts, into other arrays."""
rotate: Any = vector_operation(_rotate)
"""((re, im), first, second, (a, b, c, d)[, phase[, lane_phases]]): a real matrix on the amplitudes at two
offsets; those at the second are multiplied by their phase before."""
multiply_phases: Any = vector_operation(_multiply_phases)
"""((re, im), offset, phase, lane_phases): multiply every lane by its phase."""
rotate_lane_bit_0, rotate_lane_bit_1, rotate_lane_bit_2, rotate_lane_bit_3 = (
    vector_operation(partial(_rotate_lane_bit, bit)) for bit in range(4)
)
"""((re, im), offset, (a, b, c, d), phase, lane_phases): `rotate` on a bit of the lane number."""
exchange_lane_bit_0, exchange_lane_bit_1, exchange_lane_bit_2, exchange_lane_bit_3 = (
    vector_operation(partial(_exchange_lane_bit, bit)) for bit in range(4)
)
"""((re, im), first, second): a bit of the lane number is exchanged for the bit between two offsets: the lanes
with the bit at the first go to those without it at the second."""
multiply_matrix: Any = vector_operation(_multiply_matrix)
"""((re, im), elements, first_element, offset, ...): a complex matrix on the amplitudes at some offsets.

An element is three numbers of `elements`: its real and imaginary part, and minus the latter.
"""
word_products: Any = vector_operation(_word_products)
"""(totals, bra, ket, turned_ket, signs, bra_offset, ket_offset, high): sums about a Pauli word.

totals[lane] grows by the sum of signs[k] bra[(bra_offset + k lanes) ^ high] ket[ket_offset + k lanes] over
k < WORD_VECTORS, lane by lane, and totals[lanes + lane] by the same with `turned_ket`.
"""


# Rotations of the backward sweep. With psi' and lambda' the states behind the phase and before the matrix,
# a rotation about Y on a bit has the gradient Im <lambda'| Y |psi'>: with (x, y) of psi and (p, q) of lambda
# at the bit's 0 and 1, that is Re(conj(q) x) - Re(conj(p) y), as Y = [[0, -i], [i, 0]]. The phase before it
# has Im <lambda'| Z |psi'> = Im(conj(p) x) - Im(conj(q) y).


def _sum_rotate(with_z: bool, v: Vectors, operands: Sequence[Any]) -> None:
    re, im, half, totals, totals_offset, *offsets = operands[:7]
    matrix, phase = operands[7:11], _phase_of(v, operands[11:])
    # psi = (x, y) at the two offsets, lambda = (p, q) `half` behind.
    in_both = [(offset, v.builder.add(offset, half)) for offset in offsets]
    (x, p), (y, q) = ([v.load_complex((re, im), offset) for offset in pair] for pair in in_both)
    if phase is not None:
        y, q = v.product(y, phase), v.product(q, phase)
    # Re <lambda| -iY |psi> = Re(q^* x - p^* y), of which the derivative by an angle about Y is made.
    about_y = v.builder.fsub(v.real_of_overlap(q, x), v.real_of_overlap(p, y))
    v.add_to(totals, totals_offset, about_y)
    if with_z:
        # Im <lambda| Z |psi> = Im(p^* x - q^* y).
        about_z = v.builder.fsub(v.imaginary_of_overlap(p, x), v.imaginary_of_overlap(q, y))
        v.add_to(totals, v.shifted(totals_offset, 2 * v.lanes), about_z)
    for state, (above, below) in enumerate(((x, y), (p, q))):
        for value, pair in zip(v.real_matrix(matrix, above, below), in_both, strict=True):
            v.store_complex(value, (re, im), pair[state])


def _sum_rotate_lane_bit(with_z: bool, bit: int, v: Vectors, operands: Sequence[Any]) -> None:
    re, im, half, totals, totals_offset, psi_offset = operands[:6]
    a, b, c, d = (v.broadcast(element) for element in operands[6:10])
    phase = _phase_of(v, operands[10:])
    assert phase is not None
    own, other = v.select_by_bit(a, d, bit), v.select_by_bit(b, c, bit)
    states, exchanged = [], []
    for offset in (psi_offset, v.builder.add(psi_offset, half)):
        x = v.load_complex((re, im), offset)
        phased = v.product(x, phase)
        x = v.select_by_bit(x[0], phased[0], bit), v.select_by_bit(x[1], phased[1], bit)
        across = v.exchange_by_bit(x[0], bit), v.exchange_by_bit(x[1], bit)
        states.append(x)
        exchanged.append(across)
        value = [v.sum_of_products((s, own), (t, other)) for s, t in zip(x, across, strict=True)]
        v.store_complex((value[0], value[1]), (re, im), offset)
    v.add_to(totals, totals_offset, v.real_of_overlap(exchanged[1], states[0]))
    if with_z:
        about_z = v.imaginary_of_overlap(states[1], states[0])
        v.add_to(totals, v.shifted(totals_offset, 2 * v.lanes), about_z)


def _sum_overlap(imaginary: bool, v: Vectors, operands: Sequence[Any]) -> None:
    re, im, half, totals, totals_offset, ket_offset, bra_offset, sign = operands
    ket = v.load_complex((re, im), ket_offset)
    bra = v.load_complex((re, im), v.builder.add(bra_offset, half))
    product = (v.imaginary_of_overlap if imaginary else v.real_of_overlap)(bra, ket)
    if sign.type != v.vector.element:
        sign = v.builder.fptrunc(sign, v.vector.element)
    v.add_to(totals, totals_offset, v.builder.fmul(product, v.broadcast(sign)))


def _imaginary_products(v: Vectors, operands: Sequence[Any]) -> None:
    re, im, half, offset, out = operands
    ket, bra = v.load_complex((re, im), offset), v.load_complex((re, im), v.builder.add(offset, half))
    v.store(v.imaginary_of_overlap(bra, ket), out, offset)


def _signed_sum(v: Vectors, operands: Sequence[Any]) -> None:
    products, offset, signs, first_sign, totals, totals_offset = operands
    pairs = [
        (v.load(products, v.shifted(offset, step * v.lanes)), v.number(signs, first_sign, step))
        for step in range(WORD_VECTORS)
    ]
    total = v.builder.fadd(v.sum_of_products(*pairs[::2]), v.sum_of_products(*pairs[1::2]))
    v.add_to(totals, totals_offset, total)


sum_y_rotate, sum_yz_rotate = (vector_operation(partial(_sum_rotate, with_z)) for with_z in (False, True))
"""((re, im, half), (totals, totals_offset), first, second, (a, b, c, d)[, phase[, lane_phases]]): `rotate` on
both states; totals[totals_offset + lane] grows by the sum about Y, and with "yz" the totals two vectors
behind it by that about Z."""
(
    sum_y_rotate_lane_bit_0, sum_y_rotate_lane_bit_1, sum_y_rotate_lane_bit_2, sum_y_rotate_lane_bit_3,
    sum_yz_rotate_lane_bit_0, sum_yz_rotate_lane_bit_1, sum_yz_rotate_lane_bit_2, sum_yz_rotate_lane_bit_3,
) = (
    vector_operation(partial(_sum_rotate_lane_bit, with_z, bit))
    for with_z in (False, True)
    for bit in range(4)
)  # fmt: skip
"""((re, im, half), (totals, totals_offset), offset, (a, b, c, d), phase, lane_phases): the same on a bit of
the lane number. Invariant: sums of lanes where the bit is 1 have the other sign, and who adds
the lanes up gives it to them."""
sum_imaginary, sum_real = (vector_operation(partial(_sum_overlap, imaginary)) for imaginary in (True, False))
"""((re, im, half), (totals, totals_offset), ket_offset, bra_offset, sign): the totals grow by the imaginary
or real part of conj(lambda[bra_offset + lane]) psi[ket_offset + lane], times a float64 sign."""
imaginary_products: Any = vector_operation(_imaginary_products)
"""((re, im, half), offset, out): out[i] = Im(conj(lambda[i]) psi[i]) for the lanes i from `offset` on."""
signed_sum: Any = vector_operation(_signed_sum)
"""(products, offset, signs, first_sign, totals, totals_offset): the totals grow by WORD_VECTORS vectors of
`products` from `offset` on, each times its sign."""


# Costs of min-plus: unsigned integers, of which the largest below the sign bit stands for infinity. The sum
# of two is in range, and is cut to infinity.


def _infinity(v: Vectors) -> Any:
    return v.ir.Constant(v.vector, [(1 << (v.vector.element.width - 1)) - 1] * v.lanes)


def _lesser(v: Vectors, x: Any, y: Any) -> Any:
    return v.builder.select(v.builder.icmp_unsigned("<", x, y), x, y)


def _least(v: Vectors, *terms: tuple[Any, Any]) -> Any:
    """The least sum of two vectors, or infinity."""
    least = _infinity(v)
    for cost, weight in terms:
        least = _lesser(v, v.builder.add(cost, weight), least)
    return least


def _lowered(v: Vectors, operands: Sequence[Any]) -> None:
    costs, offset, table, source, less = operands
    x = v.load(table, source)
    lowered = v.builder.sub(x, v.broadcast(v.builder.load(less)))
    is_finite = v.builder.icmp_unsigned("<", x, _infinity(v))
    v.store(v.builder.select(is_finite, lowered, x), costs, offset)


def _copy_least(v: Vectors, operands: Sequence[Any]) -> None:
    table, target, costs, offset, least, of_least = operands
    x = v.load(costs, offset)
    v.store(x, table, target)
    v.store(_lesser(v, x, v.load(least, of_least)), least, of_least)


def _relax(v: Vectors, operands: Sequence[Any]) -> None:
    costs, first, second, weights, offset = operands
    x, y = v.load(costs, first), v.load(costs, second)
    w = [v.load(weights, v.shifted(offset, number * v.lanes)) for number in range(4)]
    v.store(_least(v, (x, w[0]), (y, w[2])), costs, first)
    v.store(_least(v, (x, w[1]), (y, w[3])), costs, second)


def _relax_lane_bit(bit: int, v: Vectors, operands: Sequence[Any]) -> None:
    costs, first, weights, offset = operands
    if v.lanes <= 1 << bit:
        return
    x = v.load(costs, first)
    own, other = (v.load(weights, v.shifted(offset, number * v.lanes)) for number in range(2))
    v.store(_least(v, (x, own), (v.exchange_by_bit(x, bit), other)), costs, first)


def _relax_reversed(v: Vectors, operands: Sequence[Any]) -> None:
    costs, weights = operands[:2]
    pairs = list(zip(operands[2:4], operands[4:6], strict=True))
    x = [v.load(costs, offset) for offset, _ in pairs]
    for own, other, (offset, chosen) in zip(x, x[::-1], pairs, strict=True):
        w = [v.load(weights, v.shifted(chosen, number * v.lanes)) for number in range(2)]
        turned = v.shuffle(other, other, range(v.lanes - 1, -1, -1))
        v.store(_least(v, (own, w[0]), (turned, w[1])), costs, offset)


lowered: Any = vector_operation(_lowered)
"""(costs, offset, table, source, less): a vector of a table, less the first number of `less` where finite."""
copy_least: Any = vector_operation(_copy_least)
"""(table, target, costs, offset, least, of_least): copy a vector; `least` has the least in each lane."""
relax: Any = vector_operation(_relax)
"""(costs, first, second, weights, offset): costs x and y at two offsets become the least of x + w[0] and
y + w[2], and of x + w[1] and y + w[3], with four vectors of weights from an offset on."""
(
    relax_lane_bit_0, relax_lane_bit_1, relax_lane_bit_2, relax_lane_bit_3, relax_lane_bit_4,
    relax_lane_bit_5,
) = (vector_operation(partial(_relax_lane_bit, bit)) for bit in range(6))  # fmt: skip
"""(costs, first, weights, offset): a lane's cost becomes the least of its own, plus the first vector of
weights, and that of the lane whose number differs in a bit, plus the second."""
relax_reversed: Any = vector_operation(_relax_reversed)
"""(costs, weights, first, second, offset, other): the costs at two offsets each become the least of their
own, plus a weight, and of those at the other one with lanes in reverse, plus the next vector's."""


def _sum_signed_products(
    typing_context: Any, weights: Any, values: Any, entries: Any, first: Any, middle: Any, last: Any
) -> tuple[Any, Generate]:
    from numba.core import cgutils

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        v = Vectors(builder, context.get_value_type(weights.dtype), PRODUCT_LANES)
        ir, index = v.ir, v.ir.IntType(64)
        zero = ir.Constant(v.vector, [0.0] * PRODUCT_LANES)
        starts = [
            _data(context, builder, kind, array)
            for kind, array in zip((weights, values, entries), arguments[:3], strict=True)
        ]
        rows = [builder.bitcast(start, v.vector.as_pointer()) for start in starts[:2]]

        def product(e: Any) -> Any:
            entry = builder.gep(starts[2], [builder.mul(e, ir.Constant(index, 2))])
            factors = []
            for side, start in enumerate(rows):
                row = builder.sext(builder.load(builder.gep(entry, [ir.Constant(index, side)])), index)
                factor = builder.load(builder.gep(start, [row]))
                factor.align = VECTOR_BYTES
                factors.append(factor)
            return builder.fmul(*factors, flags=FUSED)

        # Entries from `first` to `middle` have the sign +, those up to `last` -: two sums and one
        # subtraction instead of a sign an entry.
        sums = []
        for begin, end in (arguments[3:5], arguments[4:6]):
            total = cgutils.alloca_once_value(builder, zero)
            builder.store(zero, total)
            with cgutils.for_range_slice(builder, begin, end, ir.Constant(index, 1), index) as (e, _):
                builder.store(builder.fadd(builder.load(total), product(e), flags=FUSED), total)
            sums.append(builder.load(total))
        return v.sum_lanes(builder.fsub(*sums))

    return weights.dtype(weights, values, entries, first, middle, last), generate


sum_signed_products: Any = _intrinsic(_sum_signed_products)
"""(weights, values, entries, first, middle, last): a sparse row times PRODUCT_LANES columns at once.

The sum over lanes and over e = first .. middle-1 of weights[entries[e, 0], lane] values[entries[e, 1], lane],
minus that over e = middle .. last-1.

Invariant: rows of `weights` and `values` have PRODUCT_LANES numbers, and begin at multiples of
VECTOR_BYTES.
"""


def _prefetch(typing_context: Any, array: Any, position: Any) -> tuple[Any, Generate]:
    from numba import types
    from numba.core import cgutils

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from llvmlite import ir

        address = builder.gep(_data(context, builder, array, arguments[0]), [arguments[1]])
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", (cgutils.voidptr_t,), kind)
        # For reading (0), to be kept in all caches (3), data and not instructions (1).
        flags = [ir.Constant(number, value) for value in (0, 3, 1)]
        builder.call(function, [builder.bitcast(address, cgutils.voidptr_t), *flags])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


def _load_acquire(typing_context: Any, array: Any, position: Any) -> tuple[Any, Generate]:
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = builder.gep(_data(context, builder, array, arguments[0]), [arguments[1]])
        return builder.load_atomic(address, "acquire", WORD_BYTES)

    return types.int64(array, types.int64), generate


def _store_release(typing_context: Any, array: Any, position: Any, value: Any) -> tuple[Any, Generate]:
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = builder.gep(_data(context, builder, array, arguments[0]), [arguments[1]])
        builder.store_atomic(arguments[2], address, "release", WORD_BYTES)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """The address of an array's first element."""
    return context.make_array(kind)(context, builder, array).data


def _vector_at(typing_context: Any, address: Any, n: Any, kind: Any) -> tuple[Any, Generate]:
    from numba import types

    result = types.Array(_number_type(kind), 1, "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _array_at(context, builder, result, arguments[0], [arguments[1]])

    return result(types.int64, types.int64, kind), generate


def _columns_at(typing_context: Any, address: Any, n: Any, width: Any, kind: Any) -> tuple[Any, Generate]:
    from numba import types

    result = types.Array(_number_type(kind), 2, "F")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _array_at(context, builder, result, arguments[0], arguments[1:3])

    return result(types.int64, types.int64, types.int64, kind), generate


def _number_type(kind: Any) -> Any:
    """The type of numbers that a class or a dtype stands for."""
    return getattr(kind, "instance_type", None) or kind.dtype


def _array_at(context: Any, builder: Any, result: Any, address: Any, shape: Any) -> Any:
    """An array over memory that is not its own, each axis contiguous in those before it."""
    from numba import types
    from numba.core import cgutils

    array = context.make_array(result)(context, builder)
    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(result.dtype)))
    strides, count = [itemsize], shape[0]
    for extent in shape[:-1]:
        strides.append(builder.mul(strides[-1], extent))
    for extent in shape[1:]:
        count = builder.mul(count, extent)
    array.data, array.itemsize = builder.inttoptr(address, array.data.type), itemsize
    array.shape, array.strides = (cgutils.pack_array(builder, numbers) for numbers in (shape, strides))
    array.nitems = count
    _disown(array)
    return array._getvalue()


def _disown(array: Any) -> None:
    """Let an array have no owner, so that no references are counted."""
    from numba.core import cgutils

    for owner in ("meminfo", "parent"):
        setattr(array, owner, cgutils.get_null_value(getattr(array, owner).type))


def _yield_processor() -> Any:
    from numba import types

    return types.ExternalFunction("sched_yield", types.int32())


prefetch: Any = _intrinsic(_prefetch)
"""(array, place): ask for the line of memory with an element of a 1D array, without waiting for it."""
load_acquire: Any = _intrinsic(_load_acquire)
"""(array, place): an element of an int64 1D array. What its writer wrote before it can be read after it."""
store_release: Any = _intrinsic(_store_release)
"""(array, place, value): write an element of an int64 1D array, after all that was written before it."""
vector_at: Any = _intrinsic(_vector_at)
"""(address, n, dtype): the 1D array of n numbers at an address."""
columns_at: Any = _intrinsic(_columns_at)
"""(address, n, width, dtype): the array of n rows and `width` contiguous columns at an address."""
yield_processor: Any = Late(_yield_processor)
"""(): give the processor to another thread; POSIX's sched_yield."""


def unowned_views() -> Any:
    """A function for compiled code: a view of an array that holds no reference to its memory.

    Functions that take arrays count references to them, which costs as much as 32 numbers in the innermost
    loops.

    Invariant: the memory belongs to an argument of the outermost compiled function, or to an array that is
    used after the last use of its view.
    """
    from numba.extending import intrinsic

    @intrinsic
    def unowned(_: Any, array: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source = context.make_array(array)(context, builder, arguments[0])
            view = context.make_array(array)(context, builder)
            for field in ("data", "shape", "strides", "itemsize", "nitems"):
                setattr(view, field, getattr(source, field))
            _disown(view)
            return view._getvalue()

        return array(array), generate

    return unowned


class AroundCall(NamedTuple):
    """Lines of LLVM's code: declarations, and what is done before and behind a call."""

    declarations: Sequence[str]
    before: Sequence[str]
    behind: Sequence[str]


X86_FLUSH = 1 << 15 | 1 << 6
"""Results that are subnormal become 0, and operands that are count as 0: FTZ and DAZ of MXCSR (Intel's
Software Developer's Manual, volume 1, section 10.2.3)."""
ARM_FLUSH = 1 << 24
"""Both: FZ of FPCR (Arm Architecture Reference Manual)."""


def flush_subnormals(triple: str) -> AroundCall:
    """What makes subnormal numbers 0 during a call: processors take many times as long for them.

    Copies keep subnormal numbers. Processors other than x86-64 and aarch64 compute with them.

    - `triple`: LLVM's name of the processor and the system, such as "x86_64-unknown-linux-gnu".
    - returns: Lines for a function that makes one such call.

    Examples
    --------
    >>> flush_subnormals("riscv64-unknown-linux-gnu")
    AroundCall(declarations=[], before=[], behind=[])
    """
    # Invariant: the register is that of the calling thread alone, and has its old value after the call. A
    # kernel ends with a status, never past its caller, so that this holds after an error too.
    if triple.startswith("x86_64"):
        load, store = "@llvm.x86.sse.ldmxcsr", "@llvm.x86.sse.stmxcsr"
        return AroundCall(
            [f"declare void {load}(ptr)", f"declare void {store}(ptr)"],
            [
                "%mxcsr = alloca i32", f"call void {store}(ptr %mxcsr)", "%control = load i32, ptr %mxcsr",
                f"%flushing = or i32 %control, {X86_FLUSH}", "store i32 %flushing, ptr %mxcsr",
                f"call void {load}(ptr %mxcsr)",
            ],
            ["store i32 %control, ptr %mxcsr", f"call void {load}(ptr %mxcsr)"],
        )  # fmt: skip
    if triple.startswith(("aarch64", "arm64")):
        read, write = "@llvm.aarch64.get.fpcr", "@llvm.aarch64.set.fpcr"
        return AroundCall(
            [f"declare i64 {read}()", f"declare void {write}(i64)"],
            [
                f"%control = call i64 {read}()", f"%flushing = or i64 %control, {ARM_FLUSH}",
                f"call void {write}(i64 %flushing)",
            ],
            [f"call void {write}(i64 %control)"],
        )  # fmt: skip
    return AroundCall([], [], [])

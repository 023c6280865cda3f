"""The numba kernel of a round: a part of a tile is copied, changed by all steps, and copied back."""

from __future__ import annotations

from typing import Any

from tnplan.common.kernels.kernel import kernel
from tnplan.common.kernels.vector_operations import (
    VECTOR_BYTES,
    copy,
    exchange_lane_bit_0,
    exchange_lane_bit_1,
    exchange_lane_bit_2,
    exchange_lane_bit_3,
    multiply_matrix,
    multiply_phases,
    rotate,
    rotate_lane_bit_0,
    rotate_lane_bit_1,
    rotate_lane_bit_2,
    rotate_lane_bit_3,
)
from tnplan.executor.statevector.cpu.vector_tables import (
    LANE_EXCHANGE,
    LANE_ROTATE,
    MULTIPLY,
    ROTATE,
    TURN_ALL,
    TURN_ROTATE,
    TURNS_ROTATE,
)

# "contract" lets a product and a sum become one fused multiply-add; no other freedom with rounding
# is given, so that results do not depend on how a loop is divided.
jit = kernel(nogil=True, error_model="numpy", fastmath={"contract"})


@jit
def spread(number: int, bits: Any) -> int:
    """The index in which bit bits[k] is bit k of a number."""
    # Deposits the bits of `number` at the places `bits`, as x86's PDEP does. With number = -1 it
    # gives the mask of these places.
    index = 0
    for k in range(bits.size):
        index |= (number >> k & 1) << bits[k]
    return index


@jit
def apply_round(tile: Any, row: Any, tables: Any, numbers: Any, scratch: Any) -> None:
    """A round on a tile: the step of that row; `scratch.tile_re` and `tile_im` have the tile's turns."""
    # A round acts on some bits of a tile. For each value of the tile's other bits its amplitudes are gathered
    # into a block that fits the nearest cache, all actions are done there, and it is written back: one
    # transfer for many gates. starts[v] is where vector v of the round lies in the tile for others = 0.
    # Invariant: the bits of a lane's number are among those of every round, so that whole vectors
    # are gathered.
    (re, im), round_number, first, last = tile, row[1], row[2], row[3]
    starts, others = tables.round_starts[round_number], tables.round_others[round_number]
    in_place = others.size == 0
    size = re.size >> others.size
    step = size // starts.size
    round_re, round_im = (re, im) if in_place else (scratch.round_re[:size], scratch.round_im[:size])
    for chunk in range(1 << others.size):
        base = spread(chunk, others)
        # A round on all bits of the tile works in the tile itself.
        if not in_place:
            for v in range(starts.size):
                copy(((round_re, round_im), v * step, (re, im), base + starts[v]))
        for a in range(first, last):
            act(round_re, round_im, tables.actions[a], chunk, numbers, scratch)
        if not in_place:
            for v in range(starts.size):
                copy(((re, im), base + starts[v], (round_re, round_im), v * step))


@jit
def act(  # noqa: C901
    re: Any, im: Any, action: Any, chunk: int, numbers: Any, scratch: Any
) -> None:  # fmt: skip
    """One action on a round; `chunk` is the value of the tile's other bits."""
    # A gate on one bit comes as diag(1, t), then a real matrix [[a, b], [c, d]]: the phases that it has
    # behind the matrix wait for the next gate (`vector_rounds`). A real matrix takes half the multiplications
    # of a complex one. t depends on the other bits of the index: t = low[lowest bits] * high[others of the
    # round] * inside[tile's others] * outside (`vector_tables`).
    kind, position, other, turn, at = action[0], action[1], action[2], action[3], action[4]
    lanes, matrices = VECTOR_BYTES // re.itemsize, numbers.matrices
    if kind == MULTIPLY:
        multiply_rows((re, im), 1 << position, 1 << other, matrices, at)
        return
    state, matrix = (re, im), (matrices[at], matrices[at + 1], matrices[at + 2], matrices[at + 3])
    # The first two factors vary in the round: `low` within the lanes and a few vectors, `high`
    # beyond. The last two are constant in it and are multiplied into `high`.
    high_re, high_im, low_re, low_im = (
        scratch.high_re,
        scratch.high_im,
        numbers.low_re[turn],
        numbers.low_im[turn],
    )
    if TURN_ROTATE <= kind <= LANE_ROTATE or kind == TURN_ALL:
        turns_of_part(numbers, scratch, turn, chunk)
    mask, shift = low_re.size - 1, numbers.low_bits[0]
    if kind == LANE_ROTATE or kind == TURN_ALL:  # noqa: SIM109 (a tuple takes longer to compile)
        # The bit is one of the lane number (or there is none): each vector is done by itself.
        for i in range(0, re.size, lanes):
            phase = high_re[i >> shift], high_im[i >> shift]
            lane_phases = low_re, low_im, i & mask
            if kind == TURN_ALL:
                multiply_phases((state, i, phase, lane_phases))
            elif position == 0:
                rotate_lane_bit_0((state, i, matrix, phase, lane_phases))
            elif position == 1:
                rotate_lane_bit_1((state, i, matrix, phase, lane_phases))
            elif position == 2:
                rotate_lane_bit_2((state, i, matrix, phase, lane_phases))
            else:
                rotate_lane_bit_3((state, i, matrix, phase, lane_phases))
        return
    # i runs over the vectors whose bit is 0: k & -bit are the bits of k from the bit on, and adding
    # them moves these up by one place. j is the partner. Invariant: the bit is not one of the lane
    # number, so that i and j begin two different vectors.
    bit = 1 << position if kind < LANE_EXCHANGE else 1 << other
    for k in range(0, re.size >> 1, lanes):
        i = k + (k & -bit)
        j = i | bit
        # Three kinds of one step, by what the phase depends on: none; the same in all lanes; one
        # for each lane.
        if kind == ROTATE:
            rotate((state, i, j, matrix))
        elif kind == TURN_ROTATE:
            rotate((state, i, j, matrix, (high_re[i >> shift], high_im[i >> shift])))
        elif kind == TURNS_ROTATE:
            phase = high_re[i >> shift], high_im[i >> shift]
            rotate((state, i, j, matrix, phase, (low_re, low_im, i & mask)))
        elif position == 0:
            exchange_lane_bit_0((state, i, j))
        elif position == 1:
            exchange_lane_bit_1((state, i, j))
        elif position == 2:
            exchange_lane_bit_2((state, i, j))
        else:
            exchange_lane_bit_3((state, i, j))


@jit
def turns_of_part(numbers: Any, scratch: Any, turn: int, chunk: int) -> None:
    """A turn's factors of the high bits of a round, times those of all bits outside of it."""
    # `scratch.high` is written for one turn and one part at a time, just before it is used.
    s, t = numbers.inside_re[turn, chunk], numbers.inside_im[turn, chunk]
    p, q = product(scratch.tile_re[turn], scratch.tile_im[turn], s, t)
    for k in range(scratch.high_re.size):
        scratch.high_re[k], scratch.high_im[k] = product(
            p, q, numbers.high_re[turn, k], numbers.high_im[turn, k]
        )


@jit
def product(a: Any, b: Any, c: Any, d: Any) -> Any:
    """The product of two complex numbers."""
    return a * c - b * d, a * d + b * c


@jit
def multiply_rows(state: Any, first: int, second: int, matrices: Any, at: int) -> None:
    """A matrix on two bits of the index, the first the less significant in a row."""
    # Two zeros are inserted into k, at both bits: i runs over the vectors where both are 0.
    below, above = min(first, second), max(first, second)
    for k in range(0, state[0].size >> 2, VECTOR_BYTES // state[0].itemsize):
        i = k + (k & -below)
        i += i & -above
        multiply_matrix((state, matrices, at, i, i | first, i | second, i | first | second))

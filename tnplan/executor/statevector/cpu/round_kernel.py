"""The numba kernel of a round: a part of a tile is copied, changed by all steps, and copied back."""

from __future__ import annotations

from typing import Any

from tnplan.common.kernels.kernel import kernel
from tnplan.executor.statevector.cpu.vector_kernel import (
    VECTOR_BYTES,
    copy,
    lane_exchange_0,
    lane_exchange_1,
    lane_exchange_2,
    lane_exchange_3,
    lane_rotate_0,
    lane_rotate_1,
    lane_rotate_2,
    lane_rotate_3,
    multiply,
    rotate,
    turn_all,
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

jit = kernel(nogil=True, error_model="numpy", fastmath={"contract"})


@jit
def spread(number: int, bits: Any) -> int:
    """The index in which bit bits[k] is bit k of a number."""
    index = 0
    for k in range(bits.size):
        index |= (number >> k & 1) << bits[k]
    return index


@jit
def apply_round(
    re: Any, im: Any, number: int, first: int, last: int, tables: Any, numbers: Any, room: Any
) -> None:
    """Actions first .. last-1 of a round on a tile; `room.tile_re` and `tile_im` have the tile's turns."""
    starts, others = tables.round_starts[number], tables.round_others[number]
    whole = others.size == 0
    size = re.size >> others.size
    step = size // starts.size
    part_re, part_im = (re, im) if whole else (room.round_re[:size], room.round_im[:size])
    for part in range(1 << others.size):
        base = spread(part, others)
        if not whole:
            for v in range(starts.size):
                copy((part_re, part_im, v * step, re, im, base + starts[v]))
        for a in range(first, last):
            act(part_re, part_im, tables.actions[a], part, numbers, room)
        if not whole:
            for v in range(starts.size):
                copy((re, im, base + starts[v], part_re, part_im, v * step))


@jit
def act(  # noqa: C901
    re: Any, im: Any, action: Any, part: int, numbers: Any, room: Any
) -> None:  # fmt: skip
    """One action on a round; `part` is the value of the tile's other bits."""
    kind, place, other, turn, at = action[0], action[1], action[2], action[3], action[4]
    lanes, matrices = VECTOR_BYTES // re.itemsize, numbers.matrices
    if kind == MULTIPLY:
        multiply_rows(re, im, lanes, 1 << place, 1 << other, matrices, at)
        return
    a, b, c, d = matrices[at], matrices[at + 1], matrices[at + 2], matrices[at + 3]
    high_re, high_im, low_re, low_im = room.high_re, room.high_im, numbers.low_re[turn], numbers.low_im[turn]
    if TURN_ROTATE <= kind <= LANE_ROTATE or kind == TURN_ALL:
        turns_of_part(numbers, room, turn, part)
    mask, shift = low_re.size - 1, numbers.low_bits[0]
    if kind == LANE_ROTATE or kind == TURN_ALL:  # noqa: SIM109 (a tuple takes longer to compile)
        for i in range(0, re.size, lanes):
            k, s, t = i & mask, high_re[i >> shift], high_im[i >> shift]
            if kind == TURN_ALL:
                turn_all((re, im, i, s, t, low_re, low_im, k))
            elif place == 0:
                lane_rotate_0((re, im, i, a, b, c, d, s, t, low_re, low_im, k))
            elif place == 1:
                lane_rotate_1((re, im, i, a, b, c, d, s, t, low_re, low_im, k))
            elif place == 2:
                lane_rotate_2((re, im, i, a, b, c, d, s, t, low_re, low_im, k))
            else:
                lane_rotate_3((re, im, i, a, b, c, d, s, t, low_re, low_im, k))
        return
    bit = 1 << place if kind < LANE_EXCHANGE else 1 << other
    for k in range(0, re.size >> 1, lanes):
        i = k + (k & -bit)
        j = i | bit
        if kind == ROTATE:
            rotate((re, im, i, j, a, b, c, d))
        elif kind == TURN_ROTATE:
            rotate((re, im, i, j, a, b, c, d, high_re[i >> shift], high_im[i >> shift]))
        elif kind == TURNS_ROTATE:
            s, t = high_re[i >> shift], high_im[i >> shift]
            rotate((re, im, i, j, a, b, c, d, s, t, low_re, low_im, i & mask))
        elif place == 0:
            lane_exchange_0((re, im, i, j))
        elif place == 1:
            lane_exchange_1((re, im, i, j))
        elif place == 2:
            lane_exchange_2((re, im, i, j))
        else:
            lane_exchange_3((re, im, i, j))


@jit
def turns_of_part(numbers: Any, room: Any, turn: int, part: int) -> None:
    """A turn's factors of the high bits of a round, times those of all bits outside of it."""
    s, t = numbers.inside_re[turn, part], numbers.inside_im[turn, part]
    p, q = product(room.tile_re[turn], room.tile_im[turn], s, t)
    for k in range(room.high_re.size):
        room.high_re[k], room.high_im[k] = product(p, q, numbers.high_re[turn, k], numbers.high_im[turn, k])


@jit
def product(a: Any, b: Any, c: Any, d: Any) -> Any:
    """The product of two complex numbers."""
    return a * c - b * d, a * d + b * c


@jit
def multiply_rows(re: Any, im: Any, lanes: int, first: int, second: int, matrices: Any, at: int) -> None:
    """A matrix on two bits of the index, the first the less significant in a row."""
    below, above = min(first, second), max(first, second)
    for k in range(0, re.size >> 2, lanes):
        i = k + (k & -below)
        i += i & -above
        multiply((re, im, matrices, at, i, i | first, i | second, i | first | second))

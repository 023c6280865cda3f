"""The numba kernel of a round: a part of a tile is copied, changed by all steps, and copied back."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    turn_rotate,
    turns_rotate,
)
from tnplan.executor.statevector.cpu.vector_tables import (
    LANE_EXCHANGE,
    LANE_ROTATE,
    ROTATE,
    TURN_ROTATE,
    TURNS_ROTATE,
)
from tnplan.planner.common.compiled.kernel import kernel

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
    """Actions first .. last-1 of a round on a tile; `room.tile_turns` has the turns of this tile."""
    starts, others = tables.round_starts[number], tables.round_others[number]
    size = re.size >> others.size
    if others.size == 0:
        for a in range(first, last):
            act(re, im, tables.actions[a], 0, numbers, room)
        return
    part_re, part_im = room.round_re[:size], room.round_im[:size]
    step = size // starts.size
    for part in range(1 << others.size):
        base = spread(part, others)
        for v in range(starts.size):
            copy((part_re, part_im, v * step, re, im, base + starts[v]))
        for a in range(first, last):
            act(part_re, part_im, tables.actions[a], part, numbers, room)
        for v in range(starts.size):
            copy((re, im, base + starts[v], part_re, part_im, v * step))


@jit
def act(re: Any, im: Any, action: Any, part: int, numbers: Any, room: Any) -> None:
    """One action on a round; `part` is the value of the tile's other bits."""
    kind, place, other, turn, at = action[0], action[1], action[2], action[3], action[4]
    lanes = VECTOR_BYTES // re.itemsize
    if kind == LANE_EXCHANGE:
        exchange_lanes(re, im, lanes, place, other)
        return
    if kind > LANE_EXCHANGE:
        multiply_rows(re, im, lanes, place, other, numbers.matrices, at)
        return
    a, b = numbers.matrices[at], numbers.matrices[at + 1]
    c, d = numbers.matrices[at + 2], numbers.matrices[at + 3]
    if kind == ROTATE:
        for k in range(0, re.size >> 1, lanes):
            i = (k >> place) << place + 1 | k & (1 << place) - 1
            rotate((re, im, i, i | 1 << place, a, b, c, d))
        return
    p = room.tile_re[turn] * numbers.inside_re[turn, part] - room.tile_im[turn] * numbers.inside_im[turn, part]
    q = room.tile_re[turn] * numbers.inside_im[turn, part] + room.tile_im[turn] * numbers.inside_re[turn, part]
    high_re, high_im = room.high_re, room.high_im
    for k in range(numbers.high_re.shape[1]):
        s, t = numbers.high_re[turn, k], numbers.high_im[turn, k]
        high_re[k] = p * s - q * t
        high_im[k] = p * t + q * s
    low_re, low_im = numbers.low_re[turn], numbers.low_im[turn]
    mask = low_re.size - 1
    shift = 0
    while 1 << shift < low_re.size:
        shift += 1
    if kind == TURN_ROTATE:
        for k in range(0, re.size >> 1, lanes):
            i = (k >> place) << place + 1 | k & (1 << place) - 1
            j = i | 1 << place
            turn_rotate((re, im, i, j, a, b, c, d, high_re[i >> shift], high_im[i >> shift]))
    elif kind == TURNS_ROTATE:
        for k in range(0, re.size >> 1, lanes):
            i = (k >> place) << place + 1 | k & (1 << place) - 1
            j = i | 1 << place
            s, t = high_re[i >> shift], high_im[i >> shift]
            turns_rotate((re, im, low_re, low_im, i, j, i & mask, a, b, c, d, s, t))
    elif place == 0:
        for i in range(0, re.size, lanes):
            s, t = high_re[i >> shift], high_im[i >> shift]
            lane_rotate_0((re, im, low_re, low_im, i, i & mask, a, b, c, d, s, t))
    elif place == 1:
        for i in range(0, re.size, lanes):
            s, t = high_re[i >> shift], high_im[i >> shift]
            lane_rotate_1((re, im, low_re, low_im, i, i & mask, a, b, c, d, s, t))
    elif place == 2:
        for i in range(0, re.size, lanes):
            s, t = high_re[i >> shift], high_im[i >> shift]
            lane_rotate_2((re, im, low_re, low_im, i, i & mask, a, b, c, d, s, t))
    else:
        for i in range(0, re.size, lanes):
            s, t = high_re[i >> shift], high_im[i >> shift]
            lane_rotate_3((re, im, low_re, low_im, i, i & mask, a, b, c, d, s, t))


@jit
def exchange_lanes(re: Any, im: Any, lanes: int, place: int, other: int) -> None:
    """A bit of the lane's number changes places with a bit of the vector's."""
    for k in range(0, re.size >> 1, lanes):
        i = (k >> other) << other + 1 | k & (1 << other) - 1
        j = i | 1 << other
        if place == 0:
            lane_exchange_0((re, im, i, j))
        elif place == 1:
            lane_exchange_1((re, im, i, j))
        elif place == 2:
            lane_exchange_2((re, im, i, j))
        else:
            lane_exchange_3((re, im, i, j))


@jit
def multiply_rows(
    re: Any, im: Any, lanes: int, place: int, other: int, matrices: Any, at: int
) -> None:
    """A matrix on one bit (both places are the same) or two, that at `place` less significant in a row."""
    first, second = 1 << place, 1 << other
    if place == other:
        for k in range(0, re.size >> 1, lanes):
            i = (k >> place) << place + 1 | k & first - 1
            multiply((re, im, matrices, at, i, i | first))
        return
    below, above = min(place, other), max(place, other)
    for k in range(0, re.size >> 2, lanes):
        i = (k >> below) << below + 1 | k & (1 << below) - 1
        i = (i >> above) << above + 1 | i & (1 << above) - 1
        multiply((re, im, matrices, at, i, i | first, i | second, i | first | second))

"""The numba kernel of a pass with sums over both states of a sweep back. Imported lazily.

Products are made on whole vectors in the precision of the states and added up over a round; sums over lanes,
rounds and tiles are float64. Tiles belong to pieces, whatever the threads, so that the bits stay the same.
"""

from __future__ import annotations

from typing import Any

from tnplan.executor.statevector.cpu.joint.sum_tables import CROSS_SUM, DIAGONAL_SUMS
from tnplan.executor.statevector.cpu.joint.sum_vectors import (
    add_lanes,
    add_lanes_of_two,
    cross_imaginary,
    cross_real,
    products,
    signed_sum,
    y_lane_rotate_0,
    y_lane_rotate_1,
    y_lane_rotate_2,
    y_lane_rotate_3,
    y_rotate,
    yz_lane_rotate_0,
    yz_lane_rotate_1,
    yz_lane_rotate_2,
    yz_lane_rotate_3,
    yz_rotate,
)
from tnplan.executor.statevector.cpu.measure_kernel import sign
from tnplan.executor.statevector.cpu.round_kernel import act, copy, jit, spread, turns_of_part
from tnplan.executor.statevector.cpu.tile_room import APART
from tnplan.executor.statevector.cpu.tiled_pass_kernel import (
    factor_of,
    read_tile,
    turns_of_tile,
    write_tile,
)
from tnplan.executor.statevector.cpu.vector_kernel import VECTOR_BYTES, WORD_VECTORS
from tnplan.executor.statevector.cpu.vector_tables import (
    LANE_EXCHANGE,
    LANE_ROTATE,
    MULTIPLY,
    ROTATE,
    TURN_ROTATE,
)


@jit
def run_sums(
    amplitudes: Any, tables: Any, numbers: Any, sums: Any, room: Any, own: Any, first: int, last: int,
    out: Any,
) -> None:  # fmt: skip
    """Do a pass of rounds on the tiles of pieces first .. last-1; out[piece, column] grows by its sums.

    `FlatPass`, `FlatNumbers` and `FlatSums` describe it, `room` is a `TileRoom`, `own` a `SumRoom`.
    """
    side, size = 1 << tables.held.size, (1 << tables.far.size) // out.shape[0]
    re, im = room.tile[:side], room.tile[side + APART : 2 * side + APART]
    for piece in range(first, last):
        for tile in range(piece * size, (piece + 1) * size):
            base = spread(tile, tables.far)
            read_tile(amplitudes, base, tables.starts, re, im)
            outside_re, outside_im = numbers.outside_re, numbers.outside_im
            turns_of_tile(base, tables.beyond, outside_re, outside_im, room.tile_re, room.tile_im)
            for s in range(len(tables.steps)):
                row = tables.steps[s]
                _sum_round(re, im, row[1], row[2], row[3], base, tables, numbers, sums, room, own, out[piece])
            place = factor_of(base, tables.numbered, numbers.factors_re)
            c, d = numbers.factors_re[place], numbers.factors_im[place]
            write_tile(amplitudes, base, tables.starts, re, im, c, d)


@jit
def _sum_round(
    re: Any, im: Any, number: int, first: int, last: int, index: int, tables: Any, numbers: Any, sums: Any,
    room: Any, own: Any, out: Any,
) -> None:  # fmt: skip
    """Actions first .. last-1 of a round on a tile at `index`; see `apply_round`."""
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
            action = tables.actions[a]
            if action[0] == DIAGONAL_SUMS:
                _diagonal_sums(part_re, part_im, action, part, index, sums, own, out)
            elif action[0] == CROSS_SUM:
                _cross_sum(part_re, part_im, action, part, index, sums, own, out)
            elif action[2] and action[0] != LANE_EXCHANGE and action[0] != MULTIPLY:
                _sum_turn(part_re, part_im, action, part, index, numbers, sums, room, own, out)
            else:
                act(part_re, part_im, action, part, numbers, room)
        if not whole:
            for v in range(starts.size):
                copy((re, im, base + starts[v], part_re, part_im, v * step))


@jit
def _sum_turn(  # noqa: C901
    re: Any, im: Any, action: Any, part: int, index: int, numbers: Any, sums: Any, room: Any, own: Any,
    out: Any,
) -> None:  # fmt: skip
    """A turn of both states, and its sums: one, or two where the number of the column is negative."""
    kind, place, turn, at = action[0], action[1], action[3], action[4]
    column, with_z = abs(action[2]) - 1, action[2] < 0
    lanes, half, matrices, totals = VECTOR_BYTES // re.itemsize, re.size >> 1, numbers.matrices, own.totals
    a, b, c, d = matrices[at], matrices[at + 1], matrices[at + 2], matrices[at + 3]
    high_re, high_im, low_re, low_im = room.high_re, room.high_im, numbers.low_re[turn], numbers.low_im[turn]
    if kind != ROTATE:
        turns_of_part(numbers, room, turn, part)
    mask, shift = low_re.size - 1, numbers.low_bits[0]
    for lane in range(4 * lanes if with_z else 2 * lanes):
        totals[lane] = 0
    if kind == LANE_ROTATE:
        for i in range(0, half, lanes):
            to, k, s, t = i & lanes, i & mask, high_re[i >> shift], high_im[i >> shift]
            if place == 0:
                if with_z:
                    yz_lane_rotate_0((re, im, half, totals, to, i, a, b, c, d, s, t, low_re, low_im, k))
                else:
                    y_lane_rotate_0((re, im, half, totals, to, i, a, b, c, d, s, t, low_re, low_im, k))
            elif place == 1:
                if with_z:
                    yz_lane_rotate_1((re, im, half, totals, to, i, a, b, c, d, s, t, low_re, low_im, k))
                else:
                    y_lane_rotate_1((re, im, half, totals, to, i, a, b, c, d, s, t, low_re, low_im, k))
            elif place == 2:
                if with_z:
                    yz_lane_rotate_2((re, im, half, totals, to, i, a, b, c, d, s, t, low_re, low_im, k))
                else:
                    y_lane_rotate_2((re, im, half, totals, to, i, a, b, c, d, s, t, low_re, low_im, k))
            elif with_z:
                yz_lane_rotate_3((re, im, half, totals, to, i, a, b, c, d, s, t, low_re, low_im, k))
            else:
                y_lane_rotate_3((re, im, half, totals, to, i, a, b, c, d, s, t, low_re, low_im, k))
    else:
        bit = 1 << place
        for k in range(0, half >> 1, lanes):
            i = k + (k & -bit)
            to, j = k & lanes, i | bit
            if kind == ROTATE:
                if with_z:
                    yz_rotate((re, im, half, totals, to, i, j, a, b, c, d))
                else:
                    y_rotate((re, im, half, totals, to, i, j, a, b, c, d))
                continue
            s, t = high_re[i >> shift], high_im[i >> shift]
            if kind == TURN_ROTATE:
                if with_z:
                    yz_rotate((re, im, half, totals, to, i, j, a, b, c, d, s, t))
                else:
                    y_rotate((re, im, half, totals, to, i, j, a, b, c, d, s, t))
            elif with_z:
                yz_rotate((re, im, half, totals, to, i, j, a, b, c, d, s, t, low_re, low_im, i & mask))
            else:
                y_rotate((re, im, half, totals, to, i, j, a, b, c, d, s, t, low_re, low_im, i & mask))
    row = sums.columns[column, 1] * lanes
    add_lanes_of_two((totals, 0, sums.lane_signs, row, out, column, _sign(sums, column, part, index)))
    if with_z:
        column += 1
        sign_of_z = _sign(sums, column, part, index)
        add_lanes_of_two((totals, 2 * lanes, sums.lane_signs, row, out, column, sign_of_z))


@jit
def _cross_sum(
    re: Any, im: Any, action: Any, part: int, index: int, sums: Any, own: Any, out: Any
) -> None:  # fmt: skip
    """A sum about bits that are not those of a lane."""
    x, column, imaginary, z = action[1], action[2], action[3], action[4]
    lanes, half, totals = VECTOR_BYTES // re.itemsize, re.size >> 1, own.totals
    for lane in range(2 * lanes):
        totals[lane] = 0
    for here in range(0, half, lanes):
        if imaginary:
            cross_imaginary((re, im, half, totals, here & lanes, here, here ^ x, sign(z, here)))
        else:
            cross_real((re, im, half, totals, here & lanes, here, here ^ x, sign(z, here)))
    row = sums.columns[column, 1] * lanes
    add_lanes_of_two((totals, 0, sums.lane_signs, row, out, column, _sign(sums, column, part, index)))


@jit
def _diagonal_sums(
    re: Any, im: Any, action: Any, part: int, index: int, sums: Any, own: Any, out: Any
) -> None:  # fmt: skip
    """Sums of words of Z: all are sums of the same products with signs."""
    column, end, first, last = action[1], action[2], action[3], action[4]
    lanes, half, totals = VECTOR_BYTES // re.itemsize, re.size >> 1, own.totals
    for i in range(0, half, lanes):
        products((re, im, half, i, own.products))
    for row in range(first, last):
        for lane in range(lanes):
            totals[lane] = 0
        signs = sums.signs[row]
        for v in range(0, signs.size, WORD_VECTORS):
            signed_sum((own.products, v * lanes, signs, v, totals, 0))
        while column < end and sums.columns[column, 0] == row:
            at = sums.columns[column, 1] * lanes
            add_lanes((totals, 0, sums.lane_signs, at, out, column, _sign(sums, column, part, index)))
            column += 1


@jit
def _sign(sums: Any, column: int, part: int, index: int) -> float:
    """The sign of a sum by the bits outside of a round."""
    return sign(sums.columns[column, 2], part) * sign(sums.columns[column, 3], index)

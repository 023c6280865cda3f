"""The numba kernels of a pass: tiles are read, changed and written one after another. Imported lazily.

A tile is kept as real parts and imaginary parts, so that all arithmetic runs over neighbours. `PassTables`
describes the tables. Amplitudes are given as real numbers, real and imaginary parts in turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.executor.statevector.cpu.round_kernel import apply_round, jit, spread
from tnplan.executor.statevector.cpu.tile_room import APART, LANE_BITS, LANES
from tnplan.executor.statevector.cpu.vector_tables import ROUND
from tnplan.executor.statevector.scheduling.pass_tables import DIAGONAL, PHASES

ONE, TWO = np.uint64(1), np.uint64(2)


@jit
def run_tiles(
    amplitudes: Any, rank_base: int, tables: Any, numbers: Any, room: Any, first: int, last: int
) -> None:
    """Do all steps of a pass, `FlatPass` and `FlatNumbers`, on tiles first .. last-1, in a `TileRoom`.

    `rank_base` are the index bits of the rank.
    """
    held, starts, places, idle = tables.held, tables.starts, tables.places, tables.idle
    values_re, values_im = numbers.values_re, numbers.values_im
    q = held.size
    side = 1 << q
    run = np.uint64(side // starts.size)
    re, im = room.tile[:side], room.tile[side + APART : 2 * side + APART]
    for tile in range(first, last):
        base = spread(tile, tables.far)
        for row in range(starts.size):
            at = np.uint64(row) * run
            read_run(amplitudes, np.uint64(base + starts[row]), re, im, at, run)
        index = base | rank_base
        turns_of_tile(index, tables.beyond, numbers.outside_re, numbers.outside_im, room.tile_re, room.tile_im)
        for s in range(len(tables.steps)):
            kind, t, near, outer, place, value, number = tables.steps[s]
            if kind == ROUND:
                apply_round(re, im, t, near, outer, tables, numbers, room)
                continue
            if kind == PHASES:
                apply_phases(re, im, q, index, held, near, tables.phases[t:], room)
                continue
            chosen = 0
            for k in range(outer):
                chosen |= (index >> places[place + t + near + k] & 1) << k
            value += chosen << near + 2 * t
            number += chosen << near
            inside = places[place : place + t + near]
            if kind == DIAGONAL:
                apply_diagonal(re, im, q, inside, values_re[value:], values_im[value:])
            else:
                for v in range(1 << near):
                    if not idle[number + v]:
                        at = value + (v << 2 * t)
                        apply_matrix(re, im, q, inside, t, v, values_re[at:], values_im[at:], room)
        p, q_im = numbers.factor[0], numbers.factor[1]
        for row in range(starts.size):
            at = np.uint64(row) * run
            write_run(amplitudes, np.uint64(base + starts[row]), re, im, at, run, p, q_im)


@jit
def turns_of_tile(index: int, beyond: Any, outside_re: Any, outside_im: Any, re: Any, im: Any) -> None:
    """Each turn's factor of the bits outside of a tile; see `vector_tables`."""
    for turn in range(outside_re.shape[0]):
        re[turn], im[turn] = 1, 0
        p, q = re[turn], im[turn]
        for k in range(beyond.size):
            if index >> beyond[k] & 1:
                s, t = outside_re[turn, k], outside_im[turn, k]
                p, q = p * s - q * t, p * t + q * s
        re[turn] = p
        im[turn] = q


@jit
def read_run(amplitudes: Any, start: Any, re: Any, im: Any, at: Any, count: Any) -> None:
    """Part amplitudes from `start` on into real and imaginary parts from `at` on."""
    for k in range(count):
        re[at + k] = amplitudes[TWO * (start + k)]
        im[at + k] = amplitudes[TWO * (start + k) + ONE]


@jit
def write_run(
    amplitudes: Any, start: Any, re: Any, im: Any, at: Any, count: Any, factor_re: Any, factor_im: Any
) -> None:  # fmt: skip
    """Join real and imaginary parts from `at` on, times a factor, to amplitudes from `start` on."""
    if factor_re == 1 and factor_im == 0:
        for k in range(count):
            amplitudes[TWO * (start + k)] = re[at + k]
            amplitudes[TWO * (start + k) + ONE] = im[at + k]
        return
    for k in range(count):
        x, y = re[at + k], im[at + k]
        amplitudes[TWO * (start + k)] = factor_re * x - factor_im * y
        amplitudes[TWO * (start + k) + ONE] = factor_re * y + factor_im * x


@jit
def apply_diagonal(re: Any, im: Any, q: int, places: Any, table_re: Any, table_im: Any) -> None:
    """Multiply by table[value of the bits at `places`, rising], rows as long as the lowest places allow."""
    low = 0
    while low < places.size and places[low] == low:
        low += 1
    length = low
    if low == 0:
        length = places[0] if places.size else q
    n = np.uint64(1 << length)
    for row in range(1 << (q - length)):
        at = np.uint64(row << length)
        number = 0
        for k in range(low, places.size):
            number |= (row >> (places[k] - length) & 1) << k
        entry = np.uint64(number)
        if low:
            for k in range(n):
                a, b = table_re[entry + k], table_im[entry + k]
                x, y = re[at + k], im[at + k]
                re[at + k] = a * x - b * y
                im[at + k] = a * y + b * x
        else:
            a, b = table_re[entry], table_im[entry]
            for k in range(n):
                x, y = re[at + k], im[at + k]
                re[at + k] = a * x - b * y
                im[at + k] = a * y + b * x


@jit
def apply_phases(
    re: Any, im: Any, q: int, index: int, held: Any, n: int, phases: Any, room: Any
) -> None:  # fmt: skip
    """Multiply by exp(i phase) of a phase polynomial on n bits.

    That is a table of the low times a table of the high tile bits. No two held bits form a pair. `index` has
    the far bits of the tile.
    """
    pairs = phases[n : n + n * n]
    constant = phases[n + n * n]
    for j in range(n):
        if index >> j & 1:
            constant += phases[j]
            for k in range(j):
                if index >> k & 1:
                    constant += pairs[n * j + k]
    half = (q + 1) // 2
    low_re, low_im, high_re, high_im = room.factors[0], room.factors[1], room.factors[2], room.factors[3]
    products(index, held[:half], n, phases, pairs, 0.0, room.angles, low_re, low_im)
    products(index, held[half:], n, phases, pairs, constant, room.angles, high_re, high_im)
    n_low = np.uint64(1 << half)
    for row in range(1 << (q - half)):
        at = np.uint64(row << half)
        c, d = high_re[row], high_im[row]
        for k in range(n_low):
            a = c * low_re[k] - d * low_im[k]
            b = c * low_im[k] + d * low_re[k]
            x, y = re[at + k], im[at + k]
            re[at + k] = a * x - b * y
            im[at + k] = a * y + b * x


@jit
def products(
    index: int, bits: Any, n: int, phases: Any, pairs: Any, constant: float, angles: Any, re: Any, im: Any
) -> None:  # fmt: skip
    """Write exp(i (constant + the sum of the phases of the bits set)) for all values of `bits`."""
    angles[0] = constant
    for k in range(bits.size):
        angle = phases[bits[k]]
        for j in range(n):
            if index >> j & 1:
                angle += pairs[n * bits[k] + j]
        for v in range(1 << k):
            angles[v | 1 << k] = angles[v] + angle
    for v in range(1 << bits.size):
        re[v] = np.cos(angles[v])
        im[v] = np.sin(angles[v])


@jit
def apply_matrix(
    re: Any, im: Any, q: int, places: Any, t: int, selected: int, m_re: Any, m_im: Any, room: Any
) -> None:
    """Multiply the 2^t amplitudes of every group by a matrix where the near selectors have value `selected`.

    Groups are taken LANES at a time: first gathered, so that the product runs over neighbours.
    """
    side = 1 << t
    offsets, lane, free = room.offsets[:side], room.lane, room.free
    for row in range(side):
        offsets[row] = spread(row, places[:t]) | spread(selected, places[t:])
    n_free = free_bits(q, places, free)
    lane_bits = min(LANE_BITS, n_free)
    lane = lane[: 1 << lane_bits]
    for v in range(lane.size):
        lane[v] = spread(v, free[:lane_bits])
    rising = spread(-1, free[lane_bits:n_free])
    minus_im, real = room.minus_im, True
    for k in range(side * side):
        minus_im[k] = -m_im[k]
        real &= m_im[k] == 0
    x_re, x_im, y_re, y_im = room.lanes[0], room.lanes[1], room.lanes[2], room.lanes[3]
    base = np.int64(0)
    for _ in range(1 << (n_free - lane_bits)):
        gather(re, im, base, offsets, lane, x_re, x_im)
        if t == 1:
            multiply_2(m_re, m_im, x_re, x_im, y_re, y_im, lane.size)
        elif t == 2:
            multiply_4(m_re, m_im, x_re, x_im, y_re, y_im, lane.size)
        else:
            for v in range(side * LANES):
                y_re[v] = y_im[v] = 0
            multiply_more(side, m_re, x_re, y_re, lane.size)
            multiply_more(side, m_re, x_im, y_im, lane.size)
            if not real:
                multiply_more(side, minus_im, x_im, y_re, lane.size)
                multiply_more(side, m_im, x_re, y_im, lane.size)
        scatter(y_re, y_im, base, offsets, lane, re, im)
        base = ((base | ~rising) + 1) & rising


@jit
def free_bits(q: int, places: Any, free: Any) -> int:
    """Write the bits below q that are not in `places`, rising; return how many."""
    n = 0
    for bit in range(q):
        taken = False
        for place in places:
            taken |= place == bit
        if not taken:
            free[n] = bit
            n += 1
    return n


@jit
def gather(re: Any, im: Any, base: int, offsets: Any, lane: Any, x_re: Any, x_im: Any) -> None:
    """Copy the rows of LANES groups to neighbours; `lane` has the groups' distances from the first."""
    n = np.uint64(lane.size)
    neighbours = lane[n - ONE] == n - ONE
    for c in range(offsets.size):
        at, row = np.uint64(base + offsets[c]), np.uint64(c * LANES)
        if neighbours:
            for v in range(n):
                x_re[row + v] = re[at + v]
            for v in range(n):
                x_im[row + v] = im[at + v]
        else:
            for v in range(n):
                x_re[row + v] = re[at + lane[v]]
                x_im[row + v] = im[at + lane[v]]


@jit
def scatter(y_re: Any, y_im: Any, base: int, offsets: Any, lane: Any, re: Any, im: Any) -> None:
    """Copy rows back to where `gather` took them from."""
    n = np.uint64(lane.size)
    neighbours = lane[n - ONE] == n - ONE
    for c in range(offsets.size):
        at, row = np.uint64(base + offsets[c]), np.uint64(c * LANES)
        if neighbours:
            for v in range(n):
                re[at + v] = y_re[row + v]
            for v in range(n):
                im[at + v] = y_im[row + v]
        else:
            for v in range(n):
                re[at + lane[v]] = y_re[row + v]
                im[at + lane[v]] = y_im[row + v]


@jit
def multiply_2(m_re: Any, m_im: Any, x_re: Any, x_im: Any, y_re: Any, y_im: Any, lanes: int) -> None:
    """y = m x for a 2 x 2 matrix and `lanes` columns."""
    for r in range(2):
        a, b = m_re[2 * r], m_re[2 * r + 1]
        c, d = m_im[2 * r], m_im[2 * r + 1]
        for v in range(lanes):
            p, q = x_re[v], x_re[LANES + v]
            s, t = x_im[v], x_im[LANES + v]
            y_re[r * LANES + v] = a * p + b * q - c * s - d * t
            y_im[r * LANES + v] = a * s + b * t + c * p + d * q


@jit
def multiply_4(m_re: Any, m_im: Any, x_re: Any, x_im: Any, y_re: Any, y_im: Any, lanes: int) -> None:
    """y = m x for a 4 x 4 matrix and `lanes` columns."""
    for r in range(4):
        a0, a1, a2, a3 = m_re[4 * r], m_re[4 * r + 1], m_re[4 * r + 2], m_re[4 * r + 3]
        b0, b1, b2, b3 = m_im[4 * r], m_im[4 * r + 1], m_im[4 * r + 2], m_im[4 * r + 3]
        for v in range(lanes):
            p0, p1, p2, p3 = x_re[v], x_re[LANES + v], x_re[2 * LANES + v], x_re[3 * LANES + v]
            s0, s1, s2, s3 = x_im[v], x_im[LANES + v], x_im[2 * LANES + v], x_im[3 * LANES + v]
            y_re[r * LANES + v] = (
                a0 * p0 + a1 * p1 + a2 * p2 + a3 * p3 - b0 * s0 - b1 * s1 - b2 * s2 - b3 * s3
            )
            y_im[r * LANES + v] = (
                a0 * s0 + a1 * s1 + a2 * s2 + a3 * s3 + b0 * p0 + b1 * p1 + b2 * p2 + b3 * p3
            )


@jit
def multiply_more(side: int, m: Any, x: Any, y: Any, lanes: int) -> None:
    """y += m x for a real matrix of 8, 16 or 32 rows and `lanes` columns, eight columns of m at a time."""
    for first in range(0, side, 8):
        add_8(m[first:], side, x[first * LANES :], y, lanes)


@jit
def add_8(m: Any, side: int, x: Any, y: Any, lanes: int) -> None:
    """y += m x for the first 8 columns of `side` rows of m."""
    for r in range(side):
        at = r * side
        a0, a1, a2, a3 = m[at], m[at + 1], m[at + 2], m[at + 3]
        a4, a5, a6, a7 = m[at + 4], m[at + 5], m[at + 6], m[at + 7]
        for v in range(lanes):
            y[r * LANES + v] += (
                a0 * x[v] + a1 * x[LANES + v] + a2 * x[2 * LANES + v] + a3 * x[3 * LANES + v]
                + a4 * x[4 * LANES + v] + a5 * x[5 * LANES + v] + a6 * x[6 * LANES + v]
                + a7 * x[7 * LANES + v]
            )  # fmt: skip

"""The numba kernels of steps on whole tiles: diagonals and matrices that no round takes. Imported lazily."""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.executor.statevector.cpu.round_kernel import jit, spread
from tnplan.executor.statevector.cpu.tile_scratch import LANE_BITS, LANES


@jit
def apply_diagonal(re: Any, im: Any, q: int, places: Any, table_re: Any, table_im: Any) -> None:
    """Multiply by table[value of the bits at `places`, rising], rows as long as the lowest places allow."""
    # Selectors that are the lowest bits of the tile vary from neighbour to neighbour: their table
    # is read in runs. Above them the factor is constant in a run.
    low = 0
    while low < places.size and places[low] == low:
        low += 1
    # The length of a run: 2^low amplitudes, whose table is read along; or, where bit 0 is no selector, all
    # amplitudes below the lowest selector, which share one factor. Invariant: `places` rise.
    length = low
    if low == 0:
        length = places[0] if places.size else q
    n = np.uint64(1 << length)
    for row in range(1 << (q - length)):
        at = np.uint64(row << length)
        number = 0
        for k in range(low, places.size):
            # The high selectors, from the number of the run.
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
def apply_matrix(
    re: Any, im: Any, q: int, places: Any, t: int, selected: int, m_re: Any, m_im: Any, scratch: Any
) -> None:
    """Multiply the 2^t amplitudes of every group by a matrix where the near selectors have value `selected`.

    Groups are taken LANES at a time: first gathered, so that the product runs over neighbours.
    """
    # y[r] = sum_c m[r, c] x[c] over the amplitudes that differ in the target bits alone. offsets[r] is where
    # row r lies from the group's first amplitude; the near selectors are part of it. places[:t] are targets,
    # the first the least significant of a row's number; the others are selectors.
    side = 1 << t
    offsets, lane, free = scratch.offsets[:side], scratch.lane, scratch.free
    for row in range(side):
        offsets[row] = spread(row, places[:t]) | spread(selected, places[t:])
    # All other bits number the groups. The lowest of them number LANES groups that are done
    # together, as columns of one product of real matrices.
    n_free = free_bits(q, places, free)
    lane_bits = min(LANE_BITS, n_free)
    lane = lane[: 1 << lane_bits]
    for v in range(lane.size):
        lane[v] = spread(v, free[:lane_bits])
    # The mask of the remaining free bits. `((base | ~rising) + 1) & rising` is the next number on
    # these bits: the carry runs through the places that are filled with ones.
    rising = spread(-1, free[lane_bits:n_free])
    # (A + iB)(x + iy) = Ax - By + i(Bx + Ay): four real products, or two where the matrix is real.
    minus_im, real = scratch.minus_im, True
    for k in range(side * side):
        minus_im[k] = -m_im[k]
        real &= m_im[k] == 0
    x_re, x_im, y_re, y_im = scratch.lanes[0], scratch.lanes[1], scratch.lanes[2], scratch.lanes[3]
    base = np.int64(0)
    # Invariant: the free bits above the lanes give each group once.
    for _ in range(1 << (n_free - lane_bits)):
        gather((re, im), base, offsets, lane, (x_re, x_im))
        for v in range(side * LANES):
            y_re[v] = y_im[v] = 0
        add_product(side, m_re, x_re, y_re, lane.size)
        add_product(side, m_re, x_im, y_im, lane.size)
        if not real:
            add_product(side, minus_im, x_im, y_re, lane.size)
            add_product(side, m_im, x_re, y_im, lane.size)
        scatter((y_re, y_im), base, offsets, lane, (re, im))
        base = ((base | ~rising) + 1) & rising


@jit
def free_bits(q: int, places: Any, free: Any) -> int:
    """Write the bits below q that are not in `places`, rising; return how many."""
    n = 0
    for bit in range(q):
        is_used = False
        for used_bit in places:
            is_used |= used_bit == bit
        if not is_used:
            free[n] = bit
            n += 1
    return n


@jit
def gather(tile: Any, base: int, offsets: Any, lane: Any, rows: Any) -> None:
    """Copy the rows of LANES groups to neighbours; `lane` has the groups' distances from the first."""
    (re, im), (x_re, x_im) = tile, rows
    for c in range(offsets.size):
        at, row = np.uint64(base + offsets[c]), np.uint64(c * LANES)
        for v in range(np.uint64(lane.size)):
            x_re[row + v] = re[at + lane[v]]
            x_im[row + v] = im[at + lane[v]]


@jit
def scatter(rows: Any, base: int, offsets: Any, lane: Any, tile: Any) -> None:
    """Copy rows back to where `gather` took them from."""
    (y_re, y_im), (re, im) = rows, tile
    for c in range(offsets.size):
        at, row = np.uint64(base + offsets[c]), np.uint64(c * LANES)
        for v in range(np.uint64(lane.size)):
            re[at + lane[v]] = y_re[row + v]
            im[at + lane[v]] = y_im[row + v]


@jit
def add_product(side: int, m: Any, x: Any, y: Any, lanes: int) -> None:
    """y += m x for a real matrix of `side` rows and `lanes` columns, 8 or 2 columns of m at a time."""
    # A matrix of one real part at a time; 8 columns share a load and a store of y. Invariant:
    # `side` is 2, 4 or a multiple of 8, as it is a power of two.
    for r in range(side):
        row, out = m[r * side :], y[r * LANES :]
        if side >= 8:
            for first in range(0, side, 8):
                add_8(row[first:], x[first * LANES :], out, lanes)
        else:
            for first in range(0, side, 2):
                at = first * LANES
                for v in range(lanes):
                    out[v] += row[first] * x[at + v] + row[first + 1] * x[at + LANES + v]


@jit
def add_8(row: Any, x: Any, y: Any, lanes: int) -> None:
    """y += the first 8 columns of a row times 8 rows of x."""
    a0, a1, a2, a3, a4, a5, a6, a7 = row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7]
    for v in range(lanes):
        y[v] += (
            a0 * x[v] + a1 * x[LANES + v] + a2 * x[2 * LANES + v] + a3 * x[3 * LANES + v]
            + a4 * x[4 * LANES + v] + a5 * x[5 * LANES + v] + a6 * x[6 * LANES + v]
            + a7 * x[7 * LANES + v]
        )  # fmt: skip

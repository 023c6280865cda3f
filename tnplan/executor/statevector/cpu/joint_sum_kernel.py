"""The numba kernel of a pass with sums over both states of a sweep back. Imported lazily.

Products are made on whole vectors in the precision of the states and added up over a round; sums over lanes,
rounds and tiles are float64. Tiles belong to pieces, whatever the threads, so that the bits stay the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.vector_operations import (
    VECTOR_BYTES,
    WORD_VECTORS,
    copy,
    imaginary_products,
    signed_sum,
    sum_imaginary,
    sum_real,
    sum_y_rotate,
    sum_y_rotate_lane_bit_0,
    sum_y_rotate_lane_bit_1,
    sum_y_rotate_lane_bit_2,
    sum_y_rotate_lane_bit_3,
    sum_yz_rotate,
    sum_yz_rotate_lane_bit_0,
    sum_yz_rotate_lane_bit_1,
    sum_yz_rotate_lane_bit_2,
    sum_yz_rotate_lane_bit_3,
)
from tnplan.executor.statevector.cpu.joint_sum_tables import CROSS_SUM, DIAGONAL_SUMS
from tnplan.executor.statevector.cpu.measure_kernel import sign
from tnplan.executor.statevector.cpu.round_kernel import act, jit, spread, turns_of_part
from tnplan.executor.statevector.cpu.tile_scratch import APART
from tnplan.executor.statevector.cpu.tiled_pass_kernel import factor_of, read_tile, turns_of_tile, write_tile
from tnplan.executor.statevector.cpu.vector_tables import (
    LANE_EXCHANGE,
    LANE_ROTATE,
    MULTIPLY,
    ROTATE,
    TURN_ROTATE,
)


# The backward sweep of the adjoint method (Jones and Gacon, arXiv:2009.02823): psi and lambda go back through
# the circuit together, and the derivative by a rotation's angle is Im <lambda| P |psi> at its place, up to a
# factor that the caller has. Both states lie in one array, lambda behind psi, as if one more bit selected
# one: so passes and rounds are those of one state, and each gate is done on both.
@jit
def run_sums(amplitudes: Any, pass_tables: Any, scratch: Any, first: int, last: int, out: Any) -> None:
    """Do a pass of rounds on the tiles of pieces first .. last-1; out[piece, column] grows by its sums.

    The pass is a `FlatPass`, `FlatNumbers` and `FlatSums`; `scratch` are a `TileScratch` and a
    `SumScratch`.
    """
    # `out` has a row for each piece of the tiles. Invariant: a piece belongs to one thread and its
    # tiles come in order, so that sums have the same bits for any number of threads.
    tables, numbers, _ = pass_tables
    tiles, _ = scratch
    side, size = 1 << tables.tile_bits.size, (1 << tables.far.size) // out.shape[0]
    re, im = tiles.tile[:side], tiles.tile[side + APART : 2 * side + APART]
    for piece in range(first, last):
        for tile in range(piece * size, (piece + 1) * size):
            base = spread(tile, tables.far)
            read_tile(amplitudes, base, tables.starts, re, im)
            outside_re, outside_im = numbers.outside_re, numbers.outside_im
            turns_of_tile(base, tables.beyond, outside_re, outside_im, tiles.tile_re, tiles.tile_im)
            for s in range(len(tables.steps)):
                _sum_round((re, im), tables.steps[s], base, pass_tables, scratch, out[piece])
            factor = factor_of(base, tables.numbered, numbers.factors_re)
            value = numbers.factors_re[factor], numbers.factors_im[factor]
            write_tile(amplitudes, base, tables.starts, (re, im), value)


@jit
def _sum_round(tile: Any, row: Any, index: int, pass_tables: Any, scratch: Any, out: Any) -> None:
    """A round on a tile at `index`; see `apply_round`."""
    # As in `apply_round`. The highest bit of a round selects psi or lambda: each half of its block
    # is a state.
    (re, im), number, first, last = tile, row[1], row[2], row[3]
    (tables, numbers, sums), (tiles, own) = pass_tables, scratch
    starts, others = tables.round_starts[number], tables.round_others[number]
    in_place = others.size == 0
    size = re.size >> others.size
    step = size // starts.size
    round_re, round_im = (re, im) if in_place else (tiles.round_re[:size], tiles.round_im[:size])
    for chunk in range(1 << others.size):
        base = spread(chunk, others)
        if not in_place:
            for v in range(starts.size):
                copy(((round_re, round_im), v * step, (re, im), base + starts[v]))
        for a in range(first, last):
            action = tables.actions[a]
            # Most actions have no sums, and are those of `act`. The third number of an action is 0
            # there, but in LANE_EXCHANGE and MULTIPLY it is a place.
            if action[0] == DIAGONAL_SUMS:
                _diagonal_sums((round_re, round_im), action, (chunk, index), sums, own, out)
            elif action[0] == CROSS_SUM:
                _cross_sum((round_re, round_im), action, (chunk, index), sums, own, out)
            elif action[2] and action[0] != LANE_EXCHANGE and action[0] != MULTIPLY:
                _sum_turn((round_re, round_im), action, (chunk, index), pass_tables, scratch, out)
            else:
                act(round_re, round_im, action, chunk, numbers, tiles)
        if not in_place:
            for v in range(starts.size):
                copy(((re, im), base + starts[v], (round_re, round_im), v * step))


@jit
def _sum_turn(  # noqa: C901
    block: Any, action: Any, indices: Any, pass_tables: Any, scratch: Any, out: Any
) -> None:  # fmt: skip
    """A turn of both states, and its sums: one, or two where the number of the column is negative."""
    # The column of the sum is stored plus 1, with a minus where the next column has the sum about Z.
    (re, im), (_, numbers, sums), (tiles, sum_scratch) = block, pass_tables, scratch
    kind, position, turn, at = action[0], action[1], action[3], action[4]
    column, with_z = abs(action[2]) - 1, action[2] < 0
    lanes, half = VECTOR_BYTES // re.itemsize, re.size >> 1
    matrices, totals = numbers.matrices, sum_scratch.totals
    matrix = matrices[at], matrices[at + 1], matrices[at + 2], matrices[at + 3]
    states = re, im, half
    high_re, high_im = tiles.high_re, tiles.high_im
    low_re, low_im = numbers.low_re[turn], numbers.low_im[turn]
    if kind != ROTATE:
        turns_of_part(numbers, tiles, turn, indices[0])
    mask, shift = low_re.size - 1, numbers.low_bits[0]
    # Two vectors of totals, used in turn (i & lanes), so that an addition need not wait for the one
    # before; two more for Z.
    for lane in range(4 * lanes if with_z else 2 * lanes):
        totals[lane] = 0
    if kind == LANE_ROTATE:
        # By psi's vectors; lambda's lie `half` behind. Which operation is chosen does not change in
        # the loop; the bit has to stand in the code, as the lanes that an instruction exchanges do.
        for i in range(0, half, lanes):
            to, lane_phases = i & lanes, (low_re, low_im, i & mask)
            phase = high_re[i >> shift], high_im[i >> shift]
            if position == 0:
                if with_z:
                    sum_yz_rotate_lane_bit_0((states, (totals, to), i, matrix, phase, lane_phases))
                else:
                    sum_y_rotate_lane_bit_0((states, (totals, to), i, matrix, phase, lane_phases))
            elif position == 1:
                if with_z:
                    sum_yz_rotate_lane_bit_1((states, (totals, to), i, matrix, phase, lane_phases))
                else:
                    sum_y_rotate_lane_bit_1((states, (totals, to), i, matrix, phase, lane_phases))
            elif position == 2:
                if with_z:
                    sum_yz_rotate_lane_bit_2((states, (totals, to), i, matrix, phase, lane_phases))
                else:
                    sum_y_rotate_lane_bit_2((states, (totals, to), i, matrix, phase, lane_phases))
            elif with_z:
                sum_yz_rotate_lane_bit_3((states, (totals, to), i, matrix, phase, lane_phases))
            else:
                sum_y_rotate_lane_bit_3((states, (totals, to), i, matrix, phase, lane_phases))
    else:
        # The vectors with the bit 0; see `act`.
        bit = 1 << position
        for k in range(0, half >> 1, lanes):
            i = k + (k & -bit)
            to, j = k & lanes, i | bit
            if kind == ROTATE:
                if with_z:
                    sum_yz_rotate((states, (totals, to), i, j, matrix))
                else:
                    sum_y_rotate((states, (totals, to), i, j, matrix))
                continue
            phase = high_re[i >> shift], high_im[i >> shift]
            if kind == TURN_ROTATE:
                if with_z:
                    sum_yz_rotate((states, (totals, to), i, j, matrix, phase))
                else:
                    sum_y_rotate((states, (totals, to), i, j, matrix, phase))
            elif with_z:
                sum_yz_rotate((states, (totals, to), i, j, matrix, phase, (low_re, low_im, i & mask)))
            else:
                sum_y_rotate((states, (totals, to), i, j, matrix, phase, (low_re, low_im, i & mask)))
    # The signs of lanes are float64 rows of `lane_signs`, one for each mask of lane bits.
    row = sums.columns[column, 1] * lanes
    out[column] += _sign(sums, column, indices) * _over_lanes(sum_scratch, 0, 2, sums.lane_signs, row)
    if with_z:
        column += 1
        total = _over_lanes(sum_scratch, 2 * lanes, 2, sums.lane_signs, row)
        out[column] += _sign(sums, column, indices) * total


@jit
def _cross_sum(block: Any, action: Any, indices: Any, sums: Any, sum_scratch: Any, out: Any) -> None:
    """A sum about bits that are not those of a lane."""
    # A word with X or Y: i ^ x of lambda meets i of psi. Invariant: x has no bits of the lane
    # number, as `sum_tables` has exchanged them for others before and back behind.
    re, im = block
    x, column, imaginary, z = action[1], action[2], action[3], action[4]
    lanes, half, totals = VECTOR_BYTES // re.itemsize, re.size >> 1, sum_scratch.totals
    for lane in range(2 * lanes):
        totals[lane] = 0
    for here in range(0, half, lanes):
        if imaginary:
            sum_imaginary(((re, im, half), (totals, here & lanes), here, here ^ x, sign(z, here)))
        else:
            sum_real(((re, im, half), (totals, here & lanes), here, here ^ x, sign(z, here)))
    row = sums.columns[column, 1] * lanes
    out[column] += _sign(sums, column, indices) * _over_lanes(sum_scratch, 0, 2, sums.lane_signs, row)


@jit
def _diagonal_sums(block: Any, action: Any, indices: Any, sums: Any, sum_scratch: Any, out: Any) -> None:
    """Sums of words of Z: all are sums of the same products with signs."""
    # All words of Z need Im(conj(lambda[i]) psi[i]): made once. A row of signs over vectors is
    # shared by the columns that differ in the lane's bits, or outside of the round, alone.
    re, im = block
    column, end, first, last = action[1], action[2], action[3], action[4]
    lanes, half, totals = VECTOR_BYTES // re.itemsize, re.size >> 1, sum_scratch.totals
    for i in range(0, half, lanes):
        imaginary_products(((re, im, half), i, sum_scratch.products))
    for row in range(first, last):
        for lane in range(lanes):
            totals[lane] = 0
        signs = sums.signs[row]
        for v in range(0, signs.size, WORD_VECTORS):
            signed_sum((sum_scratch.products, v * lanes, signs, v, totals, 0))
        while column < end and sums.columns[column, 0] == row:
            at = sums.columns[column, 1] * lanes
            out[column] += _sign(sums, column, indices) * _over_lanes(sum_scratch, 0, 1, sums.lane_signs, at)
            column += 1


@jit
def _sign(sums: Any, column: int, indices: Any) -> float:
    """The sign of a sum by the bits outside of a round: the chunk of a tile, and the tile's index."""
    return sign(sums.columns[column, 2], indices[0]) * sign(sums.columns[column, 3], indices[1])


@jit
def _over_lanes(sum_scratch: Any, offset: int, n_vectors: int, signs: Any, first_sign: int) -> float:
    """The sum over lanes of `n_vectors` totals from `offset` on, times their signs.

    `signs` from `first_sign` on are those of lanes.
    """
    # Once for each column of a round: a plain loop, which is no slower than vectors (measured). Halves are
    # added to each other, so that the order of the sum is that of a vector's lanes, whatever the processor.
    lanes, width = sum_scratch.lanes, sum_scratch.lanes.size
    for lane in range(width):
        total = np.float64(sum_scratch.totals[offset + lane])
        if n_vectors == 2:
            total += np.float64(sum_scratch.totals[offset + width + lane])
        lanes[lane] = total * signs[first_sign + lane]
    while width > 1:
        width //= 2
        for lane in range(width):
            lanes[lane] += lanes[width + lane]
    return lanes[0]

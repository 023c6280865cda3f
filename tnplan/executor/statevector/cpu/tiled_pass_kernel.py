"""The numba kernels of a pass: tiles are read, changed and written one after another. Imported lazily.

A tile is kept as real parts and imaginary parts, so that all arithmetic runs over neighbours. `PassTables`
describes the tables. Amplitudes are given as real numbers, real and imaginary parts in turn.

There are two, `run_tiles` for every pass and `run_rounds` for one of rounds alone: most circuits have no
other, and it is compiled in half the time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.executor.statevector.cpu.matrix_kernel import apply_diagonal, apply_matrix
from tnplan.executor.statevector.cpu.round_kernel import apply_round, jit, spread
from tnplan.executor.statevector.cpu.tile_scratch import APART
from tnplan.executor.statevector.cpu.vector_tables import ROUND
from tnplan.executor.statevector.scheduling.pass_tables import DIAGONAL

ONE, TWO = np.uint64(1), np.uint64(2)


# A pass holds the bits `held` of the index in a tile, 2^held amplitudes, and does all its steps on
# one tile after another: memory is read and written once for the whole pass. `far` are the bits of
# the tile's number. Re and im lie apart, so that arithmetic runs over neighbours; APART keeps them
# from the same lines of a cache.
@jit
def run_rounds(
    amplitudes: Any, rank_base: int, pass_tables: Any, scratch: Any, first: int, last: int
) -> None:  # fmt: skip
    """Do all rounds of a pass on tiles first .. last-1, in a `TileScratch`.

    `pass_tables` are its `FlatPass` and `FlatNumbers`, `rank_base` are the index bits of the rank.
    """
    # `scratch` belongs to this thread; the slices are views, so that nothing is allocated.
    tables, numbers = pass_tables
    side = 1 << tables.tile_bits.size
    re, im = scratch.tile[:side], scratch.tile[side + APART : 2 * side + APART]
    for tile in range(first, last):
        # The index of the tile's first amplitude: all held bits are 0.
        base = spread(tile, tables.far)
        read_tile(amplitudes, base, tables.starts, re, im)
        outside_re, outside_im = numbers.outside_re, numbers.outside_im
        # Factors of the bits outside, of which those of a rank are part: the same for the whole tile.
        turns_of_tile(
            base | rank_base, tables.beyond, outside_re, outside_im, scratch.tile_re, scratch.tile_im
        )
        for s in range(len(tables.steps)):
            apply_round((re, im), tables.steps[s], tables, numbers, scratch)
        # Diagonals that touch no held bit are one factor of the whole tile, applied while it is written back.
        factor = factor_of(base | rank_base, tables.numbered, numbers.factors_re)
        value = numbers.factors_re[factor], numbers.factors_im[factor]
        write_tile(amplitudes, base, tables.starts, (re, im), value)


@jit
def run_tiles(amplitudes: Any, rank_base: int, pass_tables: Any, scratch: Any, first: int, last: int) -> None:
    """Do all steps of a pass, rounds and others; see `run_rounds`."""
    tables, numbers = pass_tables
    side = 1 << tables.tile_bits.size
    re, im = scratch.tile[:side], scratch.tile[side + APART : 2 * side + APART]
    for tile in range(first, last):
        base = spread(tile, tables.far)
        read_tile(amplitudes, base, tables.starts, re, im)
        index = base | rank_base
        steps_of_tile((re, im), index, tables, numbers, scratch)
        offset = factor_of(index, tables.numbered, numbers.factors_re)
        factor = numbers.factors_re[offset], numbers.factors_im[offset]
        write_tile(amplitudes, base, tables.starts, (re, im), factor)


@jit
def steps_of_tile(tile: Any, index: int, tables: Any, numbers: Any, scratch: Any) -> None:
    """Do all steps of a pass, rounds and others, on the tile whose first amplitude has this index."""
    re, im = tile
    places, idle = tables.places, tables.idle
    values_re, values_im = numbers.values_re, numbers.values_im
    q = tables.tile_bits.size
    outside_re, outside_im = numbers.outside_re, numbers.outside_im
    turns_of_tile(index, tables.beyond, outside_re, outside_im, scratch.tile_re, scratch.tile_im)
    for s in range(len(tables.steps)):
        # A multiplexed gate: t targets and `near` selectors inside the tile, `outer` selectors
        # outside. The latter are constant in a tile and choose which of the matrices it sees.
        kind, t, near, outer, offset, value, number = tables.steps[s]
        if kind == ROUND:
            apply_round((re, im), tables.steps[s], tables, numbers, scratch)
            continue
        chosen = 0
        for k in range(outer):
            chosen |= (index >> places[offset + t + near + k] & 1) << k
        # Matrices are ordered by the value of all selectors, the outer ones being the high
        # bits: 4^t numbers each, and 2^near of them for a tile.
        value += chosen << near + 2 * t
        number += chosen << near
        inside = places[offset : offset + t + near]
        if kind == DIAGONAL:
            apply_diagonal(re, im, q, inside, values_re[value:], values_im[value:])
        else:
            for v in range(1 << near):
                # A matrix that is the identity is skipped.
                if not idle[number + v]:
                    at = value + (v << 2 * t)
                    apply_matrix(re, im, q, inside, t, v, values_re[at:], values_im[at:], scratch)


@jit
def turns_of_tile(index: int, beyond: Any, outside_re: Any, outside_im: Any, re: Any, im: Any) -> None:
    """Each turn's factor of the bits outside of a tile; see `vector_tables`."""
    # The product over the outside bits that are 1 of the turn's factor for this bit.
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
def factor_of(index: int, numbered: Any, factors: Any) -> int:
    """The number of a tile's factor."""
    # The factors are one, or one for each value of the bits `numbered`; see `FlatPass`.
    number = 0
    if factors.size > 1:
        for k in range(numbered.size):
            number |= (index >> numbered[k] & 1) << k
    return number


@jit
def read_tile(amplitudes: Any, base: int, starts: Any, re: Any, im: Any) -> None:
    """Part the amplitudes of a tile, which are runs from base + starts[row] on."""
    # A tile consists of runs of neighbouring amplitudes, as many as its lowest held bits allow. Offsets are
    # without sign, so that numba need not look whether they count from the end, and the copy becomes vector
    # instructions. Amplitude i has its real part at 2 i and its imaginary part at 2 i + 1.
    run = np.uint64(re.size // starts.size)
    for row in range(starts.size):
        at, start = np.uint64(row) * run, np.uint64(base + starts[row])
        for k in range(run):
            re[at + k] = amplitudes[TWO * (start + k)]
            im[at + k] = amplitudes[TWO * (start + k) + ONE]


@jit
def write_tile(amplitudes: Any, base: int, starts: Any, tile: Any, factor: Any) -> None:
    """Join the amplitudes of a tile, times a factor, and write them back."""
    (re, im), (factor_re, factor_im) = tile, factor
    run = np.uint64(re.size // starts.size)
    for row in range(starts.size):
        at, start = np.uint64(row) * run, np.uint64(base + starts[row])
        # A factor of 1, the usual case, costs nothing.
        if factor_re == 1 and factor_im == 0:
            for k in range(run):
                amplitudes[TWO * (start + k)] = re[at + k]
                amplitudes[TWO * (start + k) + ONE] = im[at + k]
            continue
        for k in range(run):
            x, y = re[at + k], im[at + k]
            amplitudes[TWO * (start + k)] = factor_re * x - factor_im * y
            amplitudes[TWO * (start + k) + ONE] = factor_re * y + factor_im * x

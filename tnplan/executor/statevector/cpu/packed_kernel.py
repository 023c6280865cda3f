"""The numba kernels of a state of quantised amplitudes: tiles are decoded, changed and encoded again.

A block has up to 32 neighbouring amplitudes: a scale, and whole numbers for all real parts, then for all
imaginary parts. An amplitude's part is its number times the scale. Imported lazily.

A part x is rounded to one of the two next multiples of the scale, up with the probability of what is left
over (stochastic rounding: Croci et al., Royal Society Open Science 9, 211631 (2022)). The mean of what is
stored is x, so that errors of several passes add up like steps of a random walk.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.kernel import kernel
from tnplan.executor.statevector.cpu.round_kernel import jit, spread
from tnplan.executor.statevector.cpu.tile_scratch import APART
from tnplan.executor.statevector.cpu.tiled_pass_kernel import factor_of, steps_of_tile

# Sums and maxima of a block may be made in any order, so that they run over whole vectors. The order is fixed
# when the kernel is compiled: results do not depend on threads.
sums_jit = kernel(nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nnan", "nsz"})

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""Constants of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
DITHER_BITS = 12
PLACES = np.uint64((1 << DITHER_BITS) - 1)
"""Places in `dither`: the middles of so many equal parts of (0, 1) in any order, and its beginning again."""
SMALLEST = 1e-30
"""Blocks whose parts are all smaller are stored as zeros: their scale could not be inverted."""


@jit
def run_packed(
    packed: Any, rounding: Any, pass_tables: Any, scratch: Any, span: Any, out: Any
) -> None:  # fmt: skip
    """Do a pass on tiles; out[tile] = the squares of its rounding errors and of its norm.

    `packed` are the numbers and the scales of all blocks, `rounding` a key for random numbers and, in the
    precision of tiles, the largest number [1] and `dither`; `pass_tables` and `scratch` are those of
    `tiled_pass_kernel.run_rounds`. `span` has the first tile, the one after the last, and the rank's bits.
    """
    tables, numbers = pass_tables
    side = 1 << tables.tile_bits.size
    re, im = scratch.tile[:side], scratch.tile[side + APART : 2 * side + APART]
    for tile in range(span[0], span[1]):
        base = spread(tile, tables.far)
        read_blocks(packed, base, tables.starts, re, im)
        steps_of_tile((re, im), base | span[2], tables, numbers, scratch)
        number = factor_of(base, tables.numbered, numbers.factors_re)
        multiply((re, im), numbers.factors_re[number], numbers.factors_im[number])
        out[tile, 0], out[tile, 1] = write_blocks(packed, rounding, base, tables.starts, (re, im))


@jit
def read_blocks(packed: Any, base: int, starts: Any, re: Any, im: Any) -> None:
    """Decode the amplitudes of a tile, which are runs from base + starts[row] on."""
    # Invariant: runs are whole blocks, as the lowest bits of the index are in every tile.
    codes, scales = packed
    size = np.uint64(codes.size // scales.size // 2)
    run = np.uint64(re.size // starts.size)
    for row in range(starts.size):
        at = np.uint64(row) * run
        block = np.uint64(base + starts[row]) // size
        for _ in range(run // size):
            decode(codes, scales[block], np.uint64(2) * block * size, size, at, re, im)
            block += np.uint64(1)
            at += size


@jit
def decode(codes: Any, scale: Any, first: Any, size: Any, at: Any, re: Any, im: Any) -> None:
    """The amplitudes of one block, at `at` in re and im."""
    # Whole numbers of 8 and 16 bits times float32 are float32: one rounding in any case.
    for k in range(size):
        re[at + k] = codes[first + k] * scale
        im[at + k] = codes[first + size + k] * scale


@jit
def multiply(tile: Any, factor_re: Any, factor_im: Any) -> None:
    """Multiply a tile by its factor; by 1, the usual case, costs nothing."""
    re, im = tile
    if factor_re != 1 or factor_im != 0:
        for k in range(re.size):
            x, y = re[k], im[k]
            re[k] = factor_re * x - factor_im * y
            im[k] = factor_re * y + factor_im * x


@jit
def write_blocks(packed: Any, rounding: Any, base: int, starts: Any, tile: Any) -> Any:
    """Encode a tile; the sums of the squares of rounding errors, and of what is stored."""
    (codes, scales), (re, im) = packed, tile
    size = np.uint64(codes.size // scales.size // 2)
    run = np.uint64(re.size // starts.size)
    errors = norm = 0.0
    for row in range(starts.size):
        at = np.uint64(row) * run
        block = np.uint64(base + starts[row]) // size
        for _ in range(run // size):
            own, squares = encode(packed, rounding, block, (re[at : at + size], im[at : at + size]))
            errors += own
            norm += squares
            block += np.uint64(1)
            at += size
    return errors, norm


@sums_jit
def encode(packed: Any, rounding: Any, block: Any, parts: Any) -> Any:
    """Encode one block: its scale, its numbers; gives the same sums."""
    # `a if a > b else b`, as numba's `max` and `min` do not become vector instructions.
    (codes, scales), (key, limit, dither), (re, im) = packed, rounding, parts
    size = np.uint64(re.size)
    zero, largest = limit[0] - limit[0], limit[0]
    most = zero
    for k in range(size):
        x, y = abs(re[k]), abs(im[k])
        x = x if x > y else y
        most = x if x > most else most
    if most < SMALLEST:
        scales[block] = 0
        return 2.0 * re.size * np.float64(most) ** 2, 0.0
    scale = np.float32(most / largest)
    scales[block] = scale
    # What is multiplied with is the inverse of the stored scale.
    inverse = largest / (scale * largest)
    # SplitMix64 of the block's number and the key says where the block begins in `dither`: the same
    # place with any number of threads.
    state = np.uint64(key) + block * GOLDEN
    state = (state ^ (state >> np.uint64(30))) * FIRST
    state = (state ^ (state >> np.uint64(27))) * SECOND
    u, v = state >> np.uint64(64 - DITHER_BITS), state >> np.uint64(32) & PLACES
    first = np.uint64(2) * block * size
    errors = norm = zero
    for k in range(size):
        # floor(x + r) with r in (0, 1): up with the probability of x - floor(x).
        x, y = re[k] * inverse, im[k] * inverse
        p, q = np.floor(x + dither[u + k]), np.floor(y + dither[v + k])
        p, q = p if p < largest else largest, q if q < largest else largest
        p, q = p if p > -largest else -largest, q if q > -largest else -largest
        codes[first + k] = np.int32(p)
        codes[first + size + k] = np.int32(q)
        a, b = x - p, y - q
        errors += a * a + b * b
        norm += p * p + q * q
    # In units of the scale up to here, so that small amplitudes have no subnormal squares.
    square = np.float64(scale) ** 2
    return errors * square, norm * square


@jit
def unpack(packed: Any, first: int, factor: float, out: Any) -> None:
    """out = factor times the amplitudes from block `first` on, complex128, as many as it has."""
    codes, scales = packed
    size = codes.size // scales.size // 2
    for row in range(out.size // size):
        block = first + row
        scale = np.float64(scales[block]) * factor
        at = 2 * block * size
        for k in range(size):
            out[row * size + k] = complex(codes[at + k] * scale, codes[at + size + k] * scale)

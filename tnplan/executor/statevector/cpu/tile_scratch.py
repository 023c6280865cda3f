"""Scratch memory for the tiles of one thread.

The kernel of a pass allocates nothing, which makes it fast to compile.
"""

from __future__ import annotations

import math
from threading import local
from typing import Any, NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.statevector.cpu.vector_tables import ROUND_BYTES, VectorPass
from tnplan.executor.statevector.gates.multiplexed_gate import LARGEST_TARGETS

LANE_BITS = 6
LANES = 1 << LANE_BITS
"""Groups of amplitudes that one matrix multiplies at once."""
ALIGNMENT_BYTES = 64
"""Numbers of a vector begin on a cache line."""
APART = 64
"""Numbers between the two parts of a tile, which would otherwise meet in the same lines of a cache."""
MOST_BITS = 64
"""More bits than an index has."""


class TileScratch(NamedTuple):
    """Arrays of one thread for real and imaginary parts, in the precision of the state.

    `tile` has both parts of a tile; `lanes` [4, columns] those of groups before and after a matrix, whose
    rows and groups lie at `offsets` and `lane` in a tile. `free` are bits outside a matrix, `minus_im` is a
    part of it. `round_re` and `round_im` have a round, `tile_re` and `tile_im` the turns of a tile, `high_re`
    and `high_im` those of the high bits of a round.
    """

    tile: Array
    lanes: Array
    minus_im: Array
    offsets: Array
    lane: Array
    free: Array
    round_re: Array
    round_im: Array
    tile_re: Array
    tile_im: Array
    high_re: Array
    high_im: Array


class _ThreadScratch(local):
    """The scratch memory of a thread for each of the last sizes, and the array of tiles that they share."""

    def __init__(self) -> None:
        self.tiles: dict[tuple[Any, ...], Array] = {}
        self.by_size: dict[tuple[Any, ...], TileScratch] = {}


_SCRATCH = _ThreadScratch()
SIZES_KEPT = 32


def tile_scratch(tables: VectorPass, real: np.dtype[np.floating]) -> TileScratch:
    """The scratch memory of this thread for the tiles of a pass, of numbers of this type, with any content.
    Passes of the same size share it: to allocate it takes as long as some tiles of a short pass."""
    sizes = len(tables.flat.tile_bits), real, tables.most_targets, *tables.numbers.high_re.shape
    own = _SCRATCH
    if sizes not in own.by_size:
        if sizes[:2] not in own.tiles:
            tile = aligned((2 * (1 << sizes[0]) + 2 * APART,), real)
            own.tiles, own.by_size = {sizes[:2]: tile}, {}
        if len(own.by_size) >= SIZES_KEPT:
            own.by_size = {}
        own.by_size[sizes] = _new_scratch(own.tiles[sizes[:2]], *sizes[1:])
    return own.by_size[sizes]


def _new_scratch(
    tile: Array, real: np.dtype[np.floating], most_targets: int, turns: int, high: int
) -> TileScratch:  # fmt: skip
    round_size = ROUND_BYTES // (2 * real.itemsize)
    parts = aligned((2, round_size + APART), real)
    return TileScratch(
        tile, np.empty((4, LANES << most_targets), real), np.empty(1 << 2 * LARGEST_TARGETS, real),
        np.empty(1 << LARGEST_TARGETS, np.int64), np.empty(LANES, np.uint64), np.empty(MOST_BITS, np.int64),
        parts[0], parts[1], np.empty(turns, real), np.empty(turns, real), np.empty(high, real),
        np.empty(high, real),
    )  # fmt: skip


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Zeros that begin on a cache line."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT_BYTES
    return memory[start : start + size].view(dtype).reshape(shape)

"""What the kernel of a pass is given: its tables as one tuple, and room for the tiles of one thread.

The kernel allocates nothing, which makes it fast to compile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tnplan.executor.statevector.gates.multiplexed_gate import LARGEST_TARGETS
from tnplan.executor.statevector.scheduling.pass_tables import GATE, PassTables
from tnplan.executor.statevector.scheduling.qubit_cover import index_of
from tnplan.planner.common.arrays import Array

LANE_BITS = 6
LANES = 1 << LANE_BITS
"""Groups of amplitudes that one matrix multiplies at once."""
APART = 64
"""Numbers between the two parts of a tile, which would otherwise meet in the same lines of a cache."""
MOST_BITS = 64
"""More bits than an index has."""


class FlatPass(NamedTuple):
    """The tables of a pass but its values; see `PassTables`. `starts` are where the runs of a tile begin."""

    held: Array
    far: Array
    starts: Array
    steps: Array
    places: Array
    idle: Array
    phases: Array


class TileRoom(NamedTuple):
    """Arrays of one thread for real and imaginary parts, in the precision of the state.

    `tile` has both parts of a tile; `lanes` [4, columns] those of groups before and after a matrix, whose
    rows and groups lie at `offsets` and `lane` in a tile; `factors` [4, values] those of phases of the low
    and of the high bits, made of `angles`. `free` are bits outside a matrix, `minus_im` is a part of it.
    """

    tile: Array
    lanes: Array
    factors: Array
    angles: Array
    minus_im: Array
    offsets: Array
    lane: Array
    free: Array


def flat_pass(tables: PassTables) -> FlatPass:
    """The tables of a pass for the kernel."""
    held = tables.held
    run_bits = int(np.count_nonzero(np.cumprod(held == np.arange(len(held)))))
    rows = np.arange(1 << (len(held) - run_bits), dtype=np.int64)
    return FlatPass(
        held, tables.far, np.asarray(index_of(rows, held[run_bits:]), np.int64), tables.steps, tables.places,
        tables.idle, tables.phases,
    )  # fmt: skip


def tile_room(tables: PassTables, real: np.dtype[np.floating]) -> TileRoom:
    """Room for the tiles of a pass, of numbers of this type."""
    tile_bits, steps = len(tables.held), tables.steps
    most_targets = int(steps[steps[:, 0] == GATE, 1].max(initial=0))
    half = 1 << (tile_bits + 1) // 2
    return TileRoom(
        np.empty((2 << tile_bits) + APART, real),
        np.empty((4, LANES << most_targets), real),
        np.empty((4, half), real),
        np.empty(half),
        np.empty(1 << 2 * LARGEST_TARGETS, real),
        np.empty(1 << LARGEST_TARGETS, np.int64),
        np.empty(LANES, np.uint64),
        np.empty(MOST_BITS, np.int64),
    )

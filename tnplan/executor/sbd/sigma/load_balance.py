"""How alpha rows are dealt to blocks of threads in the opposite-spin part, by the tiles of each row.

A row whose work is more than a block's share of what is left goes to several blocks, which take some of its
tiles each: rows of very many excitations, and the last rows, in ever smaller pieces. So no block works when
all others have ended.

Knows numbers of excitations and of tiles; no strings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.sbd.sigma import cost_model as cost
from tnplan.executor.sbd.sigma.pair_tiling import DEEP, MOST, ROWS

WARPS_AT_ONCE = 3168
"""That take a share of what is left: twice the 12 that a GPU works on in each of 132 multiprocessors, so that
the last pieces end more evenly."""
LEAST = 8
"""Pieces that a row of mean work goes to at most."""


class RowTasks(NamedTuple):
    """The pieces of rows, in the order in which blocks take them.

    table [piece, 4]: row, first and one after the last of its rows of tiles, and where its sums go: -1 for
    the row itself, otherwise a spare row. Spare rows bounds[k] .. bounds[k+1]-1 belong to row split[k].
    """

    table: Array
    split: Array
    bounds: Array

    @property
    def spare(self) -> int:
        """How many spare rows there are."""
        return int(self.bounds[-1])

    @property
    def size_bytes(self) -> int:
        """The memory of the tables."""
        return sum(table.nbytes for table in self)


def tile_work(counts: Array, places: Array | None, tiles: Array) -> Array:
    """Seconds of a GPU [row, row of tiles] for one column of tiles, for rows of so many excitations.

    `places` are the active pairs of these, row by row, where with a parity only those of earlier pairs are
    multiplied; None where all are. tiles[m] are there of active pairs ROWS m .. ROWS (m + 1) - 1.
    """
    shape = len(counts), len(tiles)
    if places is None:
        depth = np.broadcast_to(counts[:, None], shape)
    else:
        cells = np.repeat(np.arange(shape[0]) * shape[1], counts) + places // ROWS
        depth = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape).cumsum(1)
    return np.asarray(tiles * (cost.STEP_S * -(-depth // DEEP) + cost.VISIT_S * -(-depth // MOST)))


def balance_rows(work: Array, at_once: int) -> RowTasks:
    """The pieces of rows with so much work [row, row of tiles], for `at_once` blocks.

    Rows come as they stand: neighbours share rows of the state, which caches keep. A piece has no more work
    than is left for each of those at once. Rows of none have no piece.
    """
    # Guided self-scheduling (Polychronopoulos and Kuck, IEEE Trans. Comput. C-36, 1425 (1987)) with
    # pieces of rows: each piece is at most 1 / at_once of the work that is left from its row on, or
    # 1 / LEAST of a mean row where that is more.
    rows = work.sum(1)
    mean = rows.sum() / max(1, len(rows))
    order = np.flatnonzero(rows > 0)
    work, rows = work[order], rows[order, None]
    left = np.cumsum(rows[::-1])[::-1, None]
    numbers = np.ceil(rows / np.maximum(left / at_once, mean / LEAST))
    # A row of tiles goes to the piece where its middle lies.
    piece = np.minimum((np.cumsum(work, 1) - work / 2) / rows * numbers // 1, numbers - 1)
    # A piece begins where its number changes along the row.
    row, first = np.nonzero(np.diff(piece, axis=1, prepend=-1))
    following = np.append(first, 0)[1:]
    last = np.where(following > 0, following, work.shape[1])
    spare = np.where(first > 0, np.cumsum(first > 0) - 1, -1)
    split, extra = np.unique(row[first > 0], return_counts=True)
    bounds = np.concatenate([[0], np.cumsum(extra)])
    return RowTasks(np.stack([order[row], first, last, spare], 1), order[split], bounds)

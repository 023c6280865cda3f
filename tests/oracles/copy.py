"""Permuting copies by NumPy indexing, the twins of the kernels of the CPU and of the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.cuda.copy.tiling import CopyTiles
from tnplan.executor.device.protocols.copy import CopyTables


def copy_numpy(
    target: NDArray[Any], source: NDArray[Any], tables: CopyTables, target_start: int, source_start: int,
    first: int, last: int, add: bool = False,
) -> None:  # fmt: skip
    """The NumPy twin of the CPU's copy and add kernels."""

    def positions(table: NDArray[np.uint64], start: int) -> NDArray[np.int64]:
        ends = np.cumsum([tables.outer, tables.middle, tables.columns])
        outer, *inner = np.split(table.astype(np.int64), ends)
        places = start + outer[first:last]
        for steps in (*inner, np.arange(tables.run)):
            places = np.add.outer(places, steps)
        return places

    values = source[positions(tables.source, source_start)]
    place = positions(tables.target, target_start)
    target[place] = target[place] + values if add else values


def copy_tiles(made: CopyTiles, target: NDArray[Any], source: NDArray[Any], add: bool) -> None:
    """Copy, or add, from the start of `source` to the start of `target`, tile by tile as the kernel does."""
    shared = np.zeros(made.slots, source.dtype)
    load = made.load.all().astype(np.int64)
    store = made.store.all().astype(np.int64) if made.store else load
    for row in made.rows.astype(np.int64):
        for column in made.columns.astype(np.int64):
            from_start, to_start = row + column
            values = source[from_start + load[:, 0]]
            into = to_start + load[:, 1]
            if made.store:
                shared[load[:, 1]] = values
                values = shared[store[:, 1]]
                into = to_start + store[:, 0]
            target[into] = target[into] + values if add else values

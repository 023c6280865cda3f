"""How the rows of a list of determinants are dealt to blocks of threads on a GPU.

Rows of one group have the same candidates, so that a block brings these to its shared memory once for all its
rows. Knows numbers of members and candidates; no states.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.sbd.lists.list_tables import StringGroups

ROWS = 64
"""Rows of a task, at most."""
MOST_WORK = 1 << 21
"""Candidates times rows of a task, at most, unless one row alone has more."""


class ListTasks(NamedTuple):
    """The tasks of one rank, those of most work first.

    table [task, 3]: group, and the first and one after the last of its rows; row i is member local[i].
    """

    table: Array
    local: Array


def list_tasks(groups: StringGroups, candidates: Array, rows: tuple[int, int]) -> ListTasks:
    """The tasks of determinants rows[0] .. rows[1]-1, for so many candidates of each group."""
    local = np.flatnonzero((groups.place >= rows[0]) & (groups.place < rows[1])).astype(np.int32)
    counts = np.bincount(groups.number[groups.place[local]], minlength=len(candidates))
    first = np.cumsum(counts) - counts
    at_once = np.clip(MOST_WORK // np.maximum(candidates, 1), 1, ROWS)
    pieces = np.where(candidates > 0, -(-counts // at_once), 0)
    group = np.repeat(np.arange(len(candidates)), pieces)
    number = np.arange(len(group)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin = first[group] + number * at_once[group]
    end = np.minimum(begin + at_once[group], (first + counts)[group])
    order = np.argsort(-(end - begin) * candidates[group], kind="stable")
    return ListTasks(np.stack([group, begin, end], 1)[order].astype(np.int64), local)

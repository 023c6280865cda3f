"""What a search does while its kernels are compiled: cotengra's trials and annealing, which need none."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from tnplan.planner.common.compiled.ahead import compile_soon, is_compiled, still_compiling
from tnplan.planner.search.annealer.kernel_samples import MOVES
from tnplan.planner.search.annealing import Effort, Found, Task, search_tree
from tnplan.planner.search.orders.kernel_samples import DIVISIONS, PLAIN_ORDERS

KERNELS = MOVES, DIVISIONS, PLAIN_ORDERS
PIECE_S = 0.5
"""Seconds of a search after which it is seen whether the kernels are there."""
MOST_TENSORS = 1000
"""Of a network that cotengra anneals in such a piece; larger ones wait for the kernels."""
LATEST_S = 0.2
"""Seconds before the end at which no other search begins."""


def are_compiled() -> bool:
    """Whether all kernels of a search are in the cache."""
    return all(is_compiled(*sample) for one in KERNELS for sample in one.all())


def search_uncompiled(task: Task, ends: float, tell: Callable[[Found], None]) -> Found | None:
    """The best tree of the time in which processes compile the kernels, told when it is found.

    None where the kernels are in the cache already, and for large networks.
    """
    if are_compiled():
        return None
    compile_soon(KERNELS)
    if len(task.inputs) > MOST_TENSORS:
        return None
    best: Found | None = None
    number = 0
    while best is None or (still_compiling(KERNELS) and time.monotonic() < ends - LATEST_S):
        effort = Effort(max(min(PIECE_S, ends - time.monotonic()), LATEST_S), task.effort.max_trials)
        found = search_tree(replace(task, seed=task.seed + number, minimize="flops", effort=effort))
        number += 1
        if best is None or found.score < best.score:
            best = found
            tell(best)
    return best

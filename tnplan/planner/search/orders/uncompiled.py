"""What a search does while its kernels are compiled: cotengra's trials and annealing, which need none."""

from __future__ import annotations

import time
from dataclasses import replace

from tnplan.common.kernels.ahead import compile_soon, is_compiled, still_compiling
from tnplan.planner.search.annealing import Effort, OnBetter, ScoredTree, Task, search_tree
from tnplan.planner.search.kernel_samples import DIVISIONS, MOVES, PLAIN_ORDERS

KERNELS = MOVES, DIVISIONS, PLAIN_ORDERS
LEAST_S = 0.2
"""Seconds of annealing at least."""
MOST_TENSORS = 1000
"""Of a network that cotengra anneals; larger ones wait for the kernels."""


def are_compiled() -> bool:
    """Whether all kernels of a search are in the cache."""
    return all(is_compiled(*sample) for samples in KERNELS for sample in samples.all())


def search_uncompiled(task: Task, ends: float, on_better: OnBetter) -> ScoredTree | None:
    """The best tree of the time in which processes compile the kernels; `on_better` gets it as well.

    None where the kernels are in the cache already, and for large networks.
    """
    if are_compiled():
        return None
    compile_soon(KERNELS)
    if len(task.inputs) > MOST_TENSORS:
        return None
    effort = Effort(max(ends - time.monotonic(), LEAST_S), task.effort.max_trials)
    return search_tree(
        replace(task, minimize="flops", effort=effort), on_better, lambda: still_compiling(KERNELS)
    )  # fmt: skip

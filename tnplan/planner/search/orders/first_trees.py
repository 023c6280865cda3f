"""The trees that a search begins with that is given none: of orders, and of cotengra's trials."""

from __future__ import annotations

import time
from dataclasses import replace
from math import inf

from tnplan.planner.search.annealing import (
    HYPER_SHARE,
    Effort,
    OnBetter,
    ScoredTree,
    Task,
    first_tree,
    greedy_s,
    seeded,
)
from tnplan.planner.search.orders.starts import QUICK_KINDS, QUICK_TENSORS, OrderStarts, load_kernels

ORDER_SHARE, TRIAL_SHARE = 0.1, 0.15
ORDER_LIMIT_S, TRIAL_LIMIT_S = 4.0, 20.0
FIRST_ORDERS, FIRST_SHARE, FIRST_ORDERS_S = 5, 0.3, 1.0
"""So many orders are tried where they take no more than this share of the time, or a second."""
MOST_TREES, FAR_BITS = 4, 64.0
"""First trees, and how much more than the best one of them may cost: to slice a worse one takes long."""
ORDERS_PER_TRIAL = 8
"""Of one trial that the effort allows."""
TRIALS = 4
QUICK = 300
"""Tensors up to which one trial is made whatever the time."""


def first_trees(task: Task, on_better: OnBetter, search_ends: float = inf) -> list[ScoredTree]:
    """The best of some orders, cheapest first, and the best of cotengra's trials.

    Of a large network there are no more than the quick ones after `search_ends`, by `time.monotonic`.
    Without a limit `on_better` gets the best orders so far, once those are made that `core_for` gave it.
    """
    if len(task.inputs) <= 2:
        return [ScoredTree(0.0, ((0, 1),) if len(task.inputs) == 2 else (), ())]
    time_s, n = task.effort.time_s, len(task.inputs)
    starts = OrderStarts(task)
    load_kernels()
    began = time.monotonic()
    ends = began + min(ORDER_SHARE * time_s, ORDER_LIMIT_S)
    first_ends = began + max(FIRST_SHARE * time_s, FIRST_ORDERS_S)
    by_score: dict[float, ScoredTree] = {}
    for number in range(ORDERS_PER_TRIAL * task.effort.max_trials):
        now = time.monotonic()
        if number and now > ends and (number >= FIRST_ORDERS or now > first_ends):
            break
        if n > QUICK_TENSORS and number > max(QUICK_KINDS) and now > search_ends:
            break
        tree = starts.tree(number)
        by_score.setdefault(round(tree.score, 6), tree)
        if task.limit is None and number >= max(QUICK_KINDS):
            best = by_score[min(by_score)]
            if number == max(QUICK_KINDS) or best is tree:
                on_better(best)
    trees = [by_score[score] for score in sorted(by_score)[:MOST_TREES]]
    trial_s = min(TRIAL_SHARE * time_s, TRIAL_LIMIT_S)
    trials = min(TRIALS, task.effort.max_trials, int(trial_s / greedy_s(n, trees[0].score)))
    if trials or n <= QUICK:
        trees = [*trees[: MOST_TREES - 1], _trial(task, starts, max(trials, 1), trial_s)]
    least = min(tree.score for tree in trees)
    return [tree for tree in trees if tree.score <= least + FAR_BITS]


def _trial(task: Task, starts: OrderStarts, trials: int, trial_s: float) -> ScoredTree:
    with seeded(task.seed):
        effort = Effort(trial_s / HYPER_SHARE, trials, 0)
        tree = first_tree(replace(task, limit=None, minimize="flops", effort=effort))
    return starts.improved([(int(a), int(b)) for a, b in tree.get_ssa_path()])

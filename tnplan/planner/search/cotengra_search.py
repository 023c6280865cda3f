"""A contraction path under a memory limit: checks, workers and the choice of a search. Knows no layouts.

The joint search is compiled; the other is cotengra's hyper-optimizer, whose trials are scored after slicing,
and rounds of its annealing. Slicing is part of both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from math import log2
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.planner.networks.contraction_path import ContractionPath, ssa_pairs
from tnplan.planner.networks.network import Network
from tnplan.planner.search.annealing import POWERS, Effort, ScoredTree, Task, in_symbols, roots, search_tree
from tnplan.planner.search.checkpoint import SearchCheckpoint, described
from tnplan.planner.search.driver import end_with_parent, search_joint
from tnplan.planner.search.orders.starts import core_for
from tnplan.planner.search.orders.uncompiled import search_uncompiled
from tnplan.planner.search.path_cost import in_least_memory, log10_mnk_planned, objective_log2, path_cost
from tnplan.planner.search.ranking import SearchedNetwork
from tnplan.planner.search.search_options import (
    JOINT,
    LARGEST_LIMIT,
    METHODS,
    PLANNED,
    SCHEDULE,
    SearchOptions,
)

ENOUGH = 0.8
"""The share of the time after which a search ends whose kernels were compiled meanwhile."""
Report = Callable[[float, ContractionPath], None]


def search_path(
    network: Network, dtype: str, options: SearchOptions, report: Report | None = None
) -> ContractionPath:
    """Search a contraction path as the options ask.

    The time may be exceeded by one of cotengra's trials, or by planning a schedule; a round of annealing is
    given up when it is up. Where trials and rounds, not the time, end the search, the same seed and one
    worker find the same path. Workers of the joint search share their trees; of cotengra's, each searches on
    its own from its own seed. `report` is called with the seconds so far and each better path (of the first
    worker).
    """
    options.check(network, dtype)
    started = time.monotonic()
    limit, n_workers = options.limit(dtype), options.n_workers
    # An input over the limit has to be sliced whatever the tree is; these indices then have extent 1 for the
    # search.
    slices_open = limit is not None and network.output_size > limit
    forced = _forced_slices(network, limit, slices_open)
    trials = tuple(method for method in options.methods if method != JOINT) or METHODS[:1]
    without_network = Task(
        (), (), {}, limit, options.objective, trials, options.seed, options.effort, (),
        options.element_weight(dtype),
        options.shares_slices and options.objective in PLANNED, slices_open,
    )  # fmt: skip
    task, names = _with_network(without_network, network, forced, options.from_paths)
    whole = SearchedNetwork(network, dtype, names, frozenset(forced))
    early: ContractionPath | None = None

    def on_early(tree: ScoredTree) -> None:
        nonlocal early
        early = whole.path(tree)
        if report is not None:
            report(time.monotonic() - started, early)

    # While kernels are being compiled a search in plain Python begins, so that a short search has a path in
    # time.
    if options.need_not_wait:
        if options.checkpoint is not None:
            SearchCheckpoint(Path(options.checkpoint), {}).check(resume=False)
        search_uncompiled(task, started + options.effort.time_s, on_early)
        if early is not None and time.monotonic() - started >= ENOUGH * options.effort.time_s:
            return replace(early, meta=_meta(early, task, options, limit, time.monotonic() - started))
    # The annealer works on what safe contractions leave of the network; `frame` puts these steps in front of
    # its trees.
    core = core_for(task, on_early) if options.joint and not task.starts else None
    if core is not None:
        present = {symbol for term in (*core.inputs, task.output) for symbol in term}
        sizes = {symbol: size for symbol, size in task.sizes.items() if symbol in present}
        task = replace(task, inputs=core.inputs, sizes=sizes)
    frame = SearchedNetwork(network, dtype, names, frozenset(forced), core)

    def counted(path: ContractionPath) -> float:
        planned = options.objective in PLANNED
        return log10_mnk_planned(path) if planned else objective_log2(path, options.objective)

    def on_better(tree: ScoredTree) -> None:
        if report is not None:
            report(time.monotonic() - started, frame.path(tree))

    if options.joint:
        target = options.target(frame)
        if target is not None:
            task = replace(task, waist_limit=target.waist_limit(limit))
        checkpoint = None
        if options.checkpoint is not None:
            checkpoint = SearchCheckpoint(Path(options.checkpoint), described(task, target))
            checkpoint.check(options.resume)
        best = search_joint(
            task,
            began=started,
            n_workers=n_workers,
            target=target,
            checkpoint=checkpoint,
            on_better=on_better,
            counted=(lambda tree: counted(frame.path(tree))) if options.objective in POWERS else None,
        )
    else:
        tasks = [replace(task, seed=task.seed + i) for i in range(1, n_workers)]
        spawn = get_context("spawn")
        with ProcessPoolExecutor(n_workers, mp_context=spawn, initializer=end_with_parent) as pool:
            others = [pool.submit(search_tree, other) for other in tasks]
            trees = [search_tree(task, on_better), *(other.result() for other in others)]
        best = min(trees, key=lambda tree: tree.score)
    paths = [path for path in (frame.path(best), early) if path is not None]
    path = paths[0] if options.objective == SCHEDULE else min(paths, key=counted)
    if options.objective == "peak":
        path = in_least_memory(path)[1]
    figures = _meta(path, task, options, limit, time.monotonic() - started)
    return replace(path, meta={**figures, **path.meta})


def search_jointly(
    network: Network, dtype: str, effort: Effort, max_elements: int | None, seed: int,
    shares_slices: bool = True,
) -> ContractionPath:  # fmt: skip
    """A path of the joint search in this process, under a limit on a tensor's elements."""
    options = SearchOptions(
        max_tensor_elements=max_elements, effort=effort, seed=seed, methods=(JOINT,),
        shares_slices=shares_slices,
    )  # fmt: skip
    return search_path(network, dtype, options)


def _forced_slices(network: Network, limit: int | None, slices_open: bool) -> set[str]:
    """Indices to slice because an input alone is over the limit: the largest ones of that input."""
    whole = set() if slices_open else set(network.output)
    forced: set[str] = set()
    for term in network.inputs if limit is not None else ():
        closed = sorted(set(term) - whole - forced, key=lambda i: (network.size_dict[i], i))
        size = int(np.prod([network.size_dict[i] for i in set(term) - forced], dtype=object))
        while limit is not None and size > limit:
            index = closed.pop()
            size //= network.size_dict[index]
            forced.add(index)
    return forced


def _with_network(
    task: Task, network: Network, forced: set[str], from_paths: Sequence[ContractionPath]
) -> tuple[Task, dict[str, str]]:
    """The task with this network in cotengra's terms, and the index name of each symbol.

    Forced slices have extent 1.
    """
    symbols, inputs = in_symbols(network)
    sizes = {symbol: 1 if index in forced else network.size_dict[index] for index, symbol in symbols.items()}
    starts = tuple(
        (
            ssa_pairs(path.ssa_path, len(inputs)),
            tuple(symbols[i] for i in path.sliced_inds if i in symbols and i not in forced),
        )
        for path in from_paths
    )
    output = tuple(symbols[index] for index in network.output)
    task = replace(task, inputs=inputs, output=output, sizes=sizes, starts=starts)
    power = POWERS.get(task.minimize, 1)
    if task.limit is not None:
        power = max(1, min(power, LARGEST_LIMIT.bit_length() // max(1, task.limit.bit_length())))
        task = replace(task, limit=task.limit**power)
    task = replace(task, sizes=roots(task.sizes, power))
    return task, {symbol: index for index, symbol in symbols.items()}


def _meta(
    path: ContractionPath, task: Task, options: SearchOptions, limit: int | None, time_s: float
) -> dict[str, Any]:
    from cotengra import __version__

    source = f"{len(task.starts)} given paths" if len(task.starts) > 1 else "given path"
    first = source if task.starts else ", ".join(task.methods)
    cost = path_cost(path)
    planned = log10_mnk_planned(path) if path.sliced_inds else cost.log10_mnk_all_slices
    return {
        "search": f"cotengra {__version__}: {first}; {'joint ' if options.joint else ''}annealing",
        "objective": task.minimize,
        "log2_limit": None if limit is None else round(log2(limit), 4),
        **cost.document(),
        "log10_mnk_planned": round(planned, 4),
        "seed": task.seed,
        "workers": options.n_workers,
        "time_s": round(time_s, 1),
        **({} if options.precision is None else {"precision": options.precision}),
    }

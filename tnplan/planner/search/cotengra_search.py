"""A contraction path under a memory limit: checks, workers and the choice of a search. Knows no layouts.

The joint search is compiled; the other is cotengra's hyper-optimizer, whose trials are scored after slicing,
and rounds of its annealing. Slicing is part of both.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from math import inf, log2, prod
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tnplan.common.errors import InputError
from tnplan.planner.networks.contraction_path import ContractionPath, ssa_pairs
from tnplan.planner.networks.network import Network
from tnplan.planner.search.annealing import POWERS, Effort, ScoredTree, Task, in_symbols, roots, search_tree
from tnplan.planner.search.checkpoint import SearchCheckpoint, described
from tnplan.planner.search.driver import end_with_parent, search_joint
from tnplan.planner.search.orders.starts import QUICK_TENSORS, OrderStarts, core_for
from tnplan.planner.search.orders.uncompiled import search_uncompiled
from tnplan.planner.search.path_cost import (
    MANY_STEPS,
    PathCost,
    counted_cost,
    in_least_memory,
    log10_mnk_planned,
    objective_log2,
    path_cost,
)
from tnplan.planner.search.ranking import SearchedNetwork, Target
from tnplan.planner.search.round_policy import POOL
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
CORE_TENSOR_S, CORE_SHARE = 4e-5, 0.3
"""Nominal seconds of safe contractions, for each tensor, and the share of the time that they may take."""
TREES_COUNTED = 16
"""An interrupted search of a small network plans its last better trees, and takes the cheapest."""
COUNT_TENSOR_S, COUNT_SHARE = 6e-5, 0.05
"""Nominal seconds of counting a sliced tree as it is planned, for each tensor, and the share of the time that
counting the last trees may take."""
END_TENSOR_S = 4e-6
"""Nominal seconds of what follows the search, for each tensor: the path is checked, counted and written."""
Report = Callable[[float, ContractionPath], None]


def search_path(
    network: Network, dtype: str, options: SearchOptions, report: Report | None = None,
    began: float | None = None,
) -> ContractionPath:  # fmt: skip
    """Search a contraction path as the options ask.

    The time may be exceeded by one of cotengra's trials, or by planning a schedule; a round of annealing is
    given up when it is up. Where trials and rounds, not the time, end the search, the same seed and one
    worker find the same path. Workers of the joint search share their trees; of cotengra's, each searches on
    its own from its own seed. `report` is called with the seconds so far and each better path (of the first
    worker). The time began at `began`, by `time.monotonic`; None: now. Interrupted after its first path
    it raises SearchInterrupted with the best one.
    """
    started = time.monotonic() if began is None else began
    reached = _Reached()
    try:
        return _searched(network, dtype, options, report, started, reached)
    except KeyboardInterrupt as error:
        if reached.path() is None:
            raise
        raise SearchInterrupted(_with_meta(reached, options, started), *error.args) from None
    except BrokenProcessPool:
        # Each process imports the script that began it; without that line it would search there, too.
        remedy = 'call it under if __name__ == "__main__": in a script, or give one, which takes less memory'
        raise InputError("--workers", "ended while they searched", remedy) from None


class SearchInterrupted(KeyboardInterrupt):
    """A search that was interrupted: `path` is the best path that it had."""

    def __init__(self, path: ContractionPath, *signal_name: str) -> None:
        super().__init__(*signal_name)
        self.path = path


class _Reached:
    """The best path of a search so far."""

    def __init__(self) -> None:
        self.task = Task((), (), {}, None, "", (), 0, Effort())
        self._first: ContractionPath | None = None
        self._early: ContractionPath | None = None
        self._trees: deque[tuple[SearchedNetwork, ScoredTree]] = deque(maxlen=TREES_COUNTED)

    def path(self) -> ContractionPath | None:
        """The path, if there is one."""
        paths = [frame.path(tree) for frame, tree in self._trees]  # several for "flops" alone
        if not paths:
            return self._cheapest(self._first, self._early)
        if self.task.minimize == SCHEDULE:
            return paths[-1]
        # Searches count work that slices share at the waist alone, plans all of it; that decides for "flops".
        # Other objectives have their own score.
        if self.task.minimize == "flops":
            return self._cheapest(*paths, self._early, self._first)
        return self._cheapest(paths[-1], self._early)

    def at_once(self, task: Task, options: SearchOptions, whole: SearchedNetwork) -> None:
        """What an interrupt has while first trees and trials are made: given paths, or a front."""
        self.task = task
        limit = options.limit(whole.dtype)
        for given in _within_limit(options.starts, whole.network, whole.dtype, limit):
            self._first = self._cheapest(self._first, given)
        if options.joint and not task.starts and 2 < len(task.inputs) <= QUICK_TENSORS:
            tree = OrderStarts(task).plain(0)[1]
            if tree is not None:
                self._first = whole.path(tree)

    def early(self, path: ContractionPath) -> ContractionPath:
        """A path that is there before the first one of the rounds."""
        self._early = self._cheapest(path, self._early)
        return path

    def better(self, frame: SearchedNetwork, tree: ScoredTree) -> None:
        """A tree is better than all before it, but for the early ones."""
        # Of large networks trees take much memory, and others are not counted again.
        if self.task.minimize != "flops" or len(self.task.inputs) > QUICK_TENSORS:
            self._trees.clear()
        self._trees.append((frame, tree))

    def ended(self, frame: SearchedNetwork, tree: ScoredTree) -> None:
        """The search has come to this tree.

        Invariant: it alone decides then. Which trees were better on the way depends on the workers.
        """
        self._trees.clear()
        self.better(frame, tree)

    def _cheapest(self, *paths: ContractionPath | None) -> ContractionPath | None:
        there = [path for path in paths if path is not None]
        if len(there) == 1:
            return there[0]
        return min(there, key=lambda path: counted(path, self.task), default=None)


def counted(path: ContractionPath, task: Task) -> float:
    """The logarithm of what the objective of a task counts of a path."""
    return log10_mnk_planned(path) if task.shares else objective_log2(path, task.minimize)


def _counts_last_trees(task: Task) -> bool:
    """Whether the last trees are counted again, since their scores only estimate what is minimized.

    Scores for operations count what slices share at the waist alone, plans all that they share.
    """
    if task.minimize in POWERS:
        return True
    n, is_shared = len(task.inputs), task.shares and task.limit is not None
    seconds = COUNT_TENSOR_S * POOL * n
    return task.minimize in ("flops", SCHEDULE) and is_shared and seconds <= COUNT_SHARE * task.effort.time_s


def _searched(
    network: Network, dtype: str, options: SearchOptions, report: Report | None, started: float,
    reached: _Reached,
) -> ContractionPath:  # fmt: skip
    """The same; `reached` has the best path at all times."""
    options.check(network, dtype)
    limit, n_workers = options.limit(dtype), options.n_workers
    # What has to be sliced whatever the tree is has extent 1 for the search.
    slices_open = limit is not None and network.output_size > limit
    forced = _forced_slices(network, limit, slices_open, fits=JOINT not in options.methods)
    trials = tuple(method for method in options.methods if method != JOINT) or METHODS[:1]
    without_network = Task(
        (), (), {}, limit, options.objective, trials, options.seed, options.effort, (),
        element_weight=options.element_weight(dtype),
        shares=options.shares_slices and options.objective in PLANNED, slices_open=slices_open,
    )  # fmt: skip
    task, names = _with_network(without_network, network, forced, options.starts)
    whole = SearchedNetwork(network, dtype, names, frozenset(forced))
    reached.task = task

    def on_early(tree: ScoredTree) -> None:
        path = reached.early(whole.path(tree))
        if report is not None:
            report(time.monotonic() - started, path)

    # While kernels are being compiled a search in plain Python begins, so that a short search has a path in
    # time.
    if options.need_not_wait:
        if options.checkpoint is not None:
            SearchCheckpoint(Path(options.checkpoint), {}).check(resume=False)
        early = search_uncompiled(task, started + options.effort.time_s, on_early)
        if early is not None and time.monotonic() - started >= ENOUGH * options.effort.time_s:
            return _with_meta(reached, options, started)
    # The annealer works on what safe contractions leave of the network; `frame` puts these steps in front of
    # its trees.
    if options.joint:
        task = task.with_arrays()
    reached.at_once(task, options, whole)
    quick_ends = started + CORE_SHARE * (options.effort.time_s or inf)
    core = core_for(task, on_early, quick_ends) if _has_core(task, options, whole) else None
    if core is not None:
        present = {symbol for term in (*core.inputs, task.output) for symbol in term}
        sizes = {symbol: size for symbol, size in task.sizes.items() if symbol in present}
        task = replace(task, inputs=core.inputs, sizes=sizes, arrays=None).with_arrays()
    frame = SearchedNetwork(network, dtype, names, frozenset(forced), core)

    def count(tree: ScoredTree) -> float:
        return counted(frame.path(tree), task)

    def on_better(tree: ScoredTree) -> None:
        reached.better(frame, tree)
        if report is not None:
            report(time.monotonic() - started, frame.path(tree))

    if options.joint:
        target = options.target(frame)
        checkpoint = _checkpoint(task, options, target)
        if checkpoint is not None:
            checkpoint.check(options.resume)
        best = search_joint(
            task,
            began=started - END_TENSOR_S * len(network.inputs),
            n_workers=n_workers,
            target=target,
            checkpoint=checkpoint,
            on_better=on_better,
            counted=count if _counts_last_trees(task) else None,
        )
    else:
        tasks = [replace(task, seed=task.seed + i) for i in range(1, n_workers)]
        spawn = get_context("spawn")
        with ProcessPoolExecutor(n_workers, mp_context=spawn, initializer=end_with_parent) as pool:
            others = [pool.submit(search_tree, other) for other in tasks]
            trees = [search_tree(task, on_better), *(other.result() for other in others)]
        best = min(trees, key=lambda tree: tree.score)
    reached.ended(frame, best)
    return _with_meta(reached, options, started)


def _with_meta(reached: _Reached, options: SearchOptions, started: float) -> ContractionPath:
    path = reached.path()
    assert path is not None
    if options.objective == "peak":
        path = in_least_memory(path)[1]
    figures = _meta(path, reached.task, options, time.monotonic() - started)
    return replace(path, meta={**figures, **path.meta})


def _within_limit(
    paths: Sequence[ContractionPath], network: Network, dtype: str, limit: int | None
) -> Iterator[ContractionPath]:
    """The given paths as paths of pairs in this network, without those that need more slices."""
    for given in paths:
        pairs = ssa_pairs(given.ssa_path, len(network.inputs))
        sliced = tuple(sorted(index for index in given.sliced_inds if network.size_dict[index] > 1))
        path = ContractionPath(network, pairs, sliced, dtype)
        if limit is None or path_cost(path).log2_largest <= log2(limit) + 1e-9:
            yield path


def _checkpoint(task: Task, options: SearchOptions, target: Target | None) -> SearchCheckpoint | None:
    """The checkpoint of a task, which may not be there yet."""
    if options.checkpoint is None:
        return None
    return SearchCheckpoint(Path(options.checkpoint), described(task, target, len(options.from_paths)))


def _has_core(task: Task, options: SearchOptions, whole: SearchedNetwork) -> bool:
    """Whether safe contractions come first: not for given trees, nor where they take much of the time, by a
    nominal pace. A search that is resumed has what it had."""
    if not options.joint:
        return False
    if options.resume and options.checkpoint is not None and Path(options.checkpoint).exists():
        target = options.target(whole)
        checkpoint = _checkpoint(task, options, target)
        return checkpoint is None or not checkpoint.is_own()
    time_s = options.effort.time_s or inf
    return not task.starts and CORE_TENSOR_S * len(task.inputs) <= CORE_SHARE * time_s


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


def _forced_slices(network: Network, limit: int | None, slices_open: bool, fits: bool) -> set[str]:
    """Indices without whose slices an input is over the limit, whatever else is sliced.

    With `fits` the largest ones of each input besides, until it is within the limit: cotengra's methods look
    at products alone. So does the joint search where an input has sums or diagonals of its own, which are
    taken before any product, and where there is one product or none.
    """
    if limit is None:
        return set()
    sizes, forced = network.size_dict, set[str]()
    whole = set() if slices_open else set(network.output)
    owners = Counter(index for term in (*network.inputs, network.output) for index in set(term))
    few = len(network.inputs) <= 2
    for term in (*network.inputs, *[network.output] * (few and slices_open)):
        # Repeated indices count once; most tensors are far below the limit.
        if prod([sizes[index] for index in term]) <= limit:
            continue
        least = prod([sizes[index] for index in whole.intersection(term)])
        closed = sorted(set(term) - whole - forced, key=lambda i: (sizes[i], i))
        size = prod([sizes[index] for index in set(term) - forced])
        is_plain = len(set(term)) == len(term) and all(owners[index] > 1 for index in term)
        is_free = is_plain and not (fits or few)
        while closed and size > limit and not (is_free and least * sizes[closed[-1]] <= limit):
            index = closed.pop()
            size //= sizes[index]
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


def _cost(path: ContractionPath, task: Task) -> PathCost:
    """The cost of a path, of a large network by the arrays that are there."""
    network, structure = path.network, task.arrays
    has_all = structure is not None and structure.graph.indices.size == sum(map(len, network.inputs))
    if structure is None or not has_all or path.sliced_inds or len(path.ssa_path) < MANY_STEPS:
        return path_cost(path)
    return counted_cost(path, structure.graph, structure.graph.weights)


def _meta(path: ContractionPath, task: Task, options: SearchOptions, time_s: float) -> dict[str, Any]:
    from cotengra import __version__

    source = f"{len(task.starts)} given paths" if len(task.starts) > 1 else "given path"
    first = source if task.starts else ", ".join(task.methods)
    cost, limit = _cost(path, task), options.limit(path.dtype)
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

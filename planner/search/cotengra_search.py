"""A contraction path under a memory limit, found with cotengra. Knows no layouts and no schedule.

First cotengra's hyper-optimizer, whose trials are scored after slicing, then rounds of simulated annealing in
which moves of the tree and changes of the sliced indices alternate: slicing is always part of the search.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import numpy as np

from planner.errors import InputError
from planner.networks.contraction_path import ContractionPath
from planner.networks.network import Network
from planner.search.figures import path_figures

METHODS = ("greedy", "random-greedy", "labels")
# Labels would else start processes of its own for its last few tensors.
CONSTANTS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "random-greedy": {},
    "labels": {"super_optimize": "greedy"},
}
OBJECTIVES = ("flops", "write", "size", "combo")
TENSORS_AT_ONCE = 3
HYPER_SHARE = 0.2
STEPS = 40
MIN_STEPS = 5
SWEEPS = 10
COLD = 0.02
# Rounds in turn: the tree to start from, the first temperature, and how cotengra's annealer changes slices.
# Restarts end in very different basins, so that many short ones pay more than long ones.
TURNS: tuple[tuple[str, float, str | int], ...] = (
    ("first", 2.0, "basic"),
    ("best", 1.0, "basic"),
    ("whole", 2.0, "basic"),
    ("best", 0.5, "basic"),
    ("first", 2.0, 2),
    ("best", 0.5, "basic"),
    ("first", 1.0, "basic"),
    ("best", 0.3, "basic"),
)
ROUNDS_PER_DOUBLING = 6 * len(TURNS)

Report = Callable[[float, ContractionPath], None]


@dataclass(frozen=True)
class Effort:
    """How long to search: `time_s` in all, and at most so many trials and annealing rounds a worker."""

    time_s: float = 60.0
    max_trials: int = 64
    max_rounds: int = 10_000


@dataclass(frozen=True)
class _Task:
    """One worker's search; index names are cotengra's single symbols."""

    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    sizes: dict[str, int]
    limit: int | None
    minimize: str
    methods: tuple[str, ...]
    seed: int
    effort: Effort
    start: tuple[tuple[tuple[int, ...], ...], tuple[str, ...]] | None


@dataclass(frozen=True)
class _Found:
    score: float
    ssa_path: tuple[tuple[int, ...], ...]
    sliced: tuple[str, ...]


def search_path(
    network: Network,
    dtype: str,
    *,
    max_tensor_elements: int | None = None,
    memory_bytes: int | None = None,
    effort: Effort | None = None,
    seed: int = 0,
    minimize: str = "flops",
    methods: Sequence[str] = METHODS,
    from_path: ContractionPath | None = None,
    n_workers: int = 1,
    report: Report | None = None,
) -> ContractionPath:
    """Search a path none of whose tensors, after slicing, has more than `max_tensor_elements` elements.

    With `memory_bytes` instead, three such tensors of `dtype` fill that memory; with neither nothing is
    sliced. `from_path` is a path of the same network to start from instead of cotengra's trials. The time may
    be exceeded by one of those trials; a round of annealing is given up when it runs out. Where trials and rounds, not
    the time, end the search, the same seed finds the same path. Every worker searches on its own from its
    own seed. `report` is called with the seconds so far and each better path of the first worker.
    """
    effort = effort or Effort()
    limit = _limit(max_tensor_elements, memory_bytes, dtype)
    _check(network, limit, effort, seed, minimize, methods, from_path, n_workers)
    started = time.monotonic()
    forced = _forced_slices(network, limit)
    task, names = _task(network, forced, limit, minimize, tuple(methods), seed, effort, from_path)

    def finished(found: _Found) -> ContractionPath:
        sliced = tuple(sorted({names[symbol] for symbol in found.sliced} | forced))
        return ContractionPath(network, found.ssa_path, sliced, dtype)

    def tell(found: _Found) -> None:
        if report is not None:
            report(time.monotonic() - started, finished(found))

    tasks = [replace(task, seed=seed + i) for i in range(1, n_workers)]
    with ProcessPoolExecutor(n_workers, mp_context=get_context("spawn")) as pool:
        others = [pool.submit(_search, other) for other in tasks]
        found = min([_search(task, tell), *(other.result() for other in others)], key=lambda one: one.score)
    path = finished(found)
    return replace(path, meta=_meta(path, limit, task, n_workers, time.monotonic() - started))


def _limit(max_tensor_elements: int | None, memory_bytes: int | None, dtype: str) -> int | None:
    if max_tensor_elements is not None and memory_bytes is not None:
        raise InputError("--max-tensor", "stands beside a memory limit", "give one of the two")
    if memory_bytes is not None:
        return memory_bytes // (TENSORS_AT_ONCE * np.dtype(dtype).itemsize)
    return max_tensor_elements


def _check(
    network: Network,
    limit: int | None,
    effort: Effort,
    seed: int,
    minimize: str,
    methods: Sequence[str],
    from_path: ContractionPath | None,
    n_workers: int,
) -> None:
    if minimize not in OBJECTIVES:
        raise InputError("--minimize", f"{minimize!r} is unknown", f"use one of {', '.join(OBJECTIVES)}")
    for method in methods:
        if method not in METHODS:
            raise InputError("--methods", f"{method!r} is unknown", f"use some of {', '.join(METHODS)}")
    if not methods:
        raise InputError("--methods", "is empty", f"use some of {', '.join(METHODS)}")
    for place, value, least in (
        ("--time", effort.time_s, 0),
        ("--seed", seed, 0),
        ("--workers", n_workers, 1),
    ):
        if not value >= least:
            raise InputError(place, f"is {value}", f"give {least} or more")
    if limit is not None and limit < 1:
        raise InputError("--max-tensor", f"is {limit} elements", "give one element or more")
    if limit is not None and network.output_size > limit:
        raise InputError(
            "--max-tensor",
            f"is {limit} elements, but the result alone has {network.output_size}",
            "allow larger tensors or open fewer indices; open indices cannot be sliced",
        )
    if from_path is not None:
        other = from_path.network
        if (other.inputs, other.output) != (network.inputs, network.output):
            raise InputError(
                "--from", "is a path of another network", "give a path of the network that is searched"
            )


def _forced_slices(network: Network, limit: int | None) -> set[str]:
    """Indices to slice because an input alone is over the limit: the largest ones of that input."""
    forced: set[str] = set()
    for term in network.inputs if limit is not None else ():
        closed = sorted(set(term) - set(network.output) - forced, key=lambda i: (network.size_dict[i], i))
        size = int(np.prod([network.size_dict[i] for i in set(term) - forced], dtype=object))
        while limit is not None and size > limit:
            index = closed.pop()
            size //= network.size_dict[index]
            forced.add(index)
    return forced


def _task(
    network: Network,
    forced: set[str],
    limit: int | None,
    minimize: str,
    methods: tuple[str, ...],
    seed: int,
    effort: Effort,
    from_path: ContractionPath | None,
) -> tuple[_Task, dict[str, str]]:
    """The search in cotengra's terms, and the index name of each symbol.

    Repeats on one tensor, and indices that one tensor alone has and that are summed, change no path and are
    dropped; forced slices have extent 1.
    """
    from cotengra import get_symbol

    count = Counter(index for term in network.inputs for index in set(term))
    count.update(network.output)
    symbols: dict[str, str] = {}
    for term in network.inputs:
        for index in term:
            if count[index] > 1:
                symbols.setdefault(index, get_symbol(len(symbols)))
    inputs = tuple(
        tuple(symbols[index] for index in dict.fromkeys(term) if index in symbols) for term in network.inputs
    )
    sizes = {symbol: 1 if index in forced else network.size_dict[index] for index, symbol in symbols.items()}
    start = None
    if from_path is not None:
        sliced = tuple(symbols[i] for i in from_path.sliced_inds if i in symbols and i not in forced)
        start = (_pairs(from_path), sliced)
    output = tuple(symbols[index] for index in network.output)
    task = _Task(inputs, output, sizes, limit, minimize, methods, seed, effort, start)
    return task, {symbol: index for index, symbol in symbols.items()}


def _pairs(path: ContractionPath) -> tuple[tuple[int, ...], ...]:
    """The path with steps of two tensors only: single ones left out, larger ones split from left to right."""
    names = list(range(len(path.network.inputs)))
    pairs: list[tuple[int, ...]] = []
    for step in path.ssa_path:
        result = names[step[0]]
        for other in step[1:]:
            pairs.append((result, names[other]))
            result = len(path.network.inputs) + len(pairs) - 1
        names.append(result)
    return tuple(pairs)


def _search(task: _Task, tell: Callable[[_Found], None] | None = None) -> _Found:
    """One worker: trials, then rounds of annealing until the time or the rounds are used up."""
    ends = time.monotonic() + task.effort.time_s
    with _seeded(task.seed):
        annealer = _Annealer(task, ends)
        if tell is not None:
            tell(annealer.found())
        pace_s = 0.0
        for number in range(task.effort.max_rounds if len(task.inputs) > 2 else 0):
            sweeps = SWEEPS * 2 ** min(number // ROUNDS_PER_DOUBLING, 4)
            left_s = ends - time.monotonic()
            steps = min(STEPS, int(left_s / (pace_s * sweeps))) if pace_s else STEPS
            if left_s <= 0 or steps < MIN_STEPS:
                break
            before = time.monotonic()
            try:
                better = annealer.anneal(number, steps, sweeps)
            except _TimeUpError:
                break
            pace_s = (time.monotonic() - before) / (steps * sweeps)
            if better and tell is not None:
                tell(annealer.found())
    return annealer.found()


class _TimeUpError(Exception):
    """The time of the search is used up."""


class _TimedObjective:
    """One of cotengra's objectives, which gives up when time is up: annealing and slicing ask it all along."""

    def __init__(self, objective: Any, ends: float) -> None:
        self.objective = objective
        self.ends = ends

    def __call__(self, trial: dict[str, Any]) -> float:
        return float(self.objective(trial))

    def score_local(self, **quantities: Any) -> float:
        """The score of one or two contractions."""
        if time.monotonic() > self.ends:
            raise _TimeUpError
        return float(self.objective.score_local(**quantities))

    def score_slice_index(self, costs: Any, index: str) -> float:
        """The gain from slicing an index."""
        if time.monotonic() > self.ends:
            raise _TimeUpError
        return float(self.objective.score_slice_index(costs, index))


class _Annealer:
    """The trees that rounds of annealing start from: the first, the best with the limit and without."""

    def __init__(self, task: _Task, ends: float) -> None:
        from cotengra.scoring import get_score_fn

        self.task = task
        self.objective = get_score_fn(task.minimize)
        self.timed = _TimedObjective(self.objective, ends)
        self.first = _first_tree(task)
        self.whole = self.first.unslice_all()
        self.best = _sliced_to_limit(self.first, task.limit, self.objective)

    def anneal(self, number: int, steps: int, sweeps: int) -> bool:
        """One round; whether it found a better tree.

        The annealer goes from limit to limit in logarithms, so that its last one may come out a little low.
        """
        name, temperature, mode = TURNS[number % len(TURNS)]
        whole = name == "whole"
        limit = None if whole or self.task.limit is None else self.task.limit * (1 + 1e-12) + 0.5
        tree = getattr(self, name).simulated_anneal(
            tstart=temperature, tfinal=COLD, tsteps=steps, numiter=sweeps, minimize=self.timed,
            target_size=limit, slice_mode=mode, seed=random.getrandbits(32),
        )  # fmt: skip
        if whole and self._score(tree) < self._score(self.whole):
            self.whole = tree
        tree = _sliced_to_limit(tree, self.task.limit, self.timed)
        better = self._score(tree) < self._score(self.best)
        if better:
            self.best = tree
        return better

    def found(self) -> _Found:
        """The best tree as plain data."""
        sliced = tuple(symbol for symbol in self.best.sliced_inds if self.best.size_dict[symbol] > 1)
        steps = tuple(tuple(map(int, step)) for step in self.best.get_ssa_path())
        return _Found(self._score(self.best), steps, sliced)

    def _score(self, tree: Any) -> float:
        return float(self.objective({"tree": tree}))


def _first_tree(task: _Task) -> Any:
    """The tree to anneal first: the given path, or the best of cotengra's trials."""
    from cotengra import HyperOptimizer

    kind = _inner_sliced_tree()
    if task.start is not None:
        ssa_path, sliced = task.start
    else:
        slicing = None
        if task.limit is not None:
            slicing = {"target_size": task.limit, "allow_outer": False, "max_repeats": 2}
        optimizer = HyperOptimizer(
            methods=list(task.methods), minimize=task.minimize, max_repeats=task.effort.max_trials,
            max_time=HYPER_SHARE * task.effort.time_s, parallel=False, slicing_opts=slicing, optlib="sbplx",
            seed=task.seed, on_trial_error="raise",
            constants={method: dict(CONSTANTS[method]) for method in task.methods},
        )  # fmt: skip
        tree = optimizer.search(task.inputs, task.output, task.sizes)
        ssa_path, sliced = tree.get_ssa_path(), tuple(tree.sliced_inds)
    tree = kind.from_path(task.inputs, task.output, task.sizes, ssa_path=ssa_path, objective=task.minimize)
    for symbol in sliced:
        tree.remove_ind_(symbol)
    return tree


def _sliced_to_limit(tree: Any, limit: int | None, objective: Any) -> Any:
    """The tree, sliced on where it is over the limit: a given path may be, or what annealing left."""
    if limit is None or tree.max_size() <= limit:
        return tree
    return tree.slice(target_size=limit, minimize=objective, seed=random.getrandbits(32))


def _inner_sliced_tree() -> Any:
    """cotengra's tree, slicing summed indices only: its annealer would take open ones too."""
    from cotengra import ContractionTree

    class InnerSlicedTree(ContractionTree):
        def slice(self, *args: Any, **options: Any) -> Any:
            return super().slice(*args, **{**options, "allow_outer": False})

        def slice_(self, *args: Any, **options: Any) -> Any:
            return self.slice(*args, **options, inplace=True)

    return InnerSlicedTree


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """cotengra's trials draw from Python's global generator: seed it, and put it back afterwards."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


def _meta(
    path: ContractionPath, limit: int | None, task: _Task, n_workers: int, time_s: float
) -> dict[str, Any]:
    from cotengra import __version__

    first = "given path" if task.start else ", ".join(task.methods)
    return {
        "search": f"cotengra {__version__}: {first}; annealing",
        "objective": task.minimize,
        "log2_limit": None if limit is None else round(float(np.log2(limit)), 4),
        **path_figures(path).document(),
        "seed": task.seed,
        "workers": n_workers,
        "time_s": round(time_s, 1),
    }

"""One worker of the search: cotengra's trials, then rounds of its annealer. Imports cotengra when it runs.

Indices have cotengra's single symbols. Knows no memory and no machine, only the limit on a tensor's elements.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import chain
from math import inf, log, log2
from threading import RLock
from types import SimpleNamespace
from typing import Any

from tnplan.planner.networks.network import Network
from tnplan.planner.search.annealer.anneal_state import Price
from tnplan.planner.search.orders.hypergraph import Structure, make_structure

# Labels would else start processes of its own for its last few tensors.
CONSTANTS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "random-greedy": {},
    "labels": {"super_optimize": "greedy"},
    "kahypar": {"super_optimize": "greedy"},
}
MOST_BITS = 960
"""log2 of the largest size that is handed to what counts in floating point."""
MOST_SYMBOLS = 2**20
"""Indices that have a character."""
NOMINAL_S = 10.0
"""The time for which a search without an end of the time is planned."""
HYPER_SHARE = 0.2
STEPS = 40
MIN_STEPS = 5
SWEEPS = 10
COLD = 0.02
GREEDY_RANGES = (1e-3, 1.0), (0.1, 4.0)
"""Of the temperature of greedy choices, and of the weight of what a step removes against what it makes."""
GREEDY_S_PER_TENSOR, GREEDY_S_PER_PAIR = 4e-4, 4e-7
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
COMBO_FACTOR = 64.0
"""Multiply-adds that an element written counts in the objective combo, as cotengra's."""
PRICES = {"write": (0.0, 1.0), "size": (0.0, 1.0), "peak": (0.0, 1.0), "combo": (1.0, COMBO_FACTOR)}
"""Of a multiply-add and of an element written; of objectives that are not here the first alone counts."""
POWERS = {"size": 4, "peak": 2}
"""Of all extents in these objectives: the sum of all sizes to a power is near that of the largest one."""
_DRAWING = RLock()
"""Whose Python's global generator is."""


Start = tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]
"""A path of pairs, and what it slices."""


@dataclass(frozen=True)
class Effort:
    """How long to search: `time_s` in all, and at most so many trials and annealing rounds a worker.

    Without an end of the time, `inf`, no clock has a say: rounds end the search.
    """

    time_s: float = 60.0
    max_trials: int = 64
    max_rounds: int = 10_000

    @property
    def nominal_s(self) -> float:
        """The time with which orders, trials and rounds are planned."""
        return NOMINAL_S if self.time_s == inf else self.time_s


def in_symbols(network: Network) -> tuple[dict[str, str], tuple[tuple[str, ...], ...]]:
    """cotengra's symbol of each index, and the tensors in symbols.

    Repeats on one tensor, and indices that one tensor alone has and that are summed, change no path and are
    dropped.
    """
    from cotengra import get_symbol

    inputs: Sequence[Iterable[str]] = network.inputs
    if any(len({*term}) < len(term) for term in network.inputs):
        inputs = [dict.fromkeys(term) for term in network.inputs]
    count = Counter(chain.from_iterable(inputs))
    count.update(network.output)
    names = [index for index, times in count.items() if times > 1]
    # Beyond all characters, cotengra's trials are too slow to be made.
    characters = map(get_symbol, range(min(len(names), MOST_SYMBOLS)))
    symbols = dict(zip(names, chain(characters, map(str, range(MOST_SYMBOLS, len(names)))), strict=True))
    if len(symbols) < len(count):
        inputs = [[index for index in term if index in symbols] for term in inputs]
    return symbols, tuple([tuple(map(symbols.__getitem__, term)) for term in inputs])


@dataclass(frozen=True)
class Task:
    """One worker's search; index names are cotengra's single symbols."""

    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    sizes: Mapping[str, float]
    limit: int | None
    minimize: str
    methods: tuple[str, ...]
    seed: int
    effort: Effort
    starts: tuple[Start, ...] = ()
    """Trees to start from in place of trials, with what they slice."""
    _: KW_ONLY  # what follows is given by name: these numbers and flags are easily taken for each other
    element_weight: float = 0.0
    """What the joint search counts for an element read or written, in multiply-adds."""
    written_weight: float = 0.0
    """What it counts for an element of a result besides."""
    shares: bool = True
    """Whether the joint search counts once what is the same in several slices."""
    slices_open: bool = False
    """Whether the joint search may slice open indices, of which each slice has its part of the result."""
    waist_limit: float = inf
    """Elements that the joint search allows a tensor that is stored while others are summed into it."""
    row_counts: tuple[float, ...] = ()
    """Of a batch of bit strings: how many rows a tensor with 0, 1, ... final indices has. These are the open
    indices, all of one extent that no other index has; the joint search counts rows in place of it."""
    arrays: Structure | None = field(default=None, repr=False, compare=False)
    """The network as arrays, where they are made already."""

    @property
    def structure(self) -> Structure:
        """The network as arrays."""
        return self.arrays or make_structure(self.inputs, self.output, self.sizes)

    @property
    def sliceable(self) -> Any:
        """(I) bool: the indices of the arrays that may be sliced, those that are summed or all."""
        return self.structure.closed | self.slices_open

    def with_arrays(self) -> Task:
        """The same task, which need not make its arrays again."""
        return replace(self, arrays=self.structure)

    def with_roots(self, power: float) -> Task:
        """The same task with all sizes to a power."""
        if power == 1.0:
            return self
        graph, names, closed = self.structure
        arrays = Structure(graph._replace(weights=power * graph.weights), names, closed)
        return replace(self, sizes=roots(self.sizes, power), arrays=arrays)

    @property
    def price(self) -> Price:
        """What the joint search counts for a step."""
        products, written = PRICES.get(self.minimize, (1.0, 0.0))
        return Price(products, written + self.written_weight, self.element_weight)


@dataclass(frozen=True)
class ScoredTree:
    """The best tree as plain data; `sliced` are symbols of extent 2 or more."""

    score: float
    ssa_path: tuple[tuple[int, ...], ...]
    sliced: tuple[str, ...]
    time_s: float | None = None
    """The predicted time of its schedule, where it was planned and fits."""
    ranks: int | None = None
    """The ranks of a group in that schedule."""
    count_log2: float | None = None
    """log2 of what its steps count as planned."""
    divided_s: float | None = None
    """About the seconds of all slices, were the work of one device divided evenly by all."""


OnBetter = Callable[[ScoredTree], None]
"""What is called with every tree that is better than all before it."""


def search_tree(
    task: Task, on_better: OnBetter | None = None, goes_on: Callable[[], bool] = lambda: True
) -> ScoredTree:  # fmt: skip
    """One worker: trials, then rounds of annealing until the time or the rounds are used up, or as long as it
    goes on."""
    ends = time.monotonic() + task.effort.time_s
    with seeded(task.seed):
        annealer = _Annealer(task, ends)
        if on_better is not None:
            on_better(annealer.best_tree())
        pace_s = 0.0
        for number in range(task.effort.max_rounds if len(task.inputs) > 2 else 0):
            sweeps = SWEEPS * 2 ** min(number // ROUNDS_PER_DOUBLING, 4)
            left_s = ends - time.monotonic()
            steps = min(STEPS, int(left_s / (pace_s * sweeps))) if pace_s else STEPS
            if left_s <= 0 or steps < MIN_STEPS or not goes_on():
                break
            before = time.monotonic()
            try:
                better = annealer.anneal(number, steps, sweeps)
            except TimeUpError:
                break
            pace_s = (time.monotonic() - before) / (steps * sweeps)
            if better and on_better is not None:
                on_better(annealer.best_tree())
    return annealer.best_tree()


class TimeUpError(Exception):
    """The time of the search is used up."""


class _TimedObjective:
    """One of cotengra's objectives that gives up when time is up: annealing and slicing use it throughout.

    It scores slices of steps beyond floating point too.
    """

    def __init__(self, objective: Any, ends: float = inf) -> None:
        self.objective = objective
        self.ends = ends

    def __call__(self, trial: dict[str, Any]) -> float:
        return float(self.objective(trial))

    def score_local(self, **quantities: Any) -> float:
        """The score of one or two contractions."""
        if time.monotonic() > self.ends:
            raise TimeUpError
        return float(self.objective.score_local(**quantities))

    def score_slice_index(self, costs: Any, index: str) -> float:
        """The gain from slicing an index."""
        if time.monotonic() > self.ends:
            raise TimeUpError
        try:
            return float(self.objective.score_slice_index(costs, index))
        except OverflowError:
            saved, unwritten = costs._flop_reductions[index], costs._write_reductions[index]
        shift = max(saved, unwritten).bit_length() - MOST_BITS
        less = SimpleNamespace(
            _flop_reductions={index: saved >> shift}, _write_reductions={index: unwritten >> shift}
        )
        return float(self.objective.score_slice_index(less, index)) + shift * log(2)


class _Annealer:
    """The trees that rounds of annealing start from: the first, the best with the limit and without."""

    def __init__(self, task: Task, ends: float) -> None:
        from cotengra.scoring import get_score_fn

        self.task = task
        self.objective = get_score_fn(task.minimize)
        self.timed = _TimedObjective(self.objective, ends)
        self.first = first_tree(task)
        self.whole = self.first.unslice_all()
        self.best = sliced_to_limit(self.first, task.limit, _TimedObjective(self.objective))

    def anneal(self, number: int, steps: int, sweeps: int) -> bool:
        """One round; whether it found a better tree.

        The annealer goes from limit to limit in logarithms, so that its last one may come out a little low.
        """
        name, temperature, mode = TURNS[number % len(TURNS)]
        is_whole = name == "whole"
        limit = None if is_whole or self.task.limit is None else self.task.limit * (1 + 1e-12) + 0.5
        tree = getattr(self, name).simulated_anneal(
            tstart=temperature, tfinal=COLD, tsteps=steps, numiter=sweeps, minimize=self.timed,
            target_size=limit, slice_mode=mode, seed=random.getrandbits(32),
        )  # fmt: skip
        if is_whole and self._score(tree) < self._score(self.whole):
            self.whole = tree
        tree = sliced_to_limit(tree, self.task.limit, self.timed)
        better = self._score(tree) < self._score(self.best)
        if better:
            self.best = tree
        return better

    def best_tree(self) -> ScoredTree:
        """The best tree as plain data."""
        sliced = tuple(symbol for symbol in self.best.sliced_inds if self.best.size_dict[symbol] > 1)
        steps = tuple(tuple(map(int, step)) for step in self.best.get_ssa_path())
        return ScoredTree(self._score(self.best), steps, sliced)

    def _score(self, tree: Any) -> float:
        return float(self.objective({"tree": tree}))


def first_tree(task: Task) -> Any:
    """The tree to anneal first: the first one given, or the best of cotengra's trials."""
    kind = _tree_kind(task.slices_open)
    ssa_path, sliced = task.starts[0] if task.starts else _trial(task)
    tree = kind.from_path(task.inputs, task.output, task.sizes, ssa_path=ssa_path, objective=task.minimize)
    for symbol in sliced:
        tree.remove_ind_(symbol)
    return tree


def _trial(task: Task) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """The best of cotengra's trials and what it slices; where sizes are beyond floating point, of trials with
    their roots, which slice nothing."""
    from cotengra import HyperOptimizer

    max_s = None if task.effort.time_s == inf else HYPER_SHARE * task.effort.time_s

    def best(sizes: Mapping[str, float], slicing: dict[str, Any] | None) -> Any:
        optimizer = HyperOptimizer(
            methods=list(task.methods), minimize=task.minimize, max_repeats=task.effort.max_trials,
            max_time=max_s, parallel=False, slicing_opts=slicing, optlib="sbplx",
            seed=task.seed, on_trial_error="raise",
            constants={method: dict(CONSTANTS[method]) for method in task.methods},
        )  # fmt: skip
        return optimizer.search(task.inputs, task.output, sizes)

    slicing = None
    if task.limit is not None:
        slicing = {"target_size": task.limit, "allow_outer": task.slices_open, "max_repeats": 2}
    try:
        tree = best(task.sizes, slicing)
    except OverflowError:
        tree = best(_in_range(task.sizes), None)
    return tree.get_ssa_path(), tuple(tree.sliced_inds)


def roots(sizes: Mapping[str, float], power: float) -> Mapping[str, float]:
    """All sizes to the same power."""
    return sizes if power == 1.0 else {index: float(size**power) for index, size in sizes.items()}


def _in_range(sizes: Mapping[str, float]) -> Mapping[str, float]:
    """The largest roots with which no product of sizes is beyond floating point."""
    return roots(sizes, min(1.0, MOST_BITS / _bits(sizes)))


def _bits(sizes: Mapping[str, float]) -> float:
    """log2 of the product of all sizes."""
    return sum(map(log2, sizes.values()))


def greedy_s(n_tensors: int, width: float) -> float:
    """About the seconds of one greedy tree of cotengra whose largest tensor has 2^`width` elements.

    A step scores the neighbours of a tensor, which may be as many as its modes, and reads the modes of each.
    """
    return n_tensors * (GREEDY_S_PER_TENSOR + GREEDY_S_PER_PAIR * width**2)


def between(draw: random.Random, low: float, high: float) -> float:
    """A number drawn from the range, its logarithm evenly."""
    return float(low * (high / low) ** draw.random())


def random_greedy(task: Task, number: int) -> ScoredTree:
    """A tree without slices of cotengra's greedy method, its parameters drawn for this number.

    Its score is unknown, and it may be over the limit.
    """
    from cotengra import ContractionTree
    from cotengra.pathfinders.path_basic import optimize_greedy

    with seeded(f"{task.seed} {number} greedy"):
        temperature, weight = (low * (high / low) ** random.random() for low, high in GREEDY_RANGES)
        state = random.getstate()
        try:
            ssa_path = optimize_greedy(
                task.inputs, task.output, task.sizes, costmod=weight, temperature=temperature, use_ssa=True
            )
        except OverflowError:
            random.setstate(state)
            ssa_path = optimize_greedy(
                task.inputs, task.output, _in_range(task.sizes), costmod=weight, temperature=temperature,
                use_ssa=True,
            )  # fmt: skip
    tree = ContractionTree.from_path(task.inputs, task.output, task.sizes, ssa_path=ssa_path)
    return ScoredTree(inf, tuple(tuple(map(int, step)) for step in tree.get_ssa_path()), ())


def sliced_to_limit(tree: Any, limit: int | None, objective: Any) -> Any:
    """The tree, sliced on where it is over the limit: a given path may be, or what annealing left."""
    if limit is None or tree.max_size() <= limit:
        return tree
    return tree.slice(target_size=limit, minimize=objective, seed=random.getrandbits(32))


def _tree_kind(slices_open: bool) -> Any:
    """cotengra's tree, slicing open indices only where that is wanted: its annealer would take them too."""
    from cotengra import ContractionTree
    from cotengra.scoring import get_score_fn

    class SlicedTree(ContractionTree):
        def slice(self, *args: Any, **options: Any) -> Any:
            objective = _TimedObjective(get_score_fn(self.get_default_objective()))
            return super().slice(*args, **{"minimize": objective, **options, "allow_outer": slices_open})

        def slice_(self, *args: Any, **options: Any) -> Any:
            return self.slice(*args, **options, inplace=True)

    return SlicedTree


@contextmanager
def seeded(seed: int | str) -> Iterator[None]:
    """cotengra's trials draw from Python's global generator: seed it, and put it back afterwards. Searches of
    several threads have it in turn."""
    with _DRAWING:
        state = random.getstate()
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(state)

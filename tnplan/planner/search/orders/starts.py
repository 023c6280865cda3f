"""Trees to start from, each of an order that is drawn: fronts, dissections, greedy eliminations.

Every one takes near-linear time and memory, and small parts of it are put in their best order. The first
trees of a search are the best of these, and of cotengra's trials.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import inf, log2

import numpy as np

from tnplan.planner.search.annealer.anneal_state import tree_of
from tnplan.planner.search.annealing import (
    HYPER_SHARE,
    POWERS,
    Effort,
    OnBetter,
    ScoredTree,
    Task,
    between,
    first_tree,
    greedy_s,
    seeded,
)
from tnplan.planner.search.orders.core import Core, core_of
from tnplan.planner.search.orders.front_kernel import OBLIQUE, SIDEWAYS, TO_RESULT
from tnplan.planner.search.orders.hypergraph import Floats, Hypergraph, Ints
from tnplan.planner.search.subtrees.measure_kernel import tree_cost

FIRST_KINDS = ("front", "dissection", "front", "front", "elimination")
"""Of the first numbers; then all are drawn."""
PLAIN_FRONTS = {0: (1.0, SIDEWAYS, 1e-6), 2: (0.0, OBLIQUE, 1e-6), 3: (0.25, OBLIQUE, 0.3)}
"""Pull, direction and noise of the first fronts: for lattices, chains of any width, and graphs."""
PLAIN_TO_RESULT = {**PLAIN_FRONTS, 2: (0.5, TO_RESULT, 1e-6)}
"""The same where indices are open."""
SIDEWAYS_ODDS, RESULT_ODDS = 0.4, 0.4
"""How often a front goes sideways; on a large network where it has fewer legs so, as not on a long strip. How
often it goes to the result, if there is one."""
PULLS, FRONT_NOISES = (0.0, 0.0, 0.25, 0.5, 1.0), (1e-6, 0.01, 0.3, 1.0)
FEWEST, DEPTHS, ATTEMPTS, BOUNDARIES = (10, 20, 40, 80), (2, 4, 30), (4, 16), (0.0, 1.0, 4.0)
IMBALANCE = 0.05, 0.3
PLAIN_CUTS = (20, 0.1, 30, 1, 1.0)
"""The first dissection's, in the order of `Cuts`."""
GROWTH_WEIGHT = 0.4, 1.0
KEY_NOISE = 1e-6, 1e-2
QUICK_TREES, QUICK_TENSORS = 2, 2000
"""Trees that say what a network costs; for larger ones than that, plain ones of QUICK_KINDS."""
ORDER_TENSOR_S = 4e-5
"""Nominal seconds of an order, for each tensor: of a dissection with its elimination."""
QUICK_KINDS = 0, 1
"""Numbers of a front and of a dissection."""
MOST_FRONT_LEGS = 2**27
"""Of all products of a front: there is a dissection in place of one with more, which would take long."""
MOST_LEGS = 2**23
"""Of all nodes of a tree, up to which they are all in memory while its parts are put in order."""
SHARE_BITS, MOST_BITS = 7, 16
"""A step before the core costs at most 2^-7 of a tree's mean step, and never more than 2^16 multiply-adds."""
SLACK = 1e-9
SLICED_BITS = 64.0
"""To slice a tree that is over the limit by more takes long, and there are better ones."""
PART_SIZES = 6, 8
"""Tensors of the parts that are put in their best order."""
FEW_TENSORS = 10
"""Up to so many tensors the best of all orders is found in milliseconds."""
SMALL_SIDE, SMALL_LIMIT = 6, 2**4
"""Of a lattice for whose sake kernels are loaded: it is divided, and has to be sliced."""
ORDER_SHARE, TRIAL_SHARE = 0.1, 0.15
ORDER_LIMIT_S, TRIAL_LIMIT_S = 4.0, 20.0
SLOWER = 1.5
"""Orders may take so many times their share of the time."""
FIRST_ORDERS, FIRST_SHARE, FIRST_ORDERS_S = 5, 0.3, 1.0
"""So many orders are tried where they take no more than this share of the time, or a second."""
MOST_TREES, FAR_BITS = 4, 64.0
"""First trees, and how much more than the best one of them may cost: to slice a worse one takes long."""
ORDERS_PER_TRIAL = 8
"""Of one trial that the effort allows."""
TRIALS = 4
QUICK = 300
"""Tensors up to which one trial is made whatever the time."""


def rooted(pairs: Ints, n: int) -> list[tuple[int, int]]:
    """The pairs (SSA) of a tree over n tensors from those over n, or over n and the result as the last one.

    The result's own place becomes the root: what a step costs does not depend on where the root is.
    """
    steps = list(zip(*pairs.tolist(), strict=True))
    if len(steps) < n:
        return steps
    leaves = n + 1
    parent: dict[int, int] = {}
    for number, (a, b) in enumerate(steps):
        parent[a] = parent[b] = leaves + number
    names = {v: v for v in range(n)}
    path_pairs: list[tuple[int, int]] = []

    def product(a: int, b: int) -> int:
        path_pairs.append((a, b))
        return n + len(path_pairs) - 1

    path = [n]
    while path[-1] in parent:
        path.append(parent[path[-1]])
    turned = set(path)
    for number, (a, b) in enumerate(steps):
        if leaves + number not in turned:
            names[leaves + number] = product(names[a], names[b])
    # What hangs on the way from the root down to the result is contracted in that order.
    last: int | None = None
    for below, above in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
        a, b = steps[above - leaves]
        beside = names[a if b == below else b]
        last = beside if last is None else product(last, beside)
    return path_pairs


def path_of(left: np.ndarray, right: np.ndarray) -> tuple[tuple[int, int], ...]:
    """The path of a tree, whose root is the last node, from its children."""
    from tnplan.planner.search.subtrees.legs_kernel import products_in_order

    n = (left.size + 1) // 2
    order = products_in_order(left, right, left.size - 1)
    names = np.arange(left.size)
    names[order] = np.arange(n, left.size)
    return tuple(zip(names[left[order]].tolist(), names[right[order]].tolist(), strict=True))


class OrderStarts:
    """Trees of a task by number; the same number gives the same tree.

    The score of one is log2 of its cost, under a limit with what has to be sliced of it; where that is more
    than SLICED_BITS, as if slices cost no more than the bits that they take off the largest tensor. Where
    less time is left until `ends`, by `time.monotonic`, than a dissection takes, any front is taken.
    """

    def __init__(self, task: Task, ends: float = inf) -> None:
        self.n, self.ends = len(task.inputs), ends
        self.seed, self.price = task.seed, task.price
        self.graph, self.names, _ = task.structure
        self.sliceable = task.sliceable
        self.open = self.graph.n_tensors > self.n
        self.limit_bits = inf if task.limit is None else log2(task.limit)

    def tree(self, number: int) -> ScoredTree | None:
        """A tree without slices; None where it is not made before `ends`."""
        pairs = self._drawn(number)
        return None if pairs is None else self.improved(pairs)

    def plain(self, number: int) -> tuple[float, ScoredTree | None]:
        """log2 of the cost of the same tree before its parts are put in order, and that tree, sliced where
        there is a limit; None where it is not within that."""
        pairs = self._drawn(number)
        if pairs is None:
            return inf, None
        left, right, _ = tree_of(pairs, self.n)
        bits, largest, _ = tree_cost(self.graph, self.graph.weights, left, right, self.price)
        score, largest, weights = self._sliced(left, right, bits, largest)
        if largest > self.limit_bits + SLACK:
            return bits, None
        sliced = tuple(self.names[number] for number in np.flatnonzero(weights != self.graph.weights))
        return bits, ScoredTree(score, path_of(left, right), sliced)

    def _sliced(
        self, left: Ints, right: Ints, bits: float, largest: float
    ) -> tuple[float, float, Floats]:  # fmt: skip
        """The score of a tree of this cost; log2 of its largest tensor and the weights of the indices, both
        with what is sliced."""
        from tnplan.planner.search.subtrees.measure_kernel import slice_to_bits

        graph, over = self.graph, largest - self.limit_bits
        weights = graph.weights.copy()
        # A little over the limit it is really sliced; far over, that would take longer than the tree, and the
        # bits by which it is over stand for what slices cost.
        if 0.0 < over <= SLICED_BITS:
            slice_to_bits(graph, weights, self.sliceable, left, right, self.limit_bits)
            bits, largest, _ = tree_cost(graph, weights, left, right, self.price)
            bits += (graph.weights - weights).sum()
        elif over > 0.0:
            bits += over
        return float(bits), largest, weights

    def _drawn(self, number: int) -> list[tuple[int, int]] | None:
        draw = random.Random(f"{self.seed} {number} order")
        kind = FIRST_KINDS[number] if number < len(FIRST_KINDS) else draw.choice(FIRST_KINDS)
        if len(self.graph.weights) == 0:
            kind = "elimination"
        pairs = self._pairs(kind, draw, number)
        return None if pairs is None else rooted(pairs, self.n)

    def _pairs(self, kind: str, draw: random.Random, number: int) -> np.ndarray | None:
        from tnplan.planner.search.orders.dissection_kernel import Cuts, dissect
        from tnplan.planner.search.orders.elimination_kernel import DEGREE, FILL, GROWTH, Rule, eliminate
        from tnplan.planner.search.orders.front_kernel import grow

        seed = draw.getrandbits(31)
        pairs: np.ndarray | None
        if kind == "front":
            drawn = draw.choice(PULLS), self._direction(draw), draw.choice(FRONT_NOISES)
            plain = PLAIN_TO_RESULT if self.open else PLAIN_FRONTS
            pull, direction, noise = plain.get(number, drawn)
            directions: tuple[int, ...] = (direction,)
            if direction == SIDEWAYS and self.n > QUICK_TENSORS:
                directions = (SIDEWAYS, OBLIQUE)
            # Legs of a front are counted at once from the order alone: of two directions that with fewer is
            # taken.
            fronts = [grow(self.graph, pull, way, noise, seed) for way in directions]
            pairs = min(fronts, key=lambda front: front_legs(self.graph, front))
            if front_legs(self.graph, pairs) <= MOST_FRONT_LEGS or not has_time(self.n, self.ends):
                return pairs
            kind = "dissection"
        stages = np.zeros(len(self.graph.weights), np.int64)
        if kind == "dissection":
            cuts = PLAIN_CUTS if number < len(FIRST_KINDS) else (
                draw.choice(FEWEST), draw.uniform(*IMBALANCE), draw.choice(DEPTHS), draw.choice(ATTEMPTS),
                draw.choice(BOUNDARIES),
            )  # fmt: skip
            stages = dissect(self.graph, Cuts(*cuts), seed)
        rule = Rule(
            draw.choice((DEGREE, FILL, GROWTH, GROWTH)), draw.uniform(*GROWTH_WEIGHT),
            between(draw, *KEY_NOISE),
        )  # fmt: skip
        # The first tree is made whatever the time.
        pairs = eliminate(self.graph, stages, rule, seed, self.ends if number else inf)
        return pairs

    def _direction(self, draw: random.Random) -> int:
        """Where a drawn front goes."""
        chosen = SIDEWAYS if draw.random() < SIDEWAYS_ODDS else OBLIQUE
        return TO_RESULT if self.open and draw.random() < RESULT_ODDS else chosen

    def improved(self, pairs: Sequence[tuple[int, ...]]) -> ScoredTree:
        """The tree of a path with small parts in their best order."""
        from tnplan.planner.search.subtrees.optimal_kernel import sweep

        if self.n < 2:
            return ScoredTree(0.0, (), ())
        left, right, _ = tree_of(pairs, self.n)
        graph, root = self.graph, 2 * self.n - 2
        bits, largest, n_legs = tree_cost(graph, graph.weights, left, right, self.price)
        if n_legs <= MOST_LEGS:
            for size in PART_SIZES:
                sweep(graph, graph.weights, left, right, root, size, self.limit_bits, self.price, self.ends)
            bits, largest, _ = tree_cost(graph, graph.weights, left, right, self.price)
        return ScoredTree(self._sliced(left, right, bits, largest)[0], path_of(left, right), ())


def best_of_few(task: Task) -> ScoredTree | None:
    """The tree of few tensors that costs least of all, where nothing has to be sliced of it.

    Slices add to every cost of steps. None where sums of steps are not what the objective counts.
    """
    from tnplan.planner.search.subtrees.optimal_kernel import sweep

    n = len(task.inputs)
    if not 2 < n <= FEW_TENSORS or task.minimize in POWERS or task.row_counts:
        return None
    graph, root = task.structure.graph, 2 * n - 2
    left, right, _ = tree_of([(0, 1), *((number, n + number - 2) for number in range(2, n))], n)
    sweep(graph, graph.weights, left, right, root, n, inf, task.price)
    bits, largest, _ = tree_cost(graph, graph.weights, left, right, task.price)
    fits = task.limit is None or largest <= log2(task.limit) + SLACK
    return ScoredTree(float(bits), path_of(left, right), ()) if fits else None


@cache
def load_kernels() -> None:
    """Have all kernels of orders compiled or loaded, so that this is no part of the time of a tree."""
    side = range(SMALL_SIDE)
    edges = [(f"r{i} {j}", (i, j), (i, j + 1)) for i in side for j in side[:-1]]
    edges += [(f"d{i} {j}", (i, j), (i + 1, j)) for i in side[:-1] for j in side]
    inputs = tuple(tuple(name for name, *ends in edges if (i, j) in ends) for i in side for j in side)
    sizes = {name: 2.0 for name, *_ in edges}
    starts = OrderStarts(Task(inputs, (), sizes, SMALL_LIMIT, "flops", (), 0, Effort()))
    for number in range(len(FIRST_KINDS)):
        starts.tree(number)


def has_time(n_tensors: int, ends: float) -> bool:
    """Whether there is time for one more order of so many tensors, by a nominal pace."""
    return n_tensors <= QUICK_TENSORS or time.monotonic() + ORDER_TENSOR_S * n_tensors <= ends


def core_for(task: Task, on_better: OnBetter, ends: float = inf) -> Core:
    """The core of a task: what is done before it takes a small share of what quick trees cost.

    Of a large network `on_better` gets these, sliced where there is a limit; one alone where the other would
    not be made before `ends`, by `time.monotonic`.
    """
    n = len(task.inputs)
    if n <= 2:
        return core_of(task.inputs, task.output, task.sizes, -inf)
    starts = OrderStarts(task)
    if n <= QUICK_TENSORS:
        trees = map(starts.tree, range(QUICK_TREES))
        bits = min(tree_bits(task, tree) for tree in trees if tree is not None)
    else:
        bits, best = inf, inf
        for number in QUICK_KINDS:
            began = time.monotonic()
            cost, tree = starts.plain(number)
            bits = min(bits, cost)
            if tree is not None and tree.score < best:
                best = tree.score
                on_better(tree)
            if 2 * time.monotonic() - began > ends:
                break
    # Safe contractions together are to cost a small share of the best quick tree: n of them at most, each
    # below that share over n.
    most = min(bits - log2(n) - SHARE_BITS, MOST_BITS)
    if task.limit is not None:
        most = min(most, 0.5 * log2(task.limit))
    return core_of(task.inputs, task.output, task.sizes, most)


def tree_bits(task: Task, tree: ScoredTree) -> float:
    """log2 of the cost of a tree without slices."""
    left, right, _ = tree_of(tree.ssa_path, len(task.inputs))
    graph = task.structure.graph
    return float(tree_cost(graph, graph.weights, left, right, task.price)[0])


def front_legs(graph: Hypergraph, pairs: Ints) -> int:
    """The legs of all products of a front: for each index, the steps from its first tensor to its last."""
    if pairs.size == 0:
        return 0
    places = np.empty(graph.n_tensors, np.int64)
    places[pairs[pairs < graph.n_tensors]] = np.arange(graph.n_tensors)
    taken_at = places[graph.tensors]
    starts = graph.index_starts[:-1]
    # An index is a leg of every product from its first tensor in the front to its last.
    return int((np.maximum.reduceat(taken_at, starts) - np.minimum.reduceat(taken_at, starts)).sum())


def first_trees(task: Task, on_better: OnBetter, search_ends: float = inf) -> list[ScoredTree]:
    """The best of some orders, cheapest first, and the best of cotengra's trials.

    Of a large network one order is made, and more while there is time for them before `search_ends`, by
    `time.monotonic`.
    Without a limit `on_better` gets the best orders so far, once those are made that `core_for` gave it.
    """
    if len(task.inputs) <= 2:
        return [ScoredTree(0.0, ((0, 1),) if len(task.inputs) == 2 else (), ())]
    time_s, n = task.effort.nominal_s, len(task.inputs)
    starts = OrderStarts(task, search_ends)
    load_kernels()
    began = time.monotonic()
    # As many as there is time for at a nominal pace, so that a search is the same again on a machine that is
    # not slower by half.
    share_s = min(ORDER_SHARE * time_s, ORDER_LIMIT_S)
    ends = began + (SLOWER * share_s if n <= QUICK_TENSORS else share_s)
    first_ends = began + max(FIRST_SHARE * time_s, FIRST_ORDERS_S)
    by_score: dict[float, ScoredTree] = {}
    most = ORDERS_PER_TRIAL * task.effort.max_trials
    if n <= QUICK_TENSORS or task.effort.time_s == inf:
        most = min(most, max(FIRST_ORDERS, int(share_s / (ORDER_TENSOR_S * n))))
    if task.effort.time_s == inf:
        ends = inf
    longest_s = 0.0
    for number in range(most):
        now = time.monotonic()
        if number and now > ends and (number >= FIRST_ORDERS or now > first_ends):
            break
        if number and not has_time(n, search_ends - longest_s):
            break
        tree = starts.tree(number)
        if tree is None:
            break
        longest_s = max(longest_s, time.monotonic() - now - ORDER_TENSOR_S * n)
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
        time_s = inf if task.effort.time_s == inf else trial_s / HYPER_SHARE
        effort = Effort(time_s, trials, 0)
        tree = first_tree(replace(task, limit=None, minimize="flops", effort=effort))
    return starts.improved([(int(a), int(b)) for a, b in tree.get_ssa_path()])

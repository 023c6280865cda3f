"""The joint search: rounds of the compiled annealing of tree and sliced indices, one or several at once.

Keeps the time, the processes and the checkpoint; `round_policy` decides what a round is. Knows no
memory and no machine, only the limit on a tensor's elements and what an element read or written costs.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from math import inf
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

from tnplan.common.errors import InputError
from tnplan.planner.search.annealer.annealed import Annealed, Tell
from tnplan.planner.search.annealing import Found, Start, Task, greedy_s, random_greedy, roots
from tnplan.planner.search.checkpoint import SearchCheckpoint
from tnplan.planner.search.orders.first_trees import first_trees
from tnplan.planner.search.orders.starts import OrderStarts, tree_bits
from tnplan.planner.search.ranking import Target
from tnplan.planner.search.round_policy import MEAN_LENGTH, POOL, ElitePool, Pools, Round, warm_heat
from tnplan.planner.search.subtrees.regions import LargeTree, is_large

NOMINAL_MOVES_PER_S = 7e6
ROUND_SHARE = 0.1
MOVES_PER_TENSOR = 300_000
GREEDY_SHARE = 0.25
"""Rounds have a greedy tree of their own where making it takes at most this share of a full round."""
RANK_SHARE = 0.3
"""The last share of the time, in which trees are ranked by predicted time where that is asked for."""
FIRST_ORDERS = 1000
"""Orders of rounds have numbers from here on, times DRAWN_TREES; the first trees have those below."""
DRAWN_TREES = 4
"""Of so many orders a round takes the best tree."""
MOST_BITS = 960
"""log2 of the largest cost that is counted in floating point."""
SHORTEST = 0.1
UNLIMITED_TREES = 0.25
"""First trees without the limit take so much of the time of those with it."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class SearchOutcome:
    """What a round found, if anything within the limit, and what it took."""

    found: Found | None
    sliced: Found | None
    """Of a round without the limit, what its tree was sliced to."""
    moves: int
    anneal_s: float
    rank_s: float


def search_joint(
    task: Task,
    *,
    began: float | None = None,
    n_workers: int = 1,
    target: Target | None = None,
    checkpoint: SearchCheckpoint | None = None,
    tell: Tell | None = None,
) -> Found:
    """A first tree, then rounds on `n_workers` processes until the time or the rounds are used up.

    The moves of a round follow from the network and the time given, not from the clock; the last round is
    shortened to what time is left. `began` is when its time began, by `time.monotonic`; None: now.
    `Found.score` is log2 of the cost of all slices, with the last pair of the path as the waist. With a
    `target` the best is the tree of the least predicted time there, `Found.time_s`.
    Raises InputError if no schedule fits it.
    """
    told = tell or (lambda _: None)
    clock = time.monotonic() if began is None else began
    kept = None if checkpoint is None else checkpoint.restore(task)
    if kept is None:
        timed = task.effort.time_s > 0 and checkpoint is None
        pools, used_s = _pools(task, target, told, clock + task.effort.time_s if timed else inf), 0.0
    else:
        pools, used_s = kept
    told(pools.best)
    task = replace(task, sizes=roots(task.sizes, pools.limited.power))
    if len(task.inputs) > 2:
        _climb(task, pools, clock - used_s, n_workers, target, checkpoint, told)
    pool = pools.limited
    if target is not None and pool.fastest is None:
        pool.fastest = target.fastest((pool.best, pool.first))
        told(pool.best)
    return pools.best


def _pools(task: Task, target: Target | None, tell: Tell, ends: float) -> Pools:
    """The pools that a search begins with; no second one where there are no rounds, or where time is up."""
    pool, effort = _pool(task, target, tell, ends), task.effort
    if task.limit is None or len(task.inputs) <= 2 or not (effort.time_s and effort.max_rounds):
        return Pools(pool)
    if time.monotonic() > ends:
        return Pools(pool)
    effort = replace(effort, time_s=UNLIMITED_TREES * effort.time_s)
    starts = tuple((ssa_path, ()) for ssa_path, _ in task.starts)
    unlimited = replace(task, limit=None, waist_limit=inf, starts=starts, effort=effort)
    return Pools(pool, _pool(unlimited, None, lambda _: None, ends))


def _pool(task: Task, target: Target | None, tell: Tell, ends: float) -> ElitePool:
    """The trees that rounds begin with; it tells of orders. Of several given trees, the fastest as it was
    given comes first where their predicted time is asked for, else the cheapest; the others are in the pool.
    """
    trees = [_given(task, start) for start in task.starts] or first_trees(task, tell, ends)
    power = 1.0 if task.limit is not None else _power_in_range(task, trees)
    rooted = replace(task, sizes=roots(task.sizes, power))
    givens, firsts = zip(*(_begun(rooted, tree) for tree in trees), strict=True)
    pool = sorted(firsts, key=lambda one: one.score)[:POOL]
    if target is None:
        return ElitePool(task.seed, pool[0], pool, limited=task.limit is not None, power=power)
    fastest = None
    if len(task.starts) > 1:
        fits = [found for found in map(target.ranked, givens) if found.time_s is not None]
        fastest = min(fits, key=lambda one: one.time_s or inf, default=None)
    first = fastest or min(givens, key=lambda one: one.score)
    return ElitePool(task.seed, first, pool, fastest, limited=task.limit is not None, power=power)


def _given(task: Task, start: Start) -> Found:
    """A given path, without a score."""
    ssa_path, sliced = start
    return Found(0.0, ssa_path, tuple(symbol for symbol in sliced if task.sizes[symbol] > 1))


def _power_in_range(task: Task, trees: Sequence[Found]) -> float:
    """The power of all sizes with which the steps of these trees are well within floating point; 1 if they
    are already."""
    bits = max(tree_bits(task, tree) if task.starts else tree.score for tree in trees)
    return 1.0 if bits <= MOST_BITS else MOST_BITS / (2 * bits)


def _begun(task: Task, found: Found) -> tuple[Found, Found]:
    """A tree with its score: as it is, and sliced until it is within the limit.

    Where it is not, both are the second.
    """
    if len(task.inputs) <= 2:
        return found, found
    if task.limit is None and not found.sliced and not task.row_counts:
        return (replace(found, score=tree_bits(task, found)),) * 2
    if is_large(task):
        large = LargeTree(task, found)
        if not large.fits:
            raise InputError("--max-tensor", "is below what open indices need", "allow larger tensors")
        return (large.found(),) * 2
    annealed = Annealed(task, found, 0)
    given, first = annealed.given, annealed.sliced()
    return given or first, first


def _climb(
    task: Task,
    pools: Pools,
    began: float,
    n_workers: int,
    target: Target | None,
    checkpoint: SearchCheckpoint | None,
    tell: Tell,
) -> None:
    """Rounds until time is up; the pools are kept after each one that comes back."""
    time_s, most = task.effort.time_s, task.effort.max_rounds
    ends = began + time_s
    full = min(ROUND_SHARE * time_s * NOMINAL_MOVES_PER_S, float(MOVES_PER_TENSOR * len(task.inputs)))
    tree_s = greedy_s(len(task.inputs), pools.best.score / pools.limited.power)
    greedy = tree_s * NOMINAL_MOVES_PER_S <= GREEDY_SHARE * full
    planned = min(most * MEAN_LENGTH, time_s * n_workers * NOMINAL_MOVES_PER_S / max(full, 1.0))
    if target is not None:
        planned *= 1.0 - RANK_SHARE
    pace_s, rank_s = 0.0, 0.0
    flying: dict[Future[SearchOutcome], Round] = {}
    heard = pools.best.score

    def keep() -> None:
        if checkpoint is not None:
            checkpoint.write(pools, time.monotonic() - began)

    def hear(found: Found) -> None:
        nonlocal heard
        if pools.limited.fastest is None and found.score < heard:
            heard = found.score
            tell(found)

    keep()
    going = True
    heard_here = hear if n_workers == 1 else None
    with _workers(n_workers) as pool:
        while True:
            while going and len(flying) < n_workers:
                left_s = ends - time.monotonic()
                late = left_s < RANK_SHARE * time_s or pools.given >= planned
                given = pools.next(planned, target is not None and late, greedy)
                wanted = given.length * full
                possible_s = left_s - given.ranks * rank_s
                moves = wanted if pace_s == 0.0 else min(wanted, possible_s / pace_s)
                going = possible_s > 0 and moves >= SHORTEST * wanted and pools.number <= most
                if going:
                    flying[pool.submit(carry_out, task, given, moves, ends, target, heard_here)] = given
            if not flying:
                break
            for future in wait(flying, return_when=FIRST_COMPLETED).done:
                given, outcome = flying.pop(future), future.result()
                if outcome.moves:
                    pace_s = outcome.anneal_s / outcome.moves
                rank_s = max(rank_s, outcome.rank_s)
                if pools.take(given, outcome.found, outcome.sliced):
                    (tell if pools.limited.fastest else hear)(pools.best)
                keep()


class _Here(Executor):
    """Calls done in this process before `submit` returns."""

    def submit(self, call: Callable[..., Result], /, *arguments: Any, **named: Any) -> Future[Result]:
        future: Future[Result] = Future()
        future.set_result(call(*arguments, **named))
        return future


def _workers(count: int) -> Executor:
    """Processes for rounds; this one where one is all, so that it tells of better trees on the way."""
    if count == 1:
        return _Here()
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=end_with_parent)


def end_with_parent() -> None:
    """End this process when the one that started it is gone, killed perhaps."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def carry_out(
    task: Task, given: Round, moves: float, ends: float, target: Target | None, tell: Tell | None = None
) -> SearchOutcome:
    """One round of about so many moves, or fewer when time is up.

    The tree of a round without the limit is sliced afterwards.
    """
    before = time.monotonic()
    if given.unlimited:
        unlimited = replace(task, limit=None, waist_limit=inf, sizes=roots(task.sizes, given.power))
        outcome = carry_out(unlimited, replace(given, unlimited=False), moves, ends, None)
        sliced = _begun(task, outcome.found)[1] if outcome.found else None
        return replace(outcome, sliced=sliced, anneal_s=time.monotonic() - before)
    found: Found | None = given.source
    done = 0
    if given.anneals:
        weighted = replace(task, element_weight=task.element_weight * given.weight_factor)
        source = _source(task, given)
        if is_large(task):
            large = LargeTree(weighted, source)
            draw = random.Random(f"{task.seed} {given.number} region")
            done = large.improve(given.heat, moves, ends, draw)
            found = large.found() if large.fits else None
        elif given.kind == "descent" and task.limit is not None:
            annealing = Annealed(replace(weighted, limit=None), source, given.number)
            heats = given.heat, warm_heat(task.seed, given.number)
            done = annealing.descend(task.limit, heats, moves, ends)
            found = annealing.best_found()
        else:
            annealing = Annealed(weighted, source, given.number)
            done = annealing.run(given.heat, moves, ends, tell)
            found = annealing.best_found()
    annealed = time.monotonic()
    if found is not None and given.ranks and target is not None:
        found = target.ranked(replace(found, time_s=None, ranks=given.source.ranks))
    return SearchOutcome(found, None, done, annealed - before, time.monotonic() - annealed)


def _source(task: Task, given: Round) -> Found:
    """The tree that a round starts from; those of a round's own follow from its number."""
    if given.kind == "greedy":
        return random_greedy(task, given.number)
    if given.kind not in ("order", "descent"):
        return given.source
    starts = OrderStarts(task if given.kind == "order" else replace(task, limit=None))
    first = DRAWN_TREES * (given.number + FIRST_ORDERS)
    return min((starts.tree(first + i) for i in range(DRAWN_TREES)), key=lambda one: one.score)

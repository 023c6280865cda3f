"""The joint search: rounds of the compiled annealing of tree and sliced indices, one or several at once.

Keeps the time, the processes and the checkpoint; `round_policy` decides what a round is. Knows no
memory and no machine, only the limit on a tensor's elements and what an element read or written costs.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

import numpy as np

from tnplan.planner.search.annealer.anneal_state import (
    COST,
    Best,
    bits_of,
    kept_words,
    make_problem,
    new_state,
    pairs_of,
    sliced_bits,
    tree_of,
)
from tnplan.planner.search.annealing import (
    Effort,
    Found,
    Task,
    first_tree,
    power_in_range,
    random_greedy,
    roots,
    seeded,
)
from tnplan.planner.search.checkpoint import SearchCheckpoint
from tnplan.planner.search.ranking import Target
from tnplan.planner.search.round_policy import MEAN_LENGTH, POOL, ElitePool, Round

SEED_TRIALS = 4
SEED_SHARE = 0.4
SEED_LIMIT_S = 20.0
"""Trials take the fifth of it."""
NOMINAL_MOVES_PER_S = 7e6
ROUND_SHARE = 0.1
MOVES_PER_TENSOR = 300_000
MOVES_OF_GREEDY, GREEDY_SHARE = 3_000, 0.25
"""In the time of so many moves for each tensor a greedy tree is made. Rounds have one of their own where that
is at most this share of a full round."""
RANK_SHARE = 0.3
"""The last share of the time, in which trees are ranked by predicted time where that is asked for."""
CALL_MOVES = 800_000
"""Moves of one call of the kernel: about a tenth of a second, in which the clock is not looked at."""
SHORTEST = 0.1

Tell = Callable[[Found], None]
Result = TypeVar("Result")


@dataclass(frozen=True)
class SearchOutcome:
    """What a round found, if anything within the limit, and what it took."""

    found: Found | None
    moves: int
    anneal_s: float
    rank_s: float


def search_joint(
    task: Task,
    *,
    n_workers: int = 1,
    target: Target | None = None,
    checkpoint: SearchCheckpoint | None = None,
    tell: Tell | None = None,
) -> Found:
    """A first tree, then rounds on `n_workers` processes until the time or the rounds are used up.

    The moves of a round follow from the network and the time given, not from the clock; the last round is
    shortened to what time is left. `Found.score` is log2 of the cost of all slices, with the last pair of the
    path as the waist. With a `target` the best is the tree of the least predicted time there, `Found.time_s`.
    Raises InputError if no schedule fits it.
    """
    told = tell or (lambda _: None)
    clock = time.monotonic()
    kept = None if checkpoint is None else checkpoint.restore()
    if kept is None:
        ladder, used_s = _ladder(task, target), 0.0
    else:
        ladder, used_s = kept
    told(ladder.best)
    task = replace(task, sizes=roots(task.sizes, ladder.power))
    if len(task.inputs) > 2:
        _climb(task, ladder, clock - used_s, n_workers, target, checkpoint, told)
    if target is not None and ladder.fastest is None:
        ladder.fastest = target.fastest((ladder.best, ladder.first))
        told(ladder.best)
    return ladder.best


def _ladder(task: Task, target: Target | None) -> ElitePool:
    """The trees that a search begins with. Of several given ones, the fastest as it was given comes first
    where their predicted time is asked for, else the cheapest; the others are in the pool."""
    one_each = [replace(task, starts=(start,)) for start in task.starts] or [task]
    trees = [_first(one) for one in one_each]
    power = 1.0 if task.limit is not None else power_in_range(task, trees)
    rooted = replace(task, sizes=roots(task.sizes, power))
    givens, firsts = zip(*(_begun(rooted, tree) for tree in trees), strict=True)
    pool = sorted(firsts, key=lambda one: one.score)[:POOL]
    if target is None:
        return ElitePool(task.seed, pool[0], pool, power=power)
    fastest = None
    if len(givens) > 1:
        fits = [found for found in map(target.ranked, givens) if found.time_s is not None]
        fastest = min(fits, key=lambda one: one.time_s or math.inf, default=None)
    first = fastest or min(givens, key=lambda one: one.score)
    return ElitePool(task.seed, first, pool, fastest, power=power)


def _first(task: Task) -> Found:
    """The given path or the best of a few trials, without a score."""
    seed_s = min(SEED_SHARE * task.effort.time_s, SEED_LIMIT_S)
    effort = Effort(seed_s, min(SEED_TRIALS, task.effort.max_trials), 0)
    with seeded(task.seed):
        tree = first_tree(replace(task, limit=None, minimize="flops", effort=effort))
    steps = tuple(tuple(map(int, step)) for step in tree.get_ssa_path())
    return Found(0.0, steps, tuple(symbol for symbol in tree.sliced_inds if task.sizes[symbol] > 1))


def _begun(task: Task, found: Found) -> tuple[Found, Found]:
    """A tree with its score: as it is, and sliced until it is within the limit.

    Where it is not, both are the second.
    """
    if len(task.inputs) <= 2:
        return found, found
    annealing = _Annealing(task, found, task.seed, 0)
    given, first = annealing.given, annealing.sliced()
    return given or first, first


def _climb(
    task: Task,
    ladder: ElitePool,
    began: float,
    n_workers: int,
    target: Target | None,
    checkpoint: SearchCheckpoint | None,
    tell: Tell,
) -> None:
    """Rounds until time is up; the ladder is kept after each one that comes back."""
    time_s, most = task.effort.time_s, task.effort.max_rounds
    ends = began + time_s
    full = min(ROUND_SHARE * time_s * NOMINAL_MOVES_PER_S, float(MOVES_PER_TENSOR * len(task.inputs)))
    fresh = MOVES_OF_GREEDY * len(task.inputs) <= GREEDY_SHARE * full
    planned = min(most * MEAN_LENGTH, time_s * n_workers * NOMINAL_MOVES_PER_S / max(full, 1.0))
    if target is not None:
        planned *= 1.0 - RANK_SHARE
    pace_s, rank_s = 0.0, 0.0
    flying: dict[Future[SearchOutcome], Round] = {}
    heard = ladder.best.score

    def keep() -> None:
        if checkpoint is not None:
            checkpoint.write(ladder, time.monotonic() - began)

    def hear(found: Found) -> None:
        nonlocal heard
        if ladder.fastest is None and found.score < heard:
            heard = found.score
            tell(found)

    keep()
    going = True
    heard_here = hear if n_workers == 1 else None
    with _workers(n_workers) as pool:
        while True:
            while going and len(flying) < n_workers:
                left_s = ends - time.monotonic()
                late = left_s < RANK_SHARE * time_s or ladder.given >= planned
                given = ladder.next(planned, target is not None and late, fresh)
                wanted = given.length * full
                possible_s = left_s - given.ranks * rank_s
                moves = wanted if pace_s == 0.0 else min(wanted, possible_s / pace_s)
                going = possible_s > 0 and moves >= SHORTEST * wanted and given.number < most
                if going:
                    flying[pool.submit(carry_out, task, given, moves, ends, target, heard_here)] = given
            if not flying:
                break
            for future in wait(flying, return_when=FIRST_COMPLETED).done:
                given, outcome = flying.pop(future), future.result()
                if outcome.moves:
                    pace_s = outcome.anneal_s / outcome.moves
                rank_s = max(rank_s, outcome.rank_s)
                if ladder.take(given, outcome.found):
                    (tell if ladder.fastest else hear)(ladder.best)
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
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
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
    """One round of about so many moves, or fewer when time is up."""
    before = time.monotonic()
    found: Found | None = given.source
    done = 0
    if given.anneals:
        weighted = replace(task, element_weight=task.element_weight * given.weight_factor)
        source = random_greedy(task, given.number) if given.kind == "fresh" else given.source
        annealing = _Annealing(weighted, source, task.seed, given.number)
        done = annealing.run(given, moves, ends, tell)
        found = annealing.best_found()
    annealed = time.monotonic()
    if found is not None and given.ranks and target is not None:
        found = target.ranked(replace(found, time_s=None, ranks=given.source.ranks))
    return SearchOutcome(found, done, annealed - before, time.monotonic() - annealed)


class _Annealing:
    """The compiled state of a round, begun at a tree."""

    def __init__(self, task: Task, source: Found, seed: int, number: int) -> None:
        from tnplan.planner.search.annealer import anneal_kernel
        from tnplan.planner.search.annealer.waist_kernel import restore, settle

        self.kernel = anneal_kernel
        limit = math.inf if task.limit is None else float(task.limit)
        self.problem = make_problem(
            task.inputs, task.output, task.sizes, limit, task.element_weight, task.waist_limit
        )
        self.bits = bits_of(task.sizes)
        n = len(task.inputs)
        self.state = new_state(self.problem, n, (seed, number))
        kept = kept_words(self.problem, (self.bits[symbol] for symbol in source.sliced))
        self.best = Best(*tree_of(source.ssa_path, n), kept, np.full(1, math.inf))
        restore(self.problem, self.state, *self.best[:4])
        self.given = None if self.state.counts[1] else replace(source, score=self._score())
        """The tree that it began at, with its score; None where it is over the limit."""
        settle(self.problem, self.state)

    def _score(self) -> float:
        return math.log2(self.state.totals[COST]) + sum(
            math.log2(self.problem.extents[bit]) for bit in self.state.sliced[: self.state.counts[0]]
        )

    def sliced(self) -> Found:
        """The tree that it began at, sliced on until it is within the limit, with its score."""
        self.kernel.slice_to_limit(self.problem, self.state)
        self.kernel.keep_best(self.problem, self.state, self.best)
        found = self.best_found()
        assert found is not None
        return found

    def run(self, given: Round, moves: float, ends: float, tell: Tell | None) -> int:
        """Make the moves, and tell of each better tree; how many were made."""
        block = self.kernel.BLOCK
        blocks = max(1, round(moves / block))
        at_once = max(1, CALL_MOVES // block)
        done = 0
        while done < blocks and time.monotonic() <= ends:
            score = float(self.best.score[0])
            last = min(blocks, done + at_once)
            self.kernel.anneal(self.problem, self.state, self.best, given.heat, done, last, blocks)
            done = last
            if tell is not None and self.best.score[0] < score:
                found = self.best_found()
                assert found is not None
                tell(found)
        return done * block

    def best_found(self) -> Found | None:
        """The best tree within the limit, if any was."""
        score = float(self.best.score[0])
        if not math.isfinite(score):
            return None
        names: dict[int, Any] = {bit: symbol for symbol, bit in self.bits.items()}
        return Found(score, pairs_of(self.best), tuple(names[bit] for bit in sliced_bits(self.best)))

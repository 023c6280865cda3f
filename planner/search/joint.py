"""One worker of the joint search: rounds of the compiled annealing of tree and sliced indices together.

Starts from a given path or from cotengra's trials. Knows no memory and no machine, only the limit on a
tensor's elements and what an element read or written costs.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from planner.search.anneal_state import (
    Best,
    Heat,
    Problem,
    State,
    bits_of,
    kept_words,
    make_problem,
    new_state,
    pairs_of,
    sliced_bits,
    tree_of,
)
from planner.search.annealing import Effort, Found, Task, first_tree, seeded, sliced_to_limit

SEED_TRIALS = 4
SEED_SHARE = 0.4
SEED_LIMIT_S = 20.0
"""Trials take the fifth of it."""
NOMINAL_MOVES_PER_S = 6e6
ROUND_SHARE = 0.15
MOVES_PER_TENSOR = 200_000
CALL_MOVES = 800_000
"""Moves of one call of the kernel: about a tenth of a second, in which the clock is not looked at."""
TURNS = ("start", "start", "start", "best", "best", "best", "best")
"""What the rounds start from, in turn: hot from the first tree, or warm from the best."""
SHORTEST = 0.1


def search_joint(task: Task, tell: Callable[[Found], None] | None = None) -> Found:
    """One worker: a first tree, then rounds of annealing until the time or the rounds are used up.

    The moves of a round follow from the network and the time given, not from the clock; the last round is
    shortened to what time is left. `Found.score` is log2 of the cost of all slices.
    """
    ends = time.monotonic() + task.effort.time_s
    seed_s = min(SEED_SHARE * task.effort.time_s, SEED_LIMIT_S)
    effort = Effort(seed_s, min(SEED_TRIALS, task.effort.max_trials), 0)
    with seeded(task.seed):
        easy = replace(task, minimize="flops", effort=effort)
        tree = sliced_to_limit(first_tree(easy), task.limit, easy.minimize)
    steps = tuple(tuple(map(int, step)) for step in tree.get_ssa_path())
    sliced = tuple(symbol for symbol in tree.sliced_inds if task.sizes[symbol] > 1)
    if len(task.inputs) <= 2:
        return Found(0.0, steps, sliced)
    chain = _Chain(task, steps, sliced)
    if tell is not None:
        tell(chain.found())
    total = min(ROUND_SHARE * task.effort.time_s * NOMINAL_MOVES_PER_S, MOVES_PER_TENSOR * len(task.inputs))
    pace_s = 0.0
    for number in range(task.effort.max_rounds):
        left_s = ends - time.monotonic()
        moves = total if pace_s == 0.0 else min(total, left_s / pace_s)
        if left_s <= 0 or moves < SHORTEST * total:
            break
        before = time.monotonic()
        done = chain.round(number, moves, ends, tell)
        pace_s = (time.monotonic() - before) / done
    return chain.found()


class _Chain:
    """The trees that rounds start from, the first and the best, and the state that they change."""

    def __init__(self, task: Task, steps: tuple[tuple[int, ...], ...], sliced: tuple[str, ...]) -> None:
        from planner.search import anneal_kernel

        self.kernel = anneal_kernel
        limit = math.inf if task.limit is None else task.limit
        self.problem: Problem = make_problem(
            task.inputs, task.output, task.sizes, limit, task.element_weight
        )  # fmt: skip
        self.bits = bits_of(task.sizes)
        self.random = random.Random(task.seed)
        self.state: State = new_state(self.problem, len(task.inputs), task.seed)
        kept = kept_words(self.problem, (self.bits[symbol] for symbol in sliced))
        trees = [tree_of(steps, len(task.inputs)) for _ in range(2)]
        self.start, self.best = (Best(*tree, kept.copy(), np.full(1, math.inf)) for tree in trees)
        self._restore(self.start)
        self.kernel.keep_best(self.problem, self.state, self.best)

    def round(self, number: int, moves: float, ends: float, tell: Callable[[Found], None] | None) -> int:
        """One round of about so many moves, or fewer when time is up; how many it made."""
        again = TURNS[number % len(TURNS)] == "best"
        self._restore(self.best if again else self.start)
        heat = self._heat(again)
        block = self.kernel.BLOCK
        blocks = max(1, round(moves / block))
        at_once = max(1, CALL_MOVES // block)
        done = 0
        while done < blocks:
            score = float(self.best.score[0])
            last = min(blocks, done + at_once)
            self.kernel.anneal(self.problem, self.state, self.best, heat, done, last, blocks)
            done = last
            if tell is not None and self.best.score[0] < score:
                tell(self.found())
            if time.monotonic() > ends:
                break
        return done * block

    def found(self) -> Found:
        """The best tree as plain data."""
        names = {bit: symbol for symbol, bit in self.bits.items()}
        sliced = tuple(names[bit] for bit in sliced_bits(self.best))
        return Found(float(self.best.score[0]), pairs_of(self.best), sliced)

    def _restore(self, tree: Best) -> None:
        self.kernel.restore(self.problem, self.state, tree.left, tree.right, tree.parent, tree.kept)

    def _heat(self, again: bool) -> Heat:
        """Temperatures drawn for a round: no single choice is best for all networks."""
        local = self._between(25.0, 60.0)
        hot = self._between(0.04, 0.2) if again else self._between(0.35, 0.6)
        penalty = self._between(0.8 if again else 0.5, 1.2)
        return Heat(local, hot, min(self._between(0.018, 0.03), hot / 2), penalty)

    def _between(self, low: float, high: float) -> float:
        return low * (high / low) ** self.random.random()

"""One round of the joint search: the compiled state, begun at a tree, and what becomes of it.

Knows no processes and no rounds but its own.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

from tnplan.planner.search.annealer import anneal_kernel as kernel
from tnplan.planner.search.annealer.anneal_state import (
    COST,
    AnnealState,
    Best,
    Heat,
    Problem,
    bits_of,
    kept_words,
    make_problem,
    new_state,
    pairs_of,
    sliced_bits,
    tree_of,
    with_row_counts,
)
from tnplan.planner.search.annealing import PRICES, OnBetter, ScoredTree, Task

CALL_MOVES, CALL_WORDS = 800_000, 16
"""Moves of one call of the kernel while legs have so many words, in which the clock is not looked at: about a
tenth of a second."""
FREE_SHARE = 0.4
STAGE_BITS, MOST_STAGES = 2.0, 8
"""Bits by which the limit falls at once; more where these would be too many stages."""
COLD = Heat(0.0, 0.0, 0.0, 0.0)
NO_BLOCKS = 0, 0, 1


def act(
    action: int, problem: Problem, state: AnnealState, best: Best, heat: Heat = COLD,
    span: tuple[int, int, int] = NO_BLOCKS,
) -> None:  # fmt: skip
    """What the kernel does with a state: see `work`."""
    # Only RESTORE writes to it; the others get an empty array of the same type, as the kernel is compiled
    # once.
    scratch = np.empty((2, *(state.legs.shape if action == kernel.RESTORE else (0, 0))), np.uint64)
    kernel.work(action, problem, state, best, heat, span, scratch)


class Annealed:
    """The compiled state of a round, begun at a tree."""

    def __init__(self, task: Task, source: ScoredTree, number: int) -> None:
        limit = math.inf if task.limit is None else float(task.limit)
        self.problem = make_problem(
            task.inputs, task.output, task.sizes, limit, task.price, task.waist_limit,
            task.shares, task.slices_open,
        )
        if task.row_counts:
            self.problem = with_row_counts(self.problem, task.sizes[task.output[0]], task.row_counts)
        self.bits = bits_of(task.sizes)
        # Measured for operations; objectives that count what is written keep the heats that they had.
        logs = [math.log2(task.sizes[name]) for name in self.bits] if task.minimize not in PRICES else []
        self.mean_bits = sum(logs) / len(logs) if logs else 1.0
        """log2 of the extents in the mean: heats are for extents of 2."""
        n = len(task.inputs)
        self.state = new_state(self.problem, n, (task.seed, number))
        unsliced = kept_words(self.problem, (self.bits[symbol] for symbol in source.sliced))
        self.best = Best(*tree_of(source.ssa_path, n), unsliced, np.full(1, math.inf))
        self._restore()
        # Before SETTLE, which moves the root: this is the tree as it was given.
        self.given = None if self.state.counts[1] else replace(source, score=self._score())
        """The tree that it began at, with its score; None where it is over the limit."""
        act(kernel.SETTLE, self.problem, self.state, self.best)

    def _score(self) -> float:
        return math.log2(self.state.totals[COST]) + sum(
            math.log2(self.problem.extents[bit]) for bit in self.state.sliced[: self.state.counts[0]]
        )

    def _restore(self) -> None:
        """Make the state that of the best tree."""
        act(kernel.RESTORE, self.problem, self.state, self.best)

    def sliced(self) -> ScoredTree:
        """The tree that it began at, sliced on until it is within the limit, with its score."""
        act(kernel.SLICE, self.problem, self.state, self.best)
        tree = self.best_tree()
        assert tree is not None  # which slicing always comes to
        return tree

    def run(self, heat: Heat, moves: float, ends: float, on_better: OnBetter | None) -> int:
        """Make the moves; how many were made."""
        block = kernel.BLOCK
        blocks = max(1, round(moves / block))
        # Between two calls the clock is read; fewer moves a call where legs have more words, and moves take
        # longer.
        at_once = max(1, CALL_MOVES // (block * max(1, self.state.unsliced.size // CALL_WORDS)))
        heat = heat._replace(hot=self.mean_bits * heat.hot, cold=self.mean_bits * heat.cold)
        done = 0
        while done < blocks and time.monotonic() <= ends:
            score = float(self.best.score[0])
            last = min(blocks, done + at_once)
            act(kernel.ANNEAL, self.problem, self.state, self.best, heat, (done, last, blocks))
            done = last
            if on_better is not None and self.best.score[0] < score:
                tree = self.best_tree()
                assert tree is not None
                on_better(tree)
        return done * block

    def tighten(self, limit: float) -> None:
        """Go on from the best tree with a limit, sliced until it is within that."""
        # Without a best tree it goes on from the current one, which the limit so far refused. The arrays are
        # copied, for `restore` writes to those of the state.
        has_best = self.best.score[0] < math.inf
        state = self.state
        tree = self.best[:4] if has_best else (
            state.left.copy(), state.right.copy(), state.parent.copy(), state.unsliced.copy()
        )  # fmt: skip
        self.problem = self.problem._replace(limit=float(limit))
        self.best = Best(*tree, np.full(1, math.inf))
        self._restore()
        act(kernel.SLICE, self.problem, self.state, self.best)

    def descend(self, limit: float, heats: tuple[Heat, Heat], moves: float, ends: float) -> int:
        """Anneal without a limit, then under lower and lower ones, the last the one wanted; the moves made.

        The first part of the moves is at the first heat, the others at the second.
        """
        done = self.run(heats[0], FREE_SHARE * moves, ends, None)
        self.tighten(math.inf)
        # The limit falls geometrically from the largest tensor of the best free tree to the one wanted.
        high, low = math.log2(self.state.size.max()), math.log2(limit)
        stages = min(max(round((high - low) / STAGE_BITS), 1), MOST_STAGES)
        for stage in range(1, stages + 1):
            bits = high + (low - high) * stage / stages
            self.tighten(limit if stage == stages else 2.0 ** max(bits, low))
            done += self.run(heats[1], (1.0 - FREE_SHARE) * moves / stages, ends, None)
        return done

    def best_tree(self) -> ScoredTree | None:
        """The best tree within the limit, if any was."""
        score = float(self.best.score[0])
        if not math.isfinite(score):
            return None
        names: dict[int, Any] = {bit: symbol for symbol, bit in self.bits.items()}
        return ScoredTree(score, pairs_of(self.best), tuple(names[bit] for bit in sliced_bits(self.best)))

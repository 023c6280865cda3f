"""The number of configurations of a model of binary variables, over the states of a frontier that are possible.

Numbers are exact: integers of as many words of 64 bits as they need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.cpu.frontier_kernel import count_entry
from tnplan.jobs.progress import Listener, Progress
from tnplan.questions.combinatorial.frontier import entries
from tnplan.questions.combinatorial.models import Model
from tnplan.questions.combinatorial.passes import MOST_CONTEXT

Array = NDArray[Any]
MOST_BITS = 62
"""Of a state, a number of 64 bits with sign."""
WORD_BYTES = 8
STATE_BYTES, STATE_S = 32, 2e-8
"""Bytes of a state at least, and its seconds in one table, measured on one core."""


class States:
    """The possible states of the variables that are alive, and the numbers of configurations behind them."""

    def __init__(self, memory: float) -> None:
        self.keys, self.counts, self.n = np.zeros(1, np.int64), np.ones((1, 1), np.uint64), 1
        self._memory = memory
        self._spare = np.empty(0, np.int64), np.empty((0, 1), np.uint64)
        self._top = 1

    def step(self, bit: int, leaves: bool, enters: bool, context: list[int], allowed: Array) -> bool:
        """A variable leaves, of a bit, one enters as the lowest, or both. False: the memory does not suffice."""
        words = self.counts.shape[1]
        if self._top >> (8 * WORD_BYTES - 2):  # a sum of two might not fit
            self.counts = np.pad(self.counts, ((0, 0), (0, 1)))
            words += 1
        if len(self._spare[0]) < 2 * self.n or self._spare[1].shape[1] != words:
            if 2 * 3 * self.n * WORD_BYTES * (1 + words) > self._memory:
                return False
            self._spare = np.empty(3 * self.n, np.int64), np.empty((3 * self.n, words), np.uint64)
        keys, counts = self._spare
        n, top = count_entry(
            self.keys, self.counts, self.n, bit, leaves, enters, np.array(context, np.int64),
            allowed.astype(np.uint8).reshape(-1), keys, counts,
        )  # fmt: skip
        self._spare, self.keys, self.counts = (self.keys, self.counts), keys, counts
        self.n, self._top = n, 2 * top
        return True


def count_states(
    model: Model, order: Sequence[int], memory: float, progress: Listener | None
) -> int | None:  # fmt: skip
    """The number of configurations; None where states have too many bits or do not fit the memory."""
    states, alive = States(memory), list[int]()
    for number, entry in enumerate(entries(model, order)):
        v = entry.variable
        if progress is not None and number % 64 == 0:
            text = f"variable {number} of {len(order)}"
            progress(Progress(number, len(order), text))
        leaving = [variable for variable in alive if variable in set(entry.leaving)]
        u = leaving.pop(0) if leaving else None
        scopes = [model.factors[each].variables for each in entry.factors]
        context = [each for each in dict.fromkeys(sum(scopes, ())) if each not in (u, v)]
        if len(context) > MOST_CONTEXT or len(alive) >= MOST_BITS:
            return None
        axes = [*reversed(context), u, v]
        allowed = np.ones([2] * len(axes), bool)
        for each in entry.factors:
            factor = model.factors[each]
            allowed &= spread(factor.allowed, factor.variables, axes)
        place = {variable: len(alive) - 1 - k for k, variable in enumerate(alive)}
        bits = [place[each] for each in context]
        if not states.step(place.get(u, 0), u is not None, True, bits, allowed):
            return None
        alive = [variable for variable in alive if variable != u] + [v]
        for variable in [*leaving, *[v] * (v in entry.leaving)]:
            bit = len(alive) - 1 - alive.index(variable)
            if not states.step(bit, True, False, [], np.ones(4)):
                return None
            alive.remove(variable)
    return sum(int(word) << (8 * WORD_BYTES * k) for k, word in enumerate(states.counts[0])) if states.n else 0


def spread(array: Array, variables: tuple[int, ...], axes: list[int | None]) -> Array:
    """A view with the axes of a list, of extent 1 where the array has no such variable."""
    order = sorted(range(len(variables)), key=lambda axis: axes.index(variables[axis]))
    return array.transpose(order).reshape([2 if each in variables else 1 for each in axes])

"""The number of configurations of a model of binary variables, over the possible states of a frontier.

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
from tnplan.questions.combinatorial.passes import MOST_CONTEXT, joint_powers

Array = NDArray[Any]
MOST_BITS = 62
"""Of a state, a number of 64 bits with sign."""
WORD_BYTES = 8
REPORTED = 64
"""Variables from one report of progress to the next."""
STATE_BYTES, STATE_S = 32, 2e-8
"""Bytes of a state at least, and its seconds in one table, measured on one core."""


class States:
    """The possible states of the variables that are alive, and the numbers of configurations behind them.

    With coefficients of so many words a number is a polynomial: its value at 2^64 to that power.
    """

    def __init__(self, memory: float, coefficient: int | None) -> None:
        self.keys, self.n = np.zeros(1, np.int64), 1
        self.counts = np.zeros((1, coefficient or 1), np.uint64)
        self.counts[0, 0] = 1
        self._memory, self._coefficient = memory, coefficient
        self._spare = np.empty(0, np.int64), np.empty((0, 1), np.uint64)
        self._top = 1

    def step(self, bit: int, leaves: bool, enters: bool, context: list[int], powers: Array) -> bool:
        """A variable leaves, of a bit, one enters as the lowest, or both. False: the memory is too small."""
        if self._coefficient is None and self._top >> (8 * WORD_BYTES - 2):  # a sum of two might not fit
            self.counts = np.pad(self.counts, ((0, 0), (0, 1)))
        words = self.counts.shape[1] + (self._coefficient or 0) * int(powers.max(initial=0))
        if len(self._spare[0]) < 2 * self.n or self._spare[1].shape[1] != words:
            if 2 * 3 * self.n * WORD_BYTES * (1 + words) > self._memory:
                return False
            self._spare = np.empty(3 * self.n, np.int64), np.empty((3 * self.n, words), np.uint64)
        keys, counts = self._spare
        shifts = np.where(powers > 0, powers * (self._coefficient or 0), powers).reshape(-1)
        old, change, bits = (self.keys, self.counts), (bit, leaves, enters), np.array(context, np.int64)
        n, top = count_entry(old, self.n, change, bits, shifts, (keys, counts))
        self._spare, self.keys, self.counts = (self.keys, self.counts), keys, counts
        self.n, self._top = n, 2 * top
        return True

    def total(self) -> int:
        """The number, where no variable is alive."""
        return int.from_bytes(self.counts[0].astype("<u8").tobytes(), "little") if self.n else 0


def count_states(
    model: Model, order: Sequence[int], powers: Sequence[Array], memory: float, progress: Listener | None,
    coefficient: int | None = None,
) -> int | None:  # fmt: skip
    """The number of configurations; None where states have too many bits or do not fit the memory.

    With coefficients of so many words it is the sum over configurations of 2^64 to the power of these times
    the sum of the factors' powers, which are -1 where something is not allowed.
    """
    states, alive = States(memory, coefficient), list[int]()
    for number, entry in enumerate(entries(model, order)):
        v = entry.variable
        if progress is not None and number % REPORTED == 0:
            progress(Progress(number, len(order), f"variable {number} of {len(order)}"))
        gone = set(entry.leaving)
        leaving = [variable for variable in alive if variable in gone]
        u = leaving.pop(0) if leaving else None
        scopes = [model.factors[each].variables for each in entry.factors]
        context = [each for each in dict.fromkeys(sum(scopes, ())) if each not in (u, v)]
        if len(context) > MOST_CONTEXT or len(alive) >= MOST_BITS:
            return None
        axes = [*reversed(context), u, v]
        total = joint_powers(model, powers, entry, axes)
        bits = [len(alive) - 1 - alive.index(each) for each in context]
        bit = 0 if u is None else len(alive) - 1 - alive.index(u)
        if not states.step(bit, u is not None, True, bits, total):
            return None
        alive = [variable for variable in alive if variable != u] + [v]
        for variable in [*leaving, *[v] * (v in gone)]:
            bit = len(alive) - 1 - alive.index(variable)
            if not states.step(bit, True, False, [], np.zeros(4, np.int64)):
                return None
            alive.remove(variable)
    return states.total()

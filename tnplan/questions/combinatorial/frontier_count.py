"""The number of configurations of a model of binary variables, over the possible states of a frontier.

Numbers are exact: integers of as many words of 64 bits as they need, or residues modulo primes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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


class Numbers(NamedTuple):
    """What the numbers of states are: integers, if nothing else is said.

    With coefficients of so many words a number is a polynomial: its value at 2^64 to that power. With primes,
    below 2^23, it has a residue modulo each; `factors`, [variable | value | prime], multiply it.
    """

    coefficient: int = 0
    primes: Array = np.zeros(0, np.uint64)
    factors: Array = np.zeros((0, 2, 0), np.uint64)


WHOLE = Numbers()


class States:
    """The possible states of the variables that are alive, and the numbers of configurations behind them."""

    def __init__(self, memory: float, numbers: Numbers) -> None:
        self.keys, self.n = np.zeros(1, np.int64), 1
        self._memory, self._coefficient, self._primes = memory, numbers.coefficient, numbers.primes
        self.counts = np.zeros((1, max(1, self._coefficient, self._primes.size)), np.uint64)
        self.counts[0, : max(1, self._primes.size)] = 1
        self._inverses = (1 - 2.0**-50) / self._primes
        self._spare = np.empty(0, np.int64), np.empty((0, 1), np.uint64)
        self._top = 1

    def step(self, change: tuple[int, bool, bool], context: list[int], powers: Array, factors: Array) -> bool:
        """A variable leaves, one enters, or both, as the kernel has it. False: the memory is too small."""
        is_whole = self._coefficient == self._primes.size == 0
        if is_whole and self._top >> (8 * WORD_BYTES - 2):  # a sum of two might not fit
            self.counts = np.pad(self.counts, ((0, 0), (0, 1)))
        words = self.counts.shape[1] + self._coefficient * int(powers.max(initial=0))
        if len(self._spare[0]) < 2 * self.n or self._spare[1].shape[1] != words:
            if 2 * 3 * self.n * WORD_BYTES * (1 + words) > self._memory:
                return False
            self._spare = np.empty(3 * self.n, np.int64), np.empty((3 * self.n, words), np.uint64)
        keys, counts = self._spare
        shifts = np.where(powers > 0, powers * self._coefficient, powers).reshape(-1)
        old, bits = (self.keys, self.counts), np.array(context, np.int64)
        weights = shifts, factors, self._primes, self._inverses
        n, top = count_entry(old, self.n, change, bits, weights, (keys, counts))
        self._spare, self.keys, self.counts = (self.keys, self.counts), keys, counts
        self.n, self._top = n, 2 * top
        return True

    def total(self) -> Array:
        """The words or residues of the number, where no variable is alive."""
        return self.counts[0] if self.n else np.zeros(self.counts.shape[1], np.uint64)


def count_states(
    model: Model, order: Sequence[int], powers: Sequence[Array], memory: float, progress: Listener | None,
    numbers: Numbers = WHOLE,
) -> Array | None:  # fmt: skip
    """The number of configurations; None where states have too many bits or do not fit the memory.

    Powers are -1 where something is not allowed. With coefficients of so many words the number is the sum
    over configurations of 2^64 to the power of these times the sum of the factors' powers; with factors of
    values, that of their products. Gives its words, the lowest first, or its residues.
    """
    states, alive = States(memory, numbers), list[int]()
    units = np.ones((2, numbers.primes.size), np.uint64)
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
        factors = numbers.factors[v] if numbers.primes.size else units
        if not states.step((bit, u is not None, True), bits, total, factors):
            return None
        alive = [variable for variable in alive if variable != u] + [v]
        for variable in [*leaving, *[v] * (v in gone)]:
            bit = len(alive) - 1 - alive.index(variable)
            if not states.step((bit, True, False), [], np.zeros(4, np.int64), units):
                return None
            alive.remove(variable)
    return states.total()

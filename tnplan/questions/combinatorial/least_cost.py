"""The least cost of a model of binary variables over tables of a frontier, and its optima going back.

Costs are integers, of a byte where their differences allow. Going back needs the tables before each pass:
some are kept, and the others are computed again from these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.errors import InputError
from tnplan.executor.device.cpu import frontier_kernel as kernels
from tnplan.executor.device.cpu.parallel_rows import over_spans
from tnplan.jobs.progress import Listener, Progress
from tnplan.questions.combinatorial.models import Model
from tnplan.questions.combinatorial.passes import (
    LEAST_BITS,
    LOG_TILE_BYTES,
    MOST_CONTEXT,
    Costs,
    Move,
    Pass,
    Step,
    Tables,
    entries,
    gathered,
    infinity_of,
    low_bits,
    passes_of,
    scattered,
    steps_of,
    tables_of,
)

Array = NDArray[Any]
LOG_VECTOR_BYTES, WORD_BITS = 6, 64
COST_S = 1.5e-10
"""Seconds of a cost of one table, there and back, measured on one core."""
SLACKS = {np.uint8: 16, np.uint16: 256, np.uint64: 0}
"""Dtypes of costs, with what least costs may rise by in a pass at least, lest there are many passes."""
SCRATCH_TILES = 80
"""What a thread has besides, in tiles: those behind each step, and counts."""
MOST_STATES = 1 << 24
"""Optimal states of a table that are followed."""


def least_cost(
    model: Model, order: Sequence[int], memory: float, threads: int, progress: Listener | None
) -> LeastCost | None:  # fmt: skip
    """The tables of a model of binary variables; None where they are too large, for the memory too."""
    for entry in entries(model, order):
        if len({each for number in entry.factors for each in model.factors[number].variables}) > MOST_CONTEXT:
            return None
    tables = LeastCost(model, order, memory, threads, progress)
    return tables if tables.least_bytes <= memory else None


class LeastCost:
    """The tables of a model, pass by pass, and the way back through them.

    - `model`: Of binary variables.
    - `order`: In which variables enter.
    - `memory`: The most bytes of the tables that are kept together.
    - `threads`: Threads that share the tiles of a pass.
    - `progress`: Is called before each pass.
    """

    def __init__(
        self, model: Model, order: Sequence[int], memory: float, threads: int, progress: Listener | None
    ) -> None:  # fmt: skip
        self._progress = progress
        costs = Costs.of(model)
        self._costs, self._threads, self._n_variables = costs, threads, len(order)
        steps = list(steps_of(model, costs, order))
        rise = max(each.rise for each in steps if isinstance(each, Step))
        self._dtype, slack = _dtype(model, costs, order, rise)
        item_bytes = np.dtype(self._dtype).itemsize
        self._lane_bits = LOG_VECTOR_BYTES - item_bytes.bit_length() + 1
        self._passes = list(passes_of(steps, item_bytes, slack))
        # Moves are undone without tables.
        self._bytes = [item_bytes << each.width if each.move is None else 0 for each in self._passes]
        self._width = LEAST_BITS
        largest = self._largest = item_bytes << max(each.width for each in self._passes)
        scratch = threads * SCRATCH_TILES * min(largest, 1 << LOG_TILE_BYTES)
        self.least_bytes = 3 * largest + scratch
        self._store_bytes = int(min(sum(self._bytes) + largest, memory - largest - scratch))
        self._stored = 0
        # What is taken off all costs before a pass, known when it was done once.
        self._less: list[int | None] = [None] * len(self._passes)
        self._least = 0
        self._states, self._words = np.zeros(1, np.int64), np.ones((1, 1), np.uint64)
        self._values, self._state, self._flip = [0] * len(order), 0, 0

    def optimum(self, counts: bool) -> tuple[int, int | None, list[int]] | None:
        """The largest weight, the number of configurations that have it or None, and one of them."""
        self._counts = counts
        self._buffer = np.zeros(1 << max(each.width for each in self._passes), self._dtype)
        self._store = np.empty(self._store_bytes, np.uint8)
        if not self._back(0, len(self._passes)):
            return None
        cost = sum(less or 0 for less in self._less) + self._final
        number = sum(int(word) << (WORD_BITS * k) for words in self._words for k, word in enumerate(words))
        return self._costs.offset - self._costs.unit * cost, number if counts else None, self._values

    @property
    def _table(self) -> Array:
        return self._buffer[: 1 << self._width]

    def _back(self, first: int, last: int) -> bool:
        """Do passes from the table before the first, and go back through them; False: nothing is allowed.

        Where not all tables before passes fit, the first one is kept, the last passes go first, and then
        those before them are done again. Invariant: two of the largest tables fit besides.
        """
        sizes, free = self._bytes[first:last], self._store.size - self._stored
        if sum(sizes) <= free:
            for number in range(first, last):
                self._keep(self._bytes[number])
                self._forward(number)
            if last == len(self._passes) and not self._begin():
                return False
            for number in range(last - 1, first - 1, -1):
                self._trace(number, self._restored(self._bytes[number]))
            return True
        suffix, own = len(sizes) - 1, self._table.nbytes
        while suffix > 1 and own + sum(sizes[suffix - 1 :]) <= free:
            suffix -= 1
        # Halves, where two tables more fit then too: else passes are done again for each few last ones.
        if 2 * sum(sizes[suffix:]) < sum(sizes) and free - own >= 2 * self._largest:
            suffix = max(1, int(np.searchsorted(np.cumsum(sizes), sum(sizes) / 2)))
        self._keep(own)
        for number in range(first, first + suffix):
            self._forward(number)
        if not self._back(first + suffix, last):
            return False
        self._width = self._passes[first].width
        self._table[:] = self._restored(own)
        return self._back(first, first + suffix)

    def _keep(self, size_bytes: int) -> None:
        """Keep the table on top of those that are kept, or nothing."""
        self._store[self._stored :][:size_bytes] = self._table.view(np.uint8)[:size_bytes]
        self._stored += size_bytes

    def _restored(self, size_bytes: int) -> Array:
        """The table that was kept last."""
        self._stored -= size_bytes
        return self._store[self._stored :][:size_bytes].view(self._dtype)

    def _begin(self) -> bool:
        """Whether something is allowed: all variables have left, and all costs of the table are the least."""
        self._final = int(self._table[0])
        return self._final < infinity_of(self._dtype)

    def _forward(self, number: int) -> None:
        """Do a pass."""
        given = self._passes[number]
        width, move = given.width, given.move
        if move is not None:
            self._move(move)
            return
        if given.is_apart:
            arrays = tables_of(given, self._dtype, self._lane_bits, width).arrays
            context = np.ascontiguousarray(arrays.context[0, : arrays.steps[0, 4]])

            def fold(first: int, last: int) -> None:
                kernels.fold_table(self._table, context, arrays.weights, first, last, self._lane_bits)

            self._spans(self._table.size >> (self._lane_bits + 1), fold)
            return
        if self._less[number] is None:
            self._less[number] = self._least
            if self._progress is not None:
                n_passes, share = len(self._passes), sum(self._bytes[:number]) / sum(self._bytes)
                text = f"pass {number + 1} of {n_passes}"
                self._progress(Progress(number, n_passes, text, share=share))
        low = low_bits(self._table.itemsize)
        tables = tables_of(given, self._dtype, self._lane_bits, low, self._less[number] or 0)
        least: list[int] = []

        def relax(first: int, last: int) -> None:
            costs = np.empty(1 << len(tables.inner), self._dtype)
            lowest = np.full(1 << self._lane_bits, infinity_of(self._dtype), self._dtype)
            kernels.relax_tiles(self._table, costs, tables.arrays, first, last, lowest)
            least.append(int(lowest.min()))

        self._spans(tables.arrays.tiles.size, relax)
        # Where nothing is allowed, nothing is taken off.
        self._least = min(least) % infinity_of(self._dtype)

    def _spans(self, count: int, work: Any) -> None:
        over_spans(count, max(1, -(-count // (4 * self._threads))), self._threads, work)

    def _move(self, move: Move) -> None:
        top, empty = move
        if top == self._width:
            self._width += 1
            self._table[1 << top :] = self._table[: 1 << top]
            return
        if empty < top:
            halves = self._table.reshape(2, -1, 2, 1 << empty)
            halves[0, :, 1] = halves[1, :, 0]
        self._width = top

    def _trace(self, number: int, table: Array) -> None:
        """Go back through a pass, given the table before it."""
        given = self._passes[number]
        width, steps, move = given
        if move is not None:
            self._states = _moved_back(self._states, move, width)
            self._state = int(_moved_back(np.array([self._state]), move, width)[0])
        # A step makes counts twice as large at most.
        elif int(self._words[:, -1].max()).bit_length() + len(steps) >= WORD_BITS:
            self._words = np.pad(self._words, ((0, 0), (0, 1)))
        if steps:
            trace = self._trace_reference if given.is_apart else self._trace_tiles
            trace(number, table)
        if not self._counts:
            self._states, self._words = np.array([self._state]), self._words[:1, :1]
        if self._states.size > MOST_STATES:
            problem = f"does not hold {self._states.size:,} optimal states of {self._n_variables} variables"
            raise InputError("memory", problem, "leave out the number: count_optima=False", topic="memory")

    def _trace_reference(self, number: int, table: Array) -> None:
        (step,) = self._passes[number].steps
        costs = np.where(step.costs < 0, infinity_of(self._dtype), step.costs)

        def sums(states: Array) -> list[Array]:
            """The costs with u = 0 and with u = 1, which is that of the reverse with 0."""
            bits = tuple(states >> bit & 1 for bit in step.context)
            ends = states, table.size - 1 - states
            return [table[ends[u]].astype(np.int64) + costs[(*bits, u, 0)] for u in (0, 1)]

        low, high = sums(self._states)
        is_low, is_high = low <= high, high <= low
        traced = np.concatenate([self._states[is_low], table.size - 1 - self._states[is_high]])
        words = np.concatenate([self._words[is_low], self._words[is_high]])
        self._states, self._words = _merged(traced, words)
        low, high = sums(np.array([self._state]))
        if low[0] > high[0]:
            self._state, self._flip = table.size - 1 - self._state, 1 - self._flip
        if step.u is not None:
            self._values[step.u] = self._flip

    def _trace_tiles(self, number: int, table: Array) -> None:
        given = self._passes[number]
        less, lane_bits = self._less[number] or 0, self._lane_bits
        tables = tables_of(given, self._dtype, lane_bits, lane_bits, less)
        size, n_words = 1 << len(tables.inner), self._words.shape[1]
        tiles = gathered(self._states, tables.outer)
        order = np.argsort(tiles, kind="stable")
        bounds = np.flatnonzero(np.diff(tiles[order], prepend=-1, append=-1))
        inside = gathered(self._states, tables.inner)
        followed = int(gathered(np.array([self._state]), tables.outer)[0])
        traced: list[tuple[int, Array, Array]] = []

        def trace(first: int, last: int) -> None:
            levels = np.empty((len(given.steps) + 1, size), self._dtype)
            states, counts = np.empty((2, size), np.int64), np.empty((2, size, n_words), np.uint64)
            slots = np.full(size, -1, np.int32)
            for group in range(first, last):
                members = order[bounds[group] : bounds[group + 1]]
                tile, n = int(tiles[members[0]]), len(members)
                states[0, :n], counts[0, :n] = inside[members], self._words[members]
                n = kernels.trace_tile(table, levels, tables.arrays, tile, (states, counts, slots), n)
                side = len(given.steps) % 2
                configurations = scattered(states[side, :n], tables.inner) | int(tables.arrays.tiles[tile])
                traced.append((tile, configurations, counts[side, :n].copy()))
                if tile == followed:
                    self._follow(given, tables, levels, tile)

        self._spans(len(bounds) - 1, trace)
        traced.sort(key=lambda each: each[0])
        self._states = np.concatenate([each[1] for each in traced])
        self._words = np.concatenate([each[2] for each in traced])

    def _follow(self, given: Pass, tables: Tables, levels: Array, tile: int) -> None:
        """Go back from the one state whose configuration is wanted."""
        state = int(gathered(np.array([self._state]), tables.inner)[0])
        for number in range(len(given.steps) - 1, -1, -1):
            step = given.steps[number]
            bit = tables.inner.index(step.bit)
            whole = int(scattered(np.array([state]), tables.inner)[0]) | int(tables.arrays.tiles[tile])
            bits = tuple(whole >> each & 1 for each in step.context)
            v = state >> bit & 1
            for u in (0, 1):
                before = state & ~(1 << bit) | u << bit
                cost = int(step.costs[(*bits, u, v)])
                if cost >= 0 and int(levels[number, before]) + cost == int(levels[number + 1, state]):
                    break
            state = before
            if step.u is not None:
                self._values[step.u] = u ^ self._flip
        self._state = int(scattered(np.array([state]), tables.inner)[0]) | int(tables.arrays.tiles[tile])


def _moved_back(states: Array, move: Move, width: int) -> Array:
    """The states before a move, of a table that had so many bits before it."""
    top, empty = move
    if empty >= top:
        return states & ((1 << width) - 1)
    return (states & ~(1 << empty)) | (states >> empty & 1) << top


def _merged(states: Array, words: Array) -> tuple[Array, Array]:
    """States without repetition, with their counts added; a count occurs twice at most."""
    order = np.argsort(states, kind="stable")
    states, words = states[order], words[order]
    is_new = np.diff(states, prepend=-1) != 0
    again = np.flatnonzero(~is_new)
    carry = np.zeros(again.size, np.uint64)
    for k in range(words.shape[1]):
        total = words[again - 1, k] + words[again, k]
        more = total + carry
        carry = ((total < words[again, k]) | (more < total)).astype(np.uint64)
        words[again - 1, k] = more
    return states[is_new], words[is_new]


def _dtype(model: Model, costs: Costs, order: Sequence[int], rise: int) -> tuple[Any, int]:
    """The smallest dtype that has all costs that matter, and what least costs may rise by in a pass.

    Where everything is allowed, a state behind the least one by more than the gap is on no way to an optimum:
    what the factors to come on variables that are alive cost at most. The best completion of the least one
    costs less than its own. So costs beyond may be cut. What matters is below the gap and the rise of two
    passes, as the least cost of one is taken off in the next.
    """
    most = [int(each.max(initial=0)) for each in costs.factors]
    near: list[list[int]] = [[] for _ in order]
    for number, factor in enumerate(model.factors):
        for variable in factor.variables:
            near[variable].append(number)
    begun: set[int] = set()
    gap = open_costs = 0
    for entry in entries(model, order):
        more = set(near[entry.variable]) - begun
        begun |= more
        open_costs += sum(most[number] for number in more)
        gap = max(gap, open_costs)
        open_costs -= sum(most[number] for number in entry.factors)
    for dtype, least_slack in SLACKS.items():
        infinity = infinity_of(dtype)
        slack = (infinity - 1 - gap) // 2
        if sum(most) < infinity:
            return dtype, infinity
        if costs.is_soft and slack >= max(rise, least_slack):
            return dtype, slack
    raise InputError("weights", "have costs that sum up beyond 2^62", "round them to fewer digits")

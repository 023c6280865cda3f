"""Steps on a table of a frontier's binary variables, and passes of steps that fit the cache together.
First the order in which the variables of a model enter, so that few are alive at a time.

The variables that are alive number the costs of a table: each has a bit. A variable enters in the bit of one
that leaves. A bit without a variable changes no cost.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, product
from math import gcd, log2
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.cpu.frontier_kernel import FrontierPass
from tnplan.questions.combinatorial.models import Model

Array = NDArray[Any]
LEAST_BITS = 7
"""Of a table: two vectors of bytes."""
LOOK_AHEAD = 12
"""Entries for which a bit without a variable is kept for one of them."""
MOST_STEPS, MOST_CONTEXT = 40, 10
REFERENCE = -1
"""The bit of a variable that tables leave out: it is 0, where costs stay as all variables are flipped."""
LOG_ROW_BYTES, LOG_TILE_BYTES = 9, 20
"""Of what is contiguous in a tile, and of a tile, which stays in the second cache."""


@dataclass(frozen=True)
class Costs:
    """Costs of a model's factors, integers, -1 where something is not allowed.

    The weight of a configuration is `offset` less `unit` times its cost. `is_symmetric`: costs stay as all
    variables, which are binary, are flipped.
    """

    factors: list[Array]
    unit: int
    offset: int

    @classmethod
    def of(cls, model: Model) -> Costs:
        """Those of a model."""
        tops = [int(factor.weights.max(where=factor.allowed, initial=-(2**62))) for factor in model.factors]
        losses = [
            np.where(factor.allowed, top - factor.weights, -1)
            for factor, top in zip(model.factors, tops, strict=True)
        ]
        unit = reduce(gcd, (int(loss) for each in losses for loss in np.unique(each) if loss > 0), 0) or 1
        return cls([np.where(each > 0, each // unit, each) for each in losses], unit, sum(tops))

    @property
    def is_symmetric(self) -> bool:
        return all((each == np.flip(each)).all() for each in self.factors)

    @property
    def is_soft(self) -> bool:
        """Whether everything is allowed."""
        return all((each >= 0).all() for each in self.factors)


class Step(NamedTuple):
    """Variable u leaves and v enters in one bit; None stands for none.

    `costs` has an axis a bit of the context, one for u and one for v.
    """

    bit: int
    u: int | None
    v: int | None
    context: tuple[int, ...]
    costs: Array

    @property
    def rise(self) -> int:
        """What the least cost of a table rises by at most, if everything is allowed: v is chosen best."""
        return int(self.costs.min(axis=-1).max())


class Move(NamedTuple):
    """The highest bit, `top`, goes into one without a variable; if it has none itself, it is dropped.

    Where it is the number of bits, one without a variable is added above them.
    """

    top: int
    empty: int


class Pass(NamedTuple):
    """Steps of one pass over a table of so many bits: on its bits, one on the reference, or a move."""

    width: int
    steps: tuple[Step, ...]
    move: Move | None = None

    @property
    def is_apart(self) -> bool:
        """Whether it is the step of the reference."""
        return any(step.bit == REFERENCE for step in self.steps)


def steps_of(model: Model, costs: Costs, order: Sequence[int]) -> Iterator[Step | Move]:
    """What is done to a table of 2^LEAST_BITS zeros for the variables of an order."""
    listed = list(entries(model, order))
    is_symmetric = costs.is_symmetric
    # Bits that are needed when a variable enters; a symmetric table leaves one out.
    needs, alive = [], -is_symmetric
    for entry in listed:
        needs.append(alive + (not any(each != entry.variable for each in entry.leaving)))
        alive += 1 - len(entry.leaving)
    empty = [REFERENCE] * is_symmetric + list(range(LEAST_BITS))
    place: dict[int, int] = {}
    width = LEAST_BITS
    for time, entry in enumerate(listed):
        leaving = [variable for variable in entry.leaving if variable != entry.variable]
        u = leaving.pop() if leaving else None
        if u is None and not empty:
            yield Move(width, width)
            empty.append(width)
            width += 1
        bit = empty.pop(0) if u is None else place.pop(u)
        yield _entering(model, costs, entry, u, bit, place)
        place[entry.variable] = bit
        leaving += [entry.variable] * (entry.variable in entry.leaving)
        for variable in leaving:
            yield Step(place[variable], variable, None, (), np.zeros((2, 2), np.int64))
            insort(empty, place.pop(variable))
        needed = max(needs[time + 1 : time + 1 + LOOK_AHEAD], default=0)
        while width > max(needed, LEAST_BITS) and empty[-1:] > [REFERENCE]:
            width -= 1
            move = Move(width, empty.pop())
            place = {variable: move.empty if own == width else own for variable, own in place.items()}
            yield move


def _entering(
    model: Model, costs: Costs, entry: Entry, u: int | None, bit: int, place: dict[int, int]
) -> Step:  # fmt: skip
    """The step of a variable that enters, with the costs of all factors that are complete then."""
    v = entry.variable
    others = {each: None for number in entry.factors for each in model.factors[number].variables}
    context = [each for each in others if each not in (u, v)]
    axes = [*context, u, v]
    total = joint_powers(model, costs.factors, entry, axes)
    if u is None:  # of the two equal costs of a bit without a variable, one is taken
        total[..., 1, :] = -1
    at = tuple(0 if place.get(each) == REFERENCE else slice(None) for each in context)
    bits = tuple(place[each] for each in context if place[each] != REFERENCE)
    return Step(bit, u, v, bits, total[at])


def joint_powers(model: Model, powers: Sequence[Array], entry: Entry, axes: Sequence[int | None]) -> Array:
    """The sum of all complete factors' powers, or costs, with these variables as axes; -1 where one is -1."""
    total, allowed = np.zeros([2] * len(axes), np.int64), np.ones([2] * len(axes), bool)
    for number in entry.factors:
        variables = model.factors[number].variables
        order = sorted(range(len(variables)), key=lambda axis: axes.index(variables[axis]))
        shape = [2 if each in variables else 1 for each in axes]
        spread = powers[number].transpose(order).reshape(shape)
        total, allowed = total + spread, allowed & (spread >= 0)
    return np.where(allowed, total, -1)


def passes_of(steps: Iterable[Step | Move], item_bytes: int, slack: int) -> Iterator[Pass]:
    """Passes whose tiles fit the cache, and in each of which the least cost rises by a slack at most."""
    width, low = LEAST_BITS, low_bits(item_bytes)
    at_once = LOG_TILE_BYTES - LOG_ROW_BYTES
    taken: list[Step] = []
    high: set[int] = set()
    rise = 0
    for step in steps:
        bit = REFERENCE if isinstance(step, Move) else step.bit
        more = set() if bit < low else {bit}
        is_over = not isinstance(step, Move) and rise + step.rise > slack
        if taken and (bit == REFERENCE or is_over or len(high | more) > at_once or len(taken) == MOST_STEPS):
            yield Pass(width, tuple(taken))
            # Steps on the reference take no least cost: they count with the next pass.
            taken, high, rise, is_over = [], set(), 0, False
        if is_over:
            # The first one finds the least cost behind such steps, and the second one takes it off.
            yield from (Pass(width, ()), Pass(width, ()))
            rise = 0
        if isinstance(step, Move):
            yield Pass(width, (), step)
            width = max(width, step.top + 1) if step.top == width else step.top
            continue
        rise += step.rise
        if bit == REFERENCE:
            yield Pass(width, (step,))
            continue
        taken.append(step)
        high |= more
    if taken:
        yield Pass(width, tuple(taken))


class Tables(NamedTuple):
    """The arrays of a pass, the bits that number its tiles, and those within a tile."""

    arrays: FrontierPass
    outer: list[int]
    inner: list[int]


def low_bits(item_bytes: int) -> int:
    """The bits of what is contiguous in a tile."""
    return LOG_ROW_BYTES - item_bytes.bit_length() + 1


def tables_of(given: Pass, dtype: Any, lane_bits: int, low: int, less: int = 0) -> Tables:
    """Arrays for tiles with the lowest bits and those of the steps; for the reference, with all bits.

    `less` is taken off all costs before.
    """
    low = min(low, given.width)
    touched = sorted({step.bit for step in given.steps if step.bit >= low})
    is_apart = given.is_apart
    inner = list(range(given.width)) if is_apart else [*range(low), *touched]
    outer = [bit for bit in range(given.width) if bit not in inner]
    weights, steps = [], np.zeros((len(given.steps), 5), np.int64)
    context = np.zeros((len(given.steps), MOST_CONTEXT), np.int64)
    begin = 0
    for number, step in enumerate(given.steps):
        near = [bit for bit in step.context if bit in inner and bit >= lane_bits]
        far = [bit for bit in step.context if bit in outer]
        values = _lane_weights(step, [*near, *far], dtype, lane_bits)
        bit = inner.index(step.bit) if step.bit != REFERENCE else REFERENCE
        steps[number] = bit, begin, values.shape[1], len(near), len(near) + len(far)
        context[number, : len(near) + len(far)] = [
            *(inner.index(bit) - lane_bits for bit in near), *(outer.index(bit) for bit in far)
        ]  # fmt: skip
        weights.append(values.reshape(-1))
        begin += values.size
    rows = scattered(np.arange(1 << (len(inner) - low)), inner[low:])
    tiles = scattered(np.arange(1 << len(outer)), outer)
    joined = np.concatenate([np.empty(0, dtype), *weights])
    arrays = FrontierPass(tiles, rows, steps, context, joined, np.array([less], dtype), lane_bits)
    return Tables(arrays, outer, inner)


def _lane_weights(step: Step, choosing: Sequence[int], dtype: Any, lane_bits: int) -> Array:
    """The weights of a step, [choice | vector | lane]: those of u and v, or of a lane and its other one."""
    lanes = np.arange(1 << lane_bits)
    choices = np.arange(1 << len(choosing))[:, None]
    place: list[Any] = [
        choices >> choosing.index(bit) & 1 if bit in choosing else lanes >> bit & 1 for bit in step.context
    ]
    infinity = infinity_of(dtype)
    costs = np.where(step.costs < 0, infinity, np.minimum(step.costs, infinity)).astype(dtype)
    if step.bit >= lane_bits:
        pairs: list[tuple[Any, Any]] = list(product((0, 1), (0, 1)))
    elif step.bit == REFERENCE:
        pairs = [(0, 0), (1, 0)]
    else:
        own = lanes >> step.bit & 1
        pairs = [(own, own), (1 - own, own)]
    vectors = [np.broadcast_to(costs[(*place, *pair)], (len(choices), lanes.size)) for pair in pairs]
    return np.ascontiguousarray(np.stack(vectors, 1))


def infinity_of(dtype: Any) -> int:
    """The cost that stands for what is not allowed: sums of two are in range."""
    return int(np.iinfo(dtype).max) >> 1


def scattered(numbers: Array, bits: Sequence[int]) -> Array:
    """Numbers whose bit k stands at place bits[k]."""
    result = np.zeros_like(numbers)
    for k, bit in enumerate(bits):
        result |= (numbers >> k & 1) << bit
    return result


def gathered(numbers: Array, bits: Sequence[int]) -> Array:
    """Numbers whose bit k is that at place bits[k]."""
    result = np.zeros_like(numbers)
    for k, bit in enumerate(bits):
        result |= (numbers >> bit & 1) << k
    return result


MOST_COMPARED = 20_000
"""Variables up to which orders from several starts are compared."""


class Entry(NamedTuple):
    """A variable that enters, the factors that are complete with it, and the variables that leave then."""

    variable: int
    factors: list[int]
    leaving: list[int]


def entries(model: Model, order: Sequence[int]) -> Iterator[Entry]:
    """What happens as each variable of an order enters."""
    place = {variable: number for number, variable in enumerate(order)}
    complete: list[list[int]] = [[] for _ in order]
    last = [0] * len(order)
    for number, factor in enumerate(model.factors):
        time = max(place[variable] for variable in factor.variables)
        complete[time].append(number)
        for variable in factor.variables:
            last[variable] = max(last[variable], time)
    leaving: list[list[int]] = [[] for _ in order]
    for variable, time in enumerate(last):
        leaving[time].append(variable)
    for variable, factors, gone in zip(order, complete, leaving, strict=True):
        yield Entry(variable, factors, gone)


def best_order(model: Model, only_allowed: bool) -> tuple[list[int], float]:
    """An order whose tables are small together, and log2 of their elements together, or of those allowed.

    Orders are that of the variables' numbers, and greedy ones from some starts, each both ways.
    """
    near: list[dict[int, None]] = [{} for _ in model.extents]
    for factor in model.factors:
        for variable in factor.variables:
            near[variable].update(dict.fromkeys(factor.variables))
    for variable, neighbours in enumerate(near):
        neighbours.pop(variable, None)
    orders = [list(range(len(near)))]
    if len(near) <= MOST_COMPARED:
        start = min(range(len(near)), key=lambda variable: len(near[variable]))
        for _ in range(3):
            orders.append(_greedy(near, start))
            start = orders[-1][-1]
    orders += [order[::-1] for order in orders]
    gains = [log2(each.allowed.mean() or 1) if only_allowed else 0.0 for each in model.factors]
    return min(((order, _size(model, order, gains)) for order in orders), key=lambda pair: pair[1])


def _size(model: Model, order: Sequence[int], gains: Sequence[float]) -> float:
    """log2 of the elements of all tables together.

    Of those that are allowed an estimate: each factor allows its share of them, whose log2 is its gain, while
    all its variables are alive.
    """
    place = {variable: number for number, variable in enumerate(order)}
    last = [0] * len(order)
    changes = [log2(model.extents[variable]) for variable in order]
    for factor in model.factors:
        for variable in factor.variables:
            last[variable] = max(last[variable], max(map(place.__getitem__, factor.variables)))
    ends = [0.0] * (len(order) + 1)
    for variable, time in enumerate(last):
        ends[time + 1] -= log2(model.extents[variable])
    for factor, gain in zip(model.factors, gains, strict=True):
        changes[max(map(place.__getitem__, factor.variables))] += gain
        ends[min(map(last.__getitem__, factor.variables)) + 1] -= gain
    sizes = list(accumulate(change + end for change, end in zip(changes, ends, strict=False)))
    most = max(sizes)
    return most + log2(sum(2 ** (size - most) for size in sizes))


def _greedy(near: Sequence[dict[int, None]], start: int) -> list[int]:
    """Next comes a variable with which most leave; of several, one beside what has been there longest."""
    left = [len(neighbours) for neighbours in near]
    is_new = [True] * len(near)
    order: list[int] = []
    begun = 0
    alive: dict[int, None] = {}
    while len(order) < len(near):
        best, most = start, -1
        for variable in alive:
            for other in near[variable]:
                if is_new[other]:
                    gone = sum(left[each] == 1 and not is_new[each] for each in near[other])
                    if gone > most:
                        best, most = other, gone
        if not alive:  # another component
            while not is_new[best] and begun < len(near):
                best, begun = begun, begun + 1
        order.append(best)
        is_new[best], alive[best] = False, None
        for other in near[best]:
            left[other] -= 1
            if left[other] == 0 and not is_new[other]:
                alive.pop(other, None)
        if left[best] == 0:
            alive.pop(best)
    return order

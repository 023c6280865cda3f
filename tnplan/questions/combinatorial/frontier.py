"""An order of a model's variables in which few are alive at a time, and what happens as each enters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import log2
from typing import NamedTuple

from tnplan.questions.combinatorial.models import Model

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

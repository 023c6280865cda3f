"""Tensors in two parts of about the same size with few indices in both: multilevel, with moves. Compiled.

Pairs of tensors that share most are joined until few are left; these are divided by growing a part from a
tensor at random; then the pairs are taken apart again, and after each such level tensors are moved from part
to part where that leaves fewer indices cut (Fiduccia and Mattheyses, 1982). The indices in both parts are a
separator of the line graph.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tnplan.planner.common.numba_cache import cached_njit
from tnplan.planner.search.orders.heap_kernel import new_heap, put, remove

FEWEST = 40
"""Tensors that are divided at once."""
LEAST_SHRINKING = 0.93
TRIES = 6
PASSES = 4
PATIENCE = 120
"""Moves of a pass without a gain."""
LEAST_GAIN, TIE = 1e-7, 1e-6
LOCKED = 1e300
"""The key of a cell that was moved in a pass."""
LARGEST_NET = 400
"""Of an index on more tensors the moves are the same: it is cut in any case."""


class Cuts(NamedTuple):
    """How tensors are divided time and again."""

    fewest: int
    """Tensors that stay together."""
    imbalance: float
    depth: int
    """Divisions on the way to the smallest part, at most."""
    attempts: int
    """Divisions of each part, of which the one that cuts least is taken."""
    boundary: float
    """What an index that is cut already adds to the mass of its tensors: more divides the boundary, too."""


@cached_njit()
def _transposed(starts: Any, items: Any, n: int) -> Any:
    """The rows of each item."""
    other = np.zeros(n + 1, np.int64)
    for q in range(items.size):
        other[items[q] + 1] += 1
    for v in range(n):
        other[v + 1] += other[v]
    filled = other[:-1].copy()
    rows = np.empty(items.size, np.int64)
    for row in range(starts.size - 1):
        for q in range(starts[row], starts[row + 1]):
            rows[filled[items[q]]] = row
            filled[items[q]] += 1
    return other, rows


@cached_njit()
def _matched(cells: Any, nets: Any, mass: Any, weights: Any, heaviest: float) -> Any:
    """The new number of each cell: pairs that share the most have one."""
    (starts, items), (net_starts, pins) = cells, nets
    n = starts.size - 1
    names = np.full(n, -1, np.int64)
    rating, touched = np.zeros(n), np.empty(n, np.int64)
    count = 0
    for c in np.random.permutation(n):
        if names[c] >= 0:
            continue
        many = 0
        for q in range(starts[c], starts[c + 1]):
            net = items[q]
            degree = net_starts[net + 1] - net_starts[net]
            if degree < 2 or degree > LARGEST_NET:
                continue
            share = weights[net] / (degree - 1)
            for p in range(net_starts[net], net_starts[net + 1]):
                d = pins[p]
                if d != c and names[d] < 0 and mass[c] + mass[d] <= heaviest:
                    if rating[d] == 0.0:
                        touched[many] = d
                        many += 1
                    rating[d] += share
        best, most = -1, 0.0
        for i in range(many):
            d = touched[i]
            value = rating[d] / mass[d]
            if value > most or (value == most and np.random.random() < 0.5):
                best, most = d, value
            rating[d] = 0.0
        names[c] = count
        if best >= 0:
            names[best] = count
        count += 1
    return names, count


@cached_njit()
def _coarse(starts: Any, items: Any, names: Any, count: int, n_nets: int) -> Any:
    """The cells of the new numbers, each with the nets of all its old ones once."""
    members, rows = _transposed(np.arange(names.size + 1), names, count)
    new_starts = np.zeros(count + 1, np.int64)
    new_items = np.empty(items.size, np.int64)
    mark = np.full(n_nets, -1, np.int64)
    used = 0
    for c in range(count):
        for m in range(members[c], members[c + 1]):
            old = rows[m]
            for q in range(starts[old], starts[old + 1]):
                if mark[items[q]] != c:
                    mark[items[q]] = c
                    new_items[used] = items[q]
                    used += 1
        new_starts[c + 1] = used
    return new_starts, new_items[:used].copy()


@cached_njit()
def _gain(cells: Any, inside: Any, weights: Any, side: Any, c: int) -> float:
    """How much less is cut when a cell is moved."""
    starts, items = cells
    here = side[c]
    gain = 0.0
    for q in range(starts[c], starts[c + 1]):
        net = items[q]
        if inside[here, net] == 1:
            gain += weights[net] if inside[1 - here, net] > 0 else 0.0
        elif inside[1 - here, net] == 0:
            gain -= weights[net]
    return gain


@cached_njit()
def _flip(cells: Any, mass: Any, inside: Any, weight: Any, side: Any, c: int) -> None:
    """Move a cell to the other part."""
    starts, items = cells
    here = side[c]
    side[c] = 1 - here
    weight[here] -= mass[c]
    weight[1 - here] += mass[c]
    for q in range(starts[c], starts[c + 1]):
        inside[here, items[q]] -= 1
        inside[1 - here, items[q]] += 1


@cached_njit()
def _queued(cells: Any, inside: Any, weights: Any, side: Any, all_of_them: bool) -> Any:
    """A heap of the cells on the border, by what moving them gains."""
    starts, items = cells
    heap, place, key = new_heap(side.size)
    for c in range(side.size):
        border = all_of_them
        for q in range(starts[c], starts[c + 1]):
            border = border or inside[1 - side[c], items[q]] > 0
        if border:
            value = -_gain(cells, inside, weights, side, c) + TIE * np.random.random()
            put(heap, place, key, c, value)
    return heap, place, key


@cached_njit()
def _update(cells: Any, nets: Any, inside: Any, weights: Any, side: Any, queue: Any, c: int) -> None:
    """The gains of the neighbours of a cell that was moved; a cell in no heap and not moved comes in."""
    (starts, items), (net_starts, pins) = cells, nets
    heap, place, key = queue
    here = 1 - side[c]
    for q in range(starts[c], starts[c + 1]):
        net = items[q]
        if net_starts[net + 1] - net_starts[net] > LARGEST_NET:
            continue
        # Gains change only where a part has one pin or none, or had.
        if inside[here, net] > 1 and inside[1 - here, net] > 2:
            continue
        for p in range(net_starts[net], net_starts[net + 1]):
            d = pins[p]
            if key[d] < LOCKED:
                value = -_gain(cells, inside, weights, side, d) + TIE * np.random.random()
                put(heap, place, key, d, value)


@cached_njit()
def _pass(
    cells: Any, nets: Any, mass: Any, weights: Any, part: Any, most: float, cut: float
) -> float:  # fmt: skip
    """Moves, each of the best cell, of which those up to the least cut are kept; the cut then."""
    side, inside, weight = part
    queue = _queued(cells, inside, weights, side, max(weight[0], weight[1]) > most)
    heap, place, key = queue
    moved = np.empty(side.size, np.int64)
    many, best, best_at, now = 0, cut, 0, cut
    best_over = max(weight[0], weight[1]) - most
    while heap[-1] > 0 and many - best_at < PATIENCE:
        c = heap[0]
        remove(heap, place, key, c)
        key[c] = LOCKED
        here = side[c]
        if weight[1 - here] + mass[c] > most and weight[1 - here] + mass[c] >= weight[here]:
            continue
        now -= _gain(cells, inside, weights, side, c)
        _flip(cells, mass, inside, weight, side, c)
        moved[many] = c
        many += 1
        _update(cells, nets, inside, weights, side, queue, c)
        over = max(weight[0], weight[1]) - most
        if now < best - LEAST_GAIN if over <= 0.0 and best_over <= 0.0 else over < best_over:
            best, best_over, best_at = now, over, many
    for i in range(many - 1, best_at - 1, -1):
        _flip(cells, mass, inside, weight, side, moved[i])
    return best


@cached_njit()
def _improve(cells: Any, nets: Any, mass: Any, weights: Any, side: Any, most: float) -> float:
    """Passes of moves; `side` becomes that of the least cut, which is returned. No part is above `most`."""
    starts, items = cells
    inside = np.zeros((2, weights.size), np.int64)
    weight = np.zeros(2)
    for c in range(side.size):
        weight[side[c]] += mass[c]
        for q in range(starts[c], starts[c + 1]):
            inside[side[c], items[q]] += 1
    cut = 0.0
    for net in range(weights.size):
        if inside[0, net] > 0 and inside[1, net] > 0:
            cut += weights[net]
    for _ in range(PASSES):
        before, over = cut, max(weight[0], weight[1]) - most
        cut = _pass(cells, nets, mass, weights, (side, inside, weight), most, before)
        if cut >= before - LEAST_GAIN and max(weight[0], weight[1]) - most >= over:
            break
    return cut


@cached_njit()
def _grown(cells: Any, nets: Any, mass: Any, wanted: float) -> Any:
    """Parts of which one grows from a cell at random over shared nets until it has the mass wanted."""
    (starts, items), (net_starts, pins) = cells, nets
    n = starts.size - 1
    side = np.zeros(n, np.int8)
    queue, seen = np.empty(n, np.int64), np.zeros(n, np.bool_)
    head, tail, weight = 0, 0, 0.0
    order = np.random.permutation(n)
    nth = 0
    while weight < wanted:
        if head == tail:
            while seen[order[nth]]:
                nth += 1
            queue[tail] = order[nth]
            seen[order[nth]] = True
            tail += 1
        at = head + int(np.random.random() * min(tail - head, 4))
        queue[head], queue[at] = queue[at], queue[head]
        c = queue[head]
        head += 1
        side[c] = 1
        weight += mass[c]
        for q in range(starts[c], starts[c + 1]):
            for p in range(net_starts[items[q]], net_starts[items[q] + 1]):
                if not seen[pins[p]]:
                    seen[pins[p]] = True
                    queue[tail] = pins[p]
                    tail += 1
    return side


@cached_njit()
def bisect(starts: Any, items: Any, mass: Any, weights: Any, imbalance: float, seed: int) -> Any:
    """The part, 0 or 1, of each tensor, and the weight of the indices that are in both.

    Tensors are rows of `items`, the numbers of their indices. A part has at most (1 + imbalance) / 2 of all
    mass, and a little more where tensors are heavy.
    """
    np.random.seed(seed)
    n_nets = weights.size
    total = mass.sum()
    levels = [(starts, items, mass)]
    namings = [np.zeros(0, np.int64)]
    while levels[-1][0].size - 1 > FEWEST:
        now_starts, now_items, now_mass = levels[-1]
        nets = _transposed(now_starts, now_items, n_nets)
        heaviest = max(3.0 * total / FEWEST, now_mass.max())
        names, count = _matched((now_starts, now_items), nets, now_mass, weights, heaviest)
        if count > LEAST_SHRINKING * (now_starts.size - 1):
            break
        new_starts, new_items = _coarse(now_starts, now_items, names, count, n_nets)
        new_mass = np.zeros(count)
        for c in range(names.size):
            new_mass[names[c]] += now_mass[c]
        levels.append((new_starts, new_items, new_mass))
        namings.append(names)
    now_starts, now_items, now_mass = levels[-1]
    cells, nets = (now_starts, now_items), _transposed(now_starts, now_items, n_nets)
    most = max(0.5 * (1.0 + imbalance) * total, 0.5 * total + 0.5 * now_mass.max())
    best, least = np.zeros(now_mass.size, np.int8), np.inf
    for _ in range(TRIES):
        side = _grown(cells, nets, now_mass, 0.5 * total)
        cut = _improve(cells, nets, now_mass, weights, side, most)
        if cut < least:
            best, least = side, cut
    for level in range(len(levels) - 2, -1, -1):
        now_starts, now_items, now_mass = levels[level]
        names = namings[level + 1]
        side = np.empty(names.size, np.int8)
        for c in range(names.size):
            side[c] = best[names[c]]
        cells, nets = (now_starts, now_items), _transposed(now_starts, now_items, n_nets)
        most = max(0.5 * (1.0 + imbalance) * total, 0.5 * total + 0.5 * now_mass.max())
        least = _improve(cells, nets, now_mass, weights, side, most)
        best = side
    return best, least


@cached_njit()
def dissect(graph: Any, cuts: Any, seed: int) -> Any:
    """The stage of each index: those that part the whole come last, those of parts of few tensors first."""
    fewest, depth = cuts.fewest, cuts.depth
    n, n_indices = graph.tensor_starts.size - 1, graph.weights.size
    stages = np.zeros(n_indices, np.int64)
    members = np.arange(n)
    mass_of = np.ones(n)
    todo = [(0, n, 0)]
    free = np.ones(n_indices, np.bool_)
    names = np.full(n_indices, -1, np.int64)
    number = 0
    while len(todo) > 0:
        first, last, level = todo.pop()
        if last - first <= fewest or level >= depth:
            continue
        number += 1
        starts, items, present = _part(graph, members[first:last], free, names)
        side, least = np.zeros(last - first, np.int8), np.inf
        for attempt in range(cuts.attempts):
            other, cut = bisect(
                starts, items, mass_of[members[first:last]], graph.weights[present], cuts.imbalance,
                seed + 7919 * number + attempt,
            )  # fmt: skip
            if cut < least:
                side, least = other, cut
        inside = np.zeros((2, present.size), np.int64)
        for row in range(side.size):
            for q in range(starts[row], starts[row + 1]):
                inside[side[row], items[q]] += 1
        for place in range(present.size):
            if inside[0, place] > 0 and inside[1, place] > 0:
                u = present[place]
                free[u] = False
                stages[u] = depth - level
                for p in range(graph.index_starts[u], graph.index_starts[u + 1]):
                    mass_of[graph.tensors[p]] += cuts.boundary * graph.weights[u]
        part = members[first:last].copy()
        middle = first + np.sum(side == 0)
        members[first:middle], members[middle:last] = part[side == 0], part[side == 1]
        if first < middle < last:
            todo.append((first, middle, level + 1))
            todo.append((middle, last, level + 1))
    return stages


@cached_njit()
def _part(graph: Any, tensors: Any, free: Any, names: Any) -> Any:
    """Some tensors as rows of their own numbers of free indices, and which these are."""
    starts = np.zeros(tensors.size + 1, np.int64)
    used = 0
    for t in tensors:
        used += graph.tensor_starts[t + 1] - graph.tensor_starts[t]
    items, present = np.empty(used, np.int64), np.empty(min(used, names.size), np.int64)
    count, used = 0, 0
    for i in range(tensors.size):
        for q in range(graph.tensor_starts[tensors[i]], graph.tensor_starts[tensors[i] + 1]):
            u = graph.indices[q]
            if not free[u]:
                continue
            if names[u] < 0:
                names[u] = count
                present[count] = u
                count += 1
            items[used] = names[u]
            used += 1
        starts[i + 1] = used
    names[present[:count]] = -1
    return starts, items[:used], present[:count]

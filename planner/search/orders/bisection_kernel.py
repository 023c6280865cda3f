"""Tensors in two parts of about the same size with few indices in both: multilevel, with passes of moves. Compiled.

Pairs of tensors that share most are joined until few are left; these are divided by growing a part from a
tensor at random; then the pairs are taken apart again, and after each such level tensors are moved from part
to part where that leaves fewer indices cut (Fiduccia and Mattheyses, 1982). The indices in both parts are a
separator of the line graph.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from tnplan.planner.search.orders.heap_kernel import new_heap, put, remove

FEWEST = 40
"""Tensors that are divided at once."""
LEAST_SHRINKING = 0.93
TRIES = 6
PASSES = 4
PATIENCE = 120
"""Moves of a pass without a gain."""
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


@numba.njit(cache=True)
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


@numba.njit(cache=True)
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


@numba.njit(cache=True)
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


@numba.njit(cache=True)
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


@numba.njit(cache=True)
def _improve(cells: Any, nets: Any, mass: Any, weights: Any, side: Any, most: float) -> float:
    """Passes of moves; `side` becomes that of the least cut, which is returned. No part is above `most`."""
    (starts, items), (net_starts, pins) = cells, nets
    n, n_nets = starts.size - 1, net_starts.size - 1
    inside = np.zeros((2, n_nets), np.int64)
    weight = np.zeros(2)
    for c in range(n):
        weight[side[c]] += mass[c]
        for q in range(starts[c], starts[c + 1]):
            inside[side[c], items[q]] += 1
    cut = 0.0
    for net in range(n_nets):
        if inside[0, net] > 0 and inside[1, net] > 0:
            cut += weights[net]
    moved = np.empty(n, np.int64)
    for _ in range(PASSES):
        heap, place, key = new_heap(n)
        locked = np.zeros(n, np.bool_)
        for c in range(n):
            edge = max(weight[0], weight[1]) > most
            for q in range(starts[c], starts[c + 1]):
                edge = edge or inside[1 - side[c], items[q]] > 0
            if edge:
                put(heap, place, key, c, -_gain(cells, inside, weights, side, c) + 1e-6 * np.random.random())
        many, best, best_over, best_at, now = 0, cut, max(weight[0], weight[1]) - most, 0, cut
        began, began_over = cut, best_over
        while heap[-1] > 0 and many - best_at < PATIENCE:
            c = heap[0]
            remove(heap, place, key, c)
            locked[c] = True
            here = side[c]
            if weight[1 - here] + mass[c] > most and weight[1 - here] + mass[c] >= weight[here]:
                continue
            now -= _gain(cells, inside, weights, side, c)
            side[c] = 1 - here
            weight[here] -= mass[c]
            weight[1 - here] += mass[c]
            moved[many] = c
            many += 1
            for q in range(starts[c], starts[c + 1]):
                net = items[q]
                inside[here, net] -= 1
                inside[1 - here, net] += 1
            for q in range(starts[c], starts[c + 1]):
                net = items[q]
                if net_starts[net + 1] - net_starts[net] > LARGEST_NET:
                    continue
                # Gains change only where a part has one pin or none, or had.
                if inside[here, net] > 1 and inside[1 - here, net] > 2:
                    continue
                for p in range(net_starts[net], net_starts[net + 1]):
                    d = pins[p]
                    if not locked[d]:
                        value = -_gain(cells, inside, weights, side, d) + 1e-6 * np.random.random()
                        put(heap, place, key, d, value)
            over = max(weight[0], weight[1]) - most
            better = now < best - 1e-7 if over <= 0.0 and best_over <= 0.0 else over < best_over
            if better:
                best, best_over, best_at = now, over, many
        for i in range(many - 1, best_at - 1, -1):
            c = moved[i]
            here = side[c]
            side[c] = 1 - here
            weight[here] -= mass[c]
            weight[1 - here] += mass[c]
            for q in range(starts[c], starts[c + 1]):
                inside[here, items[q]] -= 1
                inside[1 - here, items[q]] += 1
        cut = best
        if cut >= began - 1e-7 and best_over >= began_over:
            break
    return cut


@numba.njit(cache=True)
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


@numba.njit(cache=True)
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


@numba.njit(cache=True)
def dissect(graph: Any, cuts: Any, seed: int) -> Any:
    """The stage of each index: those that part the whole come last, those of parts of few tensors first."""
    fewest, depth = cuts.fewest, cuts.depth
    n, n_indices = graph.tensor_starts.size - 1, graph.weights.size
    stages = np.zeros(n_indices, np.int64)
    members = np.arange(n)
    mass_of = np.ones(n)
    todo = [(0, n, 0)]
    free = np.ones(n_indices, np.bool_)
    names, mark = np.zeros(n_indices, np.int64), np.full(n_indices, -1, np.int64)
    number = 0
    while len(todo) > 0:
        first, last, level = todo.pop()
        if last - first <= fewest or level >= depth:
            continue
        number += 1
        starts = np.zeros(last - first + 1, np.int64)
        count, used = 0, 0
        for i in range(first, last):
            used += graph.tensor_starts[members[i] + 1] - graph.tensor_starts[members[i]]
        items = np.empty(used, np.int64)
        weights = np.empty(min(used, n_indices))
        used = 0
        for i in range(first, last):
            t = members[i]
            for q in range(graph.tensor_starts[t], graph.tensor_starts[t + 1]):
                u = graph.indices[q]
                if not free[u]:
                    continue
                if mark[u] != number:
                    mark[u] = number
                    names[u] = count
                    weights[count] = graph.weights[u]
                    count += 1
                items[used] = names[u]
                used += 1
            starts[i - first + 1] = used
        mass = mass_of[members[first:last]]
        side, least = np.zeros(last - first, np.int8), np.inf
        for attempt in range(cuts.attempts):
            other, cut = bisect(
                starts, items[:used], mass, weights[:count], cuts.imbalance, seed + 7919 * number + attempt
            )
            if cut < least:
                side, least = other, cut
        inside = np.zeros((2, count), np.int64)
        for i in range(first, last):
            for q in range(starts[i - first], starts[i - first + 1]):
                inside[side[i - first], items[q]] += 1
        part = members[first:last].copy()
        low, high = first, last
        for i in range(part.size):
            if side[i] == 0:
                members[low] = part[i]
                low += 1
            else:
                high -= 1
                members[high] = part[i]
            for q in range(graph.tensor_starts[part[i]], graph.tensor_starts[part[i] + 1]):
                u = graph.indices[q]
                if free[u] and inside[0, names[u]] > 0 and inside[1, names[u]] > 0:
                    free[u] = False
                    stages[u] = depth - level
                    for p in range(graph.index_starts[u], graph.index_starts[u + 1]):
                        mass_of[graph.tensors[p]] += cuts.boundary * graph.weights[u]
        if low > first and low < last:
            todo.append((first, low, level + 1))
            todo.append((low, last, level + 1))
    return stages

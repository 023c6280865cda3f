"""Tensors in two parts of about the same size with few indices in both: multilevel, with moves. Compiled.

Pairs of tensors that share most are joined until few are left; these are divided by growing a part from a
tensor at random; then the pairs are separated again, and after each such level tensors are moved from part
to part where that leaves fewer indices cut (Fiduccia and Mattheyses, 1982). The indices in both parts are a
separator of the line graph.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tnplan.common.kernels.bits_kernel import (
    draw_below,
    draw_uniform,
    draw_word,
    generator,
    shuffle,
)
from tnplan.planner.search.orders.heap_kernel import jit, new_heap, put, remove

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FEWEST = 40
"""Tensors that are divided at once."""
LEAST_SHRINKING = 0.93
MOST_LEVELS = 64
TRIES = 6
PASSES = 4
PATIENCE = 120
"""Moves of a pass without a gain."""
LEAST_GAIN, TIE = 1e-7, 1e-6
LOCKED = 1e300
"""The key of a cell that was moved in a pass."""
LARGEST_NET = 400
"""Of an index on more tensors the moves are the same: it is cut in any case."""


class Room(NamedTuple):
    """Arrays for the divisions of a network of T tensors and I indices; a division uses the first places.

    The cells of a level, and the indices (nets) of each, stand in the first four after those of finer levels.
    """

    starts: Ints
    items: Ints
    mass: Floats
    names: Ints
    """The number that a cell has in the next level."""
    begins: Ints
    """(L, 3): where the cells and the items of a level begin, and how many cells it has."""
    present: Ints
    """(I): the indices of the part that is divided, by their numbers in it."""
    weights: Floats
    net_starts: Ints
    pins: Ints
    """The cells of each net of the level in hand."""
    filled: Ints
    members: Ints
    rows: Ints
    singles: Ints
    """0, 1, 2, ...: each tensor is a row of its own."""
    mark: Ints
    rating: Floats
    order: Ints
    queue: Ints
    side: Ints
    best: Ints
    moved: Ints
    inside: Ints
    """(2, I): cells of each net in either part."""
    weight: Floats
    """(2): the mass of either part."""
    heap: Ints
    position: Ints
    key: Floats
    random: Any


def new_room(graph: Any, seed: int) -> Room:
    """Room for all divisions of a network."""
    n, n_nets, n_items = graph.tensor_starts.size - 1, graph.weights.size, graph.indices.size
    # Levels shrink by LEAST_SHRINKING at least, but mostly by half: cells of all levels are about 2 n.
    # `bisect` stops where another level might not fit.
    most = 3 * n + 64
    most_items, longest = 4 * n_items + 64, max(n, n_nets) + 1

    def ints(size: int) -> Ints:
        return np.zeros(size, np.int64)

    heap, position, key = new_heap(n)
    return Room(
        ints(most), ints(most_items), np.zeros(most), ints(most), np.zeros((MOST_LEVELS, 3), np.int64),
        ints(n_nets), np.zeros(n_nets), ints(n_nets + 1), ints(n_items), ints(longest), ints(n + 1), ints(n),
        np.arange(n + 1), ints(n_nets), np.zeros(n), ints(n), ints(n), ints(n), ints(n), ints(n),
        np.zeros((2, n_nets), np.int64), np.zeros(2), heap, position, key, generator(seed),
    )  # fmt: skip


@jit
def _transpose(starts: Any, items: Any, n: int, other: Any, rows: Any, filled: Any) -> None:
    """The rows of each of n items: they stand in `rows` from `other` (n + 1) on."""
    # A counting sort: counts, then starts by a running sum, then the rows in order. O(rows + items), and the
    # rows of an item are sorted.
    for v in range(n + 1):
        other[v] = 0
    last = starts[starts.size - 1]
    for q in range(last):
        other[items[q] + 1] += 1
    for v in range(n):
        other[v + 1] += other[v]
        filled[v] = other[v]
    for row in range(starts.size - 1):
        for q in range(starts[row], starts[row + 1]):
            rows[filled[items[q]]] = row
            filled[items[q]] += 1


@jit
def _level(scratch: Any, level: int) -> Any:
    """The starts, items and masses of the cells of a level, and their numbers in the next one."""
    first, first_item, n = scratch.begins[level, 0], scratch.begins[level, 1], scratch.begins[level, 2]
    starts = scratch.starts[first : first + n + 1]
    items = scratch.items[first_item : first_item + starts[n]]
    return starts, items, scratch.mass[first : first + n], scratch.names[first : first + n]


@jit
def _match(cells: Any, nets: Any, mass: Any, names: Any, heaviest: float, scratch: Any) -> int:
    """Give each cell its new number: pairs that share the most have one. How many there are."""
    (starts, items), (net_starts, pins) = cells, nets
    n = starts.size - 1
    # Invariant: `order` is a permutation of 0 .. n - 1 before and after, so that shuffling it again is
    # enough.
    order, rating, touched = scratch.order[:n], scratch.rating, scratch.queue
    shuffle(scratch.random, order)
    for c in range(n):
        names[c], rating[c] = -1, 0.0
    count = 0
    for c in order:
        if names[c] >= 0:
            continue
        many = 0
        for q in range(starts[c], starts[c + 1]):
            net = items[q]
            degree = net_starts[net + 1] - net_starts[net]
            if degree < 2 or degree > LARGEST_NET:
                continue
            # Heavy-edge rating of multilevel partitioners: a net counts its weight over its pins less one,
            # since joining two of many pins brings it little nearer to lying in one cell.
            share = scratch.weights[net] / (degree - 1)
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
            # In the mass of the partner: without this heavy cells grow heavier, and no division is balanced.
            value = rating[d] / mass[d]
            if value > most or (value == most and draw_word(scratch.random) >> np.uint64(63)):
                best, most = d, value
            # Only what was touched is cleared, so that a cell costs its own neighbours and not n.
            rating[d] = 0.0
        names[c] = count
        if best >= 0:
            names[best] = count
        count += 1
    return count


@jit
def _coarsen(scratch: Any, level: int, count: int, n_nets: int) -> None:
    """Make the next level: the cells of the new numbers, each with the nets of all its old ones once.

    Nets inside of one cell are left out: no division cuts them.
    """
    starts, items, mass, names = _level(scratch, level)
    n = names.size
    mark = scratch.mark
    for net in range(n_nets):
        first, last = scratch.net_starts[net], scratch.net_starts[net + 1]
        p = first
        # Invariant: mark[net] == count for nets inside of one new cell, which no c below reaches; -1 for
        # others, and then the last new cell that has taken the net.
        while p < last and names[scratch.pins[p]] == names[scratch.pins[first]]:
            p += 1
        mark[net] = -1 if p < last else count
    # Levels lie one after the other in the same arrays: a finer one is still there on the way back.
    scratch.begins[level + 1, 0] = scratch.begins[level, 0] + n + 1
    scratch.begins[level + 1, 1] = scratch.begins[level, 1] + starts[n]
    scratch.begins[level + 1, 2] = count
    _transpose(scratch.singles[: n + 1], names, count, scratch.members, scratch.rows, scratch.filled)
    first_cell, first_item = scratch.begins[level + 1, 0], scratch.begins[level + 1, 1]
    used = 0
    scratch.starts[first_cell] = 0
    for c in range(count):
        scratch.mass[first_cell + c] = 0.0
        for m in range(scratch.members[c], scratch.members[c + 1]):
            old = scratch.rows[m]
            scratch.mass[first_cell + c] += mass[old]
            for q in range(starts[old], starts[old + 1]):
                net = items[q]
                if mark[net] < c:
                    mark[net] = c
                    scratch.items[first_item + used] = net
                    used += 1
        scratch.starts[first_cell + c + 1] = used


@jit
def _gain(cells: Any, inside: Any, weights: Any, side: Any, c: int) -> float:
    """How much less is cut when a cell is moved."""
    starts, items = cells
    here = side[c]
    gain = 0.0
    for q in range(starts[c], starts[c + 1]):
        net = items[q]
        # A net is cut no longer where this was its only pin here, and newly where none was on the other side;
        # a net of this pin alone changes nothing.
        if inside[here, net] == 1:
            gain += weights[net] if inside[1 - here, net] > 0 else 0.0
        elif inside[1 - here, net] == 0:
            gain -= weights[net]
    return gain


@jit
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


@jit
def _queue_border(cells: Any, inside: Any, weights: Any, side: Any, all_of_them: bool, scratch: Any) -> None:
    """Have the cells on the border wait, by what moving them gains."""
    starts, items = cells
    heap, position, key = scratch.heap, scratch.position, scratch.key
    heap[-1] = 0
    for c in range(side.size):
        position[c], key[c] = -1, 0.0
    for c in range(side.size):
        border = all_of_them
        for q in range(starts[c], starts[c + 1]):
            # An inner cell can only gain less than nothing at first: it comes in by `_update` once a
            # neighbour has moved. Where a part is too heavy any cell may have to go.
            border = border or inside[1 - side[c], items[q]] > 0
        if border:
            # The heap has the least key first, hence the negative gain; equal gains are in random order.
            value = -_gain(cells, inside, weights, side, c) + TIE * draw_uniform(scratch.random)
            put(heap, position, key, c, value)


@jit
def _update(cells: Any, nets: Any, inside: Any, weights: Any, side: Any, scratch: Any, c: int) -> None:
    """The gains of the neighbours of a cell that was moved; a cell in no heap and not moved comes in."""
    (starts, items), (net_starts, pins) = cells, nets
    heap, position, key = scratch.heap, scratch.position, scratch.key
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
                value = -_gain(cells, inside, weights, side, d) + TIE * draw_uniform(scratch.random)
                put(heap, position, key, d, value)


@jit
def _pass(cells: Any, nets: Any, mass: Any, bipartition: Any, most: float, cut: float, scratch: Any) -> float:
    """Moves, each of the best cell, of which those up to the least cut are kept; the cut then."""
    (side, inside, weight), weights = bipartition, scratch.weights
    _queue_border(cells, inside, weights, side, max(weight[0], weight[1]) > most, scratch)
    heap, position, key, moved = scratch.heap, scratch.position, scratch.key, scratch.moved
    many, best, best_at, now = 0, cut, 0, cut
    best_over = max(weight[0], weight[1]) - most
    # Fiduccia and Mattheyses: the best cell moves even where the cut becomes larger, at most once a pass; the
    # moves after the best moment are taken back. That is how a pass leaves a local minimum.
    while heap[-1] > 0 and many - best_at < PATIENCE:
        c = heap[0]
        remove(heap, position, key, c)
        key[c] = LOCKED
        here = side[c]
        # Above the limit of mass only what makes the heavier part lighter, and not the other one heavier than
        # that.
        if weight[1 - here] + mass[c] > most and weight[1 - here] + mass[c] >= weight[here]:
            continue
        now -= _gain(cells, inside, weights, side, c)
        _flip(cells, mass, inside, weight, side, c)
        moved[many] = c
        many += 1
        _update(cells, nets, inside, weights, side, scratch, c)
        over = max(weight[0], weight[1]) - most
        # Among balanced states the least cut; as long as none is balanced, the one nearest to balance.
        if now < best - LEAST_GAIN if over <= 0.0 and best_over <= 0.0 else over < best_over:
            best, best_over, best_at = now, over, many
    for i in range(many - 1, best_at - 1, -1):
        _flip(cells, mass, inside, weight, side, moved[i])
    return best


@jit
def _improve(cells: Any, nets: Any, mass: Any, side: Any, most: float, scratch: Any) -> float:
    """Passes of moves; `side` becomes that of the least cut, which is returned. No part is above `most`."""
    (starts, items), (net_starts, _) = cells, nets
    n_nets = net_starts.size - 1
    inside, weight, weights = scratch.inside, scratch.weight, scratch.weights
    weight[0], weight[1] = 0.0, 0.0
    for net in range(n_nets):
        inside[0, net], inside[1, net] = 0, 0
    for c in range(side.size):
        weight[side[c]] += mass[c]
        for q in range(starts[c], starts[c + 1]):
            inside[side[c], items[q]] += 1
    # Invariant: inside[s, net] counts the pins of a net in part s, and `cut` is the weight of nets with pins
    # in both. `_flip` keeps the first, `_pass` the second.
    cut = 0.0
    for net in range(n_nets):
        if inside[0, net] > 0 and inside[1, net] > 0:
            cut += weights[net]
    for _ in range(PASSES):
        before, over = cut, max(weight[0], weight[1]) - most
        cut = _pass(cells, nets, mass, (side, inside, weight), most, before, scratch)
        if cut >= before - LEAST_GAIN and max(weight[0], weight[1]) - most >= over:
            break
    return cut


@jit
def _grow(cells: Any, nets: Any, mass: Any, wanted: float, side: Any, scratch: Any) -> None:
    """Let one part grow from a cell at random over shared nets until it has the mass wanted."""
    (starts, items), (net_starts, pins) = cells, nets
    n = starts.size - 1
    queue, seen, order = scratch.queue, scratch.moved, scratch.order[:n]
    shuffle(scratch.random, order)
    for c in range(n):
        side[c], seen[c] = 0, 0
    head, tail, nth, weight = 0, 0, 0, 0.0
    while weight < wanted:
        if head == tail:
            # The component is used up: go on in another one.
            while seen[order[nth]]:
                nth += 1
            queue[tail] = order[nth]
            seen[order[nth]] = 1
            tail += 1
        # Breadth first, but one of the next four at random: the TRIES begin and grow differently on regular
        # lattices, too.
        at = head + draw_below(scratch.random, min(tail - head, 4))
        queue[head], queue[at] = queue[at], queue[head]
        c = queue[head]
        head += 1
        side[c] = 1
        weight += mass[c]
        for q in range(starts[c], starts[c + 1]):
            for p in range(net_starts[items[q]], net_starts[items[q] + 1]):
                if not seen[pins[p]]:
                    seen[pins[p]] = 1
                    queue[tail] = pins[p]
                    tail += 1


@jit
def bisect(scratch: Any, n_nets: int, imbalance: float) -> float:
    """Divide the cells of level 0: the part, 0 or 1, of each is then in `best`. The weight of what is cut.

    A part has at most (1 + imbalance) / 2 of all mass, and a little more where tensors are heavy.
    """
    net_starts, pins = scratch.net_starts[: n_nets + 1], scratch.pins
    total, level = 0.0, 0
    for c in range(scratch.begins[0, 2]):
        total += scratch.mass[c]
    while True:
        starts, items, mass, names = _level(scratch, level)
        n = names.size
        _transpose(starts, items, n_nets, net_starts, pins, scratch.filled)
        beyond = scratch.begins[level, 0] + 2 * (n + 1) > scratch.starts.size
        if n <= FEWEST or level + 1 == MOST_LEVELS or beyond:
            break
        if scratch.begins[level, 1] + 2 * items.size > scratch.items.size:
            break
        # Coarse cells stay within three times the mean mass on the coarsest level.
        heaviest = 3.0 * total / FEWEST
        for c in range(n):
            heaviest = max(heaviest, mass[c])
        count = _match((starts, items), (net_starts, pins), mass, names, heaviest, scratch)
        # Matching hardly joins any more, as in stars: further levels would cost time and memory alone.
        if count > LEAST_SHRINKING * n:
            break
        _coarsen(scratch, level, count, n_nets)
        level += 1
    starts, items, mass, names = _level(scratch, level)
    n = names.size
    side, best, least = scratch.side, scratch.best, np.inf
    # On the coarsest level, of some dozens of cells, several starts cost next to nothing.
    for _ in range(TRIES):
        _grow((starts, items), (net_starts, pins), mass, 0.5 * total, side[:n], scratch)
        cut = _improve(
            (starts, items), (net_starts, pins), mass, side[:n], _most(total, imbalance, mass), scratch
        )  # fmt: skip
        if cut < least:
            least = cut
            for c in range(n):
                best[c] = side[c]
    # Back to finer levels: each cell takes the part of the cell that it went into, and moves refine that.
    while level > 0:
        level -= 1
        starts, items, mass, names = _level(scratch, level)
        n = names.size
        for c in range(n):
            side[c] = best[names[c]]
        for c in range(n):
            best[c] = side[c]
        _transpose(starts, items, n_nets, net_starts, pins, scratch.filled)
        least = _improve(
            (starts, items), (net_starts, pins), mass, best[:n], _most(total, imbalance, mass), scratch
        )  # fmt: skip
    return least


@jit
def _most(total: float, imbalance: float, mass: Any) -> float:
    """The mass that a part may have."""
    heaviest = 0.0
    for c in range(mass.size):
        heaviest = max(heaviest, mass[c])
    return max(0.5 * (1.0 + imbalance) * total, 0.5 * total + 0.5 * heaviest)

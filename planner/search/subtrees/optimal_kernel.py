"""Small parts of a tree in the best of all orders, by dynamic programming over sets of tensors. Compiled.

A part is a product and the products below it down to a few nodes, its tensors. With w(m) the weight of the
indices that are on just the tensors of the set m, and z(m) the same of those that are nowhere else,

    touched(S) = sum of w(m) with m and S not disjoint,   closed(S) = sum of z(m) with m within S,

the product of S has log2 of its size touched(S) - closed(S), and the step from A and B to S has touched(S) -
closed(A) - closed(B) for its multiply-adds. The sums over all sets take k 2^k additions, so that the legs of
a part are read once, however many there are.
"""

from __future__ import annotations

from math import log2
from typing import Any

import numpy as np

from tnplan.planner.common.numba_cache import cached_njit
from tnplan.planner.search.subtrees.legs_kernel import all_legs, join, products_in_order, step_bits, with_room

MOST_TENSORS = 12
BETTER = 1.0 - 1e-9
OVER = 4.0
"""log2 of what a product costs more for each bit that it is over the limit: one slice for it costs a bit at
least, and slices of products that are far apart multiply."""
UNCUT = 1e-7


@cached_njit()
def best_order(everywhere: Any, closed: Any, k: int, limit_bits: float, weight: float, ref: float) -> Any:
    """The cheapest order of k tensors: the first part of each set (2^k), and the cost in 2^ref; inf for none.

    `everywhere` and `closed` are w and z by set; they are used up. Steps that cost more than 2^ref are left
    out.
    """
    full = (1 << k) - 1
    for i in range(k):
        bit = 1 << i
        for s in range(full + 1):
            if s & bit:
                everywhere[s] += everywhere[s ^ bit]
                closed[s] += closed[s ^ bit]
    cost = np.full(full + 1, np.inf)
    first = np.zeros(full + 1, np.int64)
    size = np.empty(full + 1)
    for s in range(full + 1):
        size[s] = everywhere[full] - everywhere[full ^ s] - closed[s]
    for i in range(k):
        cost[1 << i] = 0.0
    for s in range(3, full + 1):
        low = s & -s
        if s == low:
            continue
        over = OVER * max(size[s] - limit_bits, 0.0)
        touched = size[s] + closed[s]
        rest = s ^ low
        least = np.inf
        part = rest
        while True:
            # A has the lowest tensor and what `part` leaves of the others.
            part = (part - 1) & rest
            a, b = low | part, rest ^ part
            so_far = cost[a] + cost[b]
            if so_far < least:
                span = touched - closed[a] - closed[b]
                bits = step_bits(weight, span, size[a], size[b], size[s]) - ref + over
                if bits <= 0.1:
                    now = so_far + np.exp2(bits)
                    if now < least:
                        least = now
                        first[s] = a
            if part == 0:
                break
        cost[s] = least
    return first, cost[full]


@cached_njit()
def region_below(legs: Any, left: Any, right: Any, v: int, most: int, tops: Any, inner: Any) -> Any:
    """The products of a part below v and its tensors, at most `most`: the costliest are opened first."""
    n = (left.size + 1) // 2
    tops[0], k, opened = v, 1, 0
    while k < most:
        chosen, costliest = -1, -np.inf
        for i in range(k):
            u = tops[i]
            if u >= n and legs.span[u] > costliest:
                chosen, costliest = i, legs.span[u]
        if chosen < 0:
            break
        u = tops[chosen]
        inner[opened] = u
        opened += 1
        tops[chosen], tops[k] = left[u], right[u]
        k += 1
    return k, opened


@cached_njit()
def _bits(legs: Any, left: Any, right: Any, v: int, limit_bits: float, weight: float) -> float:
    """log2 of what a product costs, with what it costs for being over the limit."""
    a, b = left[v], right[v]
    bits = step_bits(weight, legs.span[v], legs.size[a], legs.size[b], legs.size[v])
    return bits + OVER * max(legs.size[v] - limit_bits, 0.0)


@cached_njit()
def sweep(
    graph: Any, weights: Any, left: Any, right: Any, root: int, most: int, limit_bits: float, weight: float
) -> Any:
    """Put each part of up to `most` tensors in its best order, from the leaves to the root; changes the tree.

    Parts whose steps all cost next to nothing beside the whole are left. Returns the number of better parts.
    """
    order = products_in_order(left, right, root)
    legs = all_legs(graph, weights, left, right, order)
    threshold = -np.inf
    for v in order:
        threshold = max(threshold, _bits(legs, left, right, v, limit_bits, weight))
    threshold += log2(UNCUT)
    tops, inner = np.empty(most + 1, np.int64), np.empty(most + 1, np.int64)
    seen, masks, counts = np.empty(graph.weights.size, np.int64), legs.mark.copy(), legs.mark.copy()
    masks[:] = 0
    counts[:] = 0
    better = 0
    for place in range(order.size):
        v = order[place]
        k, opened = region_below(legs, left, right, v, most, tops, inner)
        if k < 3:
            continue
        costly = False
        for i in range(opened):
            costly = costly or _bits(legs, left, right, inner[i], limit_bits, weight) >= threshold
        if not costly:
            continue
        old, ref = 0.0, -np.inf
        for i in range(opened):
            ref = max(ref, _bits(legs, left, right, inner[i], limit_bits, weight))
        for i in range(opened):
            old += np.exp2(_bits(legs, left, right, inner[i], limit_bits, weight) - ref)
        everywhere, closed = np.zeros(1 << k), np.zeros(1 << k)
        many = 0
        for i in range(k):
            for q in range(legs.start[tops[i]], legs.start[tops[i]] + legs.length[tops[i]]):
                u = legs.pool[0, q]
                if masks[u] == 0:
                    seen[many] = u
                    many += 1
                masks[u] |= 1 << i
                counts[u] += legs.pool[1, q]
        for i in range(many):
            u = seen[i]
            everywhere[masks[u]] += weights[u]
            if counts[u] == legs.total[u]:
                closed[masks[u]] += weights[u]
            masks[u] = 0
            counts[u] = 0
        first, cost = best_order(everywhere, closed, k, limit_bits, weight, ref)
        if not cost < old * BETTER:
            continue
        better += 1
        legs = _rebuilt(legs, weights, left, right, v, first, (tops, k), inner)
    return better


@cached_njit()
def _rebuilt(
    legs: Any, weights: Any, left: Any, right: Any, v: int, first: Any, leaves: Any, products: Any
) -> Any:
    """The legs after the products of a part are made anew; v stays the last."""
    (tops, k), inner = leaves, products
    sets, nodes = np.empty(2 * k, np.int64), np.empty(2 * k, np.int64)
    sets[0], nodes[0] = (1 << k) - 1, v
    filled, taken, at = 1, 1, 0
    # inner[0] is v: the others are handed out as sets of two tensors or more come up.
    while at < filled:
        s, u = sets[at], nodes[at]
        at += 1
        if s & (s - 1) == 0:
            continue
        for half in range(2):
            part = first[s] if half == 0 else s ^ first[s]
            if part & (part - 1) == 0:
                i = 0
                while not (part >> i) & 1:
                    i += 1
                child = tops[i]
            else:
                child = inner[taken]
                taken += 1
            if half == 0:
                left[u] = child
            else:
                right[u] = child
            sets[filled], nodes[filled] = part, child
            filled += 1
    need = 0
    for i in range(k):
        need += legs.length[tops[i]]
    legs = with_room(legs, k * need)
    for at in range(filled - 1, -1, -1):
        s, u = sets[at], nodes[at]
        if s & (s - 1):
            join(legs, weights, left[u], right[u], u)
    return legs

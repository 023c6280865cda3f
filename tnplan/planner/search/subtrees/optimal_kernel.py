"""Small parts of a tree in the best of all orders, by dynamic programming over sets of tensors. Compiled.

A part is a product and the products below it down to a few nodes, its tensors. With w(m) the weight of the
indices that are on just the tensors of the set m, and z(m) the same of those that are nowhere else,

    touched(S) = sum of w(m) with m and S not disjoint,   closed(S) = sum of z(m) with m within S,

the product of S has log2 of its size touched(S) - closed(S), and the step from A and B to S has touched(S) -
closed(A) - closed(B) for its multiply-adds. The sums over all sets take k 2^k additions, so that the legs of
a part are read once, however many there are.
"""

from __future__ import annotations

import time
from math import inf, log2
from typing import Any, NamedTuple

import numpy as np

from tnplan.planner.search.annealer.anneal_state import Price
from tnplan.planner.search.subtrees.legs_kernel import (
    Floats,
    Ints,
    all_legs,
    jit,
    join,
    products_in_order,
    step_bits,
    with_room,
)

BETTER = 1.0 - 1e-9
OVER = 4.0
"""log2 of what a product costs more for each bit that it is over the limit: one slice for it costs a bit at
least, and slices of products that are far apart multiply."""
UNCUT = 1e-7
PARTS_AT_ONCE = 500
"""Parts between two looks at the clock."""


class Sets(NamedTuple):
    """Arrays over all sets of up to K tensors, of which `best_order` uses the first places."""

    everywhere: Floats
    """(2^K): w by set; used up."""
    closed: Floats
    """(2^K): z by set; used up."""
    size: Floats
    cost: Floats
    """(2^K): of the cheapest order, in 2^ref; infinite for none."""
    first: Ints
    """(2^K): the first part of each set in that order."""


def new_sets(most: int) -> Sets:
    """Arrays for sets of up to `most` tensors."""
    everywhere, closed, size, cost = np.zeros((4, 1 << most))
    return Sets(everywhere, closed, size, cost, np.zeros(1 << most, np.int64))


@jit
def best_order(sets: Any, k: int, limit_bits: float, price: Any, ref: float) -> float:
    """Find the cheapest order of k tensors; its cost in 2^ref. Steps that cost more are left out."""
    full = (1 << k) - 1
    everywhere, closed, size = sets.everywhere, sets.closed, sets.size
    cost, first = sets.cost, sets.first
    # Sums over subsets (zeta transform), one tensor at a time: afterwards everywhere[S] is the sum of w(m)
    # over m within S, and likewise for z.
    for i in range(k):
        bit = 1 << i
        for s in range(full + 1):
            if s & bit:
                everywhere[s] += everywhere[s ^ bit]
                closed[s] += closed[s ^ bit]
    for s in range(full + 1):
        cost[s], first[s] = np.inf, 0
        # touched(S) is all but what is on tensors outside of S alone: w over all sets less w over those
        # within the complement.
        size[s] = everywhere[full] - everywhere[full ^ s] - closed[s]
    for i in range(k):
        cost[1 << i] = 0.0
    # Invariant: subsets of s are smaller numbers, so that their cheapest orders are known.
    for s in range(3, full + 1):
        # A always has the lowest tensor of s: each of the 2^(|s|-1) - 1 divisions comes up once, about 3^k /
        # 2 in all.
        low = s & -s
        if s == low:
            continue
        over = OVER * max(size[s] - limit_bits, 0.0)
        touched = size[s] + closed[s]
        rest = s ^ low
        least = np.inf
        subset = rest
        while True:
            # A has the lowest tensor and what `subset` leaves of the others.
            subset = (subset - 1) & rest
            a, b = low | subset, rest ^ subset
            so_far = cost[a] + cost[b]
            # Logarithms and powers only where the parts alone are cheaper than the best so far.
            if so_far < least:
                span = touched - closed[a] - closed[b]
                bits = step_bits(price, span, size[a], size[b], size[s]) - ref + over
                # `ref` is the costliest step of the order there was: one that costs more is hardly part of a
                # better order.
                if bits <= 0.1:
                    now = so_far + np.exp2(bits)
                    if now < least:
                        least = now
                        first[s] = a
            if subset == 0:
                break
        cost[s] = least
    return cost[full]


@jit
def region_below(span: Any, left: Any, right: Any, v: int, tops: Any, inner: Any) -> Any:
    """The products of a part below v and its tensors, one fewer than `tops` has at most: the costliest are
    opened first."""
    most = tops.size - 1
    n = (left.size + 1) // 2
    tops[0], k, opened = v, 1, 0
    while k < most:
        # The costliest product at the rim is opened: its step is then inside of the part and can be changed.
        chosen, costliest = -1, -np.inf
        for i in range(k):
            u = tops[i]
            if u >= n and span[u] > costliest:
                chosen, costliest = i, span[u]
        if chosen < 0:
            break
        u = tops[chosen]
        inner[opened] = u
        opened += 1
        tops[chosen], tops[k] = left[u], right[u]
        k += 1
    return k, opened


@jit
def _bits(legs: Any, left: Any, right: Any, v: int, limit_bits: float, price: Any) -> float:
    """log2 of what a product costs, with what it costs for being over the limit."""
    a, b = left[v], right[v]
    bits = step_bits(price, legs.span[v], legs.size[a], legs.size[b], legs.size[v])
    return bits + OVER * max(legs.size[v] - limit_bits, 0.0)


class Sweep(NamedTuple):
    """Where a sweep is, and its arrays, for parts of up to K tensors and I indices."""

    at: Ints
    """(2): the product in hand, and how many parts were made better."""
    threshold: Floats
    """(1): log2 of the least cost of a step for which a part is looked at."""
    tops: Ints
    """(K + 1): the tensors of a part; `inner`, its products, the last one first."""
    inner: Ints
    parts: Ints
    """(K + 1): the tensors of each product, as a set."""
    seen: Ints
    masks: Ints
    """(I): the set of tensors of the part that an index is on, 0 between two parts."""
    counts: Ints
    sets: Sets


def sweep(
    graph: Any, weights: Floats, left: Ints, right: Ints, root: int, most: int, limit_bits: float,
    price: Price, ends: float = inf,
) -> int:  # fmt: skip
    """Put each part of up to `most` tensors in its best order, from the leaves to the root; changes the tree.

    Parts whose steps all cost next to nothing beside the whole are left, and all that come after `ends`, by
    `time.monotonic`. Returns the number of better parts.
    """
    order = products_in_order(left, right, root)
    legs = all_legs(graph, weights, left, right, order)
    state = new_sweep(most, weights.size)
    # The kernel allocates nothing: where legs need more space it stops between two parts, and goes on after.
    stop = 0
    while stop < order.size and time.monotonic() <= ends:
        stop = order.size if ends == inf else min(order.size, stop + PARTS_AT_ONCE)
        while need := run_sweep(legs, weights, (left, right, order), stop, state, (limit_bits, price)):
            legs = with_room(legs, need)
    return int(state.at[1])


def new_sweep(most: int, n_indices: int) -> Sweep:
    """A sweep before its first part."""
    tops, inner, parts = np.zeros((3, most + 1), np.int64)
    seen, masks, counts = np.zeros((3, n_indices), np.int64)
    return Sweep(
        np.zeros(2, np.int64), np.zeros(1), tops, inner, parts, seen, masks, counts, new_sets(most),
    )  # fmt: skip


@jit
def run_sweep(legs: Any, weights: Any, tree: Any, stop: int, state: Any, costs: Any) -> int:
    """Go on with a sweep until the product at `stop`; else the space for legs that is needed to go on.

    `tree` is that of `run_measure`; `costs` are the limit of a tensor in bits and the price of a step.
    """
    (left, right, order), (limit_bits, price) = tree, costs
    at, tops, inner = state.at, state.tops, state.inner
    # Only before the first part: a sweep goes on where it stopped for a larger pool.
    if at[0] == 0:
        threshold = -np.inf
        for v in order:
            threshold = max(threshold, _bits(legs, left, right, v, limit_bits, price))
        state.threshold[0] = threshold + log2(UNCUT)
    while at[0] < stop:
        v = order[at[0]]
        k, opened = region_below(legs.span, left, right, v, tops, inner)
        old, ref, need = 0.0, -np.inf, 0
        for i in range(opened):
            ref = max(ref, _bits(legs, left, right, inner[i], limit_bits, price))
        if k >= 3 and ref >= state.threshold[0]:
            for i in range(opened):
                old += np.exp2(_bits(legs, left, right, inner[i], limit_bits, price) - ref)
            for i in range(k):
                need += legs.length[tops[i]]
            # None of at most k - 1 new products has more legs than all tensors of the part together.
            if legs.used[0] + k * need > legs.pool.shape[1]:
                return k * need
            _fill_sets(legs, weights, state, k)
            if best_order(state.sets, k, limit_bits, price, ref) < old * BETTER:
                at[1] += 1
                _rebuild(legs, weights, left, right, state, k)
        at[0] += 1
    return 0


@jit
def _fill_sets(legs: Any, weights: Any, state: Any, k: int) -> None:
    """The weights of a part's indices by the set of tensors that they are on, w and z."""
    tops, seen, masks, counts = state.tops, state.seen, state.masks, state.counts
    everywhere, closed = state.sets.everywhere, state.sets.closed
    for s in range(1 << k):
        everywhere[s], closed[s] = 0.0, 0.0
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
        # All tensors of the index are within the part: it is summed there, and z has it.
        if counts[u] == legs.total[u]:
            closed[masks[u]] += weights[u]
        masks[u], counts[u] = 0, 0


@jit
def _rebuild(legs: Any, weights: Any, left: Any, right: Any, state: Any, k: int) -> None:
    """Make the products of a part anew, in the pool; its top stays the last."""
    tops, inner, first, parts = state.tops, state.inner, state.sets.first, state.parts
    parts[0] = (1 << k) - 1
    taken = 1
    # inner[0] is the top: the others are handed out as sets of two tensors or more come up.
    for at in range(k - 1):
        for half in range(2):
            tensors = parts[at] ^ first[parts[at]] if half else first[parts[at]]
            if tensors & (tensors - 1):
                child = inner[taken]
                parts[taken] = tensors
                taken += 1
            else:
                tensor = 0
                while not (tensors >> tensor) & 1:
                    tensor += 1
                child = tops[tensor]
            if half:
                right[inner[at]] = child
            else:
                left[inner[at]] = child
    # Backwards, since inner[0] is the top: operands are made before what takes them. The old lists are
    # garbage in the pool until `with_room` compacts it.
    for at in range(k - 2, -1, -1):
        join(legs, weights, left[inner[at]], right[inner[at]], inner[at])

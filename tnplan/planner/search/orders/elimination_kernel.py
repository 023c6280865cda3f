"""Greedy elimination of indices: all tensors of an index are contracted, time and again. Compiled.

The tensors that are left are the cliques of the line graph, so that the graph itself is never written down:
an elimination takes time and memory of the tensors that it touches. Knows no names and no tree's root.
"""

from __future__ import annotations

import time
from heapq import heapify, heappop, heappush
from math import inf, log2
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tnplan.common.kernels.bits_kernel import draw_uniform, generator
from tnplan.planner.search.orders.heap_kernel import jit, new_heap, put, remove

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

DEGREE, FILL, GROWTH = 0, 1, 2
"""What an index waits for: few indices beside it; few pairs of these that are not yet on one tensor; a result
that is small beside the largest tensor that it takes."""
STAGE = 1e9
"""Between the keys of two stages."""
MOST_BESIDE = 80
"""With more indices beside it an index waits as if none of these were on one tensor."""
MOST_KEYED = 4096
"""Indices of a tensor with more of them wait as they did before: time would be quadratic in its indices."""
MOST_PAIRWISE = 12
"""Of more tensors of one index the two smallest are contracted, of fewer the two with the smallest union."""
USED, MADE, NEW, PASSES = 0, 1, 2, 3
PAUSE, STEPS = -1, 10**7
"""After so many steps, some hundredths of a second, the caller may look at its clock."""


class Rule(NamedTuple):
    """How the next index is chosen."""

    kind: int
    weight: float
    """For GROWTH: what the largest tensor counts."""
    noise: float
    """Of the keys, relative; ties are broken by it."""


class Elimination(NamedTuple):
    """The tensors that are left of T tensors and I indices; E is 2 T - 1, the most there can be in all."""

    start: Ints
    """(E): where the indices of each tensor begin in `pool`."""
    length: Ints
    size: Floats
    """(E): log2 of the elements."""
    alive: Ints
    """(E): 1 for what is left, 0 for what is contracted or not yet made."""
    pool: Ints
    holders: Ints
    """The tensors of each index, from `index_starts` of the graph on, `holding` of them."""
    holding: Ints
    mark: Ints
    """(I): the last pass that came to an index; the number of passes is `at[PASSES]`."""
    heap: Ints
    position: Ints
    key: Floats
    pairs: Ints
    """(2, T - 1): the path."""
    work: Ints
    at: Ints
    """(4): places of the pool in use, pairs made, the product of the index under way or -1, passes."""
    random: Any


def eliminate(graph: Any, stages: Any, rule: Rule, seed: int, ends: float = inf) -> Any:
    """The pairs (2, T - 1) of a tree over all tensors, named once (SSA); None where `time.monotonic` comes to
    `ends` first.

    `stages` (I) come one after the other, the lowest first.
    """
    # The kernel allocates nothing. Where the pool is too small it stops, its state whole in `state`, and goes
    # on in a larger pool.
    state = new_elimination(graph, seed)
    begin(graph, stages, rule, state)
    while need := go_on(graph, stages, rule, state):
        if time.monotonic() > ends:
            return None
        if need == PAUSE:
            continue
        pool = np.empty(need, np.int64)
        pool[: state.at[USED]] = state.pool[: state.at[USED]]
        state = state._replace(pool=pool)
    _join_rest(state)
    return state.pairs


def new_elimination(graph: Any, seed: int) -> Elimination:
    """The tensors of a graph before the first index is eliminated."""
    n_tensors, n_indices = graph.tensor_starts.size - 1, graph.weights.size
    # T inputs and T - 1 products, numbered as in an SSA path: each is made once.
    most = max(2 * n_tensors - 1, 1)
    start, length, alive = (np.zeros(most, np.int64) for _ in range(3))
    start[:n_tensors] = graph.tensor_starts[:-1]
    length[:n_tensors] = np.diff(graph.tensor_starts)
    alive[:n_tensors] = 1
    owners = np.repeat(np.arange(n_tensors), length[:n_tensors])
    size = np.bincount(owners, weights=graph.weights[graph.indices], minlength=most).astype(np.float64)
    pool = np.empty(2 * graph.indices.size + 64, np.int64)
    pool[: graph.indices.size] = graph.indices
    heap, position, key = new_heap(n_indices)
    return Elimination(
        start, length, size, alive, pool, graph.tensors.copy(), np.diff(graph.index_starts),
        np.zeros(n_indices, np.int64), heap, position, key, np.zeros((2, max(n_tensors - 1, 0)), np.int64),
        np.empty(n_indices, np.int64), np.array([graph.indices.size, 0, -1, 0]), generator(seed),
    )  # fmt: skip


def _join_rest(state: Elimination) -> None:
    """Contract what has no index in common, the two smallest first."""
    # Outer products of components: with the two smallest first (Huffman's tree) the sizes on the way are
    # least.
    left = [(float(state.size[e]), int(e)) for e in np.flatnonzero(state.alive)]
    heapify(left)
    n_tensors = state.pairs.shape[1] + 1
    for number in range(int(state.at[MADE]), state.pairs.shape[1]):
        (size, a), (other_size, b) = heappop(left), heappop(left)
        state.pairs[:, number] = a, b
        heappush(left, (size + other_size, n_tensors + number))


@jit
def begin(graph: Any, stages: Any, rule: Any, state: Any) -> None:
    """Have all indices wait."""
    for v in range(stages.size):
        put(state.heap, state.position, state.key, v, stages[v] * STAGE + _key(graph, rule, v, state))


@jit
def go_on(graph: Any, stages: Any, rule: Any, state: Any) -> int:
    """Eliminate until no index is left; else the size of the pool that is needed to go on, or PAUSE."""
    at, heap, position, key = state.at, state.heap, state.position, state.key
    steps = 0
    while heap[-1] > 0:
        v = heap[0]
        # Eliminating a vertex of the line graph makes a clique of its neighbours: contracting all tensors of
        # the index makes one tensor of all indices beside it.
        while state.holding[v] > 1:
            a, b = _pair(graph, state, v)
            need = state.length[a] + state.length[b]
            # The pool grows unless half of it is free after the compaction: otherwise one would soon follow
            # the next.
            if at[USED] + need > state.pool.size:
                _compact(state)
                if 2 * (at[USED] + need) > state.pool.size:
                    return 3 * (at[USED] + need)
            at[NEW] = _contract(graph, state, a, b)
        remove(heap, position, key, v)
        # `at[NEW]` outlives an interruption above; the keys of the product's indices are set once, after the
        # last of the contractions.
        new = at[NEW]
        at[NEW] = -1
        if new >= 0 and state.length[new] <= MOST_KEYED:
            for q in range(state.start[new], state.start[new] + state.length[new]):
                u = state.pool[q]
                put(heap, position, key, u, stages[u] * STAGE + _key(graph, rule, u, state))
            # A key goes through the indices of the tensors of its own, most of which are beside each other.
            steps += state.length[new] ** 2
            if steps > STEPS:
                return PAUSE
    return 0


@jit
def _contract(graph: Any, state: Any, a: int, b: int) -> int:
    """The product of two tensors; the pool must be large enough for it."""
    start, length, size, pool, at = state.start, state.length, state.size, state.pool, state.at
    new = state.pairs.shape[1] + 1 + at[MADE]
    state.pairs[0, at[MADE]], state.pairs[1, at[MADE]] = a, b
    at[MADE] += 1
    # A new number marks what this pass has seen, in place of clearing an array of I marks.
    at[PASSES] += 1
    used = at[USED]
    start[new] = used
    for half in range(2):
        e = b if half else a
        for q in range(start[e], start[e] + length[e]):
            u = pool[q]
            if state.mark[u] == at[PASSES]:
                continue
            state.mark[u] = at[PASSES]
            _move(graph, state.holders, state.holding, u, a, b, new)
            # The result is a tensor too where indices are open, so that an open index never goes below two
            # holders before that one is contracted.
            if state.holding[u] > 1:
                pool[used] = u
                used += 1
                size[new] += graph.weights[u]
            else:
                remove(state.heap, state.position, state.key, u)
    length[new], at[USED] = used - start[new], used
    state.alive[a], state.alive[b], state.alive[new] = 0, 0, 1
    return new


@jit
def _compact(state: Any) -> None:
    """Move what is alive to the front of the pool, in which tensors stand in the order of their numbers."""
    # Invariant: alive tensors lie in the order of their numbers, so that each is copied to the front of where
    # it was and nothing unread is overwritten.
    used = 0
    for e in range(state.start.size):
        if state.alive[e]:
            first = state.start[e]
            for q in range(state.length[e]):
                state.pool[used + q] = state.pool[first + q]
            state.start[e] = used
            used += state.length[e]
    state.at[USED] = used


@jit
def _move(graph: Any, holders: Any, count: Any, u: int, a: int, b: int, new: int) -> None:
    """In the list of an index, put the new tensor in place of two."""
    first = graph.index_starts[u]
    n_left = 0
    for q in range(first, first + count[u]):
        e = holders[q]
        if e != a and e != b:
            holders[first + n_left] = e
            n_left += 1
    # Invariant: an index that is on a or b has one holder less afterwards, or as many: its list never
    # outgrows its place.
    holders[first + n_left] = new
    count[u] = n_left + 1


@jit
def _pair(graph: Any, state: Any, v: int) -> Any:
    """Two of an index's tensors, to be contracted next."""
    first, k = graph.index_starts[v], state.holding[v]
    bucket = state.holders[first : first + k]
    start, length, size, pool = state.start, state.length, state.size, state.pool
    mark, at = state.mark, state.at
    if k == 2:
        return bucket[0], bucket[1]
    if k > MOST_PAIRWISE:
        a, b = bucket[0], bucket[1]
        if size[b] < size[a]:
            a, b = b, a
        for q in range(2, k):
            e = bucket[q]
            if size[e] < size[a]:
                a, b = e, a
            elif size[e] < size[b]:
                b = e
        return a, b
    a, b, least = bucket[0], bucket[1], np.inf
    # The smallest union is the cheapest step. Of equal ones, that of smaller operands: the small term breaks
    # ties.
    for i in range(k):
        t = bucket[i]
        at[PASSES] += 1
        for q in range(start[t], start[t] + length[t]):
            mark[pool[q]] = at[PASSES]
        for j in range(i + 1, k):
            other = bucket[j]
            union = size[t]
            for q in range(start[other], start[other] + length[other]):
                if mark[pool[q]] != at[PASSES]:
                    union += graph.weights[pool[q]]
            union += 1e-3 * min(size[t], size[other])
            if union < least:
                a, b, least = t, other, union
    return a, b


@jit
def _key(graph: Any, rule: Any, v: int, state: Any) -> float:
    """What decides when an index is eliminated."""
    start, length, size, pool = state.start, state.length, state.size, state.pool
    mark, at = state.mark, state.at
    holders, count, work = state.holders, state.holding, state.work
    at[PASSES] += 1
    mark[v] = at[PASSES]
    many, total, largest = 0, 0.0, 0.0
    first = graph.index_starts[v]
    for p in range(first, first + count[v]):
        e = holders[p]
        largest = max(largest, size[e])
        for q in range(start[e], start[e] + length[e]):
            u = pool[q]
            if mark[u] != at[PASSES]:
                mark[u] = at[PASSES]
                work[many] = u
                many += 1
                total += graph.weights[u]
    # Least degree, weighted: log2 of the elements of what eliminating v makes, if nothing else is summed with
    # it.
    if rule.kind == DEGREE:
        value = total
    # As greedy paths score a pair: log2 of the result against that of the largest tensor that it takes the
    # place of.
    elif rule.kind == GROWTH:
        value = total - rule.weight * (largest - graph.weights[v])
    # As if no two of the neighbours were on one tensor: the fill of `many` separate vertices.
    elif many > MOST_BESIDE:
        value = 0.5 * total * total
    else:
        # Least fill: half the sum over u of w(u) (total - near(u)), the weighted pairs of neighbours of v
        # that share no tensor yet and would be joined by eliminating v.
        value = 0.0
        own = at[PASSES]
        for i in range(many):
            u = work[i]
            near = 0.0
            at[PASSES] += 1
            seen = at[PASSES]
            # Indices beside v have a mark of `own` or of a later pass; those of no pass are not beside it.
            mark[u] = seen
            near += graph.weights[u]
            begin = graph.index_starts[u]
            for p in range(begin, begin + count[u]):
                e = holders[p]
                for q in range(start[e], start[e] + length[e]):
                    w = pool[q]
                    if mark[w] >= own and mark[w] != seen and w != v:
                        mark[w] = seen
                        near += graph.weights[w]
            value += graph.weights[u] * (total - near)
        value *= 0.5
    # An exponential variate in the scale of the key: equal keys come in random order, close ones sometimes.
    spread = rule.noise * (1.0 + abs(value))
    return value - spread * log2(1e-300 + draw_uniform(state.random))

"""Greedy elimination of indices: all tensors of an index are contracted, time and again. Compiled.

The tensors that are left are the cliques of the line graph, so that the graph itself is never written down:
an elimination takes time and memory of the tensors that it touches. Knows no names and no tree's root.
"""

from __future__ import annotations

from math import log2
from typing import Any, NamedTuple

import numpy as np

from tnplan.planner.common.numba_cache import cached_njit
from tnplan.planner.search.orders.heap_kernel import new_heap, put, remove

DEGREE, FILL, GROWTH = 0, 1, 2
"""What an index waits for: few indices beside it; few pairs of these that are not yet on one tensor; a result
that is small beside the largest tensor that it takes."""
STAGE = 1e9
"""Between the keys of two stages."""
MOST_BESIDE = 80
"""With more indices beside it an index waits as if none of these were on one tensor."""
MOST_PAIRWISE = 12
"""Of more tensors of one index the two smallest are contracted, of fewer the two with the smallest union."""


class Rule(NamedTuple):
    """How the next index is chosen."""

    kind: int
    weight: float
    """For GROWTH: what the largest tensor counts."""
    noise: float
    """Of the keys, relative; ties are broken by it."""


@cached_njit()
def eliminate(graph: Any, stages: Any, rule: Any, seed: int) -> Any:
    """The pairs (2, T - 1) of a tree over all tensors, named once (SSA).

    `stages` (I) come one after the other, the lowest first.
    """
    np.random.seed(seed)
    n_tensors, n_indices = graph.tensor_starts.size - 1, graph.weights.size
    most = max(2 * n_tensors - 1, 1)
    start, length = np.zeros(most, np.int64), np.zeros(most, np.int64)
    size = np.zeros(most)
    alive = np.zeros(most, np.bool_)
    pool = np.empty(2 * graph.indices.size + 64, np.int64)
    pool[: graph.indices.size] = graph.indices
    used = graph.indices.size
    for t in range(n_tensors):
        start[t] = graph.tensor_starts[t]
        length[t] = graph.tensor_starts[t + 1] - start[t]
        alive[t] = True
        for q in range(start[t], start[t] + length[t]):
            size[t] += graph.weights[pool[q]]
    holders, count = graph.tensors.copy(), np.diff(graph.index_starts)
    mark, stamp = np.zeros(n_indices, np.int64), np.zeros(1, np.int64)
    heap, place, key = new_heap(n_indices)
    pairs = np.zeros((2, max(n_tensors - 1, 0)), np.int64)
    made = 0
    work = np.empty(n_indices, np.int64)
    for v in range(n_indices):
        value = _key(graph, rule, v, start, length, size, pool, holders, count, mark, stamp, work)
        put(heap, place, key, v, stages[v] * STAGE + value)
    bucket = np.empty(n_tensors + 1, np.int64)
    while heap[-1] > 0:
        v = heap[0]
        new = -1
        while count[v] > 1:
            k = count[v]
            bucket[:k] = holders[graph.index_starts[v] : graph.index_starts[v] + k]
            a, b = _pair(graph, bucket, k, start, length, size, pool, mark, stamp)
            new = n_tensors + made
            pairs[0, made], pairs[1, made] = a, b
            made += 1
            need = length[a] + length[b]
            if used + need > pool.size:
                pool, used = _compacted(pool, need, start, length, alive)
            start[new] = used
            stamp[0] += 1
            for e in (a, b):
                for q in range(start[e], start[e] + length[e]):
                    u = pool[q]
                    if mark[u] != stamp[0]:
                        mark[u] = stamp[0]
                        _move(graph, holders, count, u, a, b, new)
                        if count[u] > 1:
                            pool[used] = u
                            used += 1
                            size[new] += graph.weights[u]
                        else:
                            remove(heap, place, key, u)
            length[new] = used - start[new]
            alive[new] = True
            alive[a], alive[b] = False, False
        remove(heap, place, key, v)
        if new >= 0:
            for q in range(start[new], start[new] + length[new]):
                u = pool[q]
                value = _key(graph, rule, u, start, length, size, pool, holders, count, mark, stamp, work)
                put(heap, place, key, u, stages[u] * STAGE + value)
    return _rest(pairs, made, n_tensors, alive, size)


@cached_njit()
def _compacted(pool: Any, need: int, start: Any, length: Any, alive: Any) -> Any:
    """A pool of what is alive with room for so much more, and how much of it is used."""
    live = need
    for e in range(start.size):
        live += length[e] if alive[e] else 0
    fresh = np.empty(2 * live + pool.size // 2, np.int64)
    used = 0
    for e in range(start.size):
        if alive[e]:
            fresh[used : used + length[e]] = pool[start[e] : start[e] + length[e]]
            start[e] = used
            used += length[e]
    return fresh, used


@cached_njit()
def _move(graph: Any, holders: Any, count: Any, u: int, a: int, b: int, new: int) -> None:
    """In the list of an index, put the new tensor in place of two."""
    first = graph.index_starts[u]
    kept = 0
    for q in range(first, first + count[u]):
        e = holders[q]
        if e != a and e != b:
            holders[first + kept] = e
            kept += 1
    holders[first + kept] = new
    count[u] = kept + 1


@cached_njit()
def _pair(
    graph: Any, bucket: Any, k: int, start: Any, length: Any, size: Any, pool: Any, mark: Any, stamp: Any
) -> Any:
    """Two of an index's tensors, to be contracted next."""
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
    for i in range(k):
        one = bucket[i]
        stamp[0] += 1
        for q in range(start[one], start[one] + length[one]):
            mark[pool[q]] = stamp[0]
        for j in range(i + 1, k):
            other = bucket[j]
            union = size[one]
            for q in range(start[other], start[other] + length[other]):
                if mark[pool[q]] != stamp[0]:
                    union += graph.weights[pool[q]]
            union += 1e-3 * min(size[one], size[other])
            if union < least:
                a, b, least = one, other, union
    return a, b


@cached_njit()
def _key(
    graph: Any, rule: Any, v: int, start: Any, length: Any, size: Any, pool: Any, holders: Any, count: Any,
    mark: Any, stamp: Any, work: Any,
) -> float:  # fmt: skip
    """What decides when an index is eliminated."""
    stamp[0] += 1
    mark[v] = stamp[0]
    many, total, largest = 0, 0.0, 0.0
    first = graph.index_starts[v]
    for p in range(first, first + count[v]):
        e = holders[p]
        largest = max(largest, size[e])
        for q in range(start[e], start[e] + length[e]):
            u = pool[q]
            if mark[u] != stamp[0]:
                mark[u] = stamp[0]
                work[many] = u
                many += 1
                total += graph.weights[u]
    if rule.kind == DEGREE:
        value = total
    elif rule.kind == GROWTH:
        value = total - rule.weight * (largest - graph.weights[v])
    elif many > MOST_BESIDE:
        value = 0.5 * total * total
    else:
        value = 0.0
        own = stamp[0]
        for i in range(many):
            u = work[i]
            near = 0.0
            stamp[0] += 1
            seen = stamp[0]
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
    spread = rule.noise * (1.0 + abs(value))
    return value - spread * log2(1e-300 + np.random.random())


@cached_njit()
def _rest(pairs: Any, made: int, n_tensors: int, alive: Any, size: Any) -> Any:
    """The pairs, with what has no index in common contracted at the end, the two smallest first."""
    heap, place, key = new_heap(alive.size)
    for e in range(n_tensors + made):
        if alive[e]:
            put(heap, place, key, e, size[e])
    while heap[-1] > 1:
        a = heap[0]
        remove(heap, place, key, a)
        b = heap[0]
        remove(heap, place, key, b)
        new = n_tensors + made
        pairs[0, made], pairs[1, made] = a, b
        made += 1
        put(heap, place, key, new, size[a] + size[b])
    return pairs

"""One tensor that grows over the network as a front does, from one end to the other. Compiled.

The next tensor is the one that makes the front smallest, and of several the one farthest from the other end
(Sloan, 1986, on the tensors of a network). On lattices that are longer than wide, or about square, such an
order has smaller steps than any division into parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.planner.common.numba_cache import cached_njit
from tnplan.planner.search.orders.heap_kernel import new_heap, put, remove

AGE = 1e-5
"""Bits that a step waits less for each step since the front came to it."""


@cached_njit()
def _distances(graph: Any, first: int) -> Any:
    """Steps from a tensor to each, those of other components 0, and the last one that was reached."""
    n = graph.tensor_starts.size - 1
    distance = np.full(n, -1, np.int64)
    seen = np.zeros(graph.weights.size, np.bool_)
    queue = np.empty(n, np.int64)
    queue[0] = first
    distance[first] = 0
    head, tail = 0, 1
    while head < tail:
        t = queue[head]
        head += 1
        for q in range(graph.tensor_starts[t], graph.tensor_starts[t + 1]):
            u = graph.indices[q]
            if seen[u]:
                continue
            seen[u] = True
            for p in range(graph.index_starts[u], graph.index_starts[u + 1]):
                other = graph.tensors[p]
                if distance[other] < 0:
                    distance[other] = distance[t] + 1
                    queue[tail] = other
                    tail += 1
    return np.maximum(distance, 0), queue[tail - 1]


@cached_njit()
def _potential(graph: Any, sideways: bool) -> Any:
    """How far each tensor is from the end to which the front goes."""
    _, end = _distances(graph, np.random.randint(graph.tensor_starts.size - 1))
    distance, opposite = _distances(graph, end)
    if sideways:
        far, _ = _distances(graph, opposite)
        far, _ = _distances(graph, int(np.argmax(np.minimum(distance, far))))
        distance = distance - far
    return distance


@cached_njit()
def grow(graph: Any, pull: float, sideways: bool, noise: float, seed: int) -> Any:
    """The pairs (2, T - 1) of a tree over all tensors, named once (SSA): each joins the one that grows.

    A step farther from the other end counts `pull` bits of the front; what is drawn has about `noise` bits.
    The two ends are as far from each other as tensors can be, or, with `sideways`, the other end is halfway
    beside: on a lattice the front is then parallel to a side, and else oblique.
    """
    np.random.seed(seed)
    n = graph.tensor_starts.size - 1
    pairs = np.zeros((2, max(n - 1, 0)), np.int64)
    distance = _potential(graph, sideways)
    left = np.diff(graph.index_starts)
    whole = left.copy()
    done, seen = np.zeros(n, np.bool_), np.full(n, -1, np.int64)
    heap, place, key = new_heap(n)
    order = np.random.permutation(n)
    nth = -1
    start = 0
    for t in range(n):
        if distance[t] > distance[start]:
            start = t
    put(heap, place, key, start, 0.0)
    last = -1
    for step in range(n):
        if heap[-1] == 0:
            nth += 1
            while done[order[nth]]:
                nth += 1
            put(heap, place, key, order[nth], 0.0)
        t = heap[0]
        remove(heap, place, key, t)
        done[t] = True
        if step > 0:
            pairs[0, step - 1], pairs[1, step - 1] = last, t
        last = t if step == 0 else n + step - 1
        for q in range(graph.tensor_starts[t], graph.tensor_starts[t + 1]):
            left[graph.indices[q]] -= 1
        for q in range(graph.tensor_starts[t], graph.tensor_starts[t + 1]):
            u = graph.indices[q]
            # Nothing else changes what the others of an index make of the front.
            if left[u] != whole[u] - 1 and left[u] != 1:
                continue
            for p in range(graph.index_starts[u], graph.index_starts[u + 1]):
                other = graph.tensors[p]
                if done[other]:
                    continue
                if seen[other] < 0:
                    seen[other] = step
                value = AGE * seen[other] - pull * distance[other] + noise * np.random.random()
                for o in range(graph.tensor_starts[other], graph.tensor_starts[other + 1]):
                    w = graph.indices[o]
                    value += graph.weights[w] if left[w] == whole[w] else 0.0
                    value -= graph.weights[w] if left[w] == 1 else 0.0
                put(heap, place, key, other, value)
    return pairs

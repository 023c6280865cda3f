"""The legs of a contraction tree as lists, and what the tree costs. Compiled.

A leg of a node is an index with a tensor in the node's sub-tree and one outside; with it goes the number of
its tensors inside. All costs are logarithms to base 2, so that none is beyond floating point. Nodes are
numbered as in `anneal_state`: 0 .. n-1 the tensors, n .. 2n-2 the products.
"""

from __future__ import annotations

from math import log2
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tnplan.planner.common.numba_cache import cached_njit

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Legs(NamedTuple):
    """The legs of all N nodes, those of node v from `start[v]` on in `pool`."""

    start: Ints
    length: Ints
    pool: Ints
    """(2, P): an index, and how many of its tensors are inside."""
    used: Ints
    """(1): places of the pool that are taken."""
    size: Floats
    """(N): log2 of the elements."""
    span: Floats
    """(N): log2 of the multiply-adds of a product; minus infinity for a tensor."""
    total: Ints
    """(I): the tensors of each index, with the result where it is open."""
    mark: Ints
    """(I): a place in the list that is made."""


@cached_njit()
def leaf_legs(graph: Any, weights: Any, n: int) -> Any:
    """The legs of the tensors, with room for those of products. `weights`: log2 of extents, 0 for sliced.

    `n` tensors are in the tree; where the graph has one more, that is the result.
    """
    nodes = 2 * n - 1
    start, length = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    size, span = np.zeros(nodes), np.full(nodes, -np.inf)
    entries = graph.tensor_starts[n]
    pool = np.ones((2, 4 * entries + 64), np.int64)
    pool[0, :entries] = graph.indices[:entries]
    for t in range(n):
        start[t] = graph.tensor_starts[t]
        length[t] = graph.tensor_starts[t + 1] - start[t]
        for q in range(start[t], start[t] + length[t]):
            size[t] += weights[pool[0, q]]
    used = np.full(1, entries, np.int64)
    return Legs(
        start, length, pool, used, size, span, np.diff(graph.index_starts), np.full(weights.size, -1)
    )


@cached_njit()
def with_room(legs: Any, need: int) -> Any:
    """The same legs, with room for so many more; lists of all nodes are kept, one after the other."""
    if legs.used[0] + need <= legs.pool.shape[1]:
        return legs
    live = legs.length.sum()
    pool = np.empty((2, 2 * (live + need) + 64), np.int64)
    used = 0
    for v in range(legs.start.size):
        first, many = legs.start[v], legs.length[v]
        pool[:, used : used + many] = legs.pool[:, first : first + many]
        legs.start[v] = used
        used += many
    legs.used[0] = used
    return Legs(legs.start, legs.length, pool, legs.used, legs.size, legs.span, legs.total, legs.mark)


@cached_njit()
def join(legs: Any, weights: Any, a: int, b: int, v: int) -> None:
    """Make v the product of a and b. There must be room."""
    pool, mark = legs.pool, legs.mark
    first = legs.used[0]
    used = first
    span = legs.size[a] + legs.size[b]
    for q in range(legs.start[a], legs.start[a] + legs.length[a]):
        pool[0, used], pool[1, used] = pool[0, q], pool[1, q]
        mark[pool[0, q]] = used
        used += 1
    for q in range(legs.start[b], legs.start[b] + legs.length[b]):
        u = pool[0, q]
        if mark[u] >= 0:
            pool[1, mark[u]] += pool[1, q]
            span -= weights[u]
        else:
            pool[0, used], pool[1, used] = u, pool[1, q]
            used += 1
    kept, size = first, 0.0
    for q in range(first, used):
        u = pool[0, q]
        mark[u] = -1
        if pool[1, q] < legs.total[u]:
            pool[0, kept], pool[1, kept] = u, pool[1, q]
            size += weights[u]
            kept += 1
    legs.start[v], legs.length[v], legs.used[0] = first, kept - first, kept
    legs.size[v], legs.span[v] = size, span


@cached_njit()
def all_legs(graph: Any, weights: Any, left: Any, right: Any, order: Any) -> Any:
    """The legs of a tree whose products are made in this order."""
    n = (left.size + 1) // 2
    legs = leaf_legs(graph, weights, n)
    for v in order:
        a, b = left[v], right[v]
        legs = with_room(legs, legs.length[a] + legs.length[b])
        join(legs, weights, a, b, v)
    return legs


@cached_njit()
def step_bits(weight: float, span: float, a: float, b: float, c: float) -> float:
    """log2 of what a step costs whose tensors have so many elements: `weight` counts an element of any."""
    if weight == 0.0:
        return span
    most = max(a, b, c)
    moved = most + log2(weight * (np.exp2(a - most) + np.exp2(b - most) + np.exp2(c - most)))
    return max(span, moved)


@cached_njit()
def total_bits(legs: Any, weight: float, left: Any, right: Any) -> Any:
    """log2 of the cost of all steps, and of the largest tensor."""
    n = (left.size + 1) // 2
    most = 0.0
    for v in range(n, left.size):
        cost = step_bits(weight, legs.span[v], legs.size[left[v]], legs.size[right[v]], legs.size[v])
        most = max(most, cost)
    total = 0.0
    for v in range(n, left.size):
        cost = step_bits(weight, legs.span[v], legs.size[left[v]], legs.size[right[v]], legs.size[v])
        total += np.exp2(cost - most)
    return most + log2(total) if total > 0.0 else 0.0, legs.size.max()


@cached_njit()
def products_in_order(left: Any, right: Any, root: int) -> Any:
    """All products, each after its children."""
    n = (left.size + 1) // 2
    order = np.empty(max(n - 1, 0), np.int64)
    stack = np.empty(left.size, np.int64)
    stack[0] = root
    many, at = 1, n - 1
    while many:
        many -= 1
        v = stack[many]
        if v >= n:
            at -= 1
            order[at] = v
            stack[many], stack[many + 1] = left[v], right[v]
            many += 2
    return order

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

from tnplan.common.kernels.kernel import kernel

jit = kernel(nogil=True, error_model="numpy")

GROWTH = 4
"""Room for legs is so many times what is needed: what is not used is never touched, and takes no memory."""
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


def leaf_legs(graph: Any, weights: Floats, n: int) -> Legs:
    """The legs of the tensors, with space for those of products. `weights`: log2 of extents, 0 for sliced.

    `n` tensors are in the tree; where the graph has one more, that is the result.
    """
    nodes, entries = 2 * n - 1, int(graph.tensor_starts[n])
    start, length = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    start[:n], length[:n] = graph.tensor_starts[:n], np.diff(graph.tensor_starts[: n + 1])
    owners = np.repeat(np.arange(n), length[:n])
    size = np.bincount(owners, weights=weights[graph.indices[:entries]], minlength=nodes).astype(np.float64)
    pool = np.ones((2, 4 * entries + 64), np.int64)
    pool[0, :entries] = graph.indices[:entries]
    total = np.diff(graph.index_starts)
    return Legs(
        start, length, pool, np.array([entries]), size, np.full(nodes, -np.inf), total,
        np.full(weights.size, -1),
    )  # fmt: skip


def with_room(legs: Legs, need: int) -> Legs:
    """The same legs, with space for so many more; lists of all nodes are kept, and what lies between
    them is not."""
    if legs.used[0] + need <= legs.pool.shape[1]:
        return legs
    # Compaction: the lists of all nodes, in the order of their numbers, behind each other.
    ends = np.cumsum(legs.length)
    live = int(ends[-1])
    pool = np.empty((2, GROWTH * (live + need) + 64), np.int64)
    if live == legs.used[0]:
        pool[:, :live] = legs.pool[:, :live]
        return legs._replace(pool=pool)
    firsts = ends - legs.length
    pool[:, :live] = legs.pool[:, np.arange(live) + np.repeat(legs.start - firsts, legs.length)]
    legs.start[:], legs.used[0] = firsts, live
    return legs._replace(pool=pool)


@jit
def join(legs: Any, weights: Any, a: int, b: int, v: int) -> None:
    """Make v the product of a and b. The pool must be large enough."""
    pool, mark = legs.pool, legs.mark
    first = legs.used[0]
    used = first
    # log2 of m n k: both sizes, with common indices once.
    span = legs.size[a] + legs.size[b]
    for q in range(legs.start[a], legs.start[a] + legs.length[a]):
        pool[0, used], pool[1, used] = pool[0, q], pool[1, q]
        mark[pool[0, q]] = used
        used += 1
    for q in range(legs.start[b], legs.start[b] + legs.length[b]):
        u = pool[0, q]
        if mark[u] >= 0:
            # On both: the tensors inside add up. With all of them inside the index is summed.
            pool[1, mark[u]] += pool[1, q]
            span -= weights[u]
        else:
            pool[0, used], pool[1, used] = u, pool[1, q]
            used += 1
    # The list is compacted in place. Invariant: `mark` is -1 everywhere between two calls.
    last, size = first, 0.0
    for q in range(first, used):
        u = pool[0, q]
        mark[u] = -1
        if pool[1, q] < legs.total[u]:
            pool[0, last], pool[1, last] = u, pool[1, q]
            size += weights[u]
            last += 1
    legs.start[v], legs.length[v], legs.used[0] = first, last - first, last
    legs.size[v], legs.span[v] = size, span


def all_legs(graph: Any, weights: Floats, left: Ints, right: Ints, order: Ints) -> Legs:
    """The legs of a tree whose products are made in this order."""
    legs = leaf_legs(graph, weights, (left.size + 1) // 2)
    done = 0
    while (done := join_all(legs, weights, left, right, order, done)) < order.size:
        v = order[done]
        legs = with_room(legs, int(legs.length[left[v]] + legs.length[right[v]]))
    return legs


@jit
def join_all(legs: Any, weights: Any, left: Any, right: Any, order: Any, done: int) -> int:
    """Make the products from number `done` on, while the pool is large enough; how many there are then."""
    while done < order.size:
        v = order[done]
        a, b = left[v], right[v]
        if legs.used[0] + legs.length[a] + legs.length[b] > legs.pool.shape[1]:
            break
        join(legs, weights, a, b, v)
        done += 1
    return done


@jit
def step_bits(price: Any, span: float, a: float, b: float, c: float) -> float:
    """log2 of what a step costs, from log2 of its multiply-adds and of the elements of its tensors."""
    if price.written > 0.0:
        # log2 of a sum of powers with the largest taken out: no exponent overflows.
        most = span if price.products > 0.0 else c
        span = most + log2(price.products * np.exp2(span - most) + price.written * np.exp2(c - most))
    if price.moved == 0.0:
        return span
    most = max(a, b, c)
    moved = most + log2(price.moved * (np.exp2(a - most) + np.exp2(b - most) + np.exp2(c - most)))
    return max(span, moved)


@jit
def total_bits(size: Any, span: Any, price: Any, left: Any, right: Any) -> Any:
    """log2 of the cost of all steps, and of the largest tensor, from those of all nodes."""
    n = (left.size + 1) // 2
    most = 0.0
    for v in range(n, left.size):
        cost = step_bits(price, span[v], size[left[v]], size[right[v]], size[v])
        most = max(most, cost)
    total = 0.0
    for v in range(n, left.size):
        cost = step_bits(price, span[v], size[left[v]], size[right[v]], size[v])
        total += np.exp2(cost - most)
    largest = 0.0
    for v in range(left.size):
        largest = max(largest, size[v])
    return most + log2(total) if total > 0.0 else 0.0, largest


def products_in_order(left: Ints, right: Ints, root: int) -> Ints:
    """All products, each after its children."""
    order = np.empty((left.size - 1) // 2, np.int64)
    put_in_order(left, right, root, order, np.empty(left.size, np.int64))
    return order


@jit
def put_in_order(left: Any, right: Any, root: int, order: Any, stack: Any) -> None:
    """Fill `order`; `stack` (N) is written over."""
    n = (left.size + 1) // 2
    stack[0] = root
    many, at = 1, n - 1
    # Filled from the end by a walk that meets parents first. Invariant: children come before parents, and
    # each sub-tree is one run of the order, which `measure_kernel` relies on.
    while many:
        many -= 1
        v = stack[many]
        if v >= n:
            at -= 1
            order[at] = v
            stack[many], stack[many + 1] = left[v], right[v]
            many += 2

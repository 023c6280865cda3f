"""One tensor that grows over the network as a front does, from one end to the other. Compiled.

The next tensor is the one that makes the front smallest, and of several the one farthest from the other end
(Sloan, 1986, on the tensors of a network). On lattices that are longer than wide, or about square, such an
order has smaller steps than any division into parts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tnplan.common.kernels.bits_kernel import draw_below, draw_uniform, generator, shuffle
from tnplan.planner.search.orders.heap_kernel import jit, new_heap, put, remove

Ints = NDArray[np.int64]

OBLIQUE, SIDEWAYS, TO_RESULT = 0, 1, 2
"""Where a front goes: from end to end of the network, at right angles to that, or to the result."""
AGE = 1e-5
"""Bits that a step waits less for each step since the front came to it."""


class Front(NamedTuple):
    """What is known of T tensors and I indices while the front moves."""

    distance: Ints
    """(T): how far a tensor is from the end to which the front goes."""
    beside: Ints
    """(T): the same for a second end."""
    queue: Ints
    reached: Ints
    """(I): 1 for indices that a search of distances has reached."""
    left: Ints
    """(I): tensors of each index that are not in the front yet; `whole`, all of them."""
    whole: Ints
    done: Ints
    """(T): 1 for what is in the front."""
    seen: Ints
    """(T): the step at which the front came to a tensor, or -1."""
    heap: Ints
    position: Ints
    key: Any
    order: Ints
    """(T): the order in which tensors of other components are tried."""
    pairs: Ints
    random: Any


def grow(graph: Any, pull: float, direction: int, noise: float, seed: int) -> Any:
    """The pairs (2, T - 1) of a tree over all tensors, named once (SSA): each joins the one that grows.

    A step farther from the other end counts `pull` bits of the front; what is drawn has about `noise` bits.
    OBLIQUE, the two ends are as far from each other as tensors can be. SIDEWAYS, the other end is halfway
    beside: on a lattice the front is then parallel to a side. TO_RESULT, the other end is the last tensor,
    which is the result where indices are open, and nothing comes after it: a step with all of its indices
    would cost as much as the result has elements at least.
    """
    state = new_front(graph, seed)
    run_front(graph, pull, direction, noise, state)
    return state.pairs


def new_front(graph: Any, seed: int) -> Front:
    """A front before its first step."""
    n, n_indices = graph.tensor_starts.size - 1, graph.weights.size
    whole = np.diff(graph.index_starts)
    distance, beside, queue, done, order = (np.zeros(n, np.int64) for _ in range(5))
    pairs = np.zeros((2, max(n - 1, 0)), np.int64)
    heap, position, key = new_heap(n)
    return Front(
        distance, beside, queue, np.zeros(n_indices, np.int64), whole.copy(), whole, done,
        np.full(n, -1, np.int64), heap, position, key, order, pairs, generator(seed),
    )  # fmt: skip


@jit
def _distances(graph: Any, first: int, distance: Any, state: Any) -> int:
    """Steps from a tensor to each, those of other components 0; the last one that was reached."""
    for t in range(distance.size):
        distance[t] = -1
    # Breadth first over the hypergraph. An index is gone through once, from the first tensor that has it: all
    # of its other tensors are one step from there.
    for u in range(state.reached.size):
        state.reached[u] = 0
    queue = state.queue
    queue[0] = first
    distance[first] = 0
    head, tail = 0, 1
    while head < tail:
        t = queue[head]
        head += 1
        for q in range(graph.tensor_starts[t], graph.tensor_starts[t + 1]):
            u = graph.indices[q]
            if state.reached[u]:
                continue
            state.reached[u] = 1
            for p in range(graph.index_starts[u], graph.index_starts[u + 1]):
                other = graph.tensors[p]
                if distance[other] < 0:
                    distance[other] = distance[t] + 1
                    queue[tail] = other
                    tail += 1
    for t in range(distance.size):
        distance[t] = max(distance[t], 0)
    return queue[tail - 1]


@jit
def _set_potential(graph: Any, direction: int, state: Any) -> None:
    """Set how far each tensor is from the end to which the front goes."""
    distance, beside = state.distance, state.beside
    if direction == TO_RESULT:
        _distances(graph, distance.size - 1, distance, state)
        return
    # Two searches find a pseudo-diameter: the last tensor reached from any, and the last one reached from
    # that (George and Liu, 1979, for profile reduction).
    end = _distances(graph, draw_below(state.random, distance.size), distance, state)
    opposite = _distances(graph, end, distance, state)
    if direction == OBLIQUE:
        return
    _distances(graph, opposite, beside, state)
    # A tensor that is far from both ends is at the side; the difference of two distances grows across the
    # network.
    halfway = 0
    for t in range(distance.size):
        if min(distance[t], beside[t]) > min(distance[halfway], beside[halfway]):
            halfway = t
    _distances(graph, halfway, beside, state)
    for t in range(distance.size):
        distance[t] -= beside[t]


@jit
def run_front(graph: Any, pull: float, direction: int, noise: float, state: Any) -> None:
    """Make the pairs."""
    _set_potential(graph, direction, state)
    shuffle(state.random, state.order)
    heap, position, key = state.heap, state.position, state.key
    n = state.distance.size
    nth, start, last = -1, 0, -1
    for t in range(n):
        if state.distance[t] > state.distance[start]:
            start = t
    put(heap, position, key, start, 0.0)
    # The result is the last tensor by its number. It counts as taken from the start, and is joined after all
    # others.
    steps = n - 1 if direction == TO_RESULT else n
    state.done[n - 1] = steps < n
    for step in range(steps):
        # A component is used up: the front goes on from any tensor that is not in it.
        if heap[-1] == 0:
            nth += 1
            while state.done[state.order[nth]]:
                nth += 1
            put(heap, position, key, state.order[nth], 0.0)
        t = heap[0]
        remove(heap, position, key, t)
        state.done[t] = 1
        if step > 0:
            state.pairs[0, step - 1], state.pairs[1, step - 1] = last, t
        # Invariant: product number s of a path (SSA) is n + s, and the pair of step s makes number s - 1, as
        # the first step takes a tensor and makes no pair.
        last = t if step == 0 else n + step - 1
        for q in range(graph.tensor_starts[t], graph.tensor_starts[t + 1]):
            state.left[graph.indices[q]] -= 1
        for q in range(graph.tensor_starts[t], graph.tensor_starts[t + 1]):
            u = graph.indices[q]
            # Nothing else changes what the others of an index make of the front.
            if state.left[u] != state.whole[u] - 1 and state.left[u] != 1:
                continue
            for p in range(graph.index_starts[u], graph.index_starts[u + 1]):
                other = graph.tensors[p]
                if state.done[other]:
                    continue
                if state.seen[other] < 0:
                    state.seen[other] = step
                # Sloan's priority: growth of the front, less so far from the other end; the longer a tensor
                # waits, the sooner.
                value = AGE * state.seen[other] - pull * state.distance[other]
                value += noise * draw_uniform(state.random)
                put(heap, position, key, other, value + _growth(graph, state, other))
    if 0 < steps < n:
        state.pairs[0, n - 2], state.pairs[1, n - 2] = last, n - 1


@jit
def _growth(graph: Any, state: Any, t: int) -> float:
    """How many bits the front grows by when it takes a tensor."""
    # Invariant: left[u] counts the tensors of u not in the front. At `whole` the index is new to the front,
    # at 1 this tensor is the last of it and it is summed; one on this tensor alone does both.
    bits = 0.0
    for q in range(graph.tensor_starts[t], graph.tensor_starts[t + 1]):
        u = graph.indices[q]
        if state.left[u] == state.whole[u]:
            bits += graph.weights[u]
        if state.left[u] == 1:
            bits -= graph.weights[u]
    return bits

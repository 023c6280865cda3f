"""Sizes and steps of all nodes of a tree, with the legs of few of them in memory at a time. Compiled.

Products are made in an order in which the legs that are needed again lie on a stack. The sub-trees of those
have no tensor in common, so that the stack is no larger than the network. Nodes and legs are those of
`legs_kernel`. `slice_to_bits` slices indices until every tensor is within a limit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tnplan.planner.search.annealer.anneal_state import Price
from tnplan.planner.search.subtrees.ancestor_kernel import node_sizes
from tnplan.planner.search.subtrees.legs_kernel import (
    Floats,
    Ints,
    Legs,
    jit,
    join,
    products_in_order,
    total_bits,
)

NEGLIGIBLE_BITS = 60.0
"""A step that costs 2^-NEGLIGIBLE_BITS of the largest has no say in shares."""
SLACK = 1e-9
BITS_AT_ONCE = 6.0
MANY_NODES = 10_000
"""Nodes from which on a tree is measured without its legs: of a wide tree there are thousands a node."""
LEGS_AT_ONCE = 2**23
"""Of tensors over the limit whose legs are in memory at a time."""


class NodeSizes(NamedTuple):
    """A tree's nodes, without their legs."""

    size: Floats
    """(N): log2 of the elements."""
    span: Floats
    """(N): log2 of the multiply-adds of a product; minus infinity for a tensor."""
    length: Ints
    """(N): how many legs a node has."""


class KeptLegs(NamedTuple):
    """The legs of some nodes."""

    first: Ints
    """(N): where those of a node begin in `indices`; -1 for other nodes."""
    indices: Ints
    used: Ints
    """(1): places of `indices` that are taken."""
    share: Floats
    """(I), or empty: the multiply-adds of the steps that each index is in, in those of the largest step."""
    most: float
    """log2 of the multiply-adds of the largest step."""


def measured(graph: Any, weights: Floats, left: Ints, right: Ints) -> NodeSizes:
    """Measure a tree. `weights`: log2 of extents, 0 for what is sliced."""
    if left.size >= MANY_NODES:
        return NodeSizes(*node_sizes(graph, weights, left, right))
    nothing = KeptLegs(np.full(left.size, -1), np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0), 0.0)
    stack = _new_stack(graph, weights, left.size)
    run_measure(graph, weights, (left, right, products_in_order(left, right, left.size - 1)), stack, nothing)
    return NodeSizes(stack.size, stack.span, stack.length)


def kept_legs(
    graph: Any, weights: Floats, left: Ints, right: Ints, sizes: NodeSizes, nodes: Ints, shares: bool = False
) -> KeptLegs:
    """The legs of these nodes of a tree that was measured; with `shares` those of all indices too."""
    # -1: not wanted; 0: wanted, until `_keep` writes where the legs are.
    first = np.full(left.size, -1)
    first[nodes] = 0
    stored = KeptLegs(
        first, np.empty(int(sizes.length[nodes].sum()), np.int64), np.zeros(1, np.int64),
        np.zeros(weights.size if shares else 0), float(sizes.span.max()),
    )  # fmt: skip
    stack = _new_stack(graph, weights, left.size)
    run_measure(graph, weights, (left, right, products_in_order(left, right, left.size - 1)), stack, stored)
    return stored


def tree_cost(graph: Any, weights: Floats, left: Ints, right: Ints, price: Price) -> Any:
    """log2 of the cost of one slice of a tree, of its largest tensor, and how many legs all nodes have."""
    nodes = measured(graph, weights, left, right)
    bits, largest = total_bits(nodes.size, nodes.span, price, left, right)
    return float(bits), float(largest), int(nodes.length.sum())


def _new_stack(graph: Any, weights: Floats, nodes: int) -> Legs:
    """Legs of no node yet, with space for the stack and one more product."""
    n = (nodes + 1) // 2
    entries = int(graph.tensor_starts[n])
    return Legs(
        np.zeros(nodes, np.int64), np.zeros(nodes, np.int64), np.empty((2, 2 * entries + 2), np.int64),
        np.zeros(1, np.int64), np.zeros(nodes), np.full(nodes, -np.inf), np.diff(graph.index_starts),
        np.full(weights.size, -1),
    )  # fmt: skip


@jit
def run_measure(graph: Any, weights: Any, tree: Any, stack: Any, stored: Any) -> None:
    """Make all products of a tree; keep the legs of nodes whose entry in `stored.first` is not -1.

    A tree is the left and the right operands of its nodes, and the order of its products.
    """
    left, right, order = tree
    n = (left.size + 1) // 2
    if order.size == 0:
        _push(graph, weights, 0, stack)
        _keep(stack, 0, stored)
    for v in order:
        a, b = left[v], right[v]
        for half in range(2):
            t = b if half else a
            if t < n:
                _push(graph, weights, t, stack)
                _keep(stack, t, stored)
        # Invariant: the legs of a and b are the two top entries of the stack, since a sub-tree is one run of
        # the order. Their product is made above them and moved down to where the lower one began.
        bottom = min(stack.start[a], stack.start[b])
        join(stack, weights, a, b, v)
        # Shares are relative to the largest step, so that nothing overflows; what is 2^-60 of it is lost in
        # the sum.
        if stored.share.size > 0 and stack.span[v] >= stored.most - NEGLIGIBLE_BITS:
            _add_share(stack, a, b, np.exp2(stack.span[v] - stored.most), stored.share)
        for q in range(stack.length[v]):
            stack.pool[0, bottom + q] = stack.pool[0, stack.start[v] + q]
            stack.pool[1, bottom + q] = stack.pool[1, stack.start[v] + q]
        stack.start[v] = bottom
        stack.used[0] = bottom + stack.length[v]
        _keep(stack, v, stored)


@jit
def _add_share(stack: Any, a: int, b: int, cost: float, share: Any) -> None:
    """Add the cost of a step to what its indices have."""
    for q in range(stack.start[a], stack.start[a] + stack.length[a]):
        stack.mark[stack.pool[0, q]] = 0
        share[stack.pool[0, q]] += cost
    for q in range(stack.start[b], stack.start[b] + stack.length[b]):
        if stack.mark[stack.pool[0, q]] < 0:
            share[stack.pool[0, q]] += cost
    for q in range(stack.start[a], stack.start[a] + stack.length[a]):
        stack.mark[stack.pool[0, q]] = -1


@jit
def _push(graph: Any, weights: Any, t: int, stack: Any) -> None:
    """Put the legs of a tensor on the stack."""
    used, size = stack.used[0], 0.0
    stack.start[t] = used
    for q in range(graph.tensor_starts[t], graph.tensor_starts[t + 1]):
        u = graph.indices[q]
        stack.pool[0, used], stack.pool[1, used] = u, 1
        size += weights[u]
        used += 1
    stack.length[t] = used - stack.used[0]
    stack.size[t], stack.used[0] = size, used


@jit
def _keep(stack: Any, v: int, stored: Any) -> None:
    """Copy the legs of a node that are on top of the stack, if they are to be kept."""
    if stored.first[v] < 0:
        return
    used = stored.used[0]
    stored.first[v] = used
    for q in range(stack.length[v]):
        stored.indices[used + q] = stack.pool[0, stack.start[v] + q]
    stored.used[0] = used + stack.length[v]


def slice_to_bits(graph: Any, weights: Floats, may: Any, left: Ints, right: Ints, limit: float) -> bool:
    """Slice indices until no tensor is over 2^limit; whether that can be.

    Each tensor over it, the largest first, gives the index that is in the costliest steps, and another one
    for each BITS_AT_ONCE bits, unless one of its own is taken already; then all is counted again. `weights`
    becomes 0 for what is sliced; `may` says which are allowed.
    """
    while True:
        sizes = measured(graph, weights, left, right)
        over = np.flatnonzero(sizes.size > limit + SLACK)
        if over.size == 0:
            return True
        # The largest first: what they give is often on the smaller ones too, which then give nothing of their
        # own.
        over = over[np.argsort(-sizes.size[over])]
        over = over[: max(1, int(np.searchsorted(np.cumsum(sizes.length[over]), LEGS_AT_ONCE)))]
        stored = kept_legs(graph, weights, left, right, sizes, over, shares=True)
        free = (may & (weights > 0.0)).astype(np.int64)
        taken = np.zeros(weights.size, np.int64)
        if not take_indices(stored, sizes, over, limit, free, taken):
            return False
        weights[taken > 0] = 0.0


@jit
def take_indices(stored: Any, sizes: Any, over: Any, limit: float, free: Any, taken: Any) -> int:
    """Mark what each of the tensors over the limit gives; how many indices these are."""
    many = 0
    for v in over:
        first, last = stored.first[v], stored.first[v] + sizes.length[v]
        mine = 0
        for q in range(first, last):
            mine += taken[stored.indices[q]]
        # One of its indices is taken in this pass: whether that is enough the next count says.
        if mine > 0:
            continue
        for _ in range(1 + int((sizes.size[v] - limit) / BITS_AT_ONCE)):
            best = -1
            for q in range(first, last):
                u = stored.indices[q]
                if free[u] and not taken[u] and (best < 0 or stored.share[u] > stored.share[best]):
                    best = u
            if best >= 0:
                taken[best] = 1
                many += 1
    return many

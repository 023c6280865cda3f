"""What all slices of a tree cost whose root is its waist, and where the waist costs least.

The root's children are the tops of two sides. A sliced bit whose inputs are all on one side is summed there:
the other side is computed once for all of its values. Bits with inputs on both sides are loops around both.
The last step is taken with one side whole, the one of which that saves more. Knows no moves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.bits_kernel import count_bits as ones_of
from tnplan.common.kernels.kernel import kernel
from tnplan.planner.search.annealer.anneal_state import COST, HELD, LARGEST, OVER, WAIST

EXACT = 2.0**53
jit = kernel(nogil=True, error_model="numpy")
LOWER = 1.0 - 1e-9
BELOW, ABOVE, INNER, OUTER = 0, 1, 2, 3


@jit
def size_of(problem: Any, unsliced: Any, a: Any, b: Any) -> float:
    """Elements over the union of two sets of legs, without sliced bits."""
    size = 1.0
    for s in range(problem.segments.size - 1):
        ones = 0
        for i in range(problem.segments[s], problem.segments[s + 1]):
            ones += ones_of((a[i] | b[i]) & unsliced[i])
        size *= problem.powers[s, ones]
    return min(size, LARGEST)


@jit
def step_cost(price: Any, span: float, a: float, b: float, c: float) -> float:
    """What a step costs whose tensors have so many elements: see `Price`."""
    return max(price.products * span + price.written * c, price.moved * (a + b + c))


@jit
def excess(limit: float, size: float) -> float:
    """What a tensor is over the limit, in limits."""
    return max(size / limit - 1.0, 0.0)


@jit
def restore(problem: Any, state: Any, tree: Any, scratch: Any) -> None:
    """Make `state` that of a tree and its unsliced bits, a `Best`. The inputs' legs must stand in it.

    `scratch` (2, N, W) is written over.
    """
    nodes = state.left.size
    n = (nodes + 1) // 2
    words = state.unsliced.size
    for v in range(nodes):
        state.left[v], state.right[v], state.parent[v] = tree.left[v], tree.right[v], tree.parent[v]
    for i in range(words):
        state.unsliced[i] = tree.unsliced[i]
    state.counts[0] = 0
    for j in range(state.position.size):
        state.position[j] = -1
        if not (state.unsliced[j >> 6] >> np.uint64(j & 63)) & np.uint64(1):
            state.position[j] = state.counts[0]
            state.sliced[state.counts[0]] = j
            state.counts[0] += 1
    # Only the inputs' legs stand; those of products, then sizes, steps, sides and totals follow from the
    # tree.
    _set_legs(problem, state, scratch)
    for v in range(nodes):
        state.size[v] = size_of(problem, state.unsliced, state.legs[v], state.legs[v])
    for v in range(n, nodes):
        a, b = state.left[v], state.right[v]
        state.span[v] = size_of(problem, state.unsliced, state.legs[a], state.legs[b])
        state.cost[v] = step_cost(
            problem.price, state.span[v], state.size[a], state.size[b], state.size[v]
        )  # fmt: skip
    take_sides(problem, state, state.counts[3])
    add_up(problem, state)


@jit
def _set_legs(problem: Any, state: Any, scratch: Any) -> None:
    """The root, and the legs of products: what is in a tensor below and in one outside, or open."""
    # A leg of v is an index below v that is outside of v as well: below(v) from the leaves up, outside(v) =
    # outside(parent) | below(sibling) from the root down, legs(v) = below(v) & outside(v).
    below, outside, order = scratch[0], scratch[1], state.reached
    nodes = state.left.size
    n = (nodes + 1) // 2
    root = _root_of(state)
    state.counts[3] = root
    _put_in_order(state, root)
    for q in range(nodes - 1, -1, -1):
        v = order[q]
        for i in range(state.unsliced.size):
            if v < n:
                below[v, i] = state.legs[v, i]
            else:
                below[v, i] = below[state.left[v], i] | below[state.right[v], i]
    for i in range(state.unsliced.size):
        outside[root, i] = problem.open[i]
    for q in range(nodes):
        v = order[q]
        if v < n:
            continue
        a, b = state.left[v], state.right[v]
        for i in range(state.unsliced.size):
            outside[a, i] = outside[v, i] | below[b, i]
            outside[b, i] = outside[v, i] | below[a, i]
            state.legs[v, i] = below[v, i] & outside[v, i]


@jit
def _root_of(state: Any) -> int:
    """The root of the tree."""
    v = 0
    while state.parent[v] >= 0:
        v = state.parent[v]
    return v


@jit
def _put_in_order(state: Any, root: int) -> None:
    """All nodes in `reached`, each after its parent."""
    n = (state.left.size + 1) // 2
    order = state.reached
    # Breadth first. Invariant: read backwards every node comes after its children.
    order[0] = root
    filled = 1
    for q in range(state.left.size):
        v = order[q]
        if v >= n:
            order[filled], order[filled + 1] = state.left[v], state.right[v]
            filled += 2


@jit
def add_up(problem: Any, state: Any) -> None:
    """The totals from the costs, sizes and sides of the nodes."""
    sum_up(problem, state)
    count_inside(problem, state)
    set_cost(problem, state)


@jit
def sum_up(problem: Any, state: Any) -> None:
    """The sums of the sides, and what is over the limit, from the costs, sizes and sides of the nodes."""
    n = (state.left.size + 1) // 2
    # From scratch, in the order of the nodes: the rounding of a block's many small changes is gone.
    over, many = 0.0, 0
    state.sums[0], state.sums[1], state.sums[WAIST] = 0.0, 0.0, 0.0
    for v in range(state.left.size):
        if v >= n:
            state.sums[state.side[v]] += state.cost[v]
        if state.size[v] > problem.limit:
            over += excess(problem.limit, state.size[v])
            many += 1
    state.totals[OVER] = over
    state.counts[1] = many


@jit
def take_sides(problem: Any, state: Any, root: int) -> None:
    """The sides of all nodes from the tree, and their cost. While nothing is sliced all is side 0."""
    n = (state.left.size + 1) // 2
    stack = state.reached
    # Without slices there is nothing that one side could be spared: one sum for all steps.
    if state.counts[0] == 0:
        for v in range(state.left.size):
            state.side[v] = 0
        state.sums[0], state.sums[1], state.sums[WAIST] = 0.0, 0.0, 0.0
        for v in range(n, state.left.size):
            state.sums[0] += state.cost[v]
        state.inside[0], state.inside[1] = 1.0, 1.0
        set_cost(problem, state)
        return
    state.side[root] = WAIST
    state.sums[WAIST] = state.cost[root]
    for side in range(2):
        stack[0] = state.right[root] if side else state.left[root]
        many, total = 1, 0.0
        while many:
            many -= 1
            v = stack[many]
            state.side[v] = side
            if v >= n:
                total += state.cost[v]
                stack[many], stack[many + 1] = state.left[v], state.right[v]
                many += 2
        state.sums[side] = total
    count_inside(problem, state)
    set_cost(problem, state)


@jit
def side_of_bit(problem: Any, state: Any, j: int) -> int:
    """The side on which all inputs of a bit are, or WAIST; always this one where slices share nothing, and
    for an open bit, which is summed nowhere."""
    if not problem.shares or (problem.open[j >> 6] >> np.uint64(j & 63)) & np.uint64(1):
        return WAIST
    q, last = problem.leaf_starts[j], problem.leaf_starts[j + 1]
    side = state.side[problem.leaves[q]]
    while q < last and state.side[problem.leaves[q]] == side:
        q += 1
    return side if q == last else WAIST


@jit
def count_inside(problem: Any, state: Any) -> None:
    """The products of the extents of the sliced bits inside of each side."""
    state.inside[0], state.inside[1] = 1.0, 1.0
    for q in range(state.counts[0]):
        j = state.sliced[q]
        side = side_of_bit(problem, state, j)
        if side != WAIST:
            state.inside[side] = min(state.inside[side] * problem.extents[j], LARGEST)


@jit
def set_cost(problem: Any, state: Any) -> None:
    """The cost from the sums of the sides and what is sliced inside of them, and what the waist is over."""
    share, sums = state.share, state.sums
    # Bits sliced inside of side 1 are unknown to side 0, which is computed once for all of their values. The
    # last step is done with one side whole, and as seldom as the rarer of both.
    share[0], share[1] = 1.0 / state.inside[1], 1.0 / state.inside[0]
    share[WAIST] = min(share[0], share[1])
    state.totals[COST] = sums[0] * share[0] + sums[1] * share[1] + sums[WAIST] * share[WAIST]
    state.totals[HELD] = 0.0
    # Only where a side is summed is its result held meanwhile: the tensor at the waist is that of a child of
    # the root, and both children have the same legs, as nothing is open.
    if state.inside[0] * state.inside[1] > 1.0:
        state.totals[HELD] = excess(problem.waist_limit, state.size[state.left[state.counts[3]]])


@jit
def turn(state: Any, x: int, p: int, a: int, b: int, c: int) -> None:
    """p = (x c) with x = (a b) becomes p = (x b) with x = (a c); sizes and costs are left."""
    legs = state.legs
    for i in range(state.unsliced.size):
        legs[x, i] = (legs[a, i] | legs[c, i]) & (legs[b, i] | legs[p, i])
    state.left[x], state.right[x], state.parent[c] = a, c, x
    state.left[p], state.right[p], state.parent[b] = x, b, p


@jit
def _summed(problem: Any, state: Any, a: int, b: int, v: int) -> float:
    """The product of the extents of sliced bits of a or b that v does not have."""
    legs, unsliced = state.legs, state.unsliced
    product = 1.0
    for s in range(problem.segments.size - 1):
        ones = 0
        for i in range(problem.segments[s], problem.segments[s + 1]):
            ones += ones_of((legs[a, i] | legs[b, i]) & ~legs[v, i] & ~unsliced[i])
        product *= problem.powers[s, ones]
    return min(product, LARGEST)


@jit
def settle(problem: Any, state: Any) -> None:
    """Move the root to the edge at which all slices cost least, of all edges.

    With open indices the root stays: elsewhere the steps would have other legs. So it does where nothing is
    sliced, or slices share nothing, or the cost would be no less and the waist is not over its limit.
    """
    for i in range(state.unsliced.size):
        if problem.open[i]:
            return
    if state.counts[0] == 0 or not problem.shares:
        return
    n = (state.left.size + 1) // 2
    order, scan = state.reached, state.scan
    root = state.counts[3]
    # The cost of all places of the root by two passes over the tree (rerooting): what lies below each edge,
    # then what lies above it. INNER and OUTER are the extents of what is sliced on either side alone.
    _put_in_order(state, root)
    for q in range(state.left.size - 1, 0, -1):
        v = order[q]
        scan[BELOW, v], scan[INNER, v] = 0.0, 1.0
        if v >= n:
            a, b = state.left[v], state.right[v]
            scan[BELOW, v] = scan[BELOW, a] + scan[BELOW, b] + state.cost[v]
            # Sliced inside of v: inside of a child, or summed at the step of v.
            inner = scan[INNER, a] * scan[INNER, b] * _summed(problem, state, a, b, v)
            scan[INNER, v] = min(inner, LARGEST)
    chosen, least = -1, state.totals[COST] * LOWER if state.totals[HELD] == 0.0 else np.inf
    for q in range(1, state.left.size):
        v = order[q]
        p = state.parent[v]
        beside = state.right[p] if state.left[p] == v else state.left[p]
        # The root is a point on an edge: above one of its children is the other one.
        if p == root:
            scan[ABOVE, v], scan[OUTER, v] = scan[BELOW, beside], scan[INNER, beside]
        else:
            scan[ABOVE, v] = scan[ABOVE, p] + scan[BELOW, beside] + state.cost[p]
            outer = scan[OUTER, p] * scan[INNER, beside] * _summed(problem, state, p, beside, v)
            scan[OUTER, v] = min(outer, LARGEST)
        # At an edge whose tensor is too large to be held the root may only be where nothing is summed on a
        # side.
        if state.size[v] > problem.waist_limit and scan[INNER, v] * scan[OUTER, v] > 1.0:
            continue
        last = step_cost(problem.price, state.size[v], state.size[v], state.size[v], 1.0)
        most = max(scan[INNER, v], scan[OUTER, v])
        # As in `set_cost`: each side once for all values of what is sliced in the other, the last step once
        # for all values of the larger of the two.
        cost = scan[BELOW, v] / scan[OUTER, v] + scan[ABOVE, v] / scan[INNER, v] + last / most
        if cost < least:
            chosen, least = v, cost
    if chosen >= 0:
        _root_above(problem, state, root, chosen)


@jit
def _root_above(problem: Any, state: Any, root: int, v: int) -> None:
    """Move the root of a tree without open indices to the edge above v."""
    path, size = state.reached, state.size
    many = 0
    while state.parent[v] >= 0:
        path[many] = v
        many += 1
        v = state.parent[v]
    # Rotations carry the root down the path, one node at a time: each takes x off the path and puts it beside
    # the part above. Legs change for x alone; it is then the tensor of the edge to b, seen from the other
    # side.
    for q in range(many - 1, 0, -1):
        x, b = path[q], path[q - 1]
        a = state.right[x] if state.left[x] == b else state.left[x]
        c = state.right[root] if state.left[root] == x else state.left[root]
        turn(state, x, root, a, b, c)
        size[x] = size[b]
    # The last step of a tree without open indices is an inner product of two tensors of the same legs.
    top = path[0]
    state.span[root] = size[top]
    state.cost[root] = step_cost(problem.price, size[top], size[top], size[top], size[root])
    for q in range(1, many):
        x = path[q]
        state.span[x] = size_of(
            problem, state.unsliced, state.legs[state.left[x]], state.legs[state.right[x]]
        )  # fmt: skip
        state.cost[x] = step_cost(
            problem.price, state.span[x], size[state.left[x]], size[state.right[x]], size[x]
        )  # fmt: skip
    take_sides(problem, state, root)
    add_up(problem, state)

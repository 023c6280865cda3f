"""Sizes of all nodes of a tree without their legs: each index counts at the nodes where it begins and ends.

An index is on a node whose sub-tree has some of its tensors, and not all. With the tensors of an index in the
order of the leaves, the lowest common ancestors of neighbours tell how many different indices a sub-tree has:
the sum over its leaves counts an index once for each tensor, and each such ancestor takes one off. An index
ends at the ancestor of all its tensors. So a tree takes a time that grows with the entries of the network,
whatever its width is. Compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.planner.search.subtrees.legs_kernel import Floats, Ints, jit, products_in_order

FIXED_BITS = 44
"""Weights are summed as whole numbers of 2^-44: sums that grow and fall again lose nothing, and what is more
than 64 bits on the way comes back. 60 legs are exact to 2e-12."""


def node_sizes(graph: Any, weights: Floats, left: Ints, right: Ints) -> tuple[Floats, Floats, Ints]:
    """log2 of the elements of each node and of the multiply-adds of its product, and how many legs it has.

    The second is minus infinity for a tensor.
    """
    n, order = (left.size + 1) // 2, products_in_order(left, right, left.size - 1)
    fixed = np.rint(weights * 2.0**FIXED_BITS).astype(np.int64)
    sums = np.zeros((2, 2, left.size), np.int64)  # bits and legs; different indices, and those that end here
    count_at_ancestors((graph.index_starts, graph.tensors, fixed), (left, right, order), sums)
    (found, ended), (legs, ended_legs) = sums
    here = ended.copy()
    add_up((left, right, order), sums)
    size = (found - ended) * 2.0**-FIXED_BITS
    span = size + here * 2.0**-FIXED_BITS
    span[:n] = -np.inf
    return size, span, legs - ended_legs


@jit
def count_at_ancestors(indices: Any, tree: Any, sums: Any) -> None:
    """What each index adds and takes off at single nodes.

    Ancestors are found along heavy paths: to the larger child a path goes on, so that a leaf is below at most
    log2 of all nodes such paths.
    """
    starts, tensors, fixed = indices
    left, right, order = tree
    n = (left.size + 1) // 2
    leaves = np.ones(left.size, np.int32)
    parent = np.full(left.size, -1, np.int32)
    for v in order:
        leaves[v] = leaves[left[v]] + leaves[right[v]]
        parent[left[v]], parent[right[v]] = v, v
    head, depth = np.arange(left.size).astype(np.int32), np.zeros(left.size, np.int32)
    first = np.zeros(left.size, np.int32)  # number of the first leaf below, from left to right
    for k in range(order.size - 1, -1, -1):
        v = order[k]
        a, b = left[v], right[v]
        depth[a], depth[b] = depth[v] + 1, depth[v] + 1
        first[a], first[b] = first[v], first[v] + leaves[a]
        larger = a if leaves[a] >= leaves[b] else b
        head[larger] = head[v]
    leaf_at = np.zeros(n, np.int32)
    for t in range(n):
        leaf_at[first[t]] = t
    for u in range(starts.size - 1):
        inside, is_open = 0, False
        places = np.zeros(starts[u + 1] - starts[u], np.int32)
        for q in range(starts[u], starts[u + 1]):
            if tensors[q] < n:
                places[inside] = first[tensors[q]]
                inside += 1
            else:
                is_open = True
        places = np.sort(places[:inside])
        end = -1
        for k in range(inside):
            leaf = leaf_at[places[k]]
            sums[0, 0, leaf] += fixed[u]
            sums[1, 0, leaf] += 1
            if k == 0:
                end = parent[leaf]  # of a single tensor: the index is there, and is summed in its product
                continue
            v = common(leaf_at[places[k - 1]], leaf, parent, head, depth)
            sums[0, 0, v] -= fixed[u]
            sums[1, 0, v] -= 1
            if k == inside - 1:
                end = common(leaf_at[places[0]], leaf, parent, head, depth)
        if end >= 0 and not is_open:
            sums[0, 1, end] += fixed[u]
            sums[1, 1, end] += 1


@jit
def common(a: Any, b: Any, parent: Any, head: Any, depth: Any) -> Any:
    """The lowest common ancestor of two nodes."""
    while head[a] != head[b]:
        if depth[head[a]] >= depth[head[b]]:
            a = parent[head[a]]
        else:
            b = parent[head[b]]
    return a if depth[a] < depth[b] else b


@jit
def add_up(tree: Any, sums: Any) -> None:
    """Sums over sub-trees from what is at single nodes, in place."""
    left, right, order = tree
    for v in order:
        for i in range(2):
            for j in range(2):
                sums[i, j, v] += sums[i, j, left[v]] + sums[i, j, right[v]]

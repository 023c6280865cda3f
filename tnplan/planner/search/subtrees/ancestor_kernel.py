"""Sizes of all nodes of a tree without their legs: each index counts at the nodes where it begins and ends.

An index is on a node whose sub-tree has some of its tensors, and not all. With the tensors of an index in the
order of the leaves, the lowest common ancestors of neighbours tell how many different indices a sub-tree has:
the sum over its leaves counts an index once for each tensor, and each such ancestor takes one off. An index
ends at the ancestor of all its tensors. So a tree takes a time that grows with the entries of the network,
whatever its width is. Compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tnplan.planner.search.subtrees.legs_kernel import Floats, Ints, jit, products_in_order

int64: Any = np.int64
FIXED_BITS = 44
"""Weights are summed as whole numbers of 2^-44: sums that grow and fall again lose nothing, and what is more
than 64 bits on the way comes back. 60 legs are exact to 2e-12."""


def node_sizes(graph: Any, weights: Floats, left: Ints, right: Ints) -> tuple[Floats, Floats, Ints]:
    """log2 of the elements of each node and of the multiply-adds of its product, and how many legs it has.

    The second is minus infinity for a tensor.
    """
    n, tree = (left.size + 1) // 2, (left, right, products_in_order(left, right, left.size - 1))
    paths = HeavyPaths(*np.zeros((5, left.size), np.int32))
    follow_paths(tree, paths)
    leaf_at = np.argsort(paths.first[:n])
    # The tensors of each index from left to right; the result, of which open indices are, is behind all.
    leaf_numbers = np.append(paths.first[:n], np.full(max(0, graph.n_tensors - n), n))[graph.tensors]
    numbers = np.repeat(np.arange(weights.size), np.diff(graph.index_starts))
    leaf_numbers = leaf_numbers[np.lexsort((leaf_numbers, numbers))].astype(np.int64)
    fixed = np.rint(weights * 2.0**FIXED_BITS).astype(np.int64)
    sums = np.zeros((2, 2, left.size), np.int64)  # bits and legs; different indices, and those that end here
    count_at_ancestors((graph.index_starts, leaf_numbers, fixed), paths, leaf_at, sums)
    (begun, ended), (legs, ended_legs) = sums
    ended_here = ended.copy()
    add_up(tree, sums)
    size = (begun - ended) * 2.0**-FIXED_BITS
    span = size + ended_here * 2.0**-FIXED_BITS
    span[:n] = -np.inf
    return size, span, legs - ended_legs


class HeavyPaths(NamedTuple):
    """Paths that go on from each node to its larger child, so that a leaf is below at most log2 of all nodes
    such paths. All int32 [node]."""

    parent: Any
    leaves: Any
    head: Any
    """The first node of its path."""
    depth: Any
    first: Any
    """The number of the first leaf below, from left to right."""


@jit
def follow_paths(tree: Any, paths: Any) -> None:
    """Fill in the paths of a tree."""
    left, right, order = tree
    for v in range((left.size + 1) // 2):
        paths.leaves[v] = 1
    root = left.size - 1
    paths.parent[root], paths.head[root] = -1, root
    for v in order:
        paths.leaves[v] = paths.leaves[left[v]] + paths.leaves[right[v]]
        paths.parent[left[v]], paths.parent[right[v]] = v, v
    for k in range(order.size - 1, -1, -1):
        v = order[k]
        a, b = left[v], right[v]
        paths.depth[a], paths.depth[b] = paths.depth[v] + 1, paths.depth[v] + 1
        paths.first[a], paths.first[b] = paths.first[v], paths.first[v] + paths.leaves[a]
        a_is_larger = paths.leaves[a] >= paths.leaves[b]
        paths.head[a] = paths.head[v] if a_is_larger else a
        paths.head[b] = b if a_is_larger else paths.head[v]


@jit
def count_at_ancestors(indices: Any, paths: Any, leaf_at: Any, sums: Any) -> None:
    """What each index adds and takes off at single nodes."""
    starts, leaf_numbers, fixed = indices
    n = leaf_at.size
    for u in range(starts.size - 1):
        end = -1
        for q in range(starts[u], starts[u + 1]):
            if leaf_numbers[q] == n:
                end = -1  # it is open
                break
            leaf = leaf_at[leaf_numbers[q]]
            sums[0, 0, leaf] += fixed[u]
            sums[1, 0, leaf] += 1
            if q == starts[u]:
                # Of a single tensor: the index is there, and is summed in its product.
                end = paths.parent[leaf]
                continue
            v = common(leaf_at[leaf_numbers[q - 1]], leaf, paths)
            sums[0, 0, v] -= fixed[u]
            sums[1, 0, v] -= 1
            end = common(leaf_at[leaf_numbers[starts[u]]], leaf, paths)
        if end >= 0:
            sums[0, 1, end] += fixed[u]
            sums[1, 1, end] += 1


@jit
def common(a: Any, b: Any, paths: Any) -> Any:
    """The lowest common ancestor of two nodes."""
    while paths.head[a] != paths.head[b]:
        if paths.depth[paths.head[a]] >= paths.depth[paths.head[b]]:
            a = int64(paths.parent[paths.head[a]])
        else:
            b = int64(paths.parent[paths.head[b]])
    return a if paths.depth[a] < paths.depth[b] else b


@jit
def add_up(tree: Any, sums: Any) -> None:
    """Sums over sub-trees from what is at single nodes, in place."""
    left, right, order = tree
    for v in order:
        for i in range(2):
            for j in range(2):
                sums[i, j, v] += sums[i, j, left[v]] + sums[i, j, right[v]]

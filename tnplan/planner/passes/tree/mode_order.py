"""Pass 2, reorder: the order in which every tensor stores its modes (paper, section IV-A).

One backward pass from the root: each operand takes [retained in the order of the output | reduced], batch
modes leading, so that every step is a matrix product on the data as it lies. Without batch modes the modes
of every tensor end up sorted by remaining lifetime, longest-lived first. Knows no devices.
"""

from __future__ import annotations

from tnplan.planner.passes.tree.build import Tree

Orders = tuple[tuple[int, ...], ...]


def mode_orders(tree: Tree) -> Orders:
    """The storage order of the modes of every node, leaves and root included.

    Modes reduced at the same step have equal lifetimes; they are ordered by the first leaf that holds them
    when heavier sub-trees come first, which keeps the runs of a producer's operands together.
    """
    first_leaf = _first_leaf(tree)
    orders: list[tuple[int, ...]] = [()] * tree.n_nodes
    orders[tree.root] = tree.output
    # The backward pass of section IV-A: an operand is rebuilt from what takes it, [batch | retained in the
    # order of the output | reduced]; reduced modes have the same order on both sides, so that k is one range.
    for number in range(len(tree.children) - 1, -1, -1):
        left, right = tree.children[number]
        output = orders[tree.n_leaves + number]
        left_legs, right_legs = set(tree.legs[left]), set(tree.legs[right])
        reduced = sorted(
            (left_legs & right_legs).difference(output), key=lambda mode: (first_leaf[mode], mode)
        )
        for node, legs, other in ((left, left_legs, right_legs), (right, right_legs, left_legs)):
            batch = [mode for mode in output if mode in legs and mode in other]
            kept = [mode for mode in output if mode in legs and mode not in other]
            orders[node] = (*batch, *kept, *reduced)
    return tuple(orders)


def _first_leaf(tree: Tree) -> dict[int, int]:
    """For every mode the position of its first leaf, heavier (larger) operands walked first."""
    position: dict[int, int] = {}
    stack = [tree.root]
    visited = 0
    while stack:
        node = stack.pop()
        if node < tree.n_leaves:
            for mode in tree.legs[node]:
                position.setdefault(mode, visited)
            visited += 1
            continue
        left, right = tree.children[node - tree.n_leaves]
        stack.extend((left, right) if tree.sizes[left] < tree.sizes[right] else (right, left))
    return position

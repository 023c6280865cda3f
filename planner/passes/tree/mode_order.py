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


def depths(tree: Tree) -> list[int]:
    """The number of contractions between each node and the root."""
    depth = [0] * tree.n_nodes
    for number in range(len(tree.children) - 1, -1, -1):
        for child in tree.children[number]:
            depth[child] = depth[tree.n_leaves + number] + 1
    return depth


def lifetime_order(tree: Tree, depth: list[int]) -> tuple[tuple[int, ...], ...]:
    """The modes of every node from longest-lived to shortest-lived.

    Of modes summed at the same step, those come first that are present on both sides for longest: two
    sub-trees that meet there can then hold the same modes without knowing of each other.
    """
    shallowest: dict[int, int] = {}
    for leaf in range(tree.n_leaves):
        for mode in tree.legs[leaf]:
            shallowest[mode] = min(depth[leaf], shallowest.get(mode, depth[leaf]))
    key = {
        mode: (-1 if node is None else depth[node], -shallowest[mode], mode)
        for mode, node in tree.death.items()
    }
    return tuple(tuple(sorted(legs, key=key.__getitem__)) for legs in tree.legs)


def _first_leaf(tree: Tree) -> dict[int, int]:
    """For every mode the position of its first leaf, heavier (larger) operands walked first."""
    weight = [tree.extent(legs) for legs in tree.legs]
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
        stack.extend((left, right) if weight[left] < weight[right] else (right, left))
    return position

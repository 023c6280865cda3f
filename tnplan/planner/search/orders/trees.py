"""From the pairs of an unrooted tree to one whose last product is the result. Knows no costs."""

from __future__ import annotations

from typing import Any

import numpy as np


def rooted(pairs: Any, n: int) -> list[tuple[int, int]]:
    """The pairs (SSA) of a tree over n tensors from those over n, or over n and the result as the last one.

    The result's own place becomes the root: what a step costs does not depend on where the root is.
    """
    steps = [(int(a), int(b)) for a, b in np.asarray(pairs).T]
    if len(steps) < n:
        return steps
    leaves = n + 1
    parent: dict[int, int] = {}
    for number, (a, b) in enumerate(steps):
        parent[a] = parent[b] = leaves + number
    names = {v: v for v in range(n)}
    made: list[tuple[int, int]] = []

    def product(a: int, b: int) -> int:
        made.append((a, b))
        return n + len(made) - 1

    path = [n]
    while path[-1] in parent:
        path.append(parent[path[-1]])
    turned = set(path)
    for number, (a, b) in enumerate(steps):
        if leaves + number not in turned:
            names[leaves + number] = product(names[a], names[b])
    # What hangs on the way from the root down to the result is contracted in that order.
    last: int | None = None
    for below, above in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
        a, b = steps[above - leaves]
        beside = names[a if b == below else b]
        last = beside if last is None else product(last, beside)
    return made


def path_of(left: np.ndarray, right: np.ndarray) -> tuple[tuple[int, int], ...]:
    """The path of a tree, whose root is the last node, from its children."""
    from tnplan.planner.search.subtrees.legs_kernel import products_in_order

    n = (left.size + 1) // 2
    order = products_in_order(left, right, left.size - 1)
    names = np.arange(left.size)
    names[order] = np.arange(n, left.size)
    return tuple(zip(names[left[order]].tolist(), names[right[order]].tolist(), strict=True))

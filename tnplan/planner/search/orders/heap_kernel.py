"""A binary heap over the numbers 0 .. n-1 with keys that may change, least key first. Compiled.

`heap` is (n + 1): the numbers in heap order, and how many there are at its end. `position` is (n): where a
number stands, or -1. `key` is (n).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.common.kernels.kernel import kernel

jit = kernel(nogil=True, error_model="numpy")


def new_heap(n: int) -> Any:
    """An empty heap: the heap, the places and the keys."""
    return np.zeros(n + 1, np.int64), np.full(n, -1, np.int64), np.zeros(n)


@jit
def _up(heap: Any, position: Any, key: Any, at: int) -> None:
    item = heap[at]
    while at > 0:
        # The hole rises or sinks, and the item is written once, at its end. Invariant: position[heap[i]] == i
        # for all items in the heap, and -1 for others.
        above = (at - 1) >> 1
        if key[heap[above]] <= key[item]:
            break
        heap[at] = heap[above]
        position[heap[at]] = at
        at = above
    heap[at] = item
    position[item] = at


@jit
def _down(heap: Any, position: Any, key: Any, at: int) -> None:
    n = heap[-1]
    item = heap[at]
    while True:
        below = 2 * at + 1
        if below >= n:
            break
        if below + 1 < n and key[heap[below + 1]] < key[heap[below]]:
            below += 1
        if key[heap[below]] >= key[item]:
            break
        heap[at] = heap[below]
        position[heap[at]] = at
        at = below
    heap[at] = item
    position[item] = at


@jit
def put(heap: Any, position: Any, key: Any, item: int, value: float) -> None:
    """Add a number, or change its key."""
    key[item] = value
    if position[item] < 0:
        position[item] = heap[-1]
        heap[heap[-1]] = item
        heap[-1] += 1
    # The key may have become smaller or larger: one of the two does nothing.
    _up(heap, position, key, position[item])
    _down(heap, position, key, position[item])


@jit
def remove(heap: Any, position: Any, key: Any, item: int) -> None:
    """Take a number out, if it is in."""
    at = position[item]
    if at < 0:
        return
    position[item] = -1
    heap[-1] -= 1
    last = heap[heap[-1]]
    # The last item fills the hole. It may belong above or below, since it comes from another branch.
    if last != item:
        heap[at] = last
        position[last] = at
        _up(heap, position, key, at)
        _down(heap, position, key, position[last])

"""Indices to slice until every tensor is within a limit. Compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.planner.search.subtrees.legs_kernel import Floats, Ints, jit
from tnplan.planner.search.subtrees.measure_kernel import kept_legs, measured

SLACK = 1e-9
BITS_AT_ONCE = 6.0
LEGS_AT_ONCE = 2**23
"""Of tensors over the limit whose legs are in memory at a time."""


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
        kept = kept_legs(graph, weights, left, right, sizes, over, shares=True)
        free = (may & (weights > 0.0)).astype(np.int64)
        taken = np.zeros(weights.size, np.int64)
        if not take_indices(kept, sizes, over, limit, free, taken):
            return False
        weights[taken > 0] = 0.0


@jit
def take_indices(kept: Any, sizes: Any, over: Any, limit: float, free: Any, taken: Any) -> int:
    """Mark what each of the tensors over the limit gives; how many indices these are."""
    many = 0
    for v in over:
        first, last = kept.first[v], kept.first[v] + sizes.length[v]
        mine = 0
        for q in range(first, last):
            mine += taken[kept.indices[q]]
        # One of its indices is taken in this pass: whether that is enough the next count says.
        if mine > 0:
            continue
        for _ in range(1 + int((sizes.size[v] - limit) / BITS_AT_ONCE)):
            best = -1
            for q in range(first, last):
                u = kept.indices[q]
                if free[u] and not taken[u] and (best < 0 or kept.share[u] > kept.share[best]):
                    best = u
            if best >= 0:
                taken[best] = 1
                many += 1
    return many

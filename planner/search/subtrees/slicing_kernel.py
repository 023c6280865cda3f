"""Indices to slice until every tensor is within a limit, with the legs as lists. Compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.planner.search.subtrees.legs_kernel import Floats, Ints, all_legs, jit

NEGLIGIBLE_BITS = 60.0
SLACK = 1e-9
BITS_AT_ONCE = 6.0


def slice_to_bits(
    graph: Any, weights: Floats, may: Any, left: Ints, right: Ints, order: Ints, limit: float
) -> bool:  # fmt: skip
    """Slice indices until no tensor is over 2^limit; whether that can be.

    Each tensor over it gives the index that is in the costliest steps, and another one for each BITS_AT_ONCE
    bits, unless one of its own is taken already; then all is counted again. `weights` becomes 0 for what is
    sliced; `may` says which are allowed.
    """
    saved = np.zeros(weights.size)
    while True:
        legs = all_legs(graph, weights, left, right, order)
        if legs.size.max() <= limit + SLACK:
            return True
        add_shares(legs, left, right, order, saved)
        free = (may & (weights > 0.0)).astype(np.int64)
        taken = np.zeros(weights.size, np.int64)
        over = np.flatnonzero(legs.size > limit + SLACK)
        if not take_indices(legs, over[np.argsort(-legs.size[over])], limit, saved, free, taken):
            return False
        weights[taken > 0] = 0.0


@jit
def take_indices(legs: Any, over: Any, limit: float, saved: Any, free: Any, taken: Any) -> int:
    """Mark what each of the tensors over the limit gives; how many indices these are."""
    many = 0
    for v in over:
        first, last = legs.start[v], legs.start[v] + legs.length[v]
        mine = 0
        for q in range(first, last):
            mine += taken[legs.pool[0, q]]
        if mine > 0:
            continue
        for _ in range(1 + int((legs.size[v] - limit) / BITS_AT_ONCE)):
            best = -1
            for q in range(first, last):
                u = legs.pool[0, q]
                if free[u] and not taken[u] and (best < 0 or saved[u] > saved[best]):
                    best = u
            if best >= 0:
                taken[best] = 1
                many += 1
    return many


@jit
def add_shares(legs: Any, left: Any, right: Any, order: Any, saved: Any) -> None:
    """For each index, the cost of the steps that it is in, in units of the costliest step."""
    most = 0.0
    for u in range(saved.size):
        saved[u] = 0.0
    for v in order:
        most = max(most, legs.span[v])
    for v in order:
        if legs.span[v] < most - NEGLIGIBLE_BITS:
            continue
        share = np.exp2(legs.span[v] - most)
        a, b = left[v], right[v]
        for q in range(legs.start[a], legs.start[a] + legs.length[a]):
            saved[legs.pool[0, q]] += share
            legs.mark[legs.pool[0, q]] = v
        for q in range(legs.start[b], legs.start[b] + legs.length[b]):
            if legs.mark[legs.pool[0, q]] != v:
                saved[legs.pool[0, q]] += share

"""Indices to slice until every tensor is within a limit, with the legs as lists. Compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from tnplan.planner.common.numba_cache import cached_njit
from tnplan.planner.search.subtrees.legs_kernel import all_legs

NEGLIGIBLE_BITS = 60.0
SLACK = 1e-9
BITS_AT_ONCE = 6.0


@cached_njit()
def slice_to_bits(
    graph: Any, weights: Any, may: Any, left: Any, right: Any, order: Any, limit: float
) -> bool:  # fmt: skip
    """Slice indices until no tensor is over 2^limit; whether that can be.

    Each tensor over it gives the index that is in the costliest steps, and another one for each BITS_AT_ONCE
    bits, unless one of its own is taken already; then all is counted again. `weights` becomes 0 for what is
    sliced; `may` says which are allowed.
    """
    saved, taken = np.zeros(weights.size), np.zeros(weights.size, np.bool_)
    while True:
        legs = all_legs(graph, weights, left, right, order)
        if legs.size.max() <= limit + SLACK:
            return True
        _add_shares(legs, left, right, order, saved)
        taken[:] = False
        found = False
        for v in np.argsort(-legs.size):
            if legs.size[v] <= limit + SLACK:
                break
            first, last = legs.start[v], legs.start[v] + legs.length[v]
            mine = False
            for q in range(first, last):
                mine = mine or taken[legs.pool[0, q]]
            if mine:
                continue
            for _ in range(1 + int((legs.size[v] - limit) / BITS_AT_ONCE)):
                best = -1
                for q in range(first, last):
                    u = legs.pool[0, q]
                    free = may[u] and weights[u] > 0.0 and not taken[u]
                    if free and (best < 0 or saved[u] > saved[best]):
                        best = u
                if best >= 0:
                    taken[best] = True
                    found = True
        if not found:
            return False
        for u in range(weights.size):
            if taken[u]:
                weights[u] = 0.0


@cached_njit()
def _add_shares(legs: Any, left: Any, right: Any, order: Any, saved: Any) -> None:
    """For each index, the cost of the steps that it is in, in units of the costliest step."""
    saved[:] = 0.0
    most = legs.span.max()
    for p in order:
        if legs.span[p] < most - NEGLIGIBLE_BITS:
            continue
        share = np.exp2(legs.span[p] - most)
        a, b = left[p], right[p]
        for q in range(legs.start[a], legs.start[a] + legs.length[a]):
            saved[legs.pool[0, q]] += share
            legs.mark[legs.pool[0, q]] = p
        for q in range(legs.start[b], legs.start[b] + legs.length[b]):
            if legs.mark[legs.pool[0, q]] != p:
                saved[legs.pool[0, q]] += share

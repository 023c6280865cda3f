"""The contraction path of a few tensors with the fewest multiply-adds, without a search.

The best order of a set of tensors S joins two parts A and B of it, each in its own best order:

    cost(S) = min over A + B = S of cost(A) + cost(B) + touched(S) / (summed(A) summed(B))

The last term is the multiply-adds of that step: the extents of all indices on tensors of S, but for those
that are on A alone, or on B alone, and were summed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from math import isfinite, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.planner.networks.network import Network

MOST_TENSORS = 10
FEW = 6
"""Of up to so many tensors the sets are gone through one by one, in less time than NumPy takes to begin."""


def cheapest_path(network: Network) -> tuple[tuple[int, ...], ...] | None:
    """The path of pairs with the fewest multiply-adds, by dynamic programming over sets of tensors; SSA
    numbers.

    None where there are too many tensors, or the product of all extents is beyond floating point.
    """
    n_tensors = len(network.inputs)
    if n_tensors > MOST_TENSORS or not isfinite(prod(map(float, network.size_dict.values()))):
        return None
    # Of each set of tensors, as bits: the product of the extents of the indices on these tensors alone; and
    # of those among them that are not open. At first of indices on all tensors of the set.
    alone, summed = [1.0] * (1 << n_tensors), [1.0] * (1 << n_tensors)
    holders = dict.fromkeys(network.size_dict, 0)
    for number, term in enumerate(network.inputs):
        for index in term:
            holders[index] |= 1 << number
    for index, tensors in holders.items():
        alone[tensors] *= network.size_dict[index]
        if index not in network.output:
            summed[tensors] *= network.size_dict[index]
    halves = _one_by_one if n_tensors <= FEW else _by_size
    return _steps(halves(alone, summed, n_tensors), n_tensors)


def _one_by_one(alone: list[float], summed: list[float], n_tensors: int) -> Sequence[int]:
    """One of the two parts of each set of tensors in its best order."""
    whole = (1 << n_tensors) - 1
    # Products over all subsets, one tensor after the other.
    for bit in (1 << number for number in range(n_tensors)):
        for tensors in range(whole + 1):
            if tensors & bit:
                alone[tensors] *= alone[tensors ^ bit]
                summed[tensors] *= summed[tensors ^ bit]
    costs, halves = [0.0] * (whole + 1), [0] * (whole + 1)
    for tensors in range(1, whole + 1):
        # The parts with the first tensor of the set, each beside what is left of it.
        first = tensors & -tensors
        part, others, least = tensors ^ first, tensors ^ first, float("inf")
        touched = alone[whole] / alone[whole ^ tensors]
        while part:
            part = (part - 1) & others
            a, b = part | first, others ^ part
            cost = costs[a] + costs[b] + touched / (summed[a] * summed[b])
            if cost < least:
                least, halves[tensors] = cost, a
        costs[tensors] = least if others else 0.0
    return halves


def _by_size(alone: Any, summed: Any, n_tensors: int) -> Sequence[int]:
    """The same by NumPy, for all sets of a size at once."""
    alone, summed = np.array(alone), np.array(summed)
    for products in (alone, summed):
        for number in range(n_tensors):
            pairs = products.reshape(-1, 2, 1 << number)
            pairs[:, 1] *= pairs[:, 0]
    touched, inverse = alone[-1] / alone[::-1], 1 / summed
    costs, halves = np.zeros(len(alone)), np.zeros(len(alone), np.int64)
    for tensors, a, b in _parts(n_tensors):
        parts = inverse[a] * inverse[b] * touched[tensors, None] + costs[a] + costs[b]
        least = parts.argmin(axis=1)[:, None]
        costs[tensors] = np.take_along_axis(parts, least, 1)[:, 0]
        halves[tensors] = np.take_along_axis(a, least, 1)[:, 0]
    return halves.tolist()


@lru_cache
def _parts(n_tensors: int) -> list[tuple[NDArray[np.int64], ...]]:
    """For each size from 2 on: the sets of so many tensors, their parts with the first tensor, and the rest
    beside each."""
    levels: list[tuple[NDArray[np.int64], ...]] = []
    for size in range(2, n_tensors + 1):
        bits = 1 << np.array(list(combinations(range(n_tensors), size)))
        chosen = np.arange(2 ** (size - 1) - 1)[:, None] >> np.arange(size - 1) & 1
        tensors, a = bits.sum(axis=1), bits[:, :1] + bits[:, 1:] @ chosen.T
        levels.append((tensors, a, tensors[:, None] ^ a))
    return levels


def _steps(halves: Sequence[int], n_tensors: int) -> tuple[tuple[int, ...], ...]:
    """The steps of the best order of all tensors."""
    steps: list[tuple[int, ...]] = []

    def number(tensors: int) -> int:
        if tensors.bit_count() == 1:
            return tensors.bit_length() - 1
        a = halves[tensors]
        steps.append(tuple(sorted((number(a), number(tensors ^ a)))))
        return n_tensors + len(steps) - 1

    number((1 << n_tensors) - 1)
    return tuple(steps)

"""Bucket elimination of networks whose indices have extent 2: the intermediates that codecs are measured on.

Dechter, Artificial Intelligence 113 (1999): each index has a bucket of the tensors of which it is the first
to be eliminated; a bucket's tensors are multiplied, the index is summed, the result goes to the bucket of its
own first index. Axes stand in the order of elimination, the last one first to go, as QTensor has them. Knows
networks and arrays; never codecs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from tnplan.planner.networks.network import Network

LOW_LOG2 = 12
SMALL_LOG2 = 12
"""Tensors of a bucket are multiplied together up to so many indices before the large product."""
CHOICES = 12
SLACK = 0.15

Array = NDArray[np.complex128]


@dataclass(frozen=True)
class Term:
    """A tensor: its indices as numbers in the order of elimination, falling, and its values, flat."""

    indices: tuple[int, ...]
    values: Array


def elimination_order(network: Network, tries: int, seed: int) -> tuple[list[str], int]:
    """The best of `tries` min-fill orders with random ties, and its width: indices of the largest result."""
    neighbours: dict[str, set[str]] = {index: set() for index in network.size_dict}
    for term in network.inputs:
        for index in term:
            neighbours[index] |= set(term) - {index}
    best: tuple[int, float, list[str]] | None = None
    for attempt in range(tries):
        widest = best[0] if best else len(neighbours)
        found = _one_order(neighbours, random.Random(seed * 1009 + attempt), widest)
        if found and (best is None or found[:2] < best[:2]):
            best = found
    assert best is not None
    return best[2], best[0]


def _one_order(
    neighbours: dict[str, set[str]], chance: random.Random, widest: int
) -> tuple[int, float, list[str]] | None:
    """Width, sum of 2^width and order; None as soon as it is wider than `widest`."""
    left = {index: set(others) for index, others in neighbours.items()}
    order: list[str] = []
    width, cost = 0, 0.0
    while left:
        least = min(len(others) for others in left.values()) + (chance.random() < SLACK)
        candidates = sorted(index for index, others in left.items() if len(others) <= least)
        few = chance.sample(candidates, min(CHOICES, len(candidates)))
        index = min(few, key=lambda one: (_fill(left, one), chance.random()))
        others = left.pop(index)
        width, cost = max(width, len(others)), cost + 2.0 ** len(others)
        if width > widest:
            return None
        for other in others:
            left[other] |= others
            left[other] -= {index, other}
        order.append(index)
    return width, cost, order


def _fill(left: dict[str, set[str]], index: str) -> int:
    others = left[index]
    return sum(len(others - left[other]) - 1 for other in others)


def eliminate(
    network: Network, arrays: Sequence[Array], order: Sequence[str],
    see: Callable[[int, Array], Array | None] = lambda rank, values: values,
) -> complex | None:  # fmt: skip
    """Contract a network without open indices. `see` is given the rank and the flat values of every result
    that is no number, and gives back the values to go on with, or None to stop."""
    number = {index: place for place, index in enumerate(order)}
    buckets: dict[int, list[Term]] = {}
    value = complex(1)
    for term, array in zip(network.inputs, arrays, strict=True):
        axes = sorted(range(len(term)), key=lambda axis: -number[term[axis]])
        indices = tuple(number[term[axis]] for axis in axes)
        buckets.setdefault(min(indices), []).append(
            Term(indices, np.ascontiguousarray(np.transpose(array, axes), np.complex128).reshape(-1))
        )
    for place in range(len(order)):
        terms = buckets.pop(place, [])
        if not terms:
            value *= 2
            continue
        result = _sum_product(terms, place)
        if not result.indices:
            value *= complex(result.values[0])
            continue
        seen = see(len(result.indices), result.values)
        if seen is None:
            return None
        buckets.setdefault(min(result.indices), []).append(Term(result.indices, seen))
    return value


def _sum_product(terms: list[Term], summed: int) -> Term:
    factors = _merged(sorted(terms, key=lambda term: len(term.indices)))
    kept = tuple(sorted({index for term in factors for index in term.indices} - {summed}, reverse=True))
    bit = {index: len(kept) - 1 - k for k, index in enumerate(kept)}
    low = min(LOW_LOG2, len(kept))
    low_tables = np.zeros((len(factors), 1 << low), np.int64)
    high_tables = np.zeros((len(factors), 1 << (len(kept) - low)), np.int64)
    steps = np.zeros(len(factors), np.int64)
    starts = np.zeros(len(factors), np.int64)
    for f, term in enumerate(factors):
        starts[f] = sum(other.values.size for other in factors[:f])
        for axis, index in enumerate(term.indices):
            stride = 1 << (len(term.indices) - 1 - axis)
            if index == summed:
                steps[f] = stride
                continue
            table, place = (low_tables, bit[index]) if bit[index] < low else (high_tables, bit[index] - low)
            table[f] += stride * (np.arange(table.shape[1]) >> place & 1)
    out = np.empty(1 << len(kept), np.complex128)
    values = np.concatenate([term.values for term in factors])
    _multiply_and_sum(values, starts, low_tables, high_tables, steps, out)
    return Term(kept, out)


def _merged(terms: Iterable[Term]) -> list[Term]:
    """Small terms multiplied together while their product stays small."""
    merged: list[Term] = []
    for term in terms:
        if merged:
            union = tuple(sorted({*merged[-1].indices, *term.indices}, reverse=True))
            if len(union) <= SMALL_LOG2:
                merged[-1] = Term(union, (_spread(merged[-1], union) * _spread(term, union)).reshape(-1))
                continue
        merged.append(term)
    return merged


def _spread(term: Term, union: tuple[int, ...]) -> Array:
    return term.values.reshape([2 if index in term.indices else 1 for index in union])


@numba.njit(cache=True)
def _multiply_and_sum(
    values: Any, starts: Any, low_tables: Any, high_tables: Any, steps: Any, out: Any
) -> None:
    n_low = low_tables.shape[1]
    for high in range(high_tables.shape[1]):
        for low in range(n_low):
            first = second = 1 + 0j
            for f in range(starts.size):
                place = starts[f] + low_tables[f, low] + high_tables[f, high]
                first *= values[place]
                second *= values[place + steps[f]]
            out[high * n_low + low] = first + second

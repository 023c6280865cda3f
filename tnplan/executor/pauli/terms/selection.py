"""Which terms stay where there may be only so many: the largest, or a sample without bias. Knows no table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tnplan.circuits.pauli_sum import bit_counts, merge
from tnplan.common.arrays import Array
from tnplan.executor.pauli.terms.truncation import TermLimits


class Resampler(Protocol):
    """Replaces terms by fewer of them so that sums over terms keep their mean."""

    def importance(self, keys: Array) -> Array | float:
        """By what magnitudes of packed words, uint64 [n, 2 W], are multiplied before they are drawn from."""

    def n_left(self, max_terms: int) -> int:
        """How many terms a draw leaves where there may be `max_terms`."""

    def draw(self, sizes: Array, max_terms: int, xp: Any = np) -> tuple[Array, Array]:
        """From magnitudes times importance, float64: the numbers of the terms that stay, rising, and their
        new magnitudes times importance.

        `xp` is the library of the arrays, NumPy or CuPy.
        """


class TermCap(NamedTuple):
    """All ranks together have at most `n_terms`. Where a step would make more, terms past the `limits` go,
    and then the smallest, or with a `resampler` those that it leaves out."""

    n_terms: int
    limits: TermLimits
    resampler: Resampler | None = None


class Arrivals(NamedTuple):
    """Words that are no terms yet, uint64 [n, 2 W], with values and frequencies."""

    keys: Array
    values: Array
    counts: Array

    def chosen(self, rows: Array) -> Arrivals:
        """Some of them, by a mask or by numbers."""
        return Arrivals(self.keys[rows], self.values[rows], self.counts[rows])


def united(lists: Sequence[Arrivals]) -> Arrivals:
    """Arrivals of several lists as one, equal words merged: their values added, the least frequency kept."""
    if len(lists) == 1:
        return lists[0]
    keys, values, counts = (np.concatenate(arrays) for arrays in zip(*lists, strict=True))
    if not len(values):
        return Arrivals(keys, values, counts)
    order = np.lexsort(keys.T)
    first = np.concatenate([[True], np.any(keys[order][1:] != keys[order][:-1], axis=1)])
    least = np.minimum.reduceat(counts[order], np.flatnonzero(first))
    return Arrivals(*merge(keys, values), least)


def is_past(arrivals: Arrivals, limits: TermLimits) -> Array:
    """Which arrivals are past a limit."""
    half = arrivals.keys.shape[1] // 2
    x, z = arrivals.keys[:, :half], arrivals.keys[:, half:]
    are_past = np.abs(arrivals.values).astype(np.float64) < limits.merged_cut
    if limits.has_frequency:
        are_past |= arrivals.counts > limits.max_frequency
    if limits.has_letters:
        are_past |= bit_counts(x | z) > limits.max_weight
        are_past |= bit_counts(x) > limits.max_xy
    return np.asarray(are_past)


def nth_largest(sizes: Sequence[Array], n: int, all_ranks: Callable[[int], int], *, is_alone: bool) -> float:
    """The n-th largest of the numbers of all ranks, by halving: doubles >= 0 rise with their bits."""
    if is_alone:
        all_sizes = np.concatenate(sizes)
        return float(np.partition(all_sizes, len(all_sizes) - n)[len(all_sizes) - n])
    # The bits of doubles >= 0, read as whole numbers, are in the order of the doubles: bisection
    # over 64 bits gives the exact value with 64 counts, and no term leaves its rank.
    low, high = 0, int(np.array(np.inf).view(np.uint64))
    while high - low > 1:
        middle = (low + high) // 2
        least = float(np.array(middle, np.uint64).view(np.float64))
        if all_ranks(sum(int(np.count_nonzero(size >= least)) for size in sizes)) >= n:
            low = middle
        else:
            high = middle
    return float(np.array(low, np.uint64).view(np.float64))


def least_words(keys: Sequence[Array], count: int, rank: int, rows: Sequence[Array]) -> list[Array]:
    """Of words in each shard of this rank, masks of those among the `count` least of all ranks.

    `rows` are the words of every rank: those of this one are `keys`, one after another.
    """
    chosen = np.zeros(sum(map(len, rows)), bool)
    chosen[np.lexsort(np.concatenate(rows).T)[:count]] = True
    first, n = sum(map(len, rows[:rank])), sum(map(len, keys))
    return np.split(chosen[first : first + n], np.cumsum([len(words) for words in keys])[:-1])

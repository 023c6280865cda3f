"""The product of two tensors with rows: each row of the result is that of a row of both. NumPy and BLAS.

The rows that share a row of one operand are one matrix product with it. Where most pairs are there, all are
formed in one product. Where hardly any share one, rows are gathered and multiplied one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.planner.common.arrays import Array

WHOLE_SHARE = 2
"""All pairs of rows are multiplied where these are at most so many times those that are wanted."""
FEWEST_TOGETHER = 4
"""Rows that share one of the other operand, in the mean, from which on they are one matrix product."""
GATHERED_ELEMENTS = 1 << 22
"""Elements of gathered rows at once."""


@dataclass(frozen=True)
class StepLegs:
    """The indices of two operands by what becomes of them, and their extents.

    Parameters
    ----------
    both, left, right, summed
        Indices that both operands and the result have, that one operand alone has, that are summed.
    extents
        Of these four groups.
    """

    both: tuple[str, ...]
    left: tuple[str, ...]
    right: tuple[str, ...]
    summed: tuple[str, ...]
    extents: tuple[int, int, int, int]

    @property
    def result(self) -> tuple[str, ...]:
        """The order of the result's axes after its rows."""
        return (*self.both, *self.left, *self.right)


def sort_legs(
    left: Sequence[str], right: Sequence[str], result: Sequence[str], sizes: dict[str, int]
) -> StepLegs:
    """The groups of the indices of a step. Indices of the result are on an operand, all others on both."""
    kept = set(result)
    groups = (
        tuple(index for index in left if index in right and index in kept),
        tuple(index for index in left if index not in right),
        tuple(index for index in right if index not in left),
        tuple(index for index in left if index in right and index not in kept),
    )
    extents = tuple(prod(sizes[index] for index in group) for group in groups)
    return StepLegs(*groups, extents)  # type: ignore[arg-type]


def multiply(
    left: tuple[Array, Sequence[str]], right: tuple[Array, Sequence[str]], legs: StepLegs, pairs: Array,
    threads: int,
) -> Array:  # fmt: skip
    """The product, shape [row, both, left, right], of tensors [row, ...] with the indices of their axes.

    `pairs` has the rows of both operands that make each row of the result, int32 [row, 2].
    """
    h, m, n, k = legs.extents
    a = _ordered(*left, (*legs.both, *legs.left, *legs.summed)).reshape(-1, h, m, k)
    b = _ordered(*right, (*legs.both, *legs.summed, *legs.right)).reshape(-1, h, k, n)
    count = len(pairs)
    if len(a) * len(b) <= WHOLE_SHARE * count or 1 in (len(a), len(b)):
        return _all_pairs(a, b, pairs, threads)
    fewer = min(len(a), len(b))
    if count < FEWEST_TOGETHER * fewer:
        return _one_by_one(a, b, pairs, threads)
    return _in_groups(a, b, pairs, threads)


def _ordered(array: Array, order: Sequence[str], wanted: Sequence[str]) -> Array:
    """The tensor with its axes after the rows in this order, contiguous."""
    axes = (0, *(1 + order.index(index) for index in wanted))
    return np.ascontiguousarray(array.transpose(axes))


def _all_pairs(a: Array, b: Array, pairs: Array, threads: int) -> Array:
    """Every row of a with every row of b, then the wanted ones: one matrix product for each shared value."""
    (r, h, m, k), (s, _, _, n) = a.shape, b.shape
    # [h, r m, k] times [h, k, s n]; transposes of operands with one row or one shared value cost nothing.
    first = a.transpose(1, 0, 2, 3).reshape(h, r * m, k)
    second = b.transpose(1, 2, 0, 3).reshape(h, k, s * n)
    product = np.matmul(first, second).reshape(h, r, m, s, n).transpose(1, 3, 0, 2, 4)
    if r == 1 or s == 1:
        whole = product.reshape(r * s, h, m, n)
        rows = pairs[:, 0] if s == 1 else pairs[:, 1]
        return whole if np.array_equal(rows, np.arange(r * s)) else whole[rows]
    return product[pairs[:, 0], pairs[:, 1]]


def _one_by_one(a: Array, b: Array, pairs: Array, threads: int) -> Array:
    """A product for each row, of gathered rows."""
    (_, h, m, k), (_, _, _, n) = a.shape, b.shape
    result = np.empty((len(pairs), h, m, n), a.dtype)
    longest = max(1, GATHERED_ELEMENTS // (h * k * (m + n)))

    def work(first: int, last: int) -> None:
        rows = pairs[first:last]
        np.matmul(a[rows[:, 0]], b[rows[:, 1]], out=result[first:last])

    over_rows(len(pairs), threads, work, longest)
    return result


def _in_groups(a: Array, b: Array, pairs: Array, threads: int) -> Array:
    """A product for each row of the operand with fewer rows, with all rows of the other that meet it."""
    (_, h, m, k), (_, _, _, n) = a.shape, b.shape
    result = np.empty((len(pairs), h, m, n), a.dtype)
    by_right = len(b) <= len(a)
    shared, other = (pairs[:, 1], pairs[:, 0]) if by_right else (pairs[:, 0], pairs[:, 1])
    order = np.argsort(shared, kind="stable")
    starts = np.flatnonzero(np.diff(shared[order], prepend=-1))
    ends = np.append(starts[1:], len(order))
    longest = max(1, GATHERED_ELEMENTS // (h * max(k * m, k * n, m * n)))

    def work(first: int, last: int) -> None:
        for group in range(first, last):
            for start in range(starts[group], ends[group], longest):
                rows = order[start : min(start + longest, ends[group])]
                one, many = int(shared[rows[0]]), other[rows]
                if by_right:
                    taken = a[many].transpose(1, 0, 2, 3).reshape(h, -1, k)
                    product = np.matmul(taken, b[one]).reshape(h, -1, m, n)
                    result[rows] = product.transpose(1, 0, 2, 3)
                else:
                    taken = b[many].transpose(1, 2, 0, 3).reshape(h, k, -1)
                    product = np.matmul(a[one], taken).reshape(h, m, -1, n)
                    result[rows] = product.transpose(2, 0, 1, 3)

    over_rows(len(starts), threads, work)
    return result

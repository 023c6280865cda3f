"""The product of two tensors with rows: each row of the result is that of a row of both. NumPy and BLAS.

The rows that share a row of one operand are one matrix product with it. Where hardly any share one, rows are
gathered and multiplied one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.device.protocols.copy import make_copy, row_major

ROWS = ""
"""Stands for the axis of the rows among the indices of a tensor's axes."""
FEWEST_TOGETHER = 4
"""Rows that share one of the other operand, in the mean, from which on they are one matrix product."""
COPIED_ELEMENTS = 1 << 16
"""Elements from which on the kernel for copies reorders axes; it is loaded in a second."""
GATHERED_ELEMENTS = 1 << 22
"""Elements of gathered rows at once."""


@dataclass(frozen=True)
class RowTensor:
    """A contiguous array, and the index of each of its axes; `ROWS` is that of its rows."""

    array: Array
    order: tuple[str, ...]


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
        """The indices of the result."""
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


class RowProducts:
    """Products on one CPU with so many threads."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._device = NumpyDevice(threads)

    def multiply(self, left: RowTensor, right: RowTensor, legs: StepLegs, pairs: Array) -> RowTensor:
        """The product; `pairs` has the rows of both operands that make each row, int32 [row, 2]."""
        sizes = dict(zip(left.order, left.array.shape, strict=True))
        sizes.update(zip(right.order, right.array.shape, strict=True))
        counts = left.array.shape[left.order.index(ROWS)], right.array.shape[right.order.index(ROWS)]
        h, m, n, k = legs.extents
        # An operand with one row is multiplied with all rows of the other at once.
        if counts[0] == 1 or counts[1] == 1:
            first = (*legs.both, ROWS, *legs.left, *legs.summed)
            second = (*legs.both, *legs.summed, ROWS, *legs.right)
            a = self._ordered(left, first).reshape(h, counts[0] * m, k)
            b = self._ordered(right, second).reshape(h, k, counts[1] * n)
            order = (*legs.both, ROWS, *legs.left, *legs.right)
            if counts[1] > 1:
                order = (*legs.both, *legs.left, ROWS, *legs.right)
            sizes[ROWS] = counts[0] * counts[1]
            product = np.matmul(a, b).reshape([sizes[index] for index in order])
            rows = pairs[:, 1 if counts[1] > 1 else 0]
            if not np.array_equal(rows, np.arange(sizes[ROWS])):
                product = np.take(product, rows, axis=order.index(ROWS))
            return RowTensor(product, order)
        first_rows = self._ordered(left, (ROWS, *legs.both, *legs.left, *legs.summed)).reshape(-1, h, m, k)
        second_rows = self._ordered(right, (ROWS, *legs.both, *legs.summed, *legs.right)).reshape(-1, h, k, n)
        # Rows that share an operand are multiplied as one larger product where there are enough of them; else
        # each pair is a product of its own in a batch.
        together = len(pairs) >= FEWEST_TOGETHER * min(counts)
        product = (_in_groups if together else _one_by_one)(first_rows, second_rows, pairs, self.threads)
        sizes[ROWS] = len(pairs)
        order = (ROWS, *legs.result)
        return RowTensor(product.reshape([sizes[index] for index in order]), order)

    def _ordered(self, tensor: RowTensor, wanted: tuple[str, ...]) -> Array:
        """The array with its axes in this order, contiguous."""
        array = tensor.array
        axes = [tensor.order.index(index) for index in wanted]
        view = array.transpose(axes)
        if array.size < COPIED_ELEMENTS or view.flags.c_contiguous or not array.flags.c_contiguous:
            return np.ascontiguousarray(view)
        target = np.empty(view.shape, array.dtype)
        strides = row_major(array.shape), row_major(view.shape)
        moved = [(array.shape[axis], strides[0][axis], strides[1][place]) for place, axis in enumerate(axes)]
        self._device.bind_copy(target.reshape(-1), array.reshape(-1), make_copy(moved))()
        return target


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
    """A product for each row of one operand, with all rows of the other that meet it; these are gathered."""
    (r, h, m, k), (s, _, _, n) = a.shape, b.shape
    result = np.empty((len(pairs), h, m, n), a.dtype)
    by_right = _gathers_left((r, m), (s, n), len(pairs))
    shared, other = (pairs[:, 1], pairs[:, 0]) if by_right else (pairs[:, 0], pairs[:, 1])
    # Pairs sorted by the row that they share: each group is a range, and its results go back to their places.
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


def _gathers_left(left: tuple[int, int], right: tuple[int, int], count: int) -> bool:
    """Whether rows of the left operand are gathered: the smaller ones, where enough of them go together.

    Of both operands the number of rows, and what a row has in the result.
    """
    (r, m), (s, n) = left, right
    if min(count / r, count / s) >= FEWEST_TOGETHER:
        return m <= n
    return s <= r

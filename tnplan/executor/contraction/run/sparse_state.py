"""The steps for a batch of bit strings: slices in turn; shared tensors stay. On one CPU, or flat on a device.

Knows no path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.cpu.parallel_rows import blas_threads, over_rows
from tnplan.executor.device.protocols.copy import make_copy, row_major
from tnplan.executor.device.protocols.device import Call, ContractShape, RowDevice, RowShape
from tnplan.planner.schedule.row_schedule import BatchPlan, RowLeaf, RowSchedule, RowStep

# The product of two tensors with rows: each row of the result is that of a row of both. NumPy and BLAS.
#
# The rows that share a row of one operand are one matrix product with it. Where hardly any share one, rows
# are gathered and multiplied one by one.


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
    of_result = set(result)
    groups = (
        tuple(index for index in left if index in right and index in of_result),
        tuple(index for index in left if index not in right),
        tuple(index for index in right if index not in left),
        tuple(index for index in left if index in right and index not in of_result),
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
        strides, stored = row_major(view.shape), row_major(array.shape)
        moved = [(array.shape[axis], stored[axis], to) for axis, to in zip(axes, strides, strict=True)]
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
    # Pairs sorted by the row that they share: each group is a range, and its results go back to their rows.
    order = np.argsort(shared, kind="stable")
    starts = np.flatnonzero(np.diff(shared[order], prepend=-1))
    ends = np.append(starts[1:], len(order))
    longest = max(1, GATHERED_ELEMENTS // (h * max(k * m, k * n, m * n)))

    def work(first: int, last: int) -> None:
        for group in range(first, last):
            for start in range(starts[group], ends[group], longest):
                rows = order[start : min(start + longest, ends[group])]
                row, rows_of_other = int(shared[rows[0]]), other[rows]
                if by_right:
                    operand = a[rows_of_other].transpose(1, 0, 2, 3).reshape(h, -1, k)
                    product = np.matmul(operand, b[row]).reshape(h, -1, m, n)
                    result[rows] = product.transpose(1, 0, 2, 3)
                else:
                    operand = b[rows_of_other].transpose(1, 2, 0, 3).reshape(h, k, -1)
                    product = np.matmul(a[row], operand).reshape(h, m, -1, n)
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


class BatchReplay:
    """The contraction of a batch with the values of its network's tensors.

    Parameters
    ----------
    plan
        The steps.
    arrays
        The tensors of the plan's network.
    dtype
        In which they are contracted.
    threads
        Of the CPU.
    """

    def __init__(self, plan: BatchPlan, arrays: Sequence[Array], dtype: str, threads: int) -> None:
        self.plan, self.threads, self.dtype = plan, threads, np.dtype(dtype)
        self.products = RowProducts(threads)
        n_leaves = len(plan.network.inputs)
        self.leaves = [self._leaf(number, np.asarray(array, dtype)) for number, array in enumerate(arrays)]
        sizes = {**plan.network.size_dict, **dict.fromkeys(plan.sliced, 1)}
        level = {index: number for number, index in enumerate(plan.sliced)}
        self.level = [
            max((level[index] for index in legs if index in level), default=-1) for legs in plan.leaf_legs
        ]
        """The innermost loop that each tensor depends on; -1 for none."""
        legs = [tuple(index for index in term if index not in level) for term in plan.leaf_legs]
        self.legs: list[StepLegs] = []
        for step in plan.steps:
            of_result = tuple(index for index in step.legs if index not in level)
            self.legs.append(sort_legs(legs[step.left], legs[step.right], of_result, sizes))
            legs.append(self.legs[-1].result)
            self.level.append(max(self.level[step.left], self.level[step.right]))
        self.n_leaves = n_leaves

    def run(self, slices: Sequence[int] | None = None, tell: Callable[[int], None] | None = None) -> Array:
        """The sum over some slices, all where that is None: one value for each string."""
        plan = self.plan
        total: Array | None = None
        cache: dict[int, RowTensor] = {}
        before: tuple[int, ...] | None = None
        with blas_threads(self.threads):
            for done, number in enumerate(range(plan.n_slices) if slices is None else slices):
                values = self._values(number)
                changed = self._changed(before, values)
                before = values
                amplitudes = self._slice(cache, dict(zip(plan.sliced, values, strict=True)), changed)
                total = amplitudes.copy() if total is None else total + amplitudes
                if tell is not None:
                    tell(done + 1)
        if total is None:
            return np.zeros(len(plan.rows), self.dtype)
        return total.reshape(-1)[plan.rows]

    def _leaf(self, number: int, array: Array) -> tuple[Array, tuple[str, ...]]:
        """An input with its rows first: the values of its final indices are those of each row."""
        term = self.plan.network.inputs[number]
        final, bits = self.plan.leaf_bits[number]
        legs = self.plan.leaf_legs[number]
        axes = [term.index(index) for index in (*final, *legs)]
        ordered = array.transpose(axes)
        if not final:
            return ordered[None], legs
        return ordered[tuple(bits.T.astype(np.int64))], legs

    def _values(self, number: int) -> tuple[int, ...]:
        """The values of the sliced indices in a slice, the last one fastest."""
        extents = [self.plan.network.size_dict[index] for index in self.plan.sliced]
        digits = []
        for extent in reversed(extents):
            number, value = divmod(number, extent)
            digits.append(value)
        return tuple(reversed(digits))

    @staticmethod
    def _changed(before: tuple[int, ...] | None, values: tuple[int, ...]) -> int:
        """The outermost loop whose value is new; -1 in the first slice."""
        if before is None:
            return -1
        pairs = enumerate(zip(before, values, strict=True))
        return next((level for level, (a, b) in pairs if a != b), len(values))

    def _slice(self, cache: dict[int, RowTensor], values: dict[str, int], changed: int) -> Array:
        """One slice. `cache` has tensors of slices before, and keeps those that later ones may need."""
        plan, last = self.plan, self.n_leaves + len(self.plan.steps) - 1
        needed = set(self._needed(last, cache, changed))
        tensors: dict[int, RowTensor] = {}

        def take(number: int) -> RowTensor:
            if number not in needed:
                return cache[number]
            if number < self.n_leaves:
                array, legs = self.leaves[number]
                places = tuple(values[index] if index in values else slice(None) for index in legs)
                order = (ROWS, *(index for index in legs if index not in values))
                return RowTensor(np.ascontiguousarray(array[(slice(None), *places)]), order)
            return tensors.pop(number)

        for number in sorted(tensor for tensor in needed if tensor >= self.n_leaves):
            step_number = number - self.n_leaves
            step, legs = plan.steps[step_number], self.legs[step_number]
            product = self.products.multiply(take(step.left), take(step.right), legs, step.pairs)
            if self.level[number] < len(plan.sliced) - 1:
                cache[number] = product
            tensors[number] = product
            for child in (step.left, step.right):
                if self.level[child] == self.level[number]:
                    cache.pop(child, None)
        return take(last).array

    def _needed(self, top: int, cache: dict[int, RowTensor], changed: int) -> Iterator[int]:
        """The tensors to compute for the tensor `top`: those that are new, down to those in the cache."""
        stack = [top]
        while stack:
            number = stack.pop()
            if number in cache and (changed >= 0 and self.level[number] < changed):
                continue
            yield number
            if number >= self.n_leaves:
                step = self.plan.steps[number - self.n_leaves]
                stack += [step.left, step.right]


def peak_elements(plan: BatchPlan) -> int:
    """Elements that a replay holds at once, the copies of operands in another order among them."""
    sizes = [
        len(bits) * prod(plan.network.size_dict[index] for index in legs if index not in plan.sliced)
        for (_, bits), legs in zip(plan.leaf_bits, plan.leaf_legs, strict=True)
    ]
    stored = sum(sizes)
    most = stored
    for step in plan.steps:
        sizes.append(step.elements)
        stored += step.elements
        most = max(most, stored + sizes[step.left] + sizes[step.right])
        stored -= sizes[step.left] + sizes[step.right]
    return most


RECORDED_FROM = 4
"""Slices from which on the calls of a loop are recorded, so that the host starts them all at once."""


class RowReplay:
    """The contraction of a batch of bit strings with the values of its network's tensors.

    Parameters
    ----------
    schedule
        The steps.
    arrays
        The tensors of the network.
    dtype
        In which they are contracted.
    device
        With an arena that is not allocated yet; it stays the caller's.
    """

    def __init__(self, schedule: RowSchedule, arrays: Sequence[Array], dtype: str, device: RowDevice) -> None:
        self._schedule, self._device, self._dtype = schedule, device, dtype
        device.allocate(schedule.size_bytes)
        self._views = [
            device.view(offset, count, dtype)
            for offset, count in zip(schedule.offsets, schedule.counts, strict=True)
        ]
        result = schedule.steps[-1].out
        self._total = device.view(schedule.total, schedule.counts[result], dtype)
        self._workspace = device.view(schedule.workspace, schedule.workspace_elements, dtype)
        # Invariant: no call refers to this object, so that its memory is free as soon as it is.
        self._values = [0] * len(schedule.extents)
        n_levels = len(schedule.extents) + 1
        self._loads: list[list[Call]] = [[] for _ in range(n_levels)]
        """Copies of a slice of inputs, by the innermost loop that they depend on, from none on."""
        for leaf in schedule.leaves:
            self._load(leaf, np.asarray(arrays[leaf.tensor], dtype))
        products = [(_shape(step), step.precision, "gemm") for step in schedule.steps if step.pairs is None]
        device.prepare_contract(products, dtype)
        self._is_recorded = False
        self._calls: list[list[Call]] = [[] for _ in range(n_levels)]
        for step in schedule.steps:
            self._calls[step.level + 1].append(self.bind(step))
        self._calls[-1].append(device.bind_accumulate(self._total, self._views[result]))

    def bind(self, step: RowStep) -> Call:
        """The call of a step."""
        a, b, c = (self._views[tensor] for tensor in (step.left, step.right, step.out))
        shape = _shape(step)
        if step.pairs is None:
            return self._device.bind_contract(shape, a, b, c, self._workspace, step.precision)
        of_rows = RowShape(shape, len(step.pairs), step.row_stride)
        return self._device.bind_rows(of_rows, step.pairs, a, b, c, self._workspace, step.precision)

    def _load(self, leaf: RowLeaf, array: Array) -> None:
        """Put an input on the device, of a sliced one all slices; the loops copy the one that is due."""
        schedule, device = self._schedule, self._device
        others = [axis for axis in range(array.ndim) if axis not in leaf.final]
        with_rows = array.transpose([*leaf.final, *others])
        with_rows = with_rows[tuple(leaf.bits.T.astype(np.int64))] if leaf.final else with_rows[None]
        ordered = np.ascontiguousarray(with_rows.transpose(leaf.axes))
        count, target = schedule.counts[leaf.tensor], self._views[leaf.tensor]
        if leaf.level < 0:
            device.from_host(target, ordered.reshape(-1))
            return
        whole = device.view(schedule.whole[leaf.tensor], ordered.size, self._dtype)
        device.from_host(whole, ordered.reshape(-1))

        values, extents = self._values, schedule.extents

        def start() -> int:
            number = 0
            for position in leaf.sliced:
                number = number * extents[position] + values[position]
            return number * count

        self._loads[leaf.level + 1].append(device.bind_block(target, whole, start))

    def run(self, slices: Sequence[int], tell: Callable[[int], None] | None = None) -> Array:
        """The sum over some slices: one value for each string."""
        device = self._device
        device.zero(self._total)
        before: tuple[int, ...] | None = None
        for done, number in enumerate(slices):
            values = np.unravel_index(number, self._schedule.extents) if self._schedule.extents else ()
            self._values[:] = (int(value) for value in values)
            # Invariant: every call has been made once when it is recorded: all are in the first slice.
            if done == 1 and len(slices) >= RECORDED_FROM and not self._is_recorded:
                self._calls = [[device.recorded(calls)] if calls else [] for calls in self._calls]
                self._is_recorded = True
            for level in range(_changed(before, tuple(self._values)), len(self._calls)):
                for call in (*self._loads[level], *self._calls[level]):
                    call()
            before = tuple(self._values)
            if tell is not None:
                device.synchronize()
                tell(done + 1)
        total: Array = device.to_host(self._total)[self._schedule.rows]
        return total


def _changed(before: tuple[int, ...] | None, values: tuple[int, ...]) -> int:
    """The first list of calls that is due: 0 in the first slice, else that of the outermost new value."""
    if before is None:
        return 0
    pairs = enumerate(zip(before, values, strict=True))
    return next((level + 1 for level, (a, b) in pairs if a != b), len(values) + 1)


def _shape(step: RowStep) -> ContractShape:
    return ContractShape(step.batch, step.m, step.n, step.k)

"""The replay of many bit strings at once on a device with one arena: slices in turn, loops that stay.

Knows flat steps and views; no path, and no kind of device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.device.protocols.device import Call, ContractShape, RowDevice, RowShape
from tnplan.planner.schedule.row_schedule import RowLeaf, RowSchedule, RowStep

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
        calls = device.bind_together([partial(self.bind, step) for step in schedule.steps])
        for step, call in zip(schedule.steps, calls, strict=True):
            self._calls[step.level + 1].append(call)
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

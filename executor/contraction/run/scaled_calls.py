"""Calls that keep tensors within the range of their dtype: by powers of two, which are exact and counted.

A tensor in a buffer stands for its values times 2^e, where e is the sum of some slots of the device. Knows
instructions and the plan of what is scaled; not what a call does, nor how a device scales.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tnplan.executor.contraction.run.scaling_plan import ScalingPlan
from tnplan.executor.device.protocols.device import Call, Device, View, call_in_turn
from tnplan.planner.common.errors import InputError
from tnplan.planner.schedule.data_flow import reads, writes
from tnplan.planner.schedule.schedule import Accumulate, Free, Fused, Instruction, Load, Schedule, Zero

KEPT_CALLS = 64
"""Choices of inputs that are scaled together, whose calls are kept."""


class ScaledCalls:
    """The exponents of the tensors of one rank, and the calls of a schedule that keep them.

    Parameters
    ----------
    schedule : Schedule
        For one rank, without compressed tensors.
    device : Device
        Its arena is allocated.
    inputs : sequence of View
        The input tensors, which `scale_inputs` scales where they are.
    """

    def __init__(self, schedule: Schedule, device: Device, inputs: Sequence[View]) -> None:
        if schedule.ranks_per_group > 1 or schedule.compression is not None:
            problem = "is for several ranks, or with compressed tensors"
            raise InputError("schedule", problem, "plan for one device without compression")
        self._schedule, self._device, self._inputs = schedule, device, inputs
        self._plan = ScalingPlan(schedule)
        self._exponents = device.exponents(self._plan.n_slots, schedule.dtype)
        self._calls: dict[frozenset[int], Call] = {}

    def scale_inputs(self, numbers: frozenset[int]) -> None:
        """Scale inputs that have new values."""
        if numbers not in self._calls:
            if len(self._calls) >= KEPT_CALLS:
                self._calls.clear()
            chosen = sorted(numbers)
            views = [self._inputs[number] for number in chosen]
            self._calls[numbers] = self._exponents.bind_normalize(views, chosen)
        self._calls[numbers]()

    def begin_result(self) -> Call:
        """The call after which the result is a sum without terms."""
        return self._exponents.bind_clear(self._plan.sum_slot(self._schedule.result))

    def scale_result(self) -> Call:
        """The call that scales the result until its largest part is from 0.5 to 1."""
        return self._exponents.bind_normalize([self._view(self._schedule.result)], [self._plan.result_slot])

    def exponent(self) -> int:
        """The exponent of the result, 0 where it is zero; waits for the work before."""
        return self._exponents.total(self._plan.result_slots())

    def scaled(self, items: Sequence[Instruction], calls: Sequence[Call]) -> list[Call]:
        """The calls of some instructions, `Free`s without one, each with its scaling."""
        kept = [item for item in items if not isinstance(item, Free)]
        return [self._scaled(item, call) for item, call in zip(kept, calls, strict=True)]

    def _scaled(self, item: Instruction, call: Call) -> Call:
        plan, exponents, out = self._plan, self._exponents, writes(item)[0]
        if isinstance(item, Load):
            return call
        if isinstance(item, Zero):
            return call_in_turn([call, exponents.bind_clear(plan.sum_slot(out))])
        if isinstance(item, Accumulate):
            source = self._view(item.source)
            return exponents.bind_accumulate(self._view(out), source, plan.sum_slot(out), plan.terms(item))
        if isinstance(item, Fused) and item.adds:
            factor = self._view(min(reads(item), key=self._elements))
            return exponents.bind_aligned(self._view(out), factor, plan.sum_slot(out), plan.terms(item), call)
        scaling = plan.scaling(item)
        if scaling is None:
            return call
        slot, tolerated_bits = scaling
        return call_in_turn([call, exponents.bind_normalize([self._view(out)], [slot], tolerated_bits)])

    def _elements(self, buffer: int) -> int:
        extents = self._schedule.extents
        return prod(extents[mode] for mode in self._schedule.buffers[buffer].modes)

    def _view(self, buffer: int) -> View:
        offset_bytes = self._schedule.buffers[buffer].offset_bytes
        return self._device.view(offset_bytes, self._elements(buffer), self._schedule.dtype)

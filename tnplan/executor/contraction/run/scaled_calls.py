"""Calls that keep tensors within the range of their dtype: by powers of two, which are exact and counted.

A tensor in a buffer stands for its values times 2^e, where e is the sum of some slots of the device. Knows
instructions and the plan of what is scaled; not what a call does, nor how a device scales.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tnplan.common.errors import InputError
from tnplan.executor.contraction.run.scaling_plan import ScalingPlan
from tnplan.executor.device.protocols.device import Call, Device, View, call_in_turn
from tnplan.planner.schedule.data_flow import reads, writes
from tnplan.planner.schedule.schedule import Accumulate, Fused, Instruction, Schedule, Zero

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
        self._send, self._total = self._exponents.bind_total(self._plan.result_slots())
        self._calls: dict[frozenset[int], Call] = {}

    def scale_inputs(self, numbers: frozenset[int]) -> None:
        """Scale inputs that have new values."""
        if numbers not in self._calls:
            if len(self._calls) >= KEPT_CALLS:
                self._device.synchronize()  # a call that is dropped gives back what its kernels read
                self._calls.clear()
            chosen = sorted(numbers)
            views = [self._inputs[number] for number in chosen]
            self._calls[numbers] = self._exponents.bind_normalize(views, chosen)
        self._calls[numbers]()

    def begin_result(self) -> Call:
        """The call after which the result is a sum without terms."""
        return self._exponents.bind_clear(self._plan.sum_slot(self._schedule.result))

    def end_result(self) -> Call:
        """The call that scales the result until its largest part is from 0.5 to 1."""
        scale = self._exponents.bind_normalize([self._view(self._schedule.result)], [self._plan.result_slot])
        return call_in_turn([scale, self._send])

    def exponent(self) -> int:
        """The exponent of the result, 0 where it is zero; waits for the work before."""
        return self._total()

    def scaled(self, items: Sequence[Instruction], calls: Sequence[Call]) -> list[Call]:
        """The calls of instructions in a row, with the scaling of what they make.

        Small tensors are scaled together, as soon as one of them is read.
        """
        scaled_calls: list[Call] = []
        waiting: dict[int, int] = {}
        for item, call in zip(items, calls, strict=True):
            # Scaling waits until one of the tensors is read: small ones are then scaled together, in one
            # launch.
            if not waiting.keys().isdisjoint(reads(item)):
                scaled_calls.append(self._scale(waiting))
                waiting.clear()
            scaled_calls.append(self._tracked(item, call))
            scaling = self._plan.scaling(item)
            if scaling is not None and scaling[1]:
                scaled_calls.append(self._scale({writes(item)[0]: scaling[0]}, scaling[1]))
            elif scaling is not None:
                waiting[writes(item)[0]] = scaling[0]
        return [*scaled_calls, self._scale(waiting)] if waiting else scaled_calls

    def _scale(self, slots: Mapping[int, int], tolerated_bits: int = 0) -> Call:
        """The call that scales the tensors of buffers, each with its slot."""
        views = [self._view(buffer) for buffer in slots]
        return self._exponents.bind_normalize(views, list(slots.values()), tolerated_bits)

    def _tracked(self, item: Instruction, call: Call) -> Call:
        """A call that keeps the exponents of sums, where it has to do with one."""
        plan, exponents, out = self._plan, self._exponents, writes(item)[0]
        if isinstance(item, Zero):
            return call_in_turn([call, exponents.bind_clear(plan.sum_slot(out))])
        if isinstance(item, Accumulate):
            source = self._view(item.source)
            return exponents.bind_accumulate(self._view(out), source, plan.sum_slot(out), plan.terms(item))
        if isinstance(item, Fused) and item.adds:
            factor = self._view(min(reads(item), key=plan.elements))
            return exponents.bind_aligned(self._view(out), factor, plan.sum_slot(out), plan.terms(item), call)
        return call

    def _view(self, buffer: int) -> View:
        offset_bytes = self._schedule.buffers[buffer].offset_bytes
        return self._device.view(offset_bytes, self._plan.elements(buffer), self._schedule.dtype)

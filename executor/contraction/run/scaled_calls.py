"""Calls that keep tensors within the range of their dtype: by powers of two, which are exact and counted.

A tensor in a buffer stands for its values times 2^e, where e is the exponent of the buffer. Knows
instructions and how a device scales; not what a call does.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2, prod

from tnplan.executor.device.protocols.device import Call, Device, View
from tnplan.planner.common.errors import InputError
from tnplan.planner.schedule.data_flow import reads, writes
from tnplan.planner.schedule.schedule import (
    Accumulate,
    Contract,
    Free,
    Fused,
    Instruction,
    Load,
    Schedule,
    SumModes,
    Zero,
)

SAFE_BITS = {"float32": 60, "complex64": 60, "float64": 480, "complex128": 480}
"""A tensor whose largest value may be 2 to this power is scaled: the product of two is within the range."""
NEGLIGIBLE_BITS = {"float32": 60, "complex64": 60, "float64": 200, "complex128": 200}
"""What is smaller than a sum by so many powers of two is not added to it."""
CHEAP_PRODUCTS = 32
"""Multiply-adds an element of a result from which on scaling it costs little beside making it."""


class ScaledCalls:
    """The exponents of the buffers of one rank, and the calls of a schedule that keep them.

    Parameters
    ----------
    schedule : Schedule
        For one rank, without compressed tensors.
    device : Device
        Its arena is allocated.
    """

    def __init__(self, schedule: Schedule, device: Device) -> None:
        if schedule.ranks_per_group > 1 or schedule.compression is not None:
            problem = "is for several ranks, or with compressed tensors"
            raise InputError("schedule", problem, "plan for one device without compression")
        self._schedule, self._device = schedule, device
        self._exponents: dict[int, int | None] = {}
        """None: the tensor is zero."""
        self._bits: dict[int, float] = {}
        """log2 of the largest value that a buffer may hold, as far as that is known."""

    def normalize(self, buffer: int) -> None:
        """Scale a tensor until its largest part is from 0.5 to 1."""
        view = self._view(buffer)
        power = self._device.power_of_two(view)
        if power is not None:
            self._device.scale(view, -power)
            self._exponents[buffer] = (self._exponents[buffer] or 0) + power

    def clear(self, buffer: int) -> None:
        """The tensor of a buffer is zero now."""
        self._exponents[buffer] = None

    def exponent(self, buffer: int) -> int:
        """The exponent of a buffer, 0 where its tensor is zero."""
        return self._exponents.get(buffer) or 0

    def tracked(self, items: Sequence[Instruction], calls: Sequence[Call]) -> list[Call]:
        """The calls of some instructions, `Free`s without one, each with its scaling."""
        kept = [item for item in items if not isinstance(item, Free)]
        return [self._tracked(item, call) for item, call in zip(kept, calls, strict=True)]

    def _tracked(self, item: Instruction, call: Call) -> Call:
        if isinstance(item, Load):
            return self._scaled(item.out, (), call, True)
        if isinstance(item, Zero):
            return self._zeroed(item.out, call)
        if isinstance(item, Accumulate):
            return self._added(item.out, (item.source,), call)
        if isinstance(item, Fused) and item.adds:
            return self._added(item.out, reads(item), call)
        out = writes(item)[0]
        return self._scaled(out, reads(item), call, self._pays(item, out))

    def _pays(self, item: Instruction, out: int) -> bool:
        """Whether the result is to be scaled: where that is cheap, or where it may come near the range."""
        numbers = item.steps if isinstance(item, Fused) else [item.step] if isinstance(item, Contract) else []
        steps = [self._schedule.steps[number] for number in numbers]
        bits = sum(self._bits[buffer] for buffer in reads(item)) + sum(log2(step.k) for step in steps)
        if isinstance(item, SumModes):
            bits += log2(self._elements(item.source) / self._elements(out))
        products = sum(float(step.batch) * step.m * step.n * step.k for step in steps)
        pays = products >= CHEAP_PRODUCTS * self._elements(out) or bits > SAFE_BITS[self._schedule.dtype]
        self._bits[out] = 0.0 if pays else bits
        return pays

    def _scaled(self, out: int, sources: Sequence[int], call: Call, pays: bool) -> Call:
        exponents, device, view = self._exponents, self._device, self._view(out)
        self._bits.setdefault(out, 0.0)

        def run() -> None:
            call()
            parts = [exponents[source] for source in sources]
            known = [part for part in parts if part is not None]
            exponents[out] = sum(known) if len(known) == len(parts) else None
            if pays:
                power = device.power_of_two(view)
                if power is not None:
                    device.scale(view, -power)
                if exponents[out] is not None:
                    exponents[out] = None if power is None else sum(known) + power

        return run

    def _zeroed(self, out: int, call: Call) -> Call:
        self._bits[out] = 0.0

        def run() -> None:
            call()
            self.clear(out)

        return run

    def _added(self, out: int, sources: Sequence[int], call: Call) -> Call:
        """A call that adds to `out`: what has the smaller exponent is scaled down to the other's.

        What is added may be used again. It loses nothing by that: where it is too small, it is left out.
        """
        self._bits[out] = 0.0
        negligible = NEGLIGIBLE_BITS[self._schedule.dtype]
        exponents, device = self._exponents, self._device
        into, first = self._view(out), self._view(sources[0])

        def run() -> None:
            parts = [exponents[source] for source in sources]
            if any(part is None for part in parts):
                call()
                return
            added = sum(part for part in parts if part is not None)
            present = exponents.get(out)
            if present is not None and present - added > negligible:
                return
            if present is not None and present < added:
                device.scale(into, present - added)
            elif present is not None and present > added:
                device.scale(first, added - present)
                exponents[sources[0]] = (exponents[sources[0]] or 0) + present - added
                added = present
            call()
            power = device.power_of_two(into)
            if power is not None:
                device.scale(into, -power)
            exponents[out] = None if power is None else added + power

        return run

    def _elements(self, buffer: int) -> int:
        extents = self._schedule.extents
        return prod(extents[mode] for mode in self._schedule.buffers[buffer].modes)

    def _view(self, buffer: int) -> View:
        offset_bytes = self._schedule.buffers[buffer].offset_bytes
        return self._device.view(offset_bytes, self._elements(buffer), self._schedule.dtype)

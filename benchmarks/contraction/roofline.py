"""What a device does at best, measured in the run, and the least time that a step can take on it: its floor.

Shared by steps.py and replay.py. Works through the device protocol alone, so that it runs on CPUs too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import prod
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.arrays import ALIGNMENT_BYTES, ITEM_BYTES
from tnplan.executor.device.protocols.copy import Copy
from tnplan.executor.device.protocols.device import Call, ContractShape, Device, View
from tnplan.planner.hardware.cost import FLOPS_PER_PRODUCT
from tnplan.planner.schedule.schedule import Schedule, StepAnnotation

WARM_UPS = 2
FEWEST, MOST = 3, 15
SIDES = (128, 256, 512, 1024, 2048, 4096, 8192)
"""Contracted and short extents of the products whose best rate counts."""
LARGEST_PRODUCT, LARGEST_SIDE = 2**39, 2**20
"""Bounds of m n k and m of those products, so that none takes more than a tenth of a second on a GPU."""
BLOCK_ELEMENTS = 4_194_301
"""Random numbers are repeated after so many, a prime, so that no row of a tensor is another's copy."""


@dataclass(frozen=True)
class Roof:
    """The copy's bandwidth, bytes read plus bytes written a second, and the best product's operations."""

    copy_bytes_per_s: float
    flop_per_s: float

    def floor_s(self, size_bytes: float, flops: float) -> float:
        """The larger of the time to move the bytes once and the time of the real operations."""
        return max(size_bytes / self.copy_bytes_per_s, flops / self.flop_per_s)


def measure_roof(device: Device, dtype: str, precision: str, size_bytes: int, seconds: float) -> Roof:
    """Measure both in the first `size_bytes` of the arena, whose contents are lost."""
    count = size_bytes // ITEM_BYTES[dtype]
    half = count // 2
    source, target = device.view(0, half, dtype), device.view(half * ITEM_BYTES[dtype], half, dtype)
    fill(device, source)
    copy_s = timed_s(device, device.bind_copy(target, source, Copy((), (), half)), seconds)
    rate = 0.0
    for side in SIDES:
        m = max(side, min(count // 4 // side, LARGEST_PRODUCT // side**2, LARGEST_SIDE))
        if 2 * m * side + side * side > count:
            break
        shape = ContractShape((), ((m, side),), ((side, 1),), side)
        a, b, c = Layouter(device, dtype).views(m * side, side * side, m * side)
        fill(device, a)
        fill(device, b)
        time_s = timed_s(device, device.bind_contract(shape, a, b, c, None, precision), seconds)
        rate = max(rate, FLOPS_PER_PRODUCT[dtype] * m * side * side / time_s)
    return Roof(2 * half * ITEM_BYTES[dtype] / copy_s, rate)


def timed_s(device: Device, call: Call, seconds: float) -> float:
    """The median seconds of a call, after two to warm up; about `seconds` in all, three calls at least."""
    first, last = device.marks(2)
    for _ in range(WARM_UPS):
        device.mark(first)
        call()
        device.mark(last)
        device.synchronize()
    expected_s = max(device.elapsed_s(first, last), 1e-7)
    repeats = int(min(max(seconds / expected_s, FEWEST), MOST))
    marks = device.marks(repeats + 1)
    device.mark(marks[0])
    for mark in marks[1:]:
        call()
        device.mark(mark)
    device.synchronize()
    return median(device.elapsed_s(before, after) for before, after in pairwise(marks))


def fill(device: Device, view: View) -> None:
    """Fill with normal numbers of variance one half: a block from the host, then copies of what is there."""
    count = len(view)
    held = min(count, BLOCK_ELEMENTS)
    device.from_host(view[:held], _block(np.dtype(view.dtype).name)[:held])
    while held < count:
        more = min(held, count - held)
        device.bind_copy(view[held : held + more], view[:more], Copy((), (), more))()
        held += more


@cache
def _block(dtype: str) -> NDArray[Any]:
    values = np.random.default_rng(0).normal(scale=0.5, size=(2, BLOCK_ELEMENTS))
    block = values[0] + 1j * values[1] if np.dtype(dtype).kind == "c" else values[0]
    return block.astype(dtype)


class Layouter:
    """Deals aligned views of the arena, from its start."""

    def __init__(self, device: Device, dtype: str) -> None:
        self._device, self._dtype = device, dtype
        self.used_bytes = 0

    def views(self, *counts: int) -> list[View]:
        """The next views, of so many elements each."""
        views = []
        for count in counts:
            views.append(self._device.view(self.used_bytes, count, self._dtype))
            self.used_bytes += aligned_bytes(count, self._dtype)
        return views


def aligned_bytes(count: int, dtype: str) -> int:
    """The bytes that a view of `count` elements takes of the arena."""
    return -(-count * ITEM_BYTES[dtype] // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def local_bytes(schedule: Schedule, step: StepAnnotation) -> int:
    """The bytes of a rank's shards of both operands and the result of a step, each read or written once."""
    spread = [
        (mode, digit.radix)
        for mode, digit in zip(step.layout, schedule.grid, strict=True)
        if mode is not None
    ]

    def count(modes: Sequence[int]) -> int:
        shared = prod(radix for mode, radix in spread if mode in modes)
        return -(-prod(schedule.extents[mode] for mode in modes) // shared)

    elements = sum(count(modes) for modes in (step.a_modes, step.b_modes, step.c_modes))
    return elements * ITEM_BYTES[schedule.dtype]


def floors_s(schedule: Schedule, roof: Roof) -> tuple[float, float]:
    """The sum of the steps' floors on one rank: of those done once, and of those of a slice in the mean."""
    sums = [0.0, 0.0]
    for step in schedule.steps:
        floor_s = roof.floor_s(local_bytes(schedule, step), step.flops)
        sums[0 if step.once else 1] += floor_s if step.once else floor_s * step.often
    return sums[0], sums[1]

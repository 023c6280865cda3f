"""Seconds of bound calls on a device, and random values that fill it. Knows the device's interface alone."""

from __future__ import annotations

from statistics import median
from time import perf_counter

import numpy as np

from tnplan.executor.device.protocols.device import Call, Device, View

WARM_UPS = 2
REPEATS = 5
LEAST_CALL_S = 1e-4
FILL_ELEMENTS = 1 << 22


def seconds(device: Device, call: Call, repeats: int) -> float:
    """The median seconds of a call, by the device's own clock."""
    for _ in range(WARM_UPS):
        call()
    marks = device.marks(2 * repeats)
    for first, second in zip(marks[::2], marks[1::2], strict=True):
        device.mark(first)
        call()
        device.mark(second)
    device.synchronize()
    return median(device.elapsed_s(*pair) for pair in zip(marks[::2], marks[1::2], strict=True))


def sustained_seconds(device: Device, call: Call, least_s: float) -> float:
    """The median seconds of a call once calls have gone on for about `least_s`, as in a long run.

    A device lowers its clocks then to keep to its power limit.
    """
    once_s = seconds(device, call, 1)
    for _ in range(round(least_s / max(once_s, LEAST_CALL_S))):
        call()
    return seconds(device, call, REPEATS)


def seconds_in_a_row(device: Device, call: Call, count: int) -> float:
    """Seconds of one of `count` calls that follow each other at once, the host's work included."""
    call()
    device.synchronize()
    start = perf_counter()
    for _ in range(count):
        call()
    device.synchronize()
    return (perf_counter() - start) / count


def fill(device: Device, view: View, dtype: str, seed: int) -> None:
    """Normal random numbers, repeated where the view is long: zeros would flatter the device."""
    chance = np.random.default_rng(seed)
    count = min(len(view), FILL_ELEMENTS)
    values = chance.standard_normal(count)
    if dtype.startswith("complex"):
        values = values + 1j * chance.standard_normal(count)
    values = values.astype(dtype)
    for first in range(0, len(view), count):
        piece = view[first : first + count]
        device.from_host(piece, values[: len(piece)])

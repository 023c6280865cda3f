"""Marks of a device whose calls return when their work is done: the host's clock. Knows no device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from tnplan.executor.device.protocols.device import Call


@dataclass
class HostMark:
    """A point in time, in seconds of the host's clock."""

    time_s: float = 0.0


class HostClock:
    """The part of `Device` that times and names calls, for devices that work while the host waits."""

    def marks(self, count: int) -> Sequence[HostMark]:
        """New marks."""
        return [HostMark() for _ in range(count)]

    def mark(self, point: HostMark) -> None:
        """Set a mark to now."""
        point.time_s = perf_counter()

    def elapsed_s(self, first: HostMark, second: HostMark) -> float:
        """The seconds from one mark to the other."""
        return second.time_s - first.time_s

    def named(self, name: str, call: Call) -> Call:
        """The call itself."""
        return call

"""What devices share whose calls return when their work is done: the host's clock, nothing to prepare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from tnplan.executor.device.protocols.device import (
    AdjointShape,
    Call,
    ContractShape,
    FusedShape,
    call_in_turn,
)


@dataclass
class HostMark:
    """A point in time, in seconds of the host's clock."""

    time_s: float = 0.0


class HostDevice:
    """The part of `Device` that follows where the host waits while the device works."""

    runs_calls_together = False

    def prepare_contract(self, products: Iterable[tuple[ContractShape, str, str]], dtype: str) -> None:
        """No product needs memory besides its arguments."""

    def prepare_fused(
        self, chains: Iterable[tuple[FusedShape, str]], dtype: str, capacity_bytes: int
    ) -> None:
        """Nothing to compile: one kernel does all chains."""

    def prepare_adjoints(self, shapes: Iterable[AdjointShape], dtype: str, capacity_bytes: int) -> None:
        """Nothing to compile here either."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def current(self) -> AbstractContextManager[Any]:
        """All threads may use the host."""
        return nullcontext()

    def leave(self) -> None:
        """Nothing was changed for the thread."""

    def marks(self, count: int) -> Sequence[HostMark]:
        """New marks."""
        return [HostMark() for _ in range(count)]

    def mark(self, point: HostMark) -> None:
        """Set a mark to now."""
        point.time_s = perf_counter()

    def elapsed_s(self, first: HostMark, second: HostMark) -> float:
        """The seconds from one mark to the other."""
        return second.time_s - first.time_s

    def recorded(self, calls: Sequence[Call], waits: Sequence[Sequence[int]] | None = None) -> Call:
        """The calls one after the other."""
        return call_in_turn(calls)

    def named(self, name: str, call: Call) -> Call:
        """The call itself."""
        return call

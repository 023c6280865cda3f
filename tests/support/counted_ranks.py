"""A communicator that counts what its rank sends and receives: bytes of arrays, and messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tnplan.executor.device.comm.threads import ThreadCommunicator


class CountedRanks:
    """A rank whose exchanges and gathered arrays are counted; broadcasts are not."""

    def __init__(self, ranks: ThreadCommunicator) -> None:
        self._ranks = ranks
        self.rank, self.size = ranks.rank, ranks.size
        self.messages, self.sent_bytes, self.received_bytes = 0, 0, 0

    def exchange(self, sends: Sequence[Any], receives: Sequence[Any]) -> None:
        self.messages += len(sends) + len(receives)
        self.sent_bytes += sum(view.nbytes for _, view in sends)
        self.received_bytes += sum(view.nbytes for _, view in receives)
        self._ranks.exchange(sends, receives)

    def gather_objects(self, value: Any) -> list[Any]:
        values = self._ranks.gather_objects(value)
        self.sent_bytes += (self.size - 1) * array_bytes(value)
        self.received_bytes += sum(array_bytes(one) for k, one in enumerate(values) if k != self.rank)
        return values

    def broadcast_object(self, value: Any, root: int) -> Any:
        return self._ranks.broadcast_object(value, root)


def array_bytes(value: Any) -> int:
    """The bytes of the arrays in a value."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, dict):
        return sum(map(array_bytes, value.values()))
    return sum(map(array_bytes, value)) if isinstance(value, list | tuple) else 0

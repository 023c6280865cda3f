"""What replay needs of a group of ranks. Knows flat buffers and peers; never schedules or layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from planner.errors import InputError

Result = TypeVar("Result")

Message = tuple[int, Any]
"""A peer's rank and a flat contiguous view: what to send to it, or where to receive from it."""


class Communicator(Protocol):
    """A group of ranks numbered 0 .. size-1. Every call but `abort` is collective over the ranks it names."""

    name: str
    rank: int
    size: int

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """Send and receive all messages at once; returns when every one is done.

        Both sides name the same messages in the same order for each pair, with equal sizes; none is empty.
        """

    def barrier(self) -> None:
        """Wait until every rank of the group is here."""

    def broadcast_object(self, value: Any, root: int) -> Any:
        """The root's value, on every rank."""

    def gather_objects(self, value: Any) -> list[Any]:
        """Every rank's value in rank order, on every rank."""

    def split(self, color: int, key: int) -> Communicator:
        """The group of the ranks with the same colour, numbered by rising key."""

    def abort(self, message: str, status: int) -> None:
        """End every rank of the job with a message and an exit status."""


class AgreedError(InputError):
    """A refusal of the input that every rank of the job raises."""


class CountedCommunicator:
    """A communicator that counts the bytes which this rank sends in exchanges."""

    def __init__(self, inner: Communicator) -> None:
        self._inner = inner
        self.name = inner.name
        self.rank = inner.rank
        self.size = inner.size
        self.sent_bytes = 0
        self.barrier = inner.barrier
        self.broadcast_object = inner.broadcast_object
        self.gather_objects = inner.gather_objects
        self.split = inner.split
        self.abort = inner.abort

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """Exchange and count."""
        for _, view in sends:
            self.sent_bytes += view.nbytes
        self._inner.exchange(sends, receives)


def agree(communicator: Communicator, check: Callable[[], Result]) -> Result:
    """Run `check` on every rank; where any refuses its input, all raise the first refusal as AgreedError."""
    result, refusal = None, None
    try:
        result = check()
    except InputError as error:
        refusal = (error.place, error.problem, error.remedy)
    for first in communicator.gather_objects(refusal):
        if first is not None:
            raise AgreedError(*first)
    return result  # type: ignore[return-value]

"""Ranks in one process: a thread each, exchanging through shared memory. For one host without MPI.

A rank that fails breaks all others at once; the first error is raised to the caller.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from executor.device.communicator import Message

Result = TypeVar("Result")


class BrokenRanksError(Exception):
    """Another rank has failed, so this one cannot go on."""


class _Shared:
    """The state that all ranks of a run share; `changed` guards all of it."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.posted: dict[tuple[Any, int, int], deque[_Parcel]] = defaultdict(deque)
        self.meetings: dict[Any, dict[int, Any]] = {}
        self.error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        with self.changed:
            if self.error is None:
                self.error = error
            self.changed.notify_all()

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait, with `changed` held, until `ready()`; raises where a rank has failed."""
        while not ready():
            if self.error is not None:
                raise BrokenRanksError("another rank failed")
            self.changed.wait()


class _Parcel:
    def __init__(self, content: Any) -> None:
        self.content = content
        self.taken = False


class ThreadCommunicator:
    """One rank of an in-process group; see `Communicator`."""

    name = "threads"

    def __init__(self, shared: _Shared, group: Any, rank: int, size: int) -> None:
        self._shared = shared
        self._group = group
        self._meetings = 0
        self.rank = rank
        self.size = size

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """Copy straight from the sender's view to the receiver's."""
        shared = self._shared
        parcels = []
        with shared.changed:
            for peer, view in sends:
                parcel = _Parcel(view)
                parcels.append(parcel)
                shared.posted[self._group, self.rank, peer].append(parcel)
            shared.changed.notify_all()
        for peer, view in receives:
            queue = shared.posted[self._group, peer, self.rank]
            with shared.changed:
                shared.wait_until(lambda queue=queue: len(queue) > 0)  # type: ignore[misc]
                parcel = queue.popleft()
            np.copyto(view, parcel.content)
            with shared.changed:
                parcel.taken = True
                shared.changed.notify_all()
        with shared.changed:
            shared.wait_until(lambda: all(parcel.taken for parcel in parcels))

    def barrier(self) -> None:
        """Wait for every rank of the group."""
        self.gather_objects(None)

    def broadcast_object(self, value: Any, root: int) -> Any:
        """The root's value."""
        return self.gather_objects(value)[root]

    def gather_objects(self, value: Any) -> list[Any]:
        """Every rank's value, on every rank; the values are shared, not copied."""
        shared = self._shared
        key = (self._group, self._meetings)
        self._meetings += 1
        with shared.changed:
            met = shared.meetings.setdefault(key, {})
            met[self.rank] = value
            shared.changed.notify_all()
            shared.wait_until(lambda: len(met) == self.size)
            shared.meetings.pop(key, None)
        return [met[rank] for rank in range(self.size)]

    def split(self, color: int, key: int) -> ThreadCommunicator:
        """The ranks with the same colour, by rising key."""
        number = self._meetings
        members = sorted(
            (theirs[1], rank) for rank, theirs in enumerate(self.gather_objects((color, key)))
            if theirs[0] == color
        )  # fmt: skip
        return ThreadCommunicator(
            self._shared, (self._group, number, color), members.index((key, self.rank)), len(members)
        )

    def abort(self, message: str, status: int) -> None:
        """Break every rank."""
        self._shared.fail(RuntimeError(message))


def run_ranks(size: int, work: Callable[[ThreadCommunicator], Result]) -> list[Result]:
    """Run `work(communicator)` on `size` ranks; their results in rank order, or the first error raised."""
    shared = _Shared()
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadCommunicator(shared, (), rank, size))
        except BaseException as error:
            shared.fail(error)

    threads = [
        threading.Thread(target=run, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:
        shared.fail(error)
        raise
    if shared.error is not None:
        raise shared.error
    return results

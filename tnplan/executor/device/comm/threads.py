"""Ranks in one process: a thread each, exchanging through shared memory. For one host without MPI.

A rank that fails breaks all others at once, and what their devices await of each other is let go; the first
error is raised to the caller.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from traceback import clear_frames
from typing import Any, TypeVar

import numpy as np

from tnplan.executor.device.protocols.communicator import BlockingExchange, LetGo, Message

Result = TypeVar("Result")

BROKEN = object()
"""Put into every queue when a rank fails."""
LOOK_EVERY_S = 0.5
END_WITHIN_S = 5.0
"""How long other ranks may take to end when one has failed, and then their devices; one inside a
library may never hear of it."""


class BrokenRanksError(Exception):
    """Another rank has failed, so this one cannot go on."""


class _Shared:
    """The queues between all ranks of a run, the first error, and what is to be done then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[Any, SimpleQueue[Any]] = {}
        self.errors: list[BaseException] = []
        self.let_go: list[LetGo] = []
        self.has_devices = False
        """Whether any of these is of a device."""

    def fail(self, error: BaseException) -> None:
        """Break every rank, now or at its next exchange."""
        with self._lock:
            self.errors.append(error)
            for queue in self._queues.values():
                queue.put(BROKEN)

    def put(self, key: Any, value: Any) -> None:
        """Append to the queue named `key`."""
        self._queue(key).put(value)

    def get(self, key: Any) -> Any:
        """Wait for the next value of a queue; raises where a rank has failed."""
        value = self._queue(key).get()
        if value is BROKEN:
            self._queue(key)
        return value

    def _queue(self, key: Any) -> SimpleQueue[Any]:
        with self._lock:
            if self.errors:
                raise BrokenRanksError("another rank failed")
            return self._queues.setdefault(key, SimpleQueue())


class ThreadCommunicator(BlockingExchange):
    """One rank of an in-process group; see `Communicator`."""

    name = "threads"

    def __init__(self, shared: _Shared, group: Any, rank: int, size: int) -> None:
        self._shared = shared
        self._group = group
        self._splits = 0
        self.rank = rank
        self.size = size

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """Copy straight from the sender's view to the receiver's."""
        shared, group, rank = self._shared, self._group, self.rank
        # The receiver copies from the sender's view. Invariant: a sender waits until its views are taken, so
        # that none is overwritten while it is read; all put before any waits, so that no order of messages
        # can deadlock.
        for peer, view in sends:
            shared.put((group, "data", rank, peer), view)
        for peer, view in receives:
            np.copyto(view, shared.get((group, "data", peer, rank)))
            shared.put((group, "taken", peer, rank), None)
        for peer, _ in sends:
            shared.get((group, "taken", rank, peer))

    def gather_objects(self, value: Any) -> list[Any]:
        """Every rank's value, on every rank; the values are shared, not copied."""
        peers = [peer for peer in range(self.size) if peer != self.rank]
        for peer in peers:
            self._shared.put((self._group, "object", self.rank, peer), value)
        values = {peer: self._shared.get((self._group, "object", peer, self.rank)) for peer in peers}
        values[self.rank] = value
        return [values[rank] for rank in range(self.size)]

    def split(self, color: int, key: int) -> ThreadCommunicator:
        """The ranks with the same colour, by rising key."""
        self._splits += 1
        members = sorted(
            (theirs[1], rank)
            for rank, theirs in enumerate(self.gather_objects((color, key)))
            if theirs[0] == color
        )
        # Invariant: ranks split in the same order, so that the number of splits names the same group on all
        # of them.
        group = (self._group, self._splits, color)
        return ThreadCommunicator(self._shared, group, members.index((key, self.rank)), len(members))

    def abort(self, message: str, status: int) -> None:
        """Break every rank."""
        self._shared.fail(RuntimeError(message))

    def at_failure(self, let_go: LetGo, of_device: bool = True) -> None:
        """Have `let_go` called by `run_ranks`."""
        self._shared.let_go.append(let_go)
        if of_device:  # set, never taken back: ranks come here at the same time
            self._shared.has_devices = True


def run_ranks(size: int, work: Callable[[ThreadCommunicator], Result]) -> list[Result]:
    """Run `work(communicator)` on `size` ranks; their results in rank order, or the first error raised."""
    shared = _Shared()
    results: list[Any] = [None] * size
    # Threads are not joined: on Ctrl-C meanwhile Python 3.11 takes one that still runs for ended.
    over = [threading.Event() for _ in range(size)]

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadCommunicator(shared, (), rank, size))
        except BaseException as error:
            shared.fail(error)
        finally:
            over[rank].set()

    threads = [
        threading.Thread(target=run, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(size)
    ]
    try:
        for thread in threads:
            thread.start()
        for rank in over:
            while not shared.errors and not rank.wait(LOOK_EVERY_S):
                pass
    except BaseException as error:
        shared.fail(error)
        if not shared.let_go:
            raise
    if shared.errors:
        _end(over, shared)
    shared.let_go.clear()
    if shared.has_devices:
        # Else garbage, or an error that was kept, may free memory in the midst of a later run, and wait for a
        # device that waits for this. It takes 0.3 s where large libraries are imported.
        gc.collect()
    if shared.errors:
        raise shared.errors[0]
    return results


def _end(over: Sequence[threading.Event], shared: _Shared) -> None:
    """Wait until all ranks are over, of which one has failed, and their devices; free what the ranks held.

    Memory that is freed earlier would wait for the device, and keep others from letting go what it waits for:
    so every rank's error is kept until then, and with it the frames of its calls.
    """
    ended = threading.Event()
    letting_go = [threading.Thread(target=call, args=(ended,), daemon=True) for call in shared.let_go]
    for thread in letting_go:
        thread.start()
    end = time.monotonic() + END_WITHIN_S
    if all(rank.wait(max(0.0, end - time.monotonic())) for rank in over):
        ended.set()
        end = time.monotonic() + END_WITHIN_S
        for thread in letting_go:
            thread.join(max(0.0, end - time.monotonic()))
    if letting_go:
        for error in shared.errors:
            _forget(error)
    del shared.errors[1:]


def _forget(error: BaseException | None) -> None:
    """Free what the frames of an error's calls hold, and those of the errors that it came of."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__

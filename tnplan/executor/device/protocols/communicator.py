"""What replay needs of a group of ranks. Knows flat buffers and peers; never schedules or layouts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tnplan.common.errors import InputError, failure_text
from tnplan.executor.device.protocols.stop_signal import STATUS, StoppedRunError

if TYPE_CHECKING:  # the command line asks for ranks before it needs arrays
    from tnplan.executor.device.protocols.copy import Copy
    from tnplan.executor.device.protocols.device import Call, View

LOG = logging.getLogger(__name__)

Result = TypeVar("Result")

STOPPED_WITHIN_S = 60.0
"""How long a rank that was asked to stop waits for the others to keep what they have."""
COMPARED_WITHIN_S = 5.0
"""How long a rank that refuses its input waits to hear that all others do; then it ends them."""
FORWARD_S = 0.5
"""How long a launcher may take to forward a line: it drops what it has not, once it ends the job."""

LetGo = Callable[[Event], None]
"""Ends what a device awaits of ranks that will not come. In a thread of its own, until the event says that no
rank of this process gives its device more work."""

Message = tuple[int, Any]
"""A peer's rank and a flat contiguous view: what to send to it, or where to receive from it."""


@dataclass(frozen=True)
class OverlappedExchange:
    """An exchange that overlaps with work of the device: `begin` is called before that work, `end` after it.

    `time_s` gives the seconds that the last one took, from when all its ranks had come or, by messages, this
    one; it is to be called after `Device.synchronize`.
    """

    begin: Call
    end: Call
    time_s: Callable[[], float]


class PeerMemory(Protocol):
    """The arenas of other ranks that this rank's device reads and writes itself."""

    ranks: frozenset[int]
    """The ranks, this one among them, that all reach each other; the same set on each of them."""

    def view(self, peer: int, offset_bytes: int, count: int, dtype: str) -> View:
        """A flat view of a peer's arena.

        - `peer`: One of `ranks`.
        - `offset_bytes`: Where the view begins in the arena.
        - `count`: Its elements.
        - `dtype`: Their type.
        """

    def bind_copy(self, target: View, source: View, copy: Copy, target_start: int, source_start: int) -> Call:
        """Like `Device.bind_copy`, from or to a view of a peer's arena; to be given to `bind`."""

    def bind(
        self, copies: Sequence[Call], local_copies: Sequence[Call], peers: Sequence[int], sent_bytes: int
    ) -> Call:
        """Bind copies that are made after the devices of all peers came to this call and before any goes on.

        - `copies`: Made by `bind_copy`.
        - `local_copies`: What this rank's device does in the meantime.
        - `peers`: The ranks that take part, without this one.
        - `sent_bytes`: Bytes of this rank's data that come to its peers by their copies and its own.
        """

    def bind_overlapped(
        self, moved: Sequence[tuple[View, View]], own: Sequence[tuple[View, View]], peers: Sequence[int],
        sent_bytes: int,
    ) -> OverlappedExchange:  # fmt: skip
        """Bind copies of ranges that leave the device free for other work.

        Work given after `end` finds all that comes to this rank, and no peer needs this rank's memory any
        more. Exchanges begin in the same order on all peers.

        - `moved`: (target, source) of each range that goes to a peer: they begin when the work that all peers
          gave their devices before is done.
        - `own`: The same within this rank: they begin when this rank's work is done.
        - `peers`, `sent_bytes`: As in `bind`.
        """


class Communicator(Protocol):
    """A group of ranks numbered 0 .. size-1. Every call but `abort` is collective over the ranks it names.

    Examples
    --------
    >>> from tnplan.executor.device.comm.threads import run_ranks
    >>> run_ranks(2, lambda communicator: communicator.gather_objects(communicator.rank))
    [[0, 1], [0, 1]]
    """

    name: str
    rank: int
    size: int
    overlaps: bool
    """Whether other work can be done between the two calls of a bound exchange; equal on all ranks."""

    def bind_exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> tuple[Call, Call]:
        """Bind an exchange of messages, all of them at once.

        The messages hold what the device's work before the first call gave, and work after the second one
        finds them arrived. Exchanges begin in the same order on all ranks.

        - `sends`, `receives`: Flat contiguous views with the rank to send to, or to receive from. Both ranks
          of a pair name the same messages in the same order, with equal sizes; none is empty.
        - returns: The call that begins, and the call that ends it.
        """

    def bind_overlapped(self, sends: Sequence[Message], receives: Sequence[Message]) -> OverlappedExchange:
        """Like `bind_exchange`, and timed. It overlaps with the device's work where `overlaps`."""

    def connect(self) -> None:
        """Open the ways to the peers of all exchanges bound so far, ahead of their first run."""

    def open_memory(self, arena: View) -> PeerMemory | None:
        """Open this rank's arena to the others and theirs to it.

        - `arena`: All of it, as bytes.
        - returns: None where ranks do not reach each other's memory.
        """

    def close_memory(self) -> None:
        """Close what `open_memory` opened, here and in groups split off; arenas may be freed afterwards."""

    def close(self) -> None:
        """Close memory and the ways to peers, here and in groups split off, when the device has no more work.

        Collective. Ranks that do not close stay connected until the process ends.
        """

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """An exchange bound, begun and ended. Messages between hosts are done when it returns."""

    def barrier(self) -> None:
        """Wait until every rank of the group is here."""

    def broadcast_object(self, value: Any, root: int) -> Any:
        """The value of rank `root`, on every rank."""

    def gather_objects(self, value: Any) -> list[Any]:
        """Every rank's value in rank order, on every rank."""

    def split(self, color: int, key: int) -> Communicator:
        """The group of the ranks with the same colour.

        - `color`: Tells the groups apart.
        - `key`: The ranks of a group are numbered by rising key.
        """

    def abort(self, message: str, status: int) -> None:
        """End every rank of the job.

        - `message`: Printed in one line.
        - `status`: The exit status of the processes.
        """

    def at_failure(self, let_go: LetGo, of_device: bool = True) -> None:
        """Have `let_go` called where a rank fails and this process goes on, so that the device can end.

        `of_device`: memory of a device waits for it, which garbage must not free in the midst of a later run.
        """


class World(Communicator, Protocol):
    """All ranks of a job of processes."""

    def gather_within(self, value: Any, limit_s: float) -> list[Any] | None:
        """Every rank's value in rank order, where all ranks call this in time.

        It takes no part in calls that are collective, in which other ranks may wait.

        - `value`: This rank's.
        - `limit_s`: Seconds to wait for the others.
        - returns: None where a rank did not call it in time.
        """


class BlockingExchange:
    """The part of `Communicator` that follows from `gather_objects` and an `exchange` that blocks."""

    overlaps = False

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """Send and receive all messages."""
        raise NotImplementedError

    def gather_objects(self, value: Any) -> list[Any]:
        """Every rank's value in rank order, on every rank."""
        raise NotImplementedError

    def broadcast_object(self, value: Any, root: int) -> Any:
        """The root's value."""
        return self.gather_objects(value)[root]

    def barrier(self) -> None:
        """Wait for every rank of the group."""
        self.gather_objects(None)

    def bind_exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> tuple[Call, Call]:
        """The whole exchange, and nothing that is left to do."""
        return lambda: self.exchange(sends, receives), lambda: None

    def bind_overlapped(self, sends: Sequence[Message], receives: Sequence[Message]) -> OverlappedExchange:
        """The same: nothing is left to wait for."""
        begin, end = self.bind_exchange(sends, receives)
        return OverlappedExchange(begin, end, lambda: 0.0)

    def connect(self) -> None:
        """Nothing to open."""

    def open_memory(self, arena: View) -> PeerMemory | None:
        """Hosts exchange by messages alone."""
        return None

    def close_memory(self) -> None:
        """Nothing to close."""

    def close(self) -> None:
        """Nothing to close."""

    def at_failure(self, let_go: LetGo, of_device: bool = True) -> None:
        """Nothing to let go: the processes of the job end together."""


class AgreedError(InputError):
    """A refusal of the input that every rank of the job raises."""


class ForwardingCommunicator:
    """The part of `Communicator` that another one, of the same ranks, does."""

    def __init__(self, inner: Communicator) -> None:
        self.rank, self.size = inner.rank, inner.size
        self.barrier = inner.barrier
        self.broadcast_object = inner.broadcast_object
        self.gather_objects = inner.gather_objects
        self.abort = inner.abort
        self.at_failure = inner.at_failure

    def bind_exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> tuple[Call, Call]:
        """The calls that begin and end an exchange."""
        raise NotImplementedError

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """An exchange bound, begun and ended."""
        begin, end = self.bind_exchange(sends, receives)
        begin()
        end()


class CountedCommunicator(ForwardingCommunicator):
    """A communicator that counts the bytes which this rank sends, and those of them that need no messages."""

    def __init__(self, inner: Communicator) -> None:
        super().__init__(inner)
        self._inner = inner
        self.name, self.overlaps = inner.name, inner.overlaps
        self.sent_bytes = self.direct_bytes = 0
        self.connect = inner.connect
        self.close_memory = inner.close_memory
        self.close = inner.close
        self.split = inner.split

    def bind_exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> tuple[Call, Call]:
        """Bind an exchange that is counted whenever it begins."""
        begin, end = self._inner.bind_exchange(sends, receives)
        return self.counted(begin, sum(view.nbytes for _, view in sends)), end

    def bind_overlapped(self, sends: Sequence[Message], receives: Sequence[Message]) -> OverlappedExchange:
        """Bind an overlapped exchange that is counted whenever it begins."""
        bound = self._inner.bind_overlapped(sends, receives)
        return replace(bound, begin=self.counted(bound.begin, sum(view.nbytes for _, view in sends)))

    def open_memory(self, arena: View) -> PeerMemory | None:
        """Memory whose copies are counted."""
        memory = self._inner.open_memory(arena)
        return None if memory is None else _CountedMemory(memory, self)

    def counted(self, begin: Call, sent_bytes: int, direct: bool = False) -> Call:
        """A call that begins to send so many bytes, `direct`ly or by messages, and is counted."""

        def run() -> None:
            self.sent_bytes += sent_bytes
            if direct:
                self.direct_bytes += sent_bytes
            begin()

        return run


class _CountedMemory:
    """Peers' memory of a counted communicator."""

    def __init__(self, inner: PeerMemory, counter: CountedCommunicator) -> None:
        self._inner, self._counter = inner, counter
        self.ranks, self.view, self.bind_copy = inner.ranks, inner.view, inner.bind_copy

    def bind(
        self, copies: Sequence[Call], local_copies: Sequence[Call], peers: Sequence[int], sent_bytes: int
    ) -> Call:
        """Bind copies that are counted whenever they are made."""
        return self._counter.counted(
            self._inner.bind(copies, local_copies, peers, sent_bytes), sent_bytes, True
        )

    def bind_overlapped(
        self, moved: Sequence[tuple[View, View]], own: Sequence[tuple[View, View]], peers: Sequence[int],
        sent_bytes: int,
    ) -> OverlappedExchange:  # fmt: skip
        """Bind copies that are counted whenever they begin."""
        bound = self._inner.bind_overlapped(moved, own, peers, sent_bytes)
        return replace(bound, begin=self._counter.counted(bound.begin, sent_bytes, True))


def messages(peer: int, arrays: Iterable[Any]) -> list[tuple[int, Any]]:
    """What `Communicator.exchange` takes for arrays to or from a peer: flat ones, none of them empty."""
    return [(peer, array.reshape(-1)) for array in arrays if array.size]


def agree(communicator: Communicator, check: Callable[[], Result]) -> Result:
    """Run `check` on every rank; where any refuses its input, all raise the first refusal as AgreedError."""
    result, refusal = None, None
    try:
        result = check()
    except InputError as error:
        refusal = (error.place, error.problem, error.remedy, error.page)
    for first in communicator.gather_objects(refusal):
        if first is not None:
            raise AgreedError(*first)
    return result  # type: ignore[return-value]


@contextmanager
def ending_together(world: World) -> Iterator[None]:
    """Any failure inside, but a refusal that all ranks meet, ends the whole job.

    A refusal that was not agreed upon is compared first, for `COMPARED_WITHIN_S` at most: where that of all
    ranks is the same, all raise it as AgreedError. The traceback of what ends the job is logged at the level
    DEBUG, since the process may not come back from that.
    """
    try:
        yield
    except AgreedError:
        raise
    except BaseException as error:
        text, status = failure_text(error), 1
        if isinstance(error, InputError):
            if _all_meet(world, error):
                raise AgreedError(error.place, error.problem, error.remedy, error.page) from error
            text, status = error.line, 2
        elif isinstance(error, KeyboardInterrupt):
            text, status = "interrupted", 130
        elif isinstance(error, StoppedRunError):
            # The signal comes to all ranks: each group keeps what it has.
            if world.gather_within(str(error), STOPPED_WITHIN_S) is not None:
                raise
            text, status = str(error), STATUS
        LOG.debug("rank %d of %d:", world.rank, world.size, exc_info=error)
        world.abort(f"rank {world.rank}: {text}", status)
        raise


def _all_meet(world: World, refusal: InputError) -> bool:
    """Whether all ranks are here with the same refusal; not where something goes wrong on the way."""
    try:
        return world.gather_within(str(refusal), COMPARED_WITHIN_S) == [str(refusal)] * world.size
    except BaseException:
        return False

"""Operations of streams by CUDA's driver: waits of several GPUs for each other, events, graphs.

`captured` makes one launch of many calls; a call there waits for no call but those it names.
GPUs wait without a kernel, by counters in memory that all reach. Events are recorded without Python's lock,
which CuPy keeps meanwhile: a stream that waits for another rank fills up, and then every call on it waits
too. Ranks in one process share the lock; held, it would keep those that are waited for from ever coming.
Knows addresses, events and streams; never what the streams do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any

from tnplan.executor.device.protocols.device import Call

COUNTER_BYTES = 4
AT_LEAST = 0
"""The driver's number for a wait until a counter is at least a value, on the circle of 32 bits."""
COUNTERS = 1 << 32
FAR = 1 << 30
"""More meetings than a stream can hold."""


class Signals:
    """Counters of rank `rank`, one for each peer, at `addresses[rank]`; those of its peers at the others.

    Memory of all ranks begins as zeros. Ranks that meet do so in the same order.
    """

    def __init__(self, rank: int, addresses: Mapping[int, int]) -> None:
        self._rank = rank
        self._addresses = addresses
        self.counts = dict.fromkeys(addresses, 0)

    def bind(self, peers: Sequence[int], stream: Any) -> Call:
        """The call at which the streams of this rank and of all its peers wait for each other.

        What the streams did before is done, and seen by all, when any of them goes on.
        """
        write, wait = stream_operations()
        counters, counts, where = self._addresses[self._rank], self.counts, stream.ptr
        peer_counters = [(peer, self._addresses[peer] + COUNTER_BYTES * self._rank) for peer in peers]

        def run() -> None:
            # Invariant: counter r of a rank is written by rank r alone, and counts up by one a meeting on
            # both sides. All write before any waits, in the order of their streams.
            for peer, address in peer_counters:
                counts[peer] = (counts[peer] + 1) % COUNTERS
                _check(write(where, address, counts[peer], 0))
            for peer, _ in peer_counters:
                _check(wait(where, counters + COUNTER_BYTES * peer, counts[peer], AT_LEAST))

        return run

    def let_go(self, stream: Any) -> None:
        """Count, in another stream, as though all peers had come to many more meetings.

        What a peer counts afterwards puts its counter back, so that this may have to be done again.
        """
        write, _ = stream_operations()
        counters = self._addresses[self._rank]
        for peer, count in self.counts.items():
            _check(write(stream.ptr, counters + COUNTER_BYTES * peer, (count + FAR) % COUNTERS, 0))


@cache
def stream_operations() -> tuple[Any, Any]:
    """The driver's calls that write and await 32 bits in the order of a stream."""
    library = ctypes.CDLL("libcuda.so.1")
    calls = library.cuStreamWriteValue32_v2, library.cuStreamWaitValue32_v2
    for call in calls:
        call.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint]
        call.restype = ctypes.c_int
    return calls


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"CUDA: a stream cannot write or await memory (error {status} of the driver)")


def record(event: Any, stream: Any) -> None:
    """Record a CuPy event in a CuPy stream, both of the GPU that is current."""
    status = driver_record()(event.ptr, stream.ptr)
    if status:
        raise RuntimeError(f"CUDA: an event cannot be recorded (error {status} of the driver)")


@cache
def driver_record() -> Any:
    """The driver's call, which gives up Python's lock."""
    call = ctypes.CDLL("libcuda.so.1").cuEventRecord
    call.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    call.restype = ctypes.c_int
    return call


ADD, SET = 0, 1
"""What cuStreamUpdateCaptureDependencies does with the nodes that it is given."""


def captured(stream: Any, calls: Sequence[Call], waits: Sequence[Iterable[int]] | None) -> Call:
    """The work of calls on a stream as one launch; `waits` has the numbers of the earlier calls that each
    waits for, and None stands for one after the other.

    Invariant: bound calls allocate nothing and wait for nothing, so that all of their work can be captured.
    """
    with stream:
        stream.begin_capture()
        try:
            if waits is None:
                for call in calls:
                    call()
            else:
                _capture_apart(stream.ptr, calls, waits)
        finally:
            graph = stream.end_capture()
    return partial(graph.launch, stream)


def _capture_apart(stream: int, calls: Sequence[Call], waits: Sequence[Iterable[int]]) -> None:
    ends: list[list[int]] = []
    for number, call in enumerate(calls):
        _go_on_from(stream, chain.from_iterable(ends[other] for other in waits[number]), SET)
        call()
        last = _last_nodes(stream)
        if last is None:
            # Kernels that begin before the one ahead has ended are joined by edges that this interface does
            # not show: the other calls follow one after the other.
            _go_on_from(stream, chain.from_iterable(ends), ADD)
            for later in calls[number + 1 :]:
                later()
            return
        ends.append(last)
    _go_on_from(stream, chain.from_iterable(ends), SET)


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _last_nodes(stream: int) -> list[int] | None:
    """The nodes that the next work of a captured stream waits for; None where they cannot be told."""
    status, count = ctypes.c_int(), ctypes.c_size_t()
    nodes = ctypes.POINTER(ctypes.c_void_p)()
    code = _driver().cuStreamGetCaptureInfo_v2(
        ctypes.c_void_p(stream), ctypes.byref(status), None, None, ctypes.byref(nodes), ctypes.byref(count)
    )
    return None if code else [nodes[number] for number in range(count.value)]


def _go_on_from(stream: int, nodes: Iterable[int], how: int) -> None:
    """Let the next work of a captured stream wait for these nodes, too (ADD) or alone (SET)."""
    different = list(dict.fromkeys(nodes))
    array = (ctypes.c_void_p * len(different))(*different)
    code = _driver().cuStreamUpdateCaptureDependencies(
        ctypes.c_void_p(stream), array, ctypes.c_size_t(len(different)), ctypes.c_uint(how)
    )
    if code:
        raise RuntimeError(f"cuStreamUpdateCaptureDependencies failed: CUDA error {code}")

"""Operations of streams by CUDA's driver: waits of several GPUs for each other, and events.

GPUs wait without a kernel, by counters in memory that all reach. Events are recorded without Python's lock,
which CuPy keeps meanwhile: a stream that waits for another rank fills up, and then every call on it waits
too. Ranks in one process share the lock; held, it would keep those that are waited for from ever coming.
Knows addresses, events and streams; never what the streams do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
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

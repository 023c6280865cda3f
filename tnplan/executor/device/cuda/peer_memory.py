"""The arenas of other ranks' GPUs on this machine, mapped here so that this rank's kernels reach them.

They are in allocations of their own, which GPUs of other ranks can open and reach at full speed.
Knows CUDA's handles of memory and which GPUs reach each other; never what is copied.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname
from threading import Event
from time import sleep
from typing import Any
from uuid import uuid4

import cupy
import numpy as np
from cupy.cuda import runtime

from tnplan.executor.device.cuda.copy.permute import bind_copy
from tnplan.executor.device.cuda.runtime.signals import Signals, record
from tnplan.executor.device.protocols.communicator import Communicator, OverlappedExchange
from tnplan.executor.device.protocols.copy import Copy
from tnplan.executor.device.protocols.device import Call

BOOT = Path("/proc/sys/kernel/random/boot_id")
STARTED = uuid4().hex
"""Tells processes apart whose numbers are equal, in two containers of a machine."""

MILLISECONDS = 1000
LET_GO_EVERY_S = 0.01
FIRST = -5
"""The highest priority of a stream."""
LINK_SHARE = 2
"""One in so many of the blocks that fit on a GPU fills its links, in short runs too (on H200)."""
BLOCK_BYTES = 2 << 20
"""The size of the GPU's large pages. CUDA gives no other allocation a part of such a block."""


@dataclass(frozen=True)
class _Offer:
    """Memory as other ranks may open it: at `address` in process `process`, by `handle` in others.

    `handle` is None where CUDA gives none.
    """

    machine: str
    process: str
    gpu: int
    address: int
    size_bytes: int
    handle: bytes | None


class CudaMemory:
    """See `PeerMemory`. Made by all ranks of a group together.

    Copies are made on `copy_stream`, what goes on meanwhile on `stream`, which has the lower priority.
    Ranks meet by counters in memory, and copies of `bind_overlapped` are made by the GPU's copy engines: a
    kernel that fills the GPU would keep copies and meetings that are kernels themselves waiting.
    """

    def __init__(self, host: Communicator, arena: Any, stream: Any, copy_stream: Any) -> None:
        self._stream = stream
        self._copy_stream = copy_stream
        self._local: Any = None
        self._opened: list[int] = []
        self._bases: dict[int, tuple[int, int]] = {}
        self._counters = zeros(BLOCK_BYTES)
        gpu = runtime.getDevice()
        offered = _offer(arena.data.ptr, arena.nbytes, gpu), _offer(self._counters.ptr, BLOCK_BYTES, gpu)
        offers: list[tuple[_Offer, _Offer]] = host.gather_objects(offered)
        counters: dict[int, int] = {}
        for rank, (theirs, flags) in enumerate(offers):
            base, flag = self._open(theirs, offered[0]), self._open(flags, offered[0])
            if base is not None and flag is not None:
                self._bases[rank], counters[rank] = (base, theirs.size_bytes), flag
        # All or none: ranks must agree on whether they copy or send, so that one pair that cannot reach each
        # other is enough for messages among all on this machine.
        everyone: list[set[int]] = host.gather_objects(set(self._bases))
        on_this_host = {rank for rank, offer in enumerate(offers) if offer[0].machine == offered[0].machine}
        all_connected = all(everyone[rank] >= on_this_host for rank in on_this_host)
        self.ranks = frozenset(on_this_host if all_connected else ())
        self._signals = Signals(host.rank, counters)
        self._gpu = gpu
        self._closed = False
        host.at_failure(self._let_go)

    def _open(self, offer: _Offer, local: _Offer) -> int | None:
        """Map the memory of a rank; None where this GPU cannot."""
        if offer.machine != local.machine:
            return None
        try:
            if offer.process == local.process:
                if offer.gpu != local.gpu:
                    _enable(offer.gpu)
                return offer.address
            if offer.handle is None:
                return None
            address: int = runtime.ipcOpenMemHandle(offer.handle)
        except runtime.CUDARuntimeError:
            return None
        self._opened.append(address)
        return address

    @property
    def copy_stream(self) -> Any:
        """The stream of what is given to `bind` as copies."""
        return self._copy_stream

    def _let_go(self, ended: Event) -> None:
        """End the waits for peers until the streams have run out and get no more work, or the GPU fails."""
        with suppress(RuntimeError), cupy.cuda.Device(self._gpu):
            stream = cupy.cuda.Stream(non_blocking=True)
            while not self._closed and not (ended.is_set() and self._copy_stream.done and self._stream.done):
                self._signals.let_go(stream)
                stream.synchronize()
                sleep(LET_GO_EVERY_S)

    def close(self) -> None:
        """Unmap everything."""
        self._closed = True
        while self._opened:
            runtime.ipcCloseMemHandle(self._opened.pop())

    def bind_meeting(self, peers: Sequence[int]) -> Call:
        """The call at which the streams of copies of all peers wait for each other, without a kernel."""
        return self._signals.bind(peers, self._copy_stream)

    def view(self, peer: int, offset_bytes: int, count: int, dtype: str) -> Any:
        """A flat view of a peer's arena."""
        address, size_bytes = self._bases[peer]
        memory = cupy.cuda.UnownedMemory(address, size_bytes, self, runtime.getDevice())
        return cupy.ndarray(count, np.dtype(dtype), cupy.cuda.MemoryPointer(memory, offset_bytes))

    def bind_copy(self, target: Any, source: Any, copy: Copy, target_start: int, source_start: int) -> Call:
        """A copy on the stream of copies, by as much of the GPU as fills its links."""
        return bind_copy(
            target, source, copy, target_start, source_start, None, self._copy_stream, share=LINK_SHARE
        )

    def bind(
        self, copies: Sequence[Call], local_copies: Sequence[Call], peers: Sequence[int], sent_bytes: int
    ) -> Call:
        """The copies between two meetings of the peers' streams."""
        # Before the first meeting ranks still write their sources and read what the targets replace; behind
        # the second all copies have arrived.
        meet = self.bind_meeting(peers)
        ready, peers_ready, done = (cupy.cuda.Event(disable_timing=True) for _ in range(3))
        stream, copying = self._stream, self._copy_stream

        def run() -> None:
            record(ready, stream)
            copying.wait_event(ready)
            meet()
            record(peers_ready, copying)
            # Local copies must not fill the GPU before the first copy has its blocks.
            stream.wait_event(peers_ready)
            for call in (*copies, meet, *local_copies):
                call()
            record(done, copying)
            stream.wait_event(done)

        return run

    def bind_overlapped(
        self, moved: Sequence[tuple[Any, Any]], own: Sequence[tuple[Any, Any]], peers: Sequence[int],
        sent_bytes: int,
    ) -> OverlappedExchange:  # fmt: skip
        """The copies between two meetings of the peers' streams, none of them a kernel."""
        meet = self.bind_meeting(peers)
        if self._local is None:
            self._local = cupy.cuda.Stream(non_blocking=True, priority=FIRST)
        ready, done, settled = (cupy.cuda.Event(disable_timing=True) for _ in range(3))
        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        stream, copying, local = self._stream, self._copy_stream, self._local
        to_peers, to_itself = (
            [(target.data.ptr, source.data.ptr, target.nbytes) for target, source in pairs]
            for pairs in (moved, own)
        )

        def copy(ranges: Sequence[tuple[int, int, int]], where: Any) -> None:
            for target, source, size_bytes in ranges:
                runtime.memcpyAsync(target, source, size_bytes, runtime.memcpyDeviceToDevice, where.ptr)

        def begin() -> None:
            record(ready, stream)
            copying.wait_event(ready)
            local.wait_event(ready)
            # On a stream of its own: the rank's own part must not delay its peers, who wait for its copies.
            copy(to_itself, local)
            record(settled, local)
            meet()
            record(first, copying)
            copy(to_peers, copying)
            meet()
            copying.wait_event(settled)
            record(last, copying)
            record(done, copying)

        return OverlappedExchange(
            begin,
            lambda: stream.wait_event(done),
            lambda: float(cupy.cuda.get_elapsed_time(first, last)) / MILLISECONDS,
        )


def machine() -> str:
    """The same for processes that run on one kernel, whatever containers they are in."""
    return BOOT.read_text().strip() if BOOT.exists() else gethostname()


def _offer(address: int, size_bytes: int, gpu: int) -> _Offer:
    handle: bytes | None
    try:
        handle = bytes(runtime.ipcGetMemHandle(address))
    except runtime.CUDARuntimeError:
        handle = None
    return _Offer(machine(), f"{os.getpid()} {STARTED}", gpu, address, size_bytes, handle)


def _enable(gpu: int) -> None:
    """Let the current GPU reach the memory of another one that this process sees."""
    try:
        runtime.deviceEnablePeerAccess(gpu)
    except runtime.CUDARuntimeError as error:
        if "AlreadyEnabled" not in str(error):
            raise


def whole_blocks(size_bytes: int) -> int:
    """The least size of an allocation of `size_bytes` that other ranks can open and reach at full speed.

    Copies into memory of another process run at 390 GB/s, but at 240 where its size is no multiple (H200).
    """
    return -(-max(size_bytes, 1) // BLOCK_BYTES) * BLOCK_BYTES


def own_array(count: int, dtype: str) -> Any:
    """An array in an allocation of its own, which other ranks can open."""
    size_bytes = whole_blocks(count * np.dtype(dtype).itemsize)
    cupy.get_default_memory_pool().free_all_blocks()
    return cupy.ndarray(count, dtype, cupy.cuda.MemoryPointer(cupy.cuda.Memory(size_bytes), 0))


def zeros(size_bytes: int) -> Any:
    """Memory of zeros, which are there when this returns."""
    memory = cupy.cuda.Memory(size_bytes)
    runtime.memset(memory.ptr, 0, size_bytes)
    cupy.cuda.Stream.null.synchronize()
    return memory

"""The arenas of other ranks' GPUs on this machine, mapped here so that this rank's kernels reach them.

Knows CUDA's handles of memory and which GPUs reach each other; never what is copied.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname
from typing import Any
from uuid import uuid4

import cupy
import numpy as np
from cupy.cuda import runtime

from executor.device.communicator import Communicator
from executor.device.cupy_copy import bind_copy
from executor.device.device import Call
from executor.device.permutation import Copy

BOOT = Path("/proc/sys/kernel/random/boot_id")
STARTED = uuid4().hex
"""Tells processes apart whose numbers are equal, in two containers of a machine."""

LINK_SHARE = 4
"""One in so many of the blocks that a GPU has room for is enough to fill its links (measured on H200)."""

Meet = Callable[[Sequence[int]], Call]
"""Gives, for some peers, the call at which `beside` streams of all of them wait for each other."""


@dataclass(frozen=True)
class _Offer:
    """An arena as other ranks may open it: at `address` in process `process`, by `handle` in others.

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

    Copies are made on the stream `beside`, what goes on meanwhile on `stream`, which has the lower priority.
    """

    def __init__(self, host: Communicator, arena: Any, stream: Any, beside: Any, meet: Meet) -> None:
        self._stream = stream
        self._beside = beside
        self._meet = meet
        self._opened: list[int] = []
        self._bases: dict[int, tuple[int, int]] = {}
        gpu = runtime.getDevice()
        offers: list[_Offer] = host.gather_objects(_offer(arena, gpu))
        reached = {rank for rank, offer in enumerate(offers) if self._open(rank, offer, offers[host.rank])}
        everyone: list[set[int]] = host.gather_objects(reached)
        here = {rank for rank, offer in enumerate(offers) if offer.machine == offers[host.rank].machine}
        self.ranks = frozenset(here if all(everyone[rank] >= here for rank in here) else ())

    def _open(self, rank: int, offer: _Offer, own: _Offer) -> bool:
        """Map the arena of a rank; False where this GPU cannot."""
        if offer.machine != own.machine:
            return False
        try:
            if offer.process == own.process:
                if offer.gpu != own.gpu:
                    _enable(offer.gpu)
                address = offer.address
            elif offer.handle is None:
                return False
            else:
                address = runtime.ipcOpenMemHandle(offer.handle)
                self._opened.append(address)
        except runtime.CUDARuntimeError:
            return False
        self._bases[rank] = address, offer.size_bytes
        return True

    def close(self) -> None:
        """Unmap everything."""
        while self._opened:
            runtime.ipcCloseMemHandle(self._opened.pop())

    def view(self, peer: int, offset_bytes: int, count: int, dtype: str) -> Any:
        """A flat view of a peer's arena."""
        address, size_bytes = self._bases[peer]
        memory = cupy.cuda.UnownedMemory(address, size_bytes, self, runtime.getDevice())
        return cupy.ndarray(count, np.dtype(dtype), cupy.cuda.MemoryPointer(memory, offset_bytes))

    def bind_copy(self, target: Any, source: Any, copy: Copy, target_start: int, source_start: int) -> Call:
        """A copy on the stream of copies, by as much of the GPU as fills its links."""
        return bind_copy(
            target, source, copy, target_start, source_start, None, False, self._beside, LINK_SHARE
        )

    def bind(
        self, copies: Sequence[Call], beside: Sequence[Call], peers: Sequence[int], sent_bytes: int
    ) -> Call:
        """The copies between two meetings of the peers' streams."""
        before, after = self._meet(peers), self._meet(peers)
        ready, met, done = (cupy.cuda.Event(disable_timing=True) for _ in range(3))
        stream, own = self._stream, self._beside

        def run() -> None:
            ready.record(stream)
            own.wait_event(ready)
            before()
            met.record(own)
            # What is beside must not fill the GPU before the first copy has its blocks.
            stream.wait_event(met)
            for call in (*copies, after, *beside):
                call()
            done.record(own)
            stream.wait_event(done)

        return run


def machine() -> str:
    """The same for processes that run on one kernel, whatever containers they are in."""
    return BOOT.read_text().strip() if BOOT.exists() else gethostname()


def _offer(arena: Any, gpu: int) -> _Offer:
    handle: bytes | None
    try:
        handle = bytes(runtime.ipcGetMemHandle(arena.data.ptr))
    except runtime.CUDARuntimeError:
        handle = None
    return _Offer(machine(), f"{os.getpid()} {STARTED}", gpu, arena.data.ptr, arena.nbytes, handle)


def _enable(gpu: int) -> None:
    """Let the current GPU reach the memory of another one that this process sees."""
    try:
        runtime.deviceEnablePeerAccess(gpu)
    except runtime.CUDARuntimeError as error:
        if "AlreadyEnabled" not in str(error):
            raise

"""Ranks with a GPU each: device buffers go by NCCL, everything else by the ranks' host communicator.

The only file that imports NCCL's binding. Knows flat views, streams and peers; never schedules.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import cupy
import numpy as np
from cupy_backends.cuda.libs import nccl

from tnplan.common.errors import InputError
from tnplan.executor.device.cuda.peer_memory import FIRST, MILLISECONDS, CudaMemory, machine
from tnplan.executor.device.cuda.runtime.signals import record
from tnplan.executor.device.protocols.communicator import (
    Communicator,
    ForwardingCommunicator,
    Message,
    OverlappedExchange,
    PeerMemory,
)
from tnplan.executor.device.protocols.device import Call

START_LIMIT_S = 25.0
START_LIMIT_A_RANK_S = 0.05
LET_GO_AFTER_S = 1.0


class NcclCommunicator(ForwardingCommunicator):
    """A group of ranks, each with the GPU that is current and with its `stream`; see `Communicator`.

    Messages of device views are enqueued on a separate stream: they begin when the work given to `stream`
    before `start` is done, and work given to it after `finish` waits for them. Messages of NumPy arrays go by
    the host's communicator and are done when `exchange` returns. GPUs of one machine that reach each other's
    memory need none.
    """

    name = "nccl"

    def __init__(self, host: Communicator, stream: Any, connect: bool = True) -> None:
        super().__init__(host)
        self._host = host
        self._stream = stream
        self.message_stream = cupy.cuda.Stream(non_blocking=True, priority=FIRST)
        self.connection = connect_ranks(host) if connect and host.size > 1 else None
        self._targets: set[int] = set()
        self._sources: set[int] = set()
        self.memories: list[CudaMemory] = []
        self.connections = [] if self.connection is None else [self.connection]
        self.turn = threading.Lock()
        self._gpu = cupy.cuda.Device()
        host.at_failure(self.let_go)
        self._probe = cupy.ndarray(2 * host.size, np.uint8)
        # On one machine, messages that move while the GPU packs others slow both down (measured on H200).
        self.overlaps = connect and len(set(host.gather_objects(machine()))) > 1

    def bind_exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> tuple[Call, Call]:
        """The calls that begin the messages and that make the stream wait for them."""
        if all(isinstance(view, np.ndarray) for _, view in (*sends, *receives)):
            return self._host.bind_exchange(sends, receives)
        enqueue, messages, stream = self._bind_messages(sends, receives), self.message_stream, self._stream
        # Two streams and two events: messages wait for the work before them, later work waits for the
        # messages, and the host waits for neither.
        ready, done = (cupy.cuda.Event(disable_timing=True) for _ in range(2))

        def start() -> None:
            record(ready, stream)
            messages.wait_event(ready)
            enqueue()
            record(done, messages)

        return start, lambda: stream.wait_event(done)

    def bind_overlapped(self, sends: Sequence[Message], receives: Sequence[Message]) -> OverlappedExchange:
        """The messages, timed on the separate stream."""
        enqueue, messages, stream = self._bind_messages(sends, receives), self.message_stream, self._stream
        ready = cupy.cuda.Event(disable_timing=True)
        first, last = cupy.cuda.Event(), cupy.cuda.Event()

        def begin() -> None:
            record(ready, stream)
            messages.wait_event(ready)
            record(first, messages)
            enqueue()
            record(last, messages)

        return OverlappedExchange(
            begin,
            lambda: stream.wait_event(last),
            lambda: float(cupy.cuda.get_elapsed_time(first, last)) / MILLISECONDS,
        )

    def _bind_messages(self, sends: Sequence[Message], receives: Sequence[Message]) -> Call:
        """The call that enqueues the messages on the separate stream."""
        communicator, messages, turn = self.connection, self.message_stream, self.turn
        if communicator is None:
            raise ValueError("ranks that are not connected cannot exchange device buffers")
        self._targets.update(peer for peer, _ in sends)
        self._sources.update(peer for peer, _ in receives)
        outgoing = [(view.data.ptr, view.nbytes, peer) for peer, view in sends]
        incoming = [(view.data.ptr, view.nbytes, peer) for peer, view in receives]

        def enqueue() -> None:
            with turn:
                # Sends and receives of one exchange in a group: one by one, ranks that all send first would
                # wait for ever.
                nccl.groupStart()
                for address, size_bytes, peer in outgoing:
                    communicator.send(address, size_bytes, nccl.NCCL_UINT8, peer, messages.ptr)
                for address, size_bytes, peer in incoming:
                    communicator.recv(address, size_bytes, nccl.NCCL_UINT8, peer, messages.ptr)
                nccl.groupEnd()

        return enqueue

    def open_memory(self, arena: Any) -> PeerMemory | None:
        """The arenas of the ranks on this machine, where their GPUs reach each other."""
        memory = CudaMemory(self._host, arena, self._stream, self.message_stream)
        self.memories.append(memory)
        return memory if memory.ranks else None

    def close_memory(self) -> None:
        """Unmap the peers' arenas, on all ranks before any goes on."""
        for memory in self.memories:
            memory.close()
        self.barrier()

    def close(self) -> None:
        """Unmap the peers' arenas and disconnect from the peers."""
        self.close_memory()
        while self.connections:
            disconnect(self.connections.pop())

    def connect(self) -> None:
        """Exchange a byte with every peer; NCCL opens its ways when they are first used."""
        if not self._targets and not self._sources:
            return
        probe = self._probe
        targets, sources = sorted(self._targets), sorted(self._sources)
        self.exchange(
            [(peer, probe[peer : peer + 1]) for peer in targets],
            [(peer, probe[self.size + peer :][:1]) for peer in sources],
        )
        self._stream.synchronize()

    def split(self, color: int, key: int) -> NcclCommunicator:
        """The ranks with the same colour, connected among themselves."""
        group = NcclCommunicator(self._host.split(color, key), self._stream)
        group.memories = self.memories
        self.connections += group.connections
        group.connections = self.connections
        return group

    def let_go(self, ended: threading.Event) -> None:
        """End the messages to and from peers; those bound but not begun are errors from now on.

        The last of a process's ranks that ends its connection frees what all of them use. So a rank whose
        messages are done lets those go first that wait for it, and end. Waits for messages that are being
        begun, but not for ever: their beginning may wait for a peer.
        """
        # A rank that waits in a message must be let go at once; one that is done gives way to those.
        if self.connection is not None and self._is_idle():
            ended.wait(LET_GO_AFTER_S)
        locked = self.turn.acquire(timeout=LET_GO_AFTER_S)
        try:
            connection = self.connection
            if connection is not None and self._take(connection):
                with self._gpu, suppress(RuntimeError):
                    connection.abort()
                    ctypes.pythonapi.Py_DecRef(ctypes.py_object(connection))
        finally:
            if locked:
                self.turn.release()

    def _is_idle(self) -> bool:
        """Whether no message of this rank is on its way; not where its GPU has failed."""
        with self._gpu, suppress(RuntimeError):
            return bool(self.message_stream.done)
        return False

    def _take(self, connection: Any) -> bool:
        """Whether a connection is left for the caller to end; its rank may close it at the same time."""
        try:
            self.connections.remove(connection)
        except ValueError:
            return False
        return True


def nccl_number() -> int:
    """The version of the NCCL library that is loaded, as it says it: 22809 for 2.28.9."""
    return int(nccl.get_version())


def nccl_version() -> str:
    """The version of the NCCL library that is loaded."""
    number = nccl_number()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def connect_ranks(host: Communicator) -> Any:
    """Connect the ranks of a group; where that takes too long the whole job is ended.

    The destructor of what it gives waits for the peers. So one more reference is counted than there is: no
    collection of garbage and no end of the process may call it before `disconnect`.
    """
    limit_s = START_LIMIT_S + START_LIMIT_A_RANK_S * host.size
    message = (
        f"rank {host.rank}: NCCL: did not connect {host.size} ranks within {limit_s:.0f} s; see what it says "
        "with NCCL_DEBUG=INFO, and name the network with NCCL_SOCKET_IFNAME"
    )
    timer = threading.Timer(limit_s, host.abort, (message, 1))
    timer.daemon = True
    timer.start()
    try:
        identity = host.broadcast_object(nccl.get_unique_id() if host.rank == 0 else None, 0)
        connection = nccl.NcclCommunicator(host.size, identity, host.rank)
    except nccl.NcclError as error:
        raise InputError(
            "NCCL",
            f"cannot connect {host.size} ranks ({error})",
            "set NCCL_DEBUG=INFO to see why",
            topic="GPUs",
        ) from None
    finally:
        timer.cancel()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    return connection


def disconnect(connection: Any) -> None:
    """Let go what `connect_ranks` gave; collective over its ranks."""
    connection.destroy()
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(connection))

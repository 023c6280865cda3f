"""MPI ranks through mpi4py, the only file that imports it. Knows host buffers alone."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from ctypes import CDLL, byref, c_int
from time import monotonic, sleep
from typing import Any

import mpi4py
import numpy as np
from numpy.typing import NDArray

# Invariant: MPI starts and ends by calls that let other threads run, which watch for lost hosts. Those of
# mpi4py do not.
mpi4py.rc.initialize = False
from mpi4py import MPI  # noqa: E402

from tnplan.executor.device.protocols.communicator import FORWARD_S, BlockingExchange, Message  # noqa: E402

CHUNK_BYTES = 1 << 30
TAG = 7
LAST_TAG = 8
LOOK_EVERY_S = 0.01
GRACE_S, END_S = 1.0, 10.0
"""How long a failed rank waits: where it is not the first one, for that to end the job; and to be ended,
which MPI_Abort need not await."""


class MpiCommunicator(BlockingExchange):
    """A communicator over an MPI one; see `Communicator`. Messages of any size go in chunks of 1 GiB."""

    name = "mpi"

    def __init__(self, communicator: MPI.Comm) -> None:
        self._communicator = communicator
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """Grouped point-to-point: all receives are posted, then all sends, then all are awaited."""
        requests = []
        # Receives first: a message that finds its receive posted goes straight to its place.
        # Invariant: chunks of a message have one tag, and MPI keeps the order of messages between two ranks.
        for peer, view in receives:
            for chunk in _chunks(view):
                requests.append(self._communicator.Irecv([chunk, MPI.BYTE], source=peer, tag=TAG))
        for peer, view in sends:
            for chunk in _chunks(view):
                requests.append(self._communicator.Isend([chunk, MPI.BYTE], dest=peer, tag=TAG))
        MPI.Request.Waitall(requests)

    def barrier(self) -> None:
        """MPI_Barrier."""
        self._communicator.Barrier()

    def broadcast_object(self, value: Any, root: int) -> Any:
        """The root's value."""
        return self._communicator.bcast(value, root=root)

    def gather_objects(self, value: Any) -> list[Any]:
        """Every rank's value, on every rank."""
        return self._communicator.allgather(value)

    def gather_within(self, value: Any, limit_s: float) -> list[Any] | None:
        """Every rank's value, by messages of a separate tag; None where some do not come in time."""
        communicator = self._communicator
        peers = [peer for peer in range(self.size) if peer != self.rank]
        sent = [communicator.isend(value, dest=peer, tag=LAST_TAG) for peer in peers]
        values = {self.rank: value}
        end_s = monotonic() + limit_s
        while len(values) < self.size:
            for peer in peers:
                if peer not in values and communicator.iprobe(source=peer, tag=LAST_TAG):
                    values[peer] = communicator.recv(source=peer, tag=LAST_TAG)
            if monotonic() > end_s:
                return None
            sleep(LOOK_EVERY_S)
        MPI.Request.waitall(sent)
        return [values[rank] for rank in range(self.size)]

    def split(self, color: int, key: int) -> MpiCommunicator:
        """MPI_Comm_split."""
        return MpiCommunicator(self._communicator.Split(color, key))

    def abort(self, message: str, status: int) -> None:
        """Print the message in one line, and end every rank of the job with the status.

        Other ranks than the first wait a moment before: where all fail alike, the first alone speaks.
        """
        if MPI.COMM_WORLD.Get_rank() > 0:
            sleep(GRACE_S)
        sys.stdout.flush()
        # One write: what several ranks write to one terminal or file is not mixed within a line.
        sys.stderr.write(f"{' '.join(message.split())}\n")
        sys.stderr.flush()
        sleep(FORWARD_S)
        self._communicator.Abort(status)
        sleep(END_S)
        os._exit(status)


def world() -> MpiCommunicator:
    """All ranks of the job; starts MPI where that is not done."""
    if not MPI.Is_initialized():
        level = getattr(MPI, f"THREAD_{mpi4py.rc.thread_level.upper()}")
        status = _library().MPI_Init_thread(None, None, c_int(level), byref(c_int()))
        if status != MPI.SUCCESS:
            raise RuntimeError(f"MPI_Init_thread: status {status}")
        for communicator in (MPI.COMM_WORLD, MPI.COMM_SELF):
            communicator.Set_errhandler(MPI.ERRORS_RETURN)  # mpi4py makes exceptions of them
        # mpi4py ends only what it has started, and Open MPI ends a job whose process leaves MPI running.
        atexit.register(finalize)
    return MpiCommunicator(MPI.COMM_WORLD)


def finalize() -> None:
    """End MPI where it runs; collective over all ranks."""
    if MPI.Is_initialized() and not MPI.Is_finalized():
        _library().MPI_Finalize()


def _library() -> CDLL:
    """The functions of the MPI library."""
    return CDLL(MPI.__file__)


def library() -> str:
    """The name and version of the MPI library, in one line."""
    return " ".join(MPI.Get_library_version().split("\n")[0].split())


def _chunks(view: NDArray[Any]) -> list[NDArray[np.uint8]]:
    raw = view.view(np.uint8)
    return [raw[first : first + CHUNK_BYTES] for first in range(0, len(raw), CHUNK_BYTES)]

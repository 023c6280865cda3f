"""A heartbeat between the ranks of a job: a rank that is silent for too long ends it on all other hosts.

MPI and NCCL wait for a lost rank for ever and cannot be interrupted. So a thread of each rank sends a
datagram a second: rank 0 watches all, and all watch rank 0. Datagrams need no connection, and one that is
lost changes nothing. Ranks from which none ever came are not watched, and rank 0 says so. Until all have
heard each other, `time_limit` watches.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from socket import gethostname
from threading import Timer
from time import monotonic, sleep

from tnplan.common.errors import InputError
from tnplan.executor.device.comm.launcher import (
    interrupt_ends_process,
    interrupt_is_raised,
    launched_local_rank,
    launched_rank,
    launched_size,
)
from tnplan.executor.device.protocols.communicator import FORWARD_S, AgreedError, World

EVERY_S = 1.0
FIRST_WITHIN_S = 10.0
"""How long a rank may take to be heard for the first time."""
FIRST_WAIT_S, LOOK_EVERY_S = 5.0, 0.005
"""How long a job waits for that before its work begins, and how often it checks."""
REPEATS, APART_S = 5, 0.1
"""How often and how far apart the end of a job is sent."""
END_S = 4.0
"""How long the end of all processes is left to MPI."""
TOKEN_BYTES = 16
BEAT, END, BYE = 0, 1, 2
_HEAD = struct.Struct(f"!{TOKEN_BYTES}sBI")
LONGEST = 1024
STATUS = 1

Address = tuple[str, int]


@dataclass(frozen=True)
class Peer:
    """The host, the addresses and the port of a rank, and its token."""

    host: str
    port: int
    addresses: tuple[str, ...]
    token: bytes


def addresses() -> tuple[str, ...]:
    """The IPv4 addresses of this host, that of its own loop last."""
    listed = []
    with suppress(OSError):
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            for _, name in socket.if_nameindex():
                with suppress(OSError):
                    request = struct.pack("256s", name.encode()[:15])
                    listed.append(socket.inet_ntoa(fcntl.ioctl(probe.fileno(), 0x8915, request)[20:24]))
    with suppress(OSError):
        listed.append(socket.gethostbyname(gethostname()))
    outside = [address for address in dict.fromkeys(listed) if not address.startswith("127.")]
    return (*outside, "127.0.0.1")


class Heartbeat:
    """The thread of one rank. `end` is called with a line and whether this rank is to print it."""

    def __init__(
        self, rank: int, peers: list[Peer], sender: socket.socket, timeout_s: float,
        end: Callable[[str, bool], None], every_s: float = EVERY_S, can_resume: bool = False,
    ) -> None:  # fmt: skip
        self._rank, self._peers, self._socket = rank, peers, sender
        self._timeout_s, self._every_s, self.end = timeout_s, every_s, end
        self.can_resume = can_resume
        self._token = peers[0].token
        # A star: rank 0 watches all and all watch rank 0, 2 (P - 1) datagrams a second in place of P^2.
        self._watched = range(1, len(peers)) if rank == 0 else range(1)
        self._where: dict[int, Address] = {}
        self._heard: dict[int, float] = {}
        self._stopped = threading.Event()
        self._first_here = min(other for other, peer in enumerate(peers) if peer.host == peers[rank].host)
        self.largest_gap_s = 0.0
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to send and to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a last datagram tells the others not to watch this rank any more."""
        self._stopped.set()
        with suppress(OSError):  # wakes the thread
            self._socket.sendto(b"", ("127.0.0.1", self._socket.getsockname()[1]))
        self._thread.join()
        for _ in range(REPEATS if self._heard else 0):
            self._send(BYE)
        self._socket.close()

    def wait_until_heard(self, limit_s: float) -> None:
        """Wait until this rank hears those that it watches; only so long, where a network lets nothing by."""
        end_s = monotonic() + limit_s
        while self.unheard() and monotonic() < end_s and not self._stopped.wait(LOOK_EVERY_S):
            pass

    def unheard(self) -> list[int]:
        """The ranks that this one should hear and never has."""
        return [rank for rank in self._watched if rank not in self._heard]

    def _run(self) -> None:
        start_s = last_s = monotonic()
        has_warned = False
        while not self._stopped.is_set():
            self._send(BEAT)
            self._receive(self._every_s)
            now = monotonic()
            # Where this process itself did not run, missing datagrams say nothing.
            late_s = now - last_s - self._every_s
            if late_s > self._every_s:
                self._heard = {rank: last_beat_s + late_s for rank, last_beat_s in self._heard.items()}
            self.largest_gap_s = max(self.largest_gap_s, late_s)
            last_s = now
            if not has_warned and now - start_s > FIRST_WITHIN_S:
                has_warned = True
                self._warn()
            for rank, last_beat_s in list(self._heard.items()):
                if now - last_beat_s > self._timeout_s and not self._stopped.is_set():
                    self._lost(rank)
                    return

    def _send(self, kind: int, text: str = "") -> None:
        packet = _HEAD.pack(self._token, kind, self._rank) + text.encode()[:LONGEST]
        for rank in self._watched:
            # Where a datagram came from is where the answer goes: through whatever translates addresses on
            # the way.
            if rank in self._where:
                targets = [self._where[rank]]
            elif self._rank == 0:
                continue  # the other ranks send first
            else:
                targets = [(address, self._peers[0].port) for address in self._peers[0].addresses]
            for target in targets:
                with suppress(OSError):  # a link that is down may come back
                    self._socket.sendto(packet, target)

    def _receive(self, wait_s: float) -> None:
        """Receive datagrams for so long."""
        end_s = monotonic() + wait_s
        while (left_s := end_s - monotonic()) > 0 and not self._stopped.is_set():
            self._socket.settimeout(left_s)
            try:
                packet, where = self._socket.recvfrom(_HEAD.size + LONGEST)
            except OSError:
                continue
            if len(packet) < _HEAD.size:
                continue
            token, kind, rank = _HEAD.unpack_from(packet)
            # The token of this job keeps out datagrams of others, and late ones of an earlier job on the same
            # port.
            if token != self._token or rank not in self._watched:
                continue
            if kind == END:
                self.end(packet[_HEAD.size :].decode(errors="replace"), False)
            elif kind == BYE:
                self._heard.pop(rank, None)
                self._watched = [other for other in self._watched if other != rank]  # type: ignore[assignment]
            else:
                if self._rank == 0 and rank not in self._where:
                    self._answer(where)
                self._heard[rank], self._where[rank] = monotonic(), where

    def _answer(self, where: Address) -> None:
        """Answer the first datagram of a rank at once: a rank that never heard rank 0 does not miss it."""
        with suppress(OSError):
            self._socket.sendto(_HEAD.pack(self._token, BEAT, 0), where)

    def _warn(self) -> None:
        """Print which ranks cannot be watched."""
        silent = self.unheard()
        if self._rank == 0 and silent:
            hosts = ", ".join(sorted({self._peers[rank].host for rank in silent}))
            sys.stderr.write(
                f"tnplan: {len(silent)} of {len(self._peers)} ranks, on {hosts}, cannot be watched: no "
                "datagram comes from them; if they are lost, the job does not end by itself\n"
            )
            sys.stderr.flush()

    def _lost(self, rank: int) -> None:
        """End the job since a rank is silent."""
        remedy = "--resume goes on from its checkpoint, if any" if self.can_resume else "start it again"
        text = (
            f"rank {rank} on {self._peers[rank].host} did not answer for {self._timeout_s:g} s: "
            f"the job is ended; {remedy}"
        )
        self._watched = [other for other in self._watched if other != rank]  # type: ignore[assignment]
        # Datagrams may be lost, also this one; whoever misses all of them misses rank 0 next.
        for _ in range(REPEATS if self._rank == 0 else 0):
            self._send(END, text)
            sleep(APART_S)
        self.end(text, self._rank == self._first_here)


def end_job(world: World, text: str, prints: bool) -> None:
    """Print the line, where this rank is to, and end all processes, which may wait in MPI for ever.

    MPI's own abort informs the launcher; where that waits too, this process ends all the same.
    """
    line = f"tnplan: error: {text}"
    if not prints:
        sleep(END_S)  # the rank that prints ends this one
        os._exit(STATUS)
    threading.Timer(END_S, os._exit, (STATUS,)).start()
    world.abort(line, STATUS)


def end_before_beats(world: World, text: str) -> None:
    """End all processes, of which any may be lost."""
    wait_for_lower_ranks()
    end_job(world, text, True)


def end_without_mpi(text: str, prints: bool) -> None:
    """The same while MPI ends, which does not take its own abort any more."""
    if not prints:
        sleep(END_S)
        os._exit(STATUS)
    end_process(text)


_beats: list[Heartbeat] = []
"""The heartbeat of the job that this process works on."""
_commands: list[bool] = []
"""Whether this process is one command, which ends with `end_of_command`."""


def begin_command() -> None:
    """Watch from the first job of this process to its end."""
    _commands.append(True)


@contextmanager
def watched(world: World, timeout_s: float, can_resume: bool = False) -> Iterator[None]:
    """Watch the ranks of a job while they work; collective. A timeout of 0 watches none.

    `can_resume` says whether the job keeps a checkpoint. A job within another one is watched with that. That
    of a command is watched to the end of the process.
    """
    if timeout_s == 0:
        yield
        return
    if _beats:
        outer = _beats[-1]
        before, outer.can_resume = outer.can_resume, can_resume
        yield
        outer.can_resume = before
        return
    # Until all have heard each other a plain time limit watches: no rank can know yet which is missing.
    with ending_after(timeout_s, "the start of the ranks", partial(end_before_beats, world)):
        _beats.append(_started(world, timeout_s, can_resume))
    refusal = None
    try:
        yield
    except AgreedError as error:
        refusal = error
    # All ranks come here together: one that fails otherwise ends the others.
    world.barrier()
    if not _commands:
        _beats.pop().stop()
    if refusal is not None:
        raise refusal


def _started(world: World, timeout_s: float, can_resume: bool) -> Heartbeat:
    """The heartbeat of this rank, once all ranks hear those that they watch; collective."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.bind(("", 0))
    mine = Peer(gethostname(), sender.getsockname()[1], addresses(), secrets.token_bytes(TOKEN_BYTES))
    peers, end = world.gather_objects(mine), partial(end_job, world)
    beat = Heartbeat(world.rank, peers, sender, timeout_s, end, can_resume=can_resume)
    beat.start()
    beat.wait_until_heard(FIRST_WAIT_S)
    world.barrier()
    return beat


def end_of_command() -> None:
    """End MPI, and only then the heartbeat: so a host that is lost meanwhile is missed. Collective."""
    if "tnplan.executor.device.comm.mpi" in sys.modules:
        from tnplan.executor.device.comm import mpi

        for beat in _beats:
            beat.end = end_without_mpi
        mpi.finalize()
    _commands.clear()
    while _beats:
        _beats.pop().stop()


GRACE_S = 1.0
"""How long a rank waits for others to print why the job ends."""

End = Callable[[str], None]


@contextmanager
def ending_after(limit_s: float, waits_for: str, end: End) -> Iterator[None]:
    """Call `end` with a line, from another thread, where what is inside takes longer; 0: no limit."""
    if limit_s <= 0:
        yield
        return
    text = (
        f"{waits_for} takes more than {limit_s:g} s, and a host may be lost: the job is ended; "
        "allow more with --timeout"
    )
    timer = Timer(limit_s, end, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def wait_for_lower_ranks() -> None:
    """Wait where a lower rank prints why the job ends: rank 0, or else the first of a host that is left."""
    sleep(GRACE_S * ((launched_rank() > 0) + (launched_local_rank() > 0)))


def end_process(text: str) -> None:
    """Print the line and end this process and, by its launcher, the job: MPI is not there to do it."""
    wait_for_lower_ranks()
    sys.stderr.write(f"tnplan: error: rank {launched_rank()}: {text}\n")
    sys.stderr.flush()
    sleep(FORWARD_S)
    with suppress(OSError, ValueError):
        # As MPI_Abort tells MPICH's launcher: that awaits a lost host for ever where a process only ends.
        os.write(int(os.environ.get("PMI_FD", "")), f"cmd=abort exitcode={STATUS}\n".encode())
        sleep(GRACE_S)
    os._exit(STATUS)


def world_communicator(timeout_s: float = 0.0) -> World | None:
    """All ranks of the job, or None outside a launcher or with one rank.

    Where MPI does not start within `timeout_s`, this process ends; 0: no limit.
    """
    size = launched_size()
    if size == 1:
        return None
    if find_spec("mpi4py") is None:
        raise InputError(
            "mpirun", f"started {size} ranks, but mpi4py is not installed",
            "install it with: pip install 'tnplan[mpi]'", topic="installation",
        )  # fmt: skip
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        interrupt_ends_process()
    from tnplan.executor.device.comm import mpi

    with ending_after(timeout_s, "the start of MPI", end_process):
        world = mpi.world()
    if handler in (signal.default_int_handler, signal.SIG_DFL):
        interrupt_is_raised()
    if world.size != size:
        raise InputError(
            "mpirun", f"started {size} ranks, but mpi4py's own MPI sees {world.size}",
            "start with the mpirun of the MPI library that mpi4py was built for",
            topic="ranks",
        )  # fmt: skip
    return world

"""When connections of NCCL end, without a GPU: a stand-in for its binding tells what it was asked."""

from __future__ import annotations

import gc
import threading
from contextlib import nullcontext
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.kernels.strict_cupy import nccl_over
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import Communicator

RANKS = 2

pytestmark = pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy")


@pytest.fixture
def told() -> list[str]:
    """What happened to connections, in order."""
    return []


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> Any:
    """`tnplan.executor.device.comm.nccl` over the stand-in."""

    class NcclCommunicator:
        def __init__(self, size: int, identity: int, rank: int) -> None:
            self.alive = True
            told.append("connected")

        def destroy(self) -> None:
            self.alive = False
            told.append("destroyed")

        def abort(self) -> None:
            self.alive = False
            told.append("aborted")

        def __del__(self) -> None:
            if self.alive:
                told.append("lost")

    made = nccl_over(monkeypatch, SimpleNamespace(
        NcclCommunicator=NcclCommunicator, NcclError=RuntimeError, get_unique_id=lambda: 7
    ))  # fmt: skip
    stream = SimpleNamespace(done=False)
    nothing = SimpleNamespace(Stream=lambda **_: stream, Device=nullcontext)
    monkeypatch.setattr(made, "cupy", SimpleNamespace(cuda=nothing, ndarray=lambda *_: None))
    return made


def test_groups_end_with_the_communicator_that_they_were_split_from(module: Any, told: list[str]) -> None:
    def work(host: Communicator) -> None:
        ranks = module.NcclCommunicator(host, None, connect=False)
        ranks.memories.append(SimpleNamespace(close=lambda: told.append("unmapped")))
        ranks.split(0, host.rank)
        ranks.split(host.rank, 0)
        host.barrier()
        gc.collect()
        host.barrier()
        assert told == ["connected"] * RANKS
        host.barrier()
        ranks.close()

    run_ranks(RANKS, work)
    gc.collect()
    assert told == ["connected"] * RANKS + ["unmapped"] * RANKS + ["destroyed"] * RANKS


def test_no_collection_of_garbage_ends_a_connection(module: Any, told: list[str]) -> None:
    run_ranks(RANKS, lambda host: module.NcclCommunicator(host, None) and None)
    gc.collect()
    assert told == ["connected"] * RANKS


def test_a_rank_that_fails_aborts_every_connection_once(module: Any, told: list[str]) -> None:
    def work(host: Communicator) -> None:
        ranks = module.NcclCommunicator(host, None)
        ranks.split(0, host.rank)
        if host.rank == 1:
            raise KeyError("struck")
        host.barrier()

    with pytest.raises(KeyError, match="struck"):
        run_ranks(RANKS, work)
    gc.collect()
    assert told == ["connected"] * 2 * RANKS + ["aborted"] * 2 * RANKS


def test_a_rank_that_waits_for_no_message_aborts_when_the_others_are_over(
    module: Any, told: list[str]
) -> None:
    """The last one to abort frees what a kernel of the others would still read."""
    released = threading.Event()

    def work(host: Communicator) -> None:
        ranks = module.NcclCommunicator(host, None)
        ranks.message_stream = SimpleNamespace(done=host.rank == 1)
        abort = ranks.connection.abort

        def aborted() -> None:
            abort()
            told.append(f"rank {host.rank}")
            released.set()

        ranks.connection.abort = aborted
        host.barrier()
        if host.rank == 1:
            raise KeyError("struck")
        assert released.wait(5)
        told.append("over")

    with pytest.raises(KeyError, match="struck"):
        run_ranks(RANKS, work)
    assert told[RANKS:] == ["aborted", "rank 0", "over", "aborted", "rank 1"]


def test_a_connection_that_its_rank_closes_meanwhile_is_ended_once(module: Any, told: list[str]) -> None:
    def work(host: Communicator) -> None:
        ranks = module.NcclCommunicator(host, None)
        host.barrier()
        if host.rank == 0:
            while ranks.connections:
                module.disconnect(ranks.connections.pop())
            ranks.let_go(threading.Event())
        host.barrier()
        raise KeyError("struck")

    with pytest.raises(KeyError, match="struck"):
        run_ranks(RANKS, work)
    assert sorted(told) == ["aborted"] * (RANKS - 1) + ["connected"] * RANKS + ["destroyed"]


def test_an_abort_that_fails_leaves_the_connection_and_says_nothing(
    module: Any, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", said.append)

    def fail(connection: Any) -> None:
        raise RuntimeError("the GPU has failed")

    def work(host: Communicator) -> None:
        ranks = module.NcclCommunicator(host, None)
        monkeypatch.setattr(type(ranks.connection), "abort", fail)
        host.barrier()
        raise KeyError("struck")

    with pytest.raises(KeyError, match="struck"):
        run_ranks(RANKS, work)
    gc.collect()
    assert (told, said) == (["connected"] * RANKS, [])


def test_messages_that_wait_for_ever_do_not_keep_a_connection(
    module: Any, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LET_GO_AFTER_S", 0.1)

    def work(host: Communicator) -> None:
        ranks = module.NcclCommunicator(host, None)
        ranks.turn.acquire()
        host.barrier()
        if host.rank == 1:
            raise KeyError("struck")
        host.barrier()

    with pytest.raises(KeyError, match="struck"):
        run_ranks(RANKS, work)
    assert told == ["connected"] * RANKS + ["aborted"] * RANKS

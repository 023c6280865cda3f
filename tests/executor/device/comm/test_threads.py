"""In-process ranks: exchanges, splits, and one failure that ends all."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time

import numpy as np
import pytest

from tnplan.common.errors import InputError
from tnplan.executor.device.comm import threads
from tnplan.executor.device.comm.launcher import launched_rank, launched_size
from tnplan.executor.device.comm.threads import ThreadCommunicator, run_ranks
from tnplan.executor.device.protocols.communicator import AgreedError, agree


def test_everyone_sends_to_everyone() -> None:
    def work(world: ThreadCommunicator) -> list[float]:
        peers = [peer for peer in range(world.size) if peer != world.rank]
        received = {peer: np.zeros(3) for peer in peers}
        world.exchange(
            [(peer, np.full(3, 10.0 * world.rank + peer)) for peer in peers], list(received.items())
        )
        return [float(received[peer][0]) for peer in peers]

    assert run_ranks(4, work)[1] == [1.0, 21.0, 31.0]


def test_split_numbers_by_key() -> None:
    def work(world: ThreadCommunicator) -> tuple[int, int, list[int]]:
        group = world.split(world.rank % 2, -world.rank)
        return group.rank, group.size, group.gather_objects(world.rank)

    assert run_ranks(5, work) == [
        (2, 3, [4, 2, 0]),
        (1, 2, [3, 1]),
        (1, 3, [4, 2, 0]),
        (0, 2, [3, 1]),
        (0, 3, [4, 2, 0]),
    ]


def test_a_failure_ends_every_rank_and_is_raised() -> None:
    def work(world: ThreadCommunicator) -> None:
        if world.rank == 2:
            raise KeyError("rank 2")
        world.exchange([], [(2, np.zeros(1))])

    start = time.monotonic()
    with pytest.raises(KeyError, match="rank 2"):
        run_ranks(4, work)
    assert time.monotonic() - start < 5


def test_a_rank_that_never_hears_of_a_failure_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "END_WITHIN_S", 0.2)
    released = threading.Event()

    def work(world: ThreadCommunicator) -> None:
        if world.rank == 1:
            raise KeyError("rank 1")
        released.wait(60)

    start = time.monotonic()
    with pytest.raises(KeyError, match="rank 1"):
        run_ranks(3, work)
    assert time.monotonic() - start < 5
    released.set()


class Held:
    """Memory of a device, told when it is freed."""

    def __init__(self, told: list[str]) -> None:
        self.told = told
        self.itself: Held | None = None

    def __del__(self) -> None:
        self.told.append("freed")


def test_devices_are_let_go_before_what_the_ranks_hold_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "LOOK_EVERY_S", 0.01)
    told: list[str] = []
    waits = threading.Event()

    def let_go(ended: threading.Event) -> None:
        told.append("letting go")
        waits.set()
        assert ended.wait(5)
        told.append("let go")

    def work(world: ThreadCommunicator) -> None:
        held = Held(told)
        if world.rank == 0:
            world.at_failure(let_go)
        world.barrier()
        if world.rank == 0:
            raise KeyError("struck")
        assert waits.wait(5)
        world.exchange([], [(0, np.zeros(1))])
        del held

    with pytest.raises(KeyError, match="struck") as caught:
        run_ranks(2, work)
    assert told == ["letting go", "let go", "freed", "freed"]
    assert caught.value.__traceback__ is not None


@pytest.mark.parametrize("of_device", [True, False])
def test_ranks_with_devices_alone_end_with_a_search_for_garbage(
    of_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[bool] = []
    monkeypatch.setattr(gc, "collect", lambda: searched.append(True))
    run_ranks(2, lambda world: world.at_failure(lambda ended: None, of_device))
    assert searched == [True] * of_device


def interrupt() -> None:
    """Send Ctrl-C to the thread that waits for the ranks, when it does."""
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_waits_for_ranks_with_devices() -> None:
    told: list[str] = []

    def let_go(ended: threading.Event) -> None:
        assert ended.wait(5)
        told.append("let go")

    def work(world: ThreadCommunicator) -> None:
        world.at_failure(let_go)
        interrupt()
        time.sleep(0.3)
        told.append("rank ended")

    with pytest.raises(KeyboardInterrupt):
        run_ranks(1, work)
    assert told == ["rank ended", "let go"]


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_waits_for_no_rank_without_a_device() -> None:
    released = threading.Event()

    def work(world: ThreadCommunicator) -> None:
        interrupt()
        assert released.wait(20)

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_ranks(1, work)
    assert time.monotonic() - start < 3
    released.set()


class Device(Held):
    """A device that is let go at once, and holds memory in a ring."""

    def __init__(self, told: list[str], world: ThreadCommunicator) -> None:
        super().__init__(told)
        self.itself = self
        world.at_failure(self.let_go)

    def let_go(self, ended: threading.Event) -> None:
        """Nothing waits."""


def test_an_error_that_is_kept_keeps_nothing_of_devices() -> None:
    told: list[str] = []

    def refuse(held: Held) -> None:
        raise ValueError("of old")

    def work(world: ThreadCommunicator) -> None:
        Device(told, world)
        world.barrier()
        try:
            refuse(Held(told))
        except ValueError as error:
            raise KeyError("struck") from error

    gc.disable()
    try:
        with pytest.raises(KeyError, match="struck") as caught:
            run_ranks(2, work)
    finally:
        gc.enable()
    assert told == ["freed"] * 4
    assert isinstance(caught.value.__cause__, ValueError)


def test_garbage_of_ranks_with_devices_is_freed_when_they_end_and_nothing_let_go() -> None:
    told: list[str] = []

    def work(world: ThreadCommunicator) -> int:
        world.at_failure(lambda ended: pytest.fail("nothing failed"))
        held = Held(told)
        held.itself = held
        return world.rank

    gc.disable()
    try:
        assert run_ranks(2, work) == [0, 1]
    finally:
        gc.enable()
    assert told == ["freed", "freed"]


def test_ranks_agree_on_the_first_refusal() -> None:
    refused = []

    def work(world: ThreadCommunicator) -> None:
        def check() -> None:
            if world.rank:
                raise InputError(f"rank {world.rank}", "is wrong", "mend it")

        try:
            agree(world, check)
        except AgreedError as error:
            refused.append(str(error))

    run_ranks(3, work)
    assert refused == ["rank 1: is wrong; mend it"] * 3


@pytest.mark.parametrize(
    ("environment", "size", "rank"),
    [
        ({}, 1, 0),
        ({"PMI_SIZE": "4", "PMI_RANK": "3"}, 4, 3),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, 2, 1),
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, 1, 0),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "5"}, 8, 5),
        ({"PMI_SIZE": "1", "PMI_RANK": "0"}, 1, 0),
    ],
)
def test_launchers_are_found_by_their_environment(environment: dict[str, str], size: int, rank: int) -> None:
    assert launched_size(environment) == size
    assert launched_rank(environment) == rank

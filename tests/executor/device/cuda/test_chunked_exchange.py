"""Exchanges beside chains on GPUs: streams that wait for each other by counters, and bits of the whole."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import deque
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.contraction.executor import contract_pairwise, make_case
from tests.support.contraction.overlap import agree, hiding_profile, in_parts, planned, swapping_path
from tests.support.kernels.gpus import needs_gpus
from tests.support.mpirun import SCRIPTS, mpirun, needs_mpi
from tests.support.networks import TOLERANCE, random_arrays
from tnplan.calls.execute import execute
from tnplan.executor.contraction.bind import binder as bind
from tnplan.executor.device.cuda.runtime import signals as stream_signal
from tnplan.executor.device.cuda.runtime.signals import COUNTER_BYTES, Signals
from tnplan.jobs.job_options import TIMEOUT_S
from tnplan.planner.networks.tensors import save_tensors
from tnplan.planner.schedule.file import save_schedule

SEEDS = (0, 1, 3, 5, 6, 7, 11, 12, 13, 17, 20, 22, 24, 25, 26, 27, 29, 31, 34, 35, 37, 38)
"""Of paths whose schedules exchange in parts."""


def test_schedules_of_the_seeds_exchange_in_parts():
    for seed in SEEDS:
        assert any(in_parts(planned(swapping_path(seed), 2, hiding_profile(1 << 14))))


class Driver:
    """The driver's calls on streams that are queues, and memory that is a dictionary."""

    def __init__(self):
        self.memory = {}
        self.queues = {}

    def write(self, stream, address, value, flags):
        self.queues.setdefault(stream, deque()).append(("write", address, value))
        return 0

    def wait(self, stream, address, value, flags):
        assert flags == stream_signal.AT_LEAST
        self.queues.setdefault(stream, deque()).append(("wait", address, value))
        return 0

    def step(self, stream):
        """Do the next operation of a stream, if it can be done; what it was."""
        kind, address, value = self.queues[stream][0]
        if kind == "wait" and (self.memory.get(address, 0) - value) % (1 << 32) >= 1 << 31:
            return None
        if kind == "write":
            self.memory[address] = value
        return self.queues[stream].popleft()


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("start", [0, (1 << 32) - 3])
def test_streams_that_meet_wait_for_each_other_and_never_for_ever(monkeypatch, seed, start):
    driver = Driver()
    monkeypatch.setattr(stream_signal, "stream_operations", lambda: (driver.write, driver.wait))
    chance = random.Random(seed)
    size = chance.randint(2, 4)
    addresses = {rank: 1 << 20 + rank for rank in range(size)}
    ranks = [Signals(rank, addresses) for rank in range(size)]
    for rank, peer in ((a, b) for pair in combinations(range(size), 2) for a, b in (pair, pair[::-1])):
        ranks[rank].counts[peer] = start
        driver.memory[addresses[rank] + COUNTER_BYTES * peer] = start
    meetings = [sorted(chance.sample(range(size), chance.randint(2, size))) for _ in range(6)]
    for number, members in enumerate(meetings):
        for rank in members:
            driver.queues.setdefault(rank, deque()).append(("write", ("here", rank, number), 1))
            ranks[rank].bind([peer for peer in members if peer != rank], SimpleNamespace(ptr=rank))()
            driver.queues[rank].append(("write", ("on", rank, number), 1))
    while any(driver.queues.values()):
        waiting = [rank for rank, queue in driver.queues.items() if queue]
        chance.shuffle(waiting)
        done = next((step for step in map(driver.step, waiting) if step is not None), None)
        assert done is not None, "every stream waits"
        if isinstance(done[1], tuple) and done[1][0] == "on":
            members = meetings[done[1][2]]
            assert all(driver.memory.get(("here", rank, done[1][2])) for rank in members)


def test_streams_run_out_when_their_peers_let_them_go(monkeypatch):
    driver = Driver()
    monkeypatch.setattr(stream_signal, "stream_operations", lambda: (driver.write, driver.wait))
    addresses = {rank: 1 << 20 + rank for rank in range(3)}
    ranks = [Signals(rank, addresses) for rank in range(3)]
    for rank, times in enumerate((4, 2, 1)):
        meet = ranks[rank].bind([peer for peer in range(3) if peer != rank], SimpleNamespace(ptr=rank))
        for _ in range(times):
            meet()
    for _ in range(20):
        while any(driver.step(rank) for rank, queue in driver.queues.items() if queue):
            pass
        if not any(driver.queues.values()):
            break
        assert not driver.queues.get("apart")
        for signals in ranks:
            signals.let_go(SimpleNamespace(ptr="apart"))
    assert not any(driver.queues.values())


def test_an_operation_that_fails_is_an_error(monkeypatch):
    monkeypatch.setattr(stream_signal, "stream_operations", lambda: (lambda *_: 801, lambda *_: 0))
    with pytest.raises(RuntimeError, match="error 801"):
        Signals(0, {0: 0, 1: 64}).bind([1], SimpleNamespace(ptr=0))()


def test_an_event_that_is_not_recorded_is_an_error(monkeypatch):
    monkeypatch.setattr(stream_signal, "driver_record", lambda: lambda *_: 400)
    with pytest.raises(RuntimeError, match="error 400"):
        stream_signal.record(SimpleNamespace(ptr=1), SimpleNamespace(ptr=2))


FILL = """
import threading, time, cupy
from tnplan.executor.device.cuda.runtime.signals import record
from tnplan.executor.device.cuda.runtime.signals import stream_operations

write, wait = stream_operations()
counter = cupy.zeros(1, cupy.uint32)
cupy.cuda.runtime.deviceSynchronize()
full, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
events = [cupy.cuda.Event() for _ in range(64)]

def fill():
    assert wait(full.ptr, counter.data.ptr, 1, 0) == 0
    for number in range(20000):
        record(events[number % 64], full)

filling = threading.Thread(target=fill, daemon=True)
filling.start()
time.sleep(2)
print("full" if filling.is_alive() else "not full", flush=True)
assert write(other.ptr, counter.data.ptr, 1, 0) == 0
filling.join(20)
print("stuck" if filling.is_alive() else "went on", flush=True)
"""


@needs_gpus(1)
def test_a_stream_that_is_full_leaves_other_threads_alone():
    done = subprocess.run(
        [sys.executable, "-c", FILL], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "went on"


def part_machines(monkeypatch):
    """Let every rank of this process be a machine of its own, of which no other reaches the memory."""
    from tnplan.executor.device.comm import nccl

    monkeypatch.setattr(nccl, "machine", threading.get_ident)
    monkeypatch.setattr(nccl.NcclCommunicator, "open_memory", lambda *_: None)


@needs_gpus(2)
@pytest.mark.parametrize("way", ["memory", "messages"])
@pytest.mark.parametrize("seed", SEEDS)
def test_parts_on_two_gpus_of_this_process_give_the_bits_of_the_whole(monkeypatch, seed, way):
    if way == "messages":
        part_machines(monkeypatch)
    path = swapping_path(seed)
    arrays = random_arrays(path, seed)
    schedule = planned(path, 2, hiding_profile(1 << 14))
    done = execute(schedule, arrays, ranks=2, device="gpu")
    assert done.report["measured"]["beside_s"] > 0
    with monkeypatch.context() as patch:
        patch.setattr(bind, "bind_chunks", lambda *_: None)
        whole = execute(schedule, arrays, ranks=2, device="gpu")
    assert whole.report["measured"]["beside_s"] == 0
    assert agree(schedule, path, arrays, done.array, whole.array)
    wanted = contract_pairwise(path, [array.astype(complex) for array in arrays])
    scale = contract_pairwise(path, [np.abs(array.astype(complex)) for array in arrays])
    assert np.all(np.abs(done.array - wanted) <= TOLERANCE[path.dtype] * scale)


LATE = """
import sys, threading, time
from tnplan.executor.device.cuda.device import CupyDevice
from tnplan.calls.execute import execute

late = tuple(sys.argv[3:5])
waits = CupyDevice.synchronize

def synchronize(device):
    if late == (threading.current_thread().name, sys._getframe(1).f_code.co_name):
        time.sleep(0.3)
        print("late", flush=True)
    waits(device)

wanted = execute(sys.argv[1], sys.argv[2], ranks=2, device="gpu").array
CupyDevice.synchronize = synchronize
print("equal", (execute(sys.argv[1], sys.argv[2], ranks=2, device="gpu").array == wanted).all(), flush=True)
"""


@needs_gpus(2)
@pytest.mark.parametrize("rank", ["rank 0", "rank 1"])
@pytest.mark.parametrize("where", ["run_rank", "run_once", "run_slices"])
def test_a_rank_may_be_late_to_wait_for_its_gpu_while_another_gpu_waits_for_it(tmp_path, rank, where):
    case = make_case(tmp_path, 2)
    files = str(case.schedule_file), str(case.tensors_file)
    done = subprocess.run(
        [sys.executable, "-c", LATE, *files, rank, where],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert set(done.stdout.splitlines()) == {"late", "equal True"}, done.stderr


def saved(folder, seed):
    """A schedule in parts and its tensors in files."""
    path = swapping_path(seed)
    save_schedule(planned(path, 2, hiding_profile(1 << 14)), folder / "s.json")
    save_tensors(random_arrays(path, seed), folder / "t.npz")
    return folder / "s.json", folder / "t.npz"


STRIKE = """
import sys
from tnplan.calls.execute import execute

def strike(at):
    raise RuntimeError("struck by a test")

def run(progress=None):
    return execute(sys.argv[1], sys.argv[2], ranks=2, device="gpu", progress=progress).array

wanted = run()
for _ in range(3):
    try:
        run(strike)
    except RuntimeError as error:
        print(error, flush=True)
print("equal", (run() == wanted).all(), flush=True)
run(strike)
"""


@needs_gpus(2)
def test_this_process_goes_on_after_a_rank_has_failed_though_a_stream_waits_for_it(tmp_path):
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", STRIKE, *map(str, saved(tmp_path, SEEDS[0]))],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert time.monotonic() - start < 80
    assert done.stdout.splitlines() == ["struck by a test"] * 3 + ["equal True"]
    assert done.returncode == 1
    assert "struck by a test" in done.stderr


@needs_mpi
@needs_gpus(2)
@pytest.mark.parametrize("how", [(), ("raise",)])
def test_a_rank_that_dies_ends_the_job_though_a_stream_waits_for_it(tmp_path, how):
    start = time.monotonic()
    files = *saved(tmp_path, SEEDS[0]), tmp_path / "r.npy"
    done = mpirun(2, SCRIPTS / "kill_at_slice.py", 1, 0, *files, *how)
    assert time.monotonic() - start < TIMEOUT_S  # after which a silent rank would end it
    assert done.returncode != 0


@needs_mpi
@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=needs_gpus(2))])
def test_a_process_runs_again_whenever_its_ranks_collect_garbage(tmp_path, device):
    done = mpirun(2, SCRIPTS / "run_again.py", *saved(tmp_path, SEEDS[0]), device)
    assert done.returncode == 0, done.stderr
    assert "equal 3 times" in done.stdout


@needs_mpi
@needs_gpus(2)
@pytest.mark.parametrize("seed", SEEDS[:3])
def test_parts_on_two_gpus_under_mpirun(tmp_path, seed):
    path = swapping_path(seed)
    arrays = random_arrays(path, seed)
    schedule_file, tensors_file = saved(tmp_path, seed)
    output = tmp_path / "r.npy"
    files = schedule_file, "--tensors", tensors_file, "-o", output
    done = mpirun(2, "-m", "tnplan", "execute", *files, "--device", "gpu")
    assert done.returncode == 0, done.stderr
    wanted = contract_pairwise(path, [array.astype(complex) for array in arrays])
    scale = contract_pairwise(path, [np.abs(array.astype(complex)) for array in arrays])
    assert np.all(np.abs(np.load(output) - wanted) <= TOLERANCE[path.dtype] * scale)

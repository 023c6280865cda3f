"""`contract(max_bond=, devices=)`: the value of one device, tensors of ranks, refusals and faults."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import Any

import networkx as nx
import numpy as np
import pytest

import tnplan
from tests.support.bond_limited_cases import Arguments, case, on_graph
from tests.support.hypernetworks import hypernetwork
from tests.support.kernels import strict_cupy
from tests.support.kernels.gpus import needs_gpus
from tests.support.mpirun import SCRIPTS, mpirun, needs_mpi
from tests.support.rank_threads import rank_threads
from tests.support.slow import slow_after
from tnplan import BondLimitedContraction
from tnplan.executor.bond_limited.dry_run import ShapeArray
from tnplan.executor.bond_limited.over_ranks import RankNetwork
from tnplan.planner.hardware.profile import Tier
from tnplan.planner.networks.network import PairNetwork

FIRST_SEED = 9_700_000
CPU: Any = {"device": "cpu", "threads": 1, "mode": "compressed"}
"""Boundary contractions: test_boundary.py."""


def lattice(seed: int, dtype: str = "float64", side: int = 6, low: float = -0.4) -> Arguments:
    arguments = on_graph(nx.grid_2d_graph(side, side), 4, np.random.default_rng(seed), [low])
    is_complex = dtype.startswith("complex")
    return [
        (one * np.exp(0.3j * (k % 5)) if is_complex else one.real).astype(dtype)
        if isinstance(one, np.ndarray) else one
        for k, one in enumerate(arguments)
    ]  # fmt: skip


def has_values(network: RankNetwork) -> bool:
    """Whether tensors are there, and no shapes alone, by which the memory is predicted."""
    return any(not isinstance(one, ShapeArray) for one in network.tensors.values())


def check_equal(found: Any, alone: Any, rounding: float) -> None:
    assert found.exact == alone.exact
    assert found.details["cuts"] == alone.details["cuts"]
    size = np.linalg.norm(alone.value)
    assert np.linalg.norm(found.value - alone.value) <= rounding * size
    assert found.discarded_weight == pytest.approx(alone.discarded_weight, rel=1e-6)
    assert found.error_estimate == pytest.approx(alone.error_estimate, rel=1e-6, abs=rounding)


@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize("seed", slow_after(6, range(FIRST_SEED, FIRST_SEED + 30)))
def test_devices_give_the_value_of_one(seed: int, devices: int) -> None:
    _, arguments, bond = case(seed)
    alone, found = (tnplan.contract(*arguments, max_bond=bond, devices=n, **CPU) for n in (1, devices))
    check_equal(found, alone, 1e-9)
    assert (found.details["devices"], found.details["device"]) == (devices, "cpu")


@pytest.mark.parametrize("seed", range(40, 52))
def test_open_indices_and_several_components(seed: int) -> None:
    network = hypernetwork(seed)
    random = np.random.default_rng(seed)
    output = tuple(sorted(network.size_dict)[: seed % 4])
    network = tnplan.Network(network.inputs, output, network.size_dict)
    shapes = [[network.size_dict[index] for index in term] for term in network.inputs]
    arrays = [random.standard_normal(shape) for shape in shapes]
    found = tnplan.contract(network, *arrays, max_bond=4, devices=3, **CPU)
    check_equal(found, tnplan.contract(network, *arrays, max_bond=4, **CPU), 1e-9)
    assert np.shape(found.value) == tuple(network.size_dict[index] for index in output)


def test_zeros_and_networks_of_fewer_tensors_than_devices() -> None:
    arguments = lattice(1, side=4)
    arguments[12] = np.zeros_like(arguments[12])
    assert tnplan.contract(*arguments, max_bond=4, devices=2, **CPU).value == 0
    assert tnplan.contract("a,a->", [1.0, 2.0], [3.0, 4.0], max_bond=2, devices=5, **CPU).value == 11


def test_a_rank_makes_its_own_tensors_alone() -> None:
    """Each tensor is made on one rank, and those together are the tensors of the network."""
    network = hypernetwork(3)
    pairs = PairNetwork(network)
    random = np.random.default_rng(3)
    arrays = [random.standard_normal([network.size_dict[index] for index in term]) for term in network.inputs]
    whole, exponent = pairs.tensors(arrays, "float64", np)
    exponents = 0
    for own in ({*range(0, len(whole), 2)}, {*range(1, len(whole), 2)}):
        given = [array if number in own else None for number, array in enumerate(arrays)]
        made, part = pairs.tensors(given, "float64", np, own)
        exponents += part
        assert [one is not None for one in made] == [number in own for number in range(len(whole))]
        for number in own:
            np.testing.assert_array_equal(made[number], whole[number])
    assert exponents == exponent


def test_what_devices_need_is_said_before() -> None:
    arguments = lattice(2, side=8)
    one, two = (BondLimitedContraction.estimate(*arguments, max_bond=16, mode="compressed", devices=n)
                for n in (1, 2))  # fmt: skip
    assert two.memory_bytes < one.memory_bytes
    assert two.multiply_adds == one.multiply_adds
    found = tnplan.contract(*arguments, max_bond=16, devices=2, **CPU)
    assert found.details["peak_bytes"] == two.memory_bytes
    assert found.details["multiply_adds"] == two.multiply_adds
    least = (two.memory_bytes + one.memory_bytes) / 2
    assert tnplan.contract(*arguments, max_bond=16, devices=2, memory=least, **CPU).value == found.value
    with pytest.raises(tnplan.InputError, match=r"^memory: allows a rank .* are needed; give a smaller max"):
        tnplan.contract(*arguments, max_bond=16, devices=2, memory=0.9 * two.memory_bytes, **CPU)
    with pytest.raises(tnplan.InputError, match=r"^memory: is .* are needed with max_bond=16"):
        BondLimitedContraction.estimate(
            *arguments, max_bond=16, mode="compressed", devices=2, memory=0.9 * two.memory_bytes
        )


def test_an_estimate_has_the_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where messages of a run take 100 s, both runs of two devices take 200 s more, and one device none."""
    monkeypatch.setattr(Tier, "messages_s", lambda tier, messages, size_bytes: 100.0 * (messages > 0))
    times = [BondLimitedContraction.estimate(*lattice(2), max_bond=8, devices=n).time_s for n in (1, 2)]
    assert times[0] < 50
    assert 200 < times[1] < 250


def test_what_several_devices_do_not_do_is_refused() -> None:
    arguments = lattice(3, side=4)
    found = tnplan.contract(*arguments, max_bond=4, devices=2, **CPU)
    with pytest.raises(tnplan.InputError, match=r"^gradients: are for one device, and the value .* 2;"):
        found.gradients()
    arguments[6] = np.full_like(arguments[6], np.nan)
    with pytest.raises(tnplan.InputError, match=r"^array 3: has NaN or infinity"):
        tnplan.contract(*arguments, max_bond=4, devices=2, **CPU)
    assert rank_threads() == 0


def test_a_rank_that_fails_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = RankNetwork.compress

    def fails(self: RankNetwork, left: int, right: int, rank: int) -> None:
        if has_values(self) and threading.current_thread().name == "rank 1":
            raise MemoryError("of a test")
        cut(self, left, right, rank)

    monkeypatch.setattr(RankNetwork, "compress", fails)
    with pytest.raises(MemoryError, match="of a test"):
        tnplan.contract(*lattice(4), max_bond=8, devices=3, **CPU)
    assert rank_threads() == 0


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    cut, began = RankNetwork.compress, threading.Event()

    def interrupted(self: RankNetwork, left: int, right: int, rank: int) -> None:
        if has_values(self) and not began.is_set():
            began.set()
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.02 * began.is_set())
        cut(self, left, right, rank)

    monkeypatch.setattr(RankNetwork, "compress", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tnplan.contract(*lattice(5), max_bond=4, devices=2, **CPU)
    assert rank_threads() == 0


@needs_mpi
@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_processes_give_what_one_gives(ranks: int) -> None:
    done = mpirun(ranks, SCRIPTS / "bond_limit.py")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["orders"] == [1] + [0] * (ranks - 1)
    assert told["results"] == [True] + [False] * (ranks - 1)
    assert told["relative"] < 1e-9
    assert told["refusals"] == ranks * [["array 1", "devices", "memory"]]


@needs_mpi
@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize(("fault", "status"), [("fails", 1), ("interrupt", 130)])
def test_a_process_that_fails_ends_all(fault: str, status: int) -> None:
    done = mpirun(2, SCRIPTS / "bond_limit.py", fault)
    assert done.returncode == status, done.stderr
    assert done.stdout == ""


@needs_gpus(2)
def test_gpus_give_the_value_of_the_cpu() -> None:
    for seed in range(3):
        arguments = lattice(seed)
        alone = tnplan.contract(*arguments, max_bond=8, **CPU)
        found = tnplan.contract(*arguments, max_bond=8, device="gpu", devices=2, mode="compressed")
        assert found.value == pytest.approx(alone.value, rel=1e-9)
        assert found.details["device"] == "gpu"


def test_decompositions_that_fail_on_gpus_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else CuPy gives NaN where a Gram matrix has no Cholesky factor, and QR does not take its place."""
    cupyx = pytest.importorskip("cupyx")
    strict_cupy.put_in_place(monkeypatch)
    cut, told = RankNetwork.compress, set[str | None]()

    def noted(self: RankNetwork, left: int, right: int, rank: int) -> None:
        if has_values(self):
            told.add(cupyx.geterr()["linalg"])
        cut(self, left, right, rank)

    monkeypatch.setattr(RankNetwork, "compress", noted)
    options: Any = {"device": "gpu", "devices": 2, "memory": "1 GB", "mode": "compressed"}
    tnplan.contract(*lattice(6), max_bond=8, **options)
    assert told == {"raise"}


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("seed", slow_after(2, range(8_500_000, 8_500_008)))
def test_ranks_with_a_gpu_each_give_the_value_of_one_core(
    seed: int, devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the rules of CuPy and NCCL, where there are no GPUs."""
    dtype = ("float64", "complex128", "float32", "complex64")[seed % 4]
    arguments = lattice(seed, dtype)
    alone = tnplan.contract(*arguments, max_bond=8, **CPU)
    strict_cupy.put_in_place(monkeypatch)
    options: Any = {"device": "gpu", "devices": devices, "memory": "1 GB", "mode": "compressed"}
    found = tnplan.contract(*arguments, max_bond=8, **options)
    rounding = 1e3 * float(np.finfo(dtype).eps)
    assert found.value == pytest.approx(alone.value, rel=rounding)
    assert found.discarded_weight == pytest.approx(alone.discarded_weight, rel=1e3 * rounding)
    assert (found.details["device"], found.details["devices"]) == ("gpu", devices)

"""Compiled contractions on several ranks: equal to one device's, call after call; what ends, what stays."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from tests.support.kernels.gpus import needs_gpus
from tests.support.mpirun import SCRIPTS, mpirun, needs_mpi
from tests.support.networks import TOLERANCE, random_path
from tests.support.rank_threads import rank_threads
from tests.support.slow import slow_after
from tnplan import plan
from tnplan.calls.contract import compile as compile_contraction
from tnplan.calls.contract import contract
from tnplan.common.errors import InputError
from tnplan.executor.contraction.run.compiled_program import CompiledProgram
from tnplan.executor.device.select import Chosen, open_device
from tnplan.jobs.arrays import ranks as ranks_module
from tnplan.jobs.arrays.compiled import CompiledContraction
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.tensors import random_tensors
from tnplan.planner.passes.lowering.keep_results import keep_results
from tnplan.planner.schedule.schedule import Schedule

N_PATHS = 40
CHAIN = "ab,bc,cd,de,ef->af"
SHAPES = [(4, 4)] * 5


def random_schedule(seed: int) -> tuple[ContractionPath, Schedule, int]:
    """A random path, a schedule of it for 1, 2 or 4 ranks a slice, and devices for one to three groups."""
    chance = random.Random(seed)
    path = random_path(seed, 4000)
    ranks = chance.choice((1, 1, 2, 4))
    schedule = plan(path, devices=ranks, ranks_per_group=ranks, memory=inf, threshold=1)
    if ranks == 1 and chance.random() < 0.5:
        schedule = keep_results(schedule)
    return path, schedule, ranks * chance.choice((1, 2, 3))


def test_a_device_is_given_back_where_binding_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back = []

    def fails(*_: object) -> None:
        raise RuntimeError("no library")

    def opened(*arguments: object, **options: object) -> Chosen:
        return replace(open_device(*arguments, **options), close=lambda: given_back.append(1))

    monkeypatch.setattr(ranks_module, "RankHere", fails)
    monkeypatch.setattr(ranks_module, "open_device", opened)
    with pytest.raises(RuntimeError, match="no library"):
        compile_contraction(CHAIN, *SHAPES, dtype="float64", device="cpu")
    assert given_back == [1]


@pytest.mark.parametrize("first", slow_after(2, range(0, N_PATHS, 10)))
def test_results_equal_those_of_one_device(first: int) -> None:
    for seed in range(first, first + 10):
        path, schedule, devices = random_schedule(seed)
        options = ContractionOptions(device="cpu", devices=devices, threads=1)
        with compile_contraction(path, device="cpu") as one, CompiledContraction(schedule, options) as many:
            for round_ in range(3):
                arrays = random_tensors(path.network, path.dtype, seed + 100 * round_)
                wanted = one(*arrays)
                scale = max(1.0, np.abs(wanted).max(initial=0.0))
                found = many(*arrays)
                assert np.abs(found - wanted).max(initial=0.0) <= TOLERANCE[path.dtype] * scale, seed
                assert np.array_equal(many(*arrays), found)
            number = seed % len(arrays)
            new = random_tensors(path.network, path.dtype, seed + 1)[number]
            arrays[number] = new
            assert np.array_equal(many.update({number: new}), many(*arrays)), seed


def test_constants_and_batches() -> None:
    arrays = [np.random.default_rng(number).random(shape) for number, shape in enumerate(SHAPES)]
    wanted = np.linalg.multi_dot(arrays)
    with compile_contraction(CHAIN, *arrays, constants={0: arrays[0], 3: arrays[3]}, devices=2) as some:
        for _ in range(2):
            assert np.allclose(some(arrays[1], arrays[2], arrays[4]), wanted, rtol=1e-12)
    scales = np.arange(1.0, 8.0)
    with compile_contraction(CHAIN, *arrays, batch=3, batched=[2], devices=2) as many:
        found = many(arrays[0], arrays[1], scales[:, None, None] * arrays[2], arrays[3], arrays[4])
    assert np.allclose(found, scales[:, None, None] * wanted, rtol=1e-12)


def test_one_call() -> None:
    arrays = [np.random.default_rng(number).random(shape) for number, shape in enumerate(SHAPES)]
    assert np.allclose(contract(CHAIN, *arrays, devices=3), np.linalg.multi_dot(arrays), rtol=1e-12)
    assert rank_threads() == 0


def test_a_refused_call_leaves_the_contraction_usable() -> None:
    arrays = [np.ones(shape) for shape in SHAPES]
    with compile_contraction(CHAIN, *arrays, devices=2) as contraction:
        with pytest.raises(InputError, match=r"array 1: has shape \(3, 4\)"):
            contraction(arrays[0], np.ones((3, 4)), *arrays[2:])
        assert np.all(contraction(*arrays) == 4.0**4)


def test_a_rank_that_fails_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [np.ones(shape) for shape in SHAPES]
    contraction = compile_contraction(CHAIN, *arrays, devices=3, device="cpu")
    run = CompiledProgram.run

    def fail(self: CompiledProgram, changed: frozenset[int] | None = None) -> None:
        if threading.current_thread().name == "rank 0":
            raise MemoryError("of a test")
        run(self, changed)

    monkeypatch.setattr(CompiledProgram, "run", fail)
    for _ in range(2):
        with pytest.raises(MemoryError, match="of a test"):
            contraction(*arrays)
    contraction.close()
    assert rank_threads() == 0
    with pytest.raises(InputError, match="is closed"):
        contraction(*arrays)


def test_a_contraction_that_is_forgotten_ends_its_threads() -> None:
    contraction = compile_contraction(CHAIN, *SHAPES, dtype="float64", devices=2, device="cpu")
    contraction(*[np.ones(shape) for shape in SHAPES])
    del contraction
    assert rank_threads() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": 0}, "devices"),
        ({"devices": 2, "strip_exponent": True}, "strip_exponent: is for one device"),
        ({"devices": 2, "memory": 8.0}, "memory|needs"),
    ],
)
def test_refusals(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compile_contraction(CHAIN, *SHAPES, dtype="float64", **options)
    assert rank_threads() == 0


@pytest.mark.parametrize("devices", [2, 3, 5])
def test_devices_that_share_no_slice_evenly_are_left_idle(devices: int) -> None:
    arrays = [np.random.default_rng(seed).random((64, 64)) for seed in range(5)]
    found = contract("ab,bc,cd,de,ea->", *arrays, devices=devices, memory="100kB", device="cpu")
    np.testing.assert_allclose(found, np.trace(np.linalg.multi_dot(arrays)))


@needs_mpi
@pytest.mark.mpi
def test_under_mpirun() -> None:
    done = mpirun(4, SCRIPTS / "compiled.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["equal", "refused", "equal", "one", "4"]


@needs_gpus(2)
def test_two_gpus() -> None:
    import cupy

    current = cupy.cuda.Device().id
    for seed in range(10):
        path, schedule, devices = random_schedule(seed)
        options = ContractionOptions(device="gpu", devices=devices)
        if devices > 2:
            continue
        arrays = random_tensors(path.network, path.dtype, seed)
        with CompiledContraction(schedule, options) as many, compile_contraction(path, device="cpu") as one:
            wanted, found = one(*arrays), many(*arrays)
            assert np.abs(found - wanted).max(initial=0.0) <= 10 * TOLERANCE[path.dtype] * np.abs(wanted).max(
                initial=1.0
            )
            assert np.array_equal(many(*map(cupy.asarray, arrays)).get(), found)
    assert cupy.cuda.Device().id == current

"""A contraction on a GPU begins with products alone where the kernels of chains would take too long."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from math import inf
from pathlib import Path
from threading import Event
from time import monotonic, sleep

import numpy as np
import pytest
from cotengra import array_contract_path

import tnplan
from tests.support.kernels.gpus import needs_gpus
from tnplan.executor.contraction.bind.chains import chains_of_one_rank
from tnplan.jobs.arrays import planning
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.arrays.planning import Planned, WithoutChains, plan_without_chains
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath, ssa_from_linear
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.networks.simplify import simplify
from tnplan.planner.schedule.schedule import Fused, Schedule
from tnplan.planner.workloads.lattice import lattice_circuit

pytestmark = pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy, which brings the compiler")

PROFILE = load_profile("h100-nvlink")
GPU = ContractionOptions(device="gpu", precision="fp32")
SOON_S = 120


def circuit_case() -> tuple[ContractionPath, list[np.ndarray]]:
    """An amplitude whose plan for a GPU has chains, and its tensors."""
    network, arrays = simplify(*circuit_network(lattice_circuit("rectangular", 4, 5, 10, 0), "0" * 20))
    pairs = array_contract_path(network.inputs, network.output, network.size_dict, optimize="greedy")
    return ContractionPath(network, ssa_from_linear(pairs, len(arrays)), (), "complex64"), arrays


def case() -> ContractionPath:
    """Its path."""
    return circuit_case()[0]


def chained(
    path: ContractionPath, options: ContractionOptions = GPU
) -> tuple[Schedule, WithoutChains | None]:
    """The schedule with chains, and what it begins with."""
    schedule = tnplan.plan(path, hardware="h100-nvlink", memory=inf)
    assert chains_of_one_rank(schedule)
    return schedule, plan_without_chains(schedule, path, PROFILE, options, inf)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of kernels, and a GPU as far as planning asks for one."""
    from tnplan.executor.device.cuda.runtime import kernel_cache

    monkeypatch.delenv(kernel_cache.NEVER_COMPILE, raising=False)
    monkeypatch.setenv(kernel_cache.CACHE_FOLDER, str(tmp_path))
    monkeypatch.setattr(kernel_cache, "current_arch", lambda device=None: "sm_90")
    monkeypatch.setattr(planning, "sees_gpu", lambda: True)
    return tmp_path


def wait_for(done: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end_s = monotonic() + SOON_S
    while not done():
        assert monotonic() < end_s
        sleep(0.01)


def test_products_alone_come_first(folder: Path) -> None:
    schedule, found = chained(case())
    assert found is not None
    assert not any(isinstance(one, Fused) for one in found.schedule.instructions)
    assert found.schedule.leaves == schedule.leaves
    assert found.schedule.output == schedule.output
    kinds = {repr(one) for one in chains_of_one_rank(schedule)}
    assert 0 < len(found.kernels) <= len(kinds)
    assert found.kernels.wait_s > found.schedule.projected_s(1) - schedule.projected_s(1)


def test_long_runs_wait_for_their_kernels(folder: Path) -> None:
    path = case()
    assert chained(path, replace(GPU, waits_for_kernels=True))[1] is None
    assert chained(path, replace(GPU, devices=2))[1] is None
    schedule, found = chained(path)
    assert found is not None
    lost_s = found.schedule.projected_s(1) - schedule.projected_s(1)
    calls = int(found.kernels.wait_s / lost_s)
    assert chained(path, replace(GPU, calls=calls // 2))[1] is not None
    assert chained(path, replace(GPU, calls=2 * calls))[1] is None


def test_where_nothing_is_compiled_chains_are_bound_as_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tnplan.executor.device.cuda.runtime import kernel_cache

    monkeypatch.setenv(kernel_cache.NEVER_COMPILE, "1")
    assert chained(case())[1] is None


def test_chains_replace_products_when_they_are_ready(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call begins with the kernels; when all are kept, nothing is planned beside any more."""
    from tnplan.executor.device.cuda.runtime import kernel_cache

    may_go_on = Event()

    def slow(*_: object) -> bytes:
        assert may_go_on.wait(SOON_S)
        return b"kernel"

    monkeypatch.setattr(kernel_cache, "compile_cubin", slow)
    path = case()
    schedule, found = chained(path)
    planned = Planned(schedule, "gpu", 1, path, found)
    assert found is not None
    for _ in range(2):
        assert planned.now() == Planned(found.schedule, "gpu", 1, path)
    assert not list(folder.iterdir())
    may_go_on.set()
    wait_for(lambda: planned.now() is planned)
    assert len(list(folder.iterdir())) == len(found.kernels)
    assert chained(path)[1] is None


def test_a_kernel_that_does_not_compile_is_no_secret(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tnplan.executor.device.cuda.runtime import kernel_cache

    def refuse(*_: object) -> bytes:
        raise ValueError("does not compile")

    monkeypatch.setattr(kernel_cache, "compile_cubin", refuse)
    _, found = chained(case())
    assert found is not None
    with pytest.raises(ValueError, match="does not compile"):
        wait_for(found.kernels.are_ready)


@needs_gpus(1)
def test_first_calls_on_a_gpu_have_the_values_of_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tnplan.executor.device.cuda.runtime import kernel_cache

    monkeypatch.delenv(kernel_cache.NEVER_COMPILE, raising=False)
    monkeypatch.setenv(kernel_cache.CACHE_FOLDER, str(tmp_path))
    path, arrays = circuit_case()
    expected = tnplan.contract(path, *arrays, device="cpu")
    tensors = [array.astype(np.complex64) for array in arrays]
    values = [tnplan.contract(path, *tensors, device="gpu")]
    _, found = chained(path)
    if found is not None:
        wait_for(found.kernels.are_ready)
    values += [tnplan.contract(path, *tensors, device="gpu") for _ in range(2)]
    np.testing.assert_allclose(values, [expected] * 3, rtol=1e-4)


@needs_gpus(1)
def test_threads_contract_with_chains_at_the_same_time() -> None:
    """The same chains with other values, each on a thread and a stream of its own: as one thread has them."""
    path, arrays = circuit_case()
    schedule = tnplan.plan(path, hardware="h100-nvlink", memory=inf)
    assert chains_of_one_rank(schedule)
    chance = np.random.default_rng(5)
    values = [
        [(array * chance.normal(size=array.shape)).astype(schedule.dtype) for array in arrays]
        for _ in range(4)
    ]
    programs = [tnplan.compile(schedule, device="gpu") for _ in values]
    alone = [program(*own) for program, own in zip(programs, values, strict=True)]

    def different(number: int) -> int:
        return sum(programs[number](*values[number]) != alone[number] for _ in range(500))

    with ThreadPoolExecutor(len(programs)) as threads:
        assert sum(threads.map(different, range(len(programs)))) == 0
    for program in programs:
        program.close()

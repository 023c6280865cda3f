"""Gradients back through fused chains: on ranks and slices, with values made again, on every device."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.oracles.derivatives import gradients_by_einsum
from tests.support.contraction.fused import fusing_profile, stem_path
from tests.support.contraction.stems import in_place, steady_path
from tests.support.effort import repeats
from tests.support.kernels.exponent_emulator import HAS_EMULATOR
from tests.support.kernels.gpus import needs_gpus
from tests.support.networks import TOLERANCE, eager_profile, random_arrays, window
from tests.support.slow import slow_after
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.gradient_calls import GradientCalls, GradientPlan
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.reverse import reverse
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule.schedule import FusedAdjoint, GradientSchedule

Arrays = list[NDArray[np.generic]]
FUSED_BYTES = 1 << 15
DOUBLE = {"float32": "float64", "complex64": "complex128"}
SEEDS = range(repeats(24, 80))
GPU = pytest.param("gpu", marks=needs_gpus(1))


def seed_of(path: ContractionPath, seed: int) -> NDArray[np.generic]:
    """The cotangent of a result."""
    shape = tuple(path.network.size_dict[index] for index in path.network.output)
    generator = np.random.default_rng(seed)
    cotangent = generator.normal(size=shape) + 1j * generator.normal(size=shape)
    return np.asarray(cotangent if path.dtype.startswith("complex") else cotangent.real, path.dtype)


def found(
    schedule: GradientSchedule, arrays: Arrays, cotangent: NDArray[np.generic], devices: int = 1,
    device: str = "cpu",
) -> Arrays:  # fmt: skip
    """Value and gradients, which a second call repeats bit by bit."""
    calls = GradientCalls(
        schedule, ContractionOptions(device=device, devices=devices, threads=1), {}
    )  # fmt: skip
    results = [calls.call(dict(enumerate(arrays)), cotangent) for _ in range(2)]
    calls.close()
    both = []
    for result in results:
        assert result is not None
        both.append([result[0], *result[1]])
    for one, again in zip(*both, strict=True):
        assert one.tobytes() == again.tobytes()
    return both[0]


def without_chains(path: ContractionPath, wrt: list[int], arrays: Arrays, seed: int) -> Arrays:
    """Value and gradients in double precision, product by product."""
    dtype = DOUBLE.get(path.dtype, path.dtype)
    exact = replace(path, dtype=dtype)
    schedule = reverse(plan(exact, eager_profile(), devices=1, memory_bytes=inf, goes_back=True), wrt)
    assert not chains(schedule)
    return found(schedule, [one.astype(dtype) for one in arrays], seed_of(path, seed).astype(dtype))


def chains(schedule: GradientSchedule) -> int:
    """How many chains go back."""
    return sum(isinstance(item, FusedAdjoint) for item in schedule.instructions)


def check(path: ContractionPath, results: Arrays, wanted: Arrays) -> None:
    """Each relative to its largest element."""
    for one, expected in zip(results, wanted, strict=True):
        largest = np.abs(expected).max(initial=1e-30)
        assert np.abs(one - expected).max(initial=0.0) <= 10 * TOLERANCE[path.dtype] * largest


def with_chains(path: ContractionPath, wrt: list[int], ranks: int, groups: int = 1) -> GradientSchedule:
    """The schedule on a machine whose chains are fast."""
    forward = plan(
        path, fusing_profile(FUSED_BYTES), devices=ranks * groups, ranks_per_group=ranks, memory_bytes=inf,
        threshold_bytes=1, goes_back=True,
    )  # fmt: skip
    return reverse(forward, wrt)


@pytest.mark.parametrize("seed", slow_after(12, SEEDS))
def test_random_stems(seed: int) -> None:
    path, chance = stem_path(seed), random.Random(seed)
    wrt = [number for number in range(len(path.network.inputs)) if chance.random() < 0.8] or [0]
    arrays = random_arrays(path, seed)
    wanted = without_chains(path, wrt, arrays, seed)
    for ranks, groups in ((1, 1), chance.choice(((2, 1), (3, 1), (4, 1), (1, 2), (2, 2)))):
        try:
            schedule = with_chains(path, wrt, ranks, groups)
        except InputError:
            continue  # more ranks than its tensors have parts for
        verify(schedule)
        check(path, found(schedule, arrays, seed_of(path, seed), ranks * groups), wanted)


@pytest.mark.skipif(not HAS_EMULATOR, reason="needs g++ and CuPy")
@pytest.mark.parametrize("seed", slow_after(1, [0, 12]))
def test_random_stems_by_the_kernel_of_a_gpu(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """adjoint.cu on the CPU in the place of its twin, on ranks and slices too."""
    from tests.support.kernels.adjoint_emulator import emulate_on_cpus

    emulate_on_cpus(monkeypatch)
    test_random_stems(seed)


def test_most_random_stems_have_chains_that_go_back() -> None:
    counts = [
        chains(with_chains(path, list(range(len(path.network.inputs))), 1))
        for path in map(stem_path, range(24))
    ]
    assert sum(count > 0 for count in counts) > 12


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_stem_of_a_circuit(device: str) -> None:
    """By einsum too, with values made again, and for some of its tensors."""
    path = replace(window(8, 9), dtype="complex128")
    arrays, everything = random_arrays(path, 1), list(range(9))
    for wrt in (everything, [0], [8], [3, 5]):
        schedule = with_chains(path, wrt, 1)
        assert chains(schedule) or wrt == [8]
        by_tensor = gradients_by_einsum(path, arrays, seed_of(path, 1))
        _, *gradients = found(schedule, arrays, seed_of(path, 1), device=device)
        for number, gradient in zip(wrt, gradients, strict=True):
            expected, scale = by_tensor[number]
            assert np.all(np.abs(gradient - expected) <= TOLERANCE[path.dtype] * scale.real)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_values_made_again_give_the_same_gradients(device: str) -> None:
    path = replace(window(24, 12), dtype="complex64")
    wrt, arrays = list(range(25)), random_arrays(path, 2)
    forward = plan(path, fusing_profile(FUSED_BYTES), memory_bytes=inf, goes_back=True)
    whole = reverse(forward, wrt)
    tight = reverse(forward, wrt, 0.7 * whole.predicted.peak_bytes)
    assert chains(whole) == chains(tight) > 1
    assert tight.operations > whole.operations
    wanted = found(whole, arrays, seed_of(path, 2), device=device)
    for one, other in zip(found(tight, arrays, seed_of(path, 2), device=device), wanted, strict=True):
        assert np.array_equal(one, other)
    check(path, wanted, without_chains(path, wrt, arrays, 2))


@pytest.mark.parametrize("seed", range(3))
def test_chains_that_work_in_place_where_memory_is_short(seed: int) -> None:
    """On the way there and back their results have buffers of their own."""
    path = replace(steady_path(seed), dtype="complex64")
    profile, wrt, arrays = fusing_profile(1 << 14), list(range(23)), random_arrays(path, seed)
    free = plan(path, profile, memory_bytes=inf, goes_back=True)
    short = plan(path, profile, memory_bytes=int(0.75 * free.predicted.peak_bytes), goes_back=True)
    assert list(in_place(short))
    schedule = reverse(short, wrt)
    verify(schedule)
    assert chains(schedule)
    assert not list(in_place(schedule))
    check(path, found(schedule, arrays, seed_of(path, seed)), without_chains(path, wrt, arrays, seed))


def test_a_gpu_takes_chains_where_a_cpu_takes_products() -> None:
    path = replace(window(24, 12), dtype="complex64")
    wrt = list(range(25))
    for device, profile in (("cpu", "cpu"), ("gpu", "h100-nvlink")):
        schedule = GradientPlan(path, load_profile(profile), inf).schedule(
            ContractionOptions(device=device), wrt
        )
        assert bool(chains(schedule)) == (device == "gpu")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 240))
@pytest.mark.parametrize("device", [GPU])
def test_random_stems_on_a_gpu(seed: int, device: str) -> None:
    path = stem_path(seed)
    wrt, arrays = list(range(len(path.network.inputs))), random_arrays(path, seed)
    schedule = with_chains(path, wrt, 1)
    check(
        path,
        found(schedule, arrays, seed_of(path, seed), device=device),
        without_chains(path, wrt, arrays, seed),
    )

"""Gradients of random networks: sliced, spread over ranks, with values made again, on CPUs and GPUs."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.oracles.derivatives import gradients_by_einsum
from tests.support.effort import repeats
from tests.support.kernels.gpus import count_gpus
from tests.support.networks import TOLERANCE, eager_profile, exact, random_arrays, random_path, window
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.gradient_calls import GradientCalls
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.reverse import reverse
from tnplan.planner.schedule.schedule import GradientSchedule, Schedule

QUICK, ALL = 20, repeats(160, 300)
BY_BATCH = 10
HOISTED = (20, 48, 56, 105, 116, 369, 550)
"""Random networks of which several slices in a row share steps."""


@dataclass(frozen=True)
class Case:
    """A random network, its values, and the gradients asked for."""

    path: ContractionPath
    arrays: list[NDArray[np.generic]]
    cotangent: NDArray[np.generic]
    wrt: list[int]


def case(seed: int) -> Case:
    """Some or all tensors of a random network."""
    path, chance = random_path(seed, 3000), random.Random(seed)
    n_tensors = len(path.network.inputs)
    wrt = [number for number in range(n_tensors) if chance.random() < 0.8] or [0]
    shape = tuple(path.network.size_dict[index] for index in path.network.output)
    generator = np.random.default_rng(seed)
    cotangent = generator.normal(size=shape) + 1j * generator.normal(size=shape)
    kept = cotangent if path.dtype.startswith("complex") else cotangent.real
    return Case(path, random_arrays(path, seed), np.asarray(kept, path.dtype), wrt)


def forward(path: ContractionPath, seed: int, ranks: int, groups: int) -> Schedule:
    """A schedule without early sums, on a machine where everything is distributed that can be."""
    profile = eager_profile((64, 512, 1 << 20)[seed % 3], (16, 256, 1 << 20)[seed // 3 % 3])
    return plan(
        path, profile, devices=ranks * groups, ranks_per_group=ranks, memory_bytes=inf, threshold_bytes=1,
        goes_back=True,
    )  # fmt: skip


def check(
    one: Case, schedule: GradientSchedule, devices: int, device: str = "cpu"
) -> list[NDArray[np.generic]]:
    """Value and gradients against einsum in double precision; twice with the same bits. The gradients."""
    options = ContractionOptions(device=device, devices=devices, threads=1 if device == "cpu" else None)
    calls = GradientCalls(schedule, options, {})
    values = dict(enumerate(one.arrays))
    found, again = calls.call(values, one.cotangent), calls.call(values, one.cotangent)
    calls.close()
    assert found is not None
    assert again is not None
    wanted = [exact(one.path, one.arrays)]
    by_tensor = gradients_by_einsum(one.path, one.arrays, one.cotangent)
    wanted += [by_tensor[number] for number in one.wrt]
    for result, repeated, (expected, scale) in zip(
        (found[0], *found[1]), (again[0], *again[1]), wanted, strict=True
    ):
        assert result.dtype == one.path.dtype
        assert result.shape == expected.shape
        assert np.array_equal(result, repeated)
        assert np.all(np.abs(result - expected) <= TOLERANCE[one.path.dtype] * scale.real)
    return found[1]


def differentiate(seed: int) -> None:
    """One random network: on one rank, and on several."""
    one, chance = case(seed), random.Random(seed)
    alone = check(one, reverse(forward(one.path, seed, 1, 1), one.wrt), 1)
    ranks, groups = chance.choice(((1, 2), (2, 1), (4, 1), (3, 1), (2, 2), (1, 4)))
    spread = check(one, reverse(forward(one.path, seed, ranks, groups), one.wrt), ranks * groups)
    for here, there in zip(alone, spread, strict=True):
        largest = np.abs(here).max(initial=1.0)
        assert np.abs(here - there).max(initial=0.0) <= 10 * TOLERANCE[one.path.dtype] * largest


@pytest.mark.parametrize("first", range(0, QUICK, BY_BATCH))
def test_random_networks(first: int) -> None:
    for seed in range(first, first + BY_BATCH):
        differentiate(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, ALL, BY_BATCH))
def test_more_random_networks(first: int) -> None:
    for seed in range(first, first + BY_BATCH):
        differentiate(seed)


@pytest.mark.parametrize("seed", HOISTED)
@pytest.mark.parametrize("groups", [1, 3])
def test_steps_that_slices_share(seed: int, groups: int) -> None:
    one = case(seed)
    schedule = reverse(forward(one.path, seed, 1, groups), one.wrt)
    assert schedule.outer
    assert len(schedule.after) == len(schedule.outer) + 1
    check(one, schedule, groups)


@pytest.mark.parametrize("ranks", [1, 2])
def test_values_made_again_give_the_same_gradients(ranks: int) -> None:
    path = replace(window(7, 8), dtype="complex128")
    arrays = random_arrays(path, 0)
    shape = tuple(path.network.size_dict[index] for index in path.network.output)
    one = Case(path, arrays, np.random.default_rng(0).normal(size=shape).astype(complex), list(range(8)))
    schedule = forward(path, 0, ranks, 1)
    whole = reverse(schedule, one.wrt)
    wanted, made_again = check(one, whole, ranks), 0
    for share in (0.9, 0.8, 0.7):
        try:
            tight = reverse(schedule, one.wrt, share * whole.predicted.peak_bytes)
        except InputError:
            continue
        made_again += tight.operations > whole.operations
        for here, there in zip(check(one, tight, ranks), wanted, strict=True):
            assert np.array_equal(here, there)
    assert made_again


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_every_device(device: str) -> None:
    if device == "gpu" and not count_gpus():
        pytest.skip("needs a GPU")
    for seed in (*range(6), *HOISTED):
        one = case(seed)
        check(one, reverse(forward(one.path, seed, 1, 1), one.wrt), 1, device)

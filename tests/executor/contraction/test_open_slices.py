"""Slices of open indices: each has its part of the result, on 1, 2 and 4 ranks in groups of any size."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.networks import agrees, eager_profile, random_arrays, random_path
from tests.support.slow import slow_unless
from tnplan.calls.execute import execute
from tnplan.common.errors import InputError
from tnplan.jobs.arrays.numpy_contraction import sliced_contraction
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.search.path_cost import path_cost
from tnplan.planner.workloads.mixed import peps_network

SEEDS = range(60)


def path_with_open_slices(seed: int) -> ContractionPath:
    """A random path that slices some of its open indices, besides the summed ones that it slices anyway."""
    path, draw = random_path(seed), random.Random(seed)
    output = path.network.output
    return replace(path, sliced_inds=(*draw.sample(output, draw.randint(1, len(output))), *path.sliced_inds))


def open_paths() -> list[tuple[int, ContractionPath]]:
    return [(seed, path_with_open_slices(seed)) for seed in SEEDS if random_path(seed).network.output]


@pytest.mark.parametrize(("ranks", "half"), slow_unless(lambda *at: at == (0, 0), [2, 4], [0, 1]))
def test_schedules_put_each_slice_in_its_place(ranks: int, half: int) -> None:
    levels, paths = 0, open_paths()[half::2]
    for seed, path in paths:
        arrays = random_arrays(path, seed)
        profile = eager_profile(exchange_bytes=(64, 1 << 20)[seed % 2])
        for group in {1, ranks}:
            schedule = plan(
                path, profile, devices=ranks, ranks_per_group=group, memory_bytes=inf, threshold_bytes=1
            )
            assert schedule.sliced_output
            levels += len(schedule.outer)
            agrees(execute(schedule, arrays, ranks=ranks).array, path, arrays)
    assert len(paths) >= 10
    assert levels >= 3


def test_numpy_puts_each_slice_in_its_place() -> None:
    for seed, path in open_paths():
        arrays = random_arrays(path, seed)
        agrees(sliced_contraction(path)(*arrays), path, arrays)


def test_calls_take_them() -> None:
    """A compiled contraction again and again; not its gradients, exponents and sharded results."""
    network = tnplan.Network((("a", "b"), ("b", "c"), ("c", "d")), ("a", "d"), dict.fromkeys("abcd", 3))
    path = ContractionPath(network, ((0, 1), (2, 3)), ("d", "b"), "complex128")
    draw = np.random.default_rng(0)
    for _ in range(2):
        arrays = [draw.normal(size=(3, 3)) + 1j * draw.normal(size=(3, 3)) for _ in range(3)]
        contracted = tnplan.contract("ab,bc,cd->ad", *arrays, optimize=path, device="cpu")
        np.testing.assert_allclose(contracted, arrays[0] @ arrays[1] @ arrays[2])
    with pytest.raises(InputError, match="slices open indices, which is not possible for gradients"):
        plan(path, tnplan.load_profile("cpu"), goes_back=True)
    with pytest.raises(InputError, match="strip_exponent: is not for slices of open indices"):
        tnplan.contract("ab,bc,cd->ad", *arrays, optimize=path, device="cpu", strip_exponent=True)


@pytest.mark.parametrize("minimize", ["fused", "write"])
def test_a_search_slices_a_state_that_is_over_the_limit(minimize: str) -> None:
    """A state on a lattice of six sites: no tensor of a slice has more than a 16th of the elements."""
    network = peps_network(2, 3, 1, extents=(2, 2), n_open=6, n_hyper=0)
    limit = network.output_size >> 4
    path = tnplan.search(network, max_tensor=limit, minimize=minimize, time=0.5, dtype="complex128")
    assert set(path.sliced_inds) & set(network.output)
    assert path_cost(path).log2_largest <= np.log2(limit)
    arrays = random_arrays(path, 0)
    agrees(execute(plan(path, eager_profile(), memory_bytes=inf), arrays).array, path, arrays)
    with pytest.raises(InputError, match=r"the result itself has .*joint, which slices open ones"):
        tnplan.search(network, max_tensor=limit, methods="greedy", time=0)


def test_sharded_results_are_refused(tmp_path: Path) -> None:
    seed, path = open_paths()[0]
    schedule = plan(path, eager_profile(), memory_bytes=inf)
    with pytest.raises(InputError, match="sharded is not for slices of open indices"):
        execute(schedule, random_arrays(path, seed), result="sharded", output=tmp_path / "r.npy")

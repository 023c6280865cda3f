"""Contractions whose values leave the range of their dtype, on the CPU, with the exponents of a GPU on the
CPU, and on a GPU where there is one; against exact values and against double precision.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import cosh, inf, log2, sinh
from typing import Any

import numpy as np
import pytest

from tests.support.contraction.executor import lattice
from tests.support.contraction.fused import planned
from tests.support.kernels.exponent_emulator import (
    HAS_EMULATOR,
    OR_EMULATED,
    EmulatedLaunch,
    opened_or_emulated,
)
from tests.support.networks import TOLERANCE, random_arrays, random_path
from tnplan import plan
from tnplan.executor.contraction.run import compiled_program, scaling
from tnplan.executor.contraction.run.compiled_program import CompiledProgram
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.device import NumpyDevice
from tnplan.executor.device.protocols.device import Call
from tnplan.planner.networks.contraction_path import DTYPES, ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.passes.lowering.keep_results import keep_results
from tnplan.planner.schedule.schedule import Accumulate, Fused, Schedule, Zero


@pytest.fixture(params=OR_EMULATED)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with opened_or_emulated(request.param, monkeypatch) as made:
        yield made


def program(schedule: Schedule, device: Any, scaled: bool = True) -> CompiledProgram:
    lone = run_ranks(1, lambda own: own)[0]
    return CompiledProgram(schedule, device, lone, scaled=scaled)


def run(
    compiled: CompiledProgram, device: Any, arrays: Sequence[np.ndarray], changed: Sequence[int] | None = None
) -> tuple[np.ndarray, int]:
    """The values and the exponent of a result; of a change of some inputs, or of all."""
    for number in range(len(arrays)) if changed is None else changed:
        compiled.set(number, arrays[number].astype(compiled.bound.schedule.dtype))
    compiled.run(None if changed is None else frozenset(changed))
    return device.to_host(compiled.result).copy(), compiled.exponent


def log2_of(value: np.ndarray, exponent: int) -> float:
    largest = float(np.abs(value).max())
    assert 0.5 <= max(np.abs(value.real).max(), np.abs(value.imag).max()) < 1
    return log2(largest) + exponent


def in_double(schedule_of: Any, path: ContractionPath, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The result in double precision, without exponents."""
    device = NumpyDevice()
    wide = program(schedule_of(replace(path, dtype="complex128")), device, scaled=False)
    return run(wide, device, arrays)[0]


def path_of(
    n: int, terms: Sequence[Sequence[str]], dtype: str, sliced: Sequence[str] = ()
) -> ContractionPath:
    """Tensors contracted from the first to the last; every index has the extent n."""
    network = Network(tuple(map(tuple, terms)), (), {index: n for term in terms for index in term})
    steps = [(0, 1), *((k, len(terms) + k - 2) for k in range(2, len(terms)))]
    return ContractionPath(network, tuple(steps), tuple(sliced), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_ring_that_overflows_again_and_again(device: Any, dtype: str) -> None:
    """The third call of a GPU is a recorded one; every call has other values."""
    n = 600
    path = path_of(2, [(f"i{k}", f"i{(k + 1) % n}") for k in range(n)], dtype)
    compiled = program(plan(path, memory=inf), device)
    for beta in (0.44, 1.5, -0.7, 1e-3, 0.44):
        matrix = np.exp(beta * np.array([[1.0, -1.0], [-1.0, 1.0]]))
        found = log2_of(*run(compiled, device, [matrix] * n))
        first, second = log2(2 * cosh(beta)), log2(2 * sinh(abs(beta)))
        exact = n * first + log2(1 + 2.0 ** (n * (second - first)))
        assert found == pytest.approx(exact, abs=n * 2e-7 if dtype in ("float32", "complex64") else 1e-9)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "float64"])
@pytest.mark.parametrize("bits", [20, -20])
def test_products_that_shrink_or_grow_at_every_step(device: Any, dtype: str, bits: int) -> None:
    """A vector and matrices that multiply its only element by 0.75 * 2^-bits; beside it they have a 1."""
    n = 300
    path = path_of(2, [("i0",), *((f"i{k}", f"i{k + 1}") for k in range(n)), (f"i{n}",)], dtype)
    compiled = program(plan(path, memory=inf), device)
    matrix = np.diag([0.75 * 2.0**-bits, 1.0])
    for factor in (1.0, 0.5, 1.0):
        arrays = [np.array([1.0, 0.0]), *[matrix * factor] * n, np.ones(2)]
        found = log2_of(*run(compiled, device, arrays))
        assert found == pytest.approx(n * (log2(0.75 * factor) - bits), abs=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_large_tensors_shrink(device: Any, dtype: str) -> None:
    """Tensors of 2^16 elements, which are measured first, by 2^-8 a step."""
    extent, n = 256, 30
    names = [f"i{k}" for k in range(n + 2)]
    network = Network(tuple(pairwise(names)), (names[0], names[-1]), dict.fromkeys(names, extent))
    steps = [(0, 1), *((k, n + k - 1) for k in range(2, n + 1))]
    path = ContractionPath(network, tuple(steps), (), dtype)
    compiled = program(plan(path, memory=inf), device)
    permutation = np.eye(extent)[np.random.default_rng(0).permutation(extent)]
    diagonal = np.diag([2.0**-8] * (extent - 1) + [1.0])  # the largest part meets zeros only
    first = np.diag([1.0] * (extent - 1) + [0.0])
    found, exponent = run(compiled, device, [first, *[diagonal] * (n - 1), permutation])
    wanted = first @ permutation
    assert np.array_equal(found.reshape(extent, extent) * 2, wanted)
    assert exponent == -8 * (n - 1) + 1


def test_zero_is_zero(device: Any) -> None:
    """And what comes after it is not."""
    n = 40
    path = path_of(2, [("i0",), *((f"i{k}", f"i{k + 1}") for k in range(n)), (f"i{n}",)], "float32")
    compiled = program(plan(path, memory=inf), device)
    ones = [np.ones(2), *[np.ones((2, 2))] * n, np.ones(2)]
    for number in (None, 0, 7, n + 1, None):
        arrays = [array * (k != number) for k, array in enumerate(ones)]
        value, exponent = run(compiled, device, arrays)
        assert (value[0], exponent) == ((0.0, 0) if number is not None else (0.5, n + 2))


def test_what_is_not_finite_stays_so(device: Any) -> None:
    path = path_of(2, [("i0",), *((f"i{k}", f"i{k + 1}") for k in range(9)), ("i9",)], "float32")
    compiled = program(plan(path, memory=inf), device)
    arrays = [np.ones(2), *[np.ones((2, 2))] * 9, np.ones(2)]
    for odd in (inf, np.nan):
        bad = [array * (odd if number == 4 else 1.0) for number, array in enumerate(arrays)]
        with np.errstate(invalid="ignore"):
            value, _ = run(compiled, device, bad)
        assert not np.isfinite(value).any()
    assert log2_of(*run(compiled, device, arrays)) == 11 - 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_slices_of_all_sizes_are_added(device: Any, dtype: str) -> None:
    """Every slice is 2^p(s) t(s) with powers far apart; the sum is that of the largest."""
    n, rng = 12, np.random.default_rng(3)
    path = path_of(n, [("s", "a"), ("s", "b", "a"), ("s", "b")], dtype, ("s",))
    compiled = program(plan(path, memory=inf), device)
    reach = 20 if dtype in ("float32", "complex64") else 250
    for _ in range(3):
        powers = rng.integers(-reach, reach, (3, n))
        arrays = [rng.standard_normal(shape) for shape in ((n, n), (n, n, n), (n, n))]
        arrays[rng.integers(3)][rng.integers(n)] = 0.0
        terms = np.einsum("sa,sba,sb->s", *arrays)
        scaled = [
            np.ldexp(array, power.reshape(n, *[1] * (array.ndim - 1)))
            for array, power in zip(arrays, powers, strict=True)
        ]
        total = powers.sum(axis=0)
        wanted = (terms * 2.0 ** (total - total.max()).astype(float)).sum()
        value, exponent = run(compiled, device, scaled)
        assert value[0] * 2.0 ** (exponent - total.max()) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("dtype", ["complex64", "float64"])
@pytest.mark.parametrize("seed", [3, 7, 9])
def test_chains_that_add_to_early_sums(device: Any, dtype: str, seed: int) -> None:
    """Rounds of a sum that are 2^15 apart, of tensors from 2^-40 to 2^40."""
    path = lattice(4, 10, 2, 0, dtype, n_open=1)
    rng = np.random.default_rng(seed)
    bonds = sorted(set(path.network.size_dict) - {*path.network.output})
    path = replace(path, sliced_inds=tuple(map(str, rng.choice(bonds, 6, replace=False))))
    schedule = planned(path)
    kinds = [type(item) for item in schedule.instructions]
    assert {Accumulate, Zero} <= set(kinds)
    assert any(isinstance(item, Fused) and item.adds for item in schedule.instructions)
    compiled = program(schedule, device)
    for number in range(3):
        arrays = random_arrays(path, seed + number)
        weighted = []
        for term, array in zip(path.network.inputs, arrays, strict=True):
            for axis, index in enumerate(term):
                if index in path.sliced_inds and rng.random() < 0.7:
                    shape = [2 if other == axis else 1 for other in range(array.ndim)]
                    array = array * (2.0 ** rng.integers(-15, 16, 2)).reshape(shape).astype(array.real.dtype)
            weighted.append(array)
        wanted = in_double(planned, path, weighted)
        powers = rng.integers(-40, 40, len(weighted))
        scaled = [array * array.real.dtype.type(2.0**p) for array, p in zip(weighted, powers, strict=True)]
        value, exponent = run(compiled, device, scaled)
        found = value.astype(complex) * 2.0 ** (exponent - int(powers.sum()))
        limit = TOLERANCE[dtype] * 300 * np.abs(wanted).max()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=limit)


@pytest.mark.parametrize("seed", range(24))
def test_random_networks_again_with_some_new_inputs(device: Any, seed: int) -> None:
    """Three calls with all inputs and four with some of them, each input of its own size. Half of the
    schedules keep what does not change."""
    path = replace(random_path(seed, 2000), dtype="complex64")
    schedule = plan(path, memory=inf)
    if seed % 2:
        schedule = keep_results(schedule)
    compiled = program(schedule, device)
    rng = np.random.default_rng(seed)
    arrays = random_arrays(path, seed)
    powers = [0] * len(arrays)
    for number in range(7):
        changed = range(len(arrays)) if number < 3 else rng.choice(len(arrays), 1 + len(arrays) // 3, False)
        fresh = random_arrays(path, 100 * seed + number)
        for one in changed:
            arrays[one], powers[one] = fresh[one], int(rng.integers(-60, 60))
        scaled = [array * np.float32(2.0**p) for array, p in zip(arrays, powers, strict=True)]
        chosen = [int(one) for one in changed]
        value, exponent = run(compiled, device, scaled, None if number == 0 else chosen)
        wanted = in_double(lambda wide: plan(wide, memory=inf), path, arrays)
        found = value.astype(complex) * 2.0 ** (exponent - sum(powers))
        limit = 100 * TOLERANCE["complex64"] * np.abs(wanted).max() + 1e-6
        np.testing.assert_allclose(found, wanted.reshape(-1), rtol=0, atol=limit)


@pytest.mark.skipif(not HAS_EMULATOR, reason="needs g++ and CuPy")
def test_no_call_is_dropped_while_its_kernels_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """More kinds of runs than are kept, none of which is waited for; then one that was recorded."""
    path = path_of(2, [("i0",), *((f"i{k}", f"i{k + 1}") for k in range(6)), ("i6",)], "float32")
    under_way: set[int] = set()
    dropped = []

    class Launch(EmulatedLaunch):
        def __call__(self) -> None:
            under_way.add(id(self))
            super().__call__()

        def __del__(self) -> None:
            dropped.append(id(self) in under_way)

    def recorded(calls: Sequence[Call], _: object = None) -> Call:
        kept = [weakref.ref(call) for call in calls]

        def run() -> None:
            for each in kept:
                again = each()
                assert again is not None
                again()

        return run

    with opened_or_emulated("emulated", monkeypatch) as device:
        from tnplan.executor.device.cuda.copy import exponents

        monkeypatch.setattr(exponents, "BoundKernel", Launch)
        monkeypatch.setattr(compiled_program, "KEPT_RUNS", 3)
        monkeypatch.setattr(scaling, "KEPT_CALLS", 3)
        device.synchronize, device.recorded = under_way.clear, recorded
        compiled = program(plan(path, memory=inf), device)
        arrays = [np.ones(2), *[np.ones((2, 2))] * 6, np.ones(2)]
        for number in range(len(arrays)):
            compiled.set(number, arrays[number].astype(np.float32))
        for changed in (None, [0], [0], [1], [2], [0], [0], [3], [4], [5], [0]):
            for number in changed or ():
                compiled.set(number, arrays[number].astype(np.float32))
            compiled.run(None if changed is None else frozenset(changed))
        assert len(dropped) > 4
        assert not any(dropped)
        assert log2_of(compiled.result, compiled.exponent) == 8 - 1

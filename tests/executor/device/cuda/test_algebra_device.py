"""Networks over algebras with the kernels of a GPU: emulated here, and on GPUs where there are some."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.oracles.configurations import random_instance
from tests.support.contraction.algebras import (
    ALGEBRAS,
    MAX_MIN,
    PRIMES,
    by_rows,
    check,
    make,
    problem,
    reference,
    transfer,
    values,
)
from tests.support.kernels.exponent_emulator import HAS_EMULATOR
from tests.support.kernels.gpus import needs_gpus
from tests.support.networks import eager_profile
from tests.support.slow import slow_but
from tnplan.executor.contraction.run.compiled_program import CompiledProgram
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.cpu.algebra import algebra_of
from tnplan.planner.passes import pipeline

NAMES = [name for name in ALGEBRAS if name != "max-min"]
GPU: dict[str, Any] = {"device": "gpu"}


@pytest.mark.skipif(not HAS_EMULATOR, reason="needs g++ and CuPy")
@pytest.mark.parametrize("name", slow_but(("residues", "max-plus", "optima"), NAMES))
def test_random_networks_by_emulated_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one rank and on two, sliced too; a modulus that changes between runs is read anew."""
    from tests.support.kernels.algebra_emulator import EmulatedAlgebraDevice, emulate, launched

    emulate(monkeypatch)
    for seed in range(8):
        given, _, path, arrays, wanted = problem(name, seed)
        algebra = algebra_of(given)
        assert algebra is not None
        path = replace(path, dtype=algebra.dtype)
        for ranks in (1, 2):
            schedule = pipeline.plan(
                path, replace(eager_profile(), fused_bytes=0), devices=ranks, ranks_per_group=ranks,
                memory_bytes=inf, threshold_bytes=1,
            )  # fmt: skip

            def run(own: Any, schedule: Any = schedule, algebra: Any = algebra, arrays: Any = arrays) -> Any:
                program = CompiledProgram(schedule, EmulatedAlgebraDevice(algebra), own)
                for _ in range(2):
                    program.run_with({k: array.astype(algebra.dtype) for k, array in enumerate(arrays)})
                return program.gathered()

            found = run_ranks(ranks, run)[0]
            check(found[0], path.network, wanted)
    assert {"product_each", "sum_axes", "add_box", "fill"} <= launched


@needs_gpus(1)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(12))
def test_random_networks_on_a_gpu(name: str, seed: int) -> None:
    """Sliced and not, of NumPy and of CuPy, compiled and not, with several primes, and row by row."""
    import cupy

    algebra, prime, path, arrays, wanted = problem(name, 100 + seed, least_slices=1 + 3 * (seed % 2))
    check(tnplan.contract(path, *arrays, algebra=algebra, **GPU), path.network, wanted)
    check(tnplan.contract(path.network, *arrays, algebra=algebra, **GPU), path.network, wanted)
    there = [cupy.asarray(array) for array in arrays]
    found = tnplan.contract(path, *there, algebra=algebra)
    assert isinstance(found, cupy.ndarray)
    check(found.get(), path.network, wanted)
    made = algebra_of(algebra)
    assert made is not None
    exact = [made.exactly(array, "array") for array in arrays]
    shapes = [array.shape for array in arrays]
    with tnplan.compile(path, *shapes, algebra=algebra, **GPU) as contraction:
        assert contraction.device == "gpu"
        for _ in range(3):
            check(contraction(*exact), path.network, wanted)
        check(contraction(*map(cupy.asarray, exact)).get(), path.network, wanted)
        if name in ("residues", "optima"):
            made.prime = 5
            smaller = [residues_of(each, name, 5) for each in arrays]
            check(contraction(*smaller), path.network, reference(path.network, smaller, name, 5))
            made.prime = prime
    case = transfer(100 * NAMES.index(name) + seed, name, prime)
    of_rows, number, vectors = case
    shapes = [of_rows.network.shape(each) for each in range(len(vectors))]
    with tnplan.compile(of_rows, *shapes, algebra=algebra, **GPU) as step:
        found = step.power(3, *vectors, vector=number)
        check(found, of_rows.network, np.asarray(by_rows(case, 3, name, prime)).reshape(-1))


def residues_of(array: np.ndarray, name: str, prime: int) -> np.ndarray:
    """Values modulo a prime; of pairs the counts."""
    if name == "residues":
        return (array % prime).astype(float)
    made = array.copy()
    made.imag %= prime
    return made


@needs_gpus(1)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (1, 1, 1),
        (3, 40, 200),
        (40, 3, 70),
        (300, 5, 2),
        (129, 257, 65),
        (16, 500, 300),
        (1, 1, 100_000),
        (64, 64, 9000),
    ],
)
def test_products_on_a_gpu(name: str, m: int, n: int, k: int) -> None:
    """In all orders of the axes, beside the CPU."""
    random = np.random.default_rng([m, n, k])
    algebra = make(name, PRIMES[1])
    for inputs, output in (
        ((("i", "k"), ("j", "k")), ("i", "j")), ((("k", "i"), ("k", "j")), ("j", "i")),
        ((("t", "k", "i"), ("j", "t", "k")), ("i", "t", "j")), ((("i", "k"), ("k",)), ("i",)),
        ((("i", "k"),), ("k",)), ((("t", "i", "k"),), ("i",)),
    ):  # fmt: skip
        sizes = {"i": m, "j": n, "k": k, "t": 3}
        used = set().union(*inputs)
        network = tnplan.Network(inputs, output, {index: sizes[index] for index in sizes if index in used})
        arrays = [values(name, network.shape(each), PRIMES[1], random) for each in range(len(inputs))]
        wanted = tnplan.contract(network, *arrays, algebra=algebra)
        np.testing.assert_array_equal(tnplan.contract(network, *arrays, algebra=algebra, **GPU), wanted)


@needs_gpus(2)
@pytest.mark.parametrize("name", NAMES)
def test_networks_on_two_gpus(name: str) -> None:
    for seed in range(4):
        algebra, _, path, arrays, wanted = problem(name, seed)
        limits = {"memory": inf, "threshold": 1}
        schedule = tnplan.plan(
            path, devices=2, ranks_per_group=2, hardware=eager_profile(), algebra=algebra, **limits
        )
        with tnplan.compile(schedule, devices=2, algebra=algebra, **GPU) as contraction:
            for _ in range(2):
                check(contraction(*arrays), path.network, wanted)


@needs_gpus(1)
def test_a_wrong_array_on_a_gpu_is_named() -> None:
    import cupy

    arrays = [cupy.zeros((2, 2)) for _ in range(40)]
    equation = ",".join(f"{chr(97 + k % 2)}{chr(98 - k % 2)}" for k in range(40)) + "->"
    assert tnplan.contract(equation, *arrays, algebra="max-plus").get() == 0
    arrays[23][1, 0] = float("nan")
    with pytest.raises(tnplan.InputError, match="array 23: has NaN"):
        tnplan.contract(equation, *arrays, algebra="max-plus")


@needs_gpus(1)
@pytest.mark.parametrize("problem_name", ["independent-sets", "matchings", "dimers", "colourings", "sat"])
def test_counts_and_optima_on_a_gpu(problem_name: str) -> None:
    """Random instances beside the CPU, which other tests hold against brute force."""
    for seed in range(5):
        made = random_instance(problem_name, seed)
        instance, options = made.given, {"colours": made.colours}
        for by_size in (False, True):
            counts = [
                tnplan.count(problem_name, instance, by_size=by_size, device=device, **options)
                for device in ("cpu", "gpu")
            ]
            assert (counts[0].value, counts[0].by_size) == (counts[1].value, counts[1].by_size)
        optima = [
            tnplan.optimize(problem_name, instance, count_optima=True, device=device, **options)
            for device in ("cpu", "gpu")
        ]
        assert (optima[0].value, optima[0].n_optima) == (optima[1].value, optima[1].n_optima)


def test_an_algebra_of_a_user_stays_on_the_cpu() -> None:
    with pytest.raises(tnplan.InputError, match="max-min, whose functions run on a CPU only"):
        tnplan.compile("ab->a", (2, 2), algebra=MAX_MIN, device="gpu")

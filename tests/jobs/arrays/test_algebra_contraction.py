"""Contractions over algebras against sums over all values of all indices, in Python's integers."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.contraction.algebras import ALGEBRAS, MAX_MIN, PRIMES, check, make, reference, values
from tests.support.networks import eager_profile, random_path
from tests.support.slow import slow_after
from tnplan.executor.device.cpu import algebra_device, device
from tnplan.executor.device.cpu.algebra import LARGEST_PRIME, Tropical, algebra_of, is_prime
from tnplan.jobs.arrays import algebra_contraction
from tnplan.jobs.arrays.compiled import CompiledContraction
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.passes import pipeline


@pytest.mark.parametrize("name", ALGEBRAS)
@pytest.mark.parametrize("seed", slow_after(4, range(20)))
def test_random_networks_have_the_sum_over_all_values(name: str, seed: int) -> None:
    """On one rank, and over ranks and groups; with hyper-indices, traces, open and sliced indices."""
    random = np.random.default_rng([seed, ALGEBRAS.index(name)])
    prime = PRIMES[seed % len(PRIMES)]
    algebra = algebra_of(make(name, prime))
    path = replace(random_path(1000 * ALGEBRAS.index(name) + seed, 20_000), dtype=algebra.dtype)
    network = path.network
    arrays = [values(name, network.shape(k), prime, random) for k in range(len(network.inputs))]
    expected = reference(network, arrays, name, prime)
    check(tnplan.contract(path, *arrays, algebra=algebra, threads=2), network, expected)
    check(tnplan.contract(network, *arrays, algebra=algebra), network, expected)
    check(tnplan.contract(path, *arrays, algebra=algebra, devices=2), network, expected)
    ranks = 2 + 2 * (seed % 2)
    profile = replace(eager_profile(), fused_bytes=0)
    limits = {"memory_bytes": inf, "threshold_bytes": 1}
    schedule = pipeline.plan(path, profile, devices=2 * ranks, ranks_per_group=ranks, **limits)
    with CompiledContraction(schedule, ContractionOptions(devices=2 * ranks, algebra=algebra)) as contraction:
        check(contraction(*(array.astype(algebra.dtype) for array in arrays)), network, expected)


def test_ranks_exchange_and_sum() -> None:
    """What the test above relies on: some of its schedules move shards, some sum them over ranks."""
    profile, seen = replace(eager_profile(), fused_bytes=0), set()
    for seed in range(20):
        limits = {"memory_bytes": inf, "threshold_bytes": 1}
        path = replace(random_path(seed, 20_000), dtype="float64")
        ranks = 2 + 2 * (seed % 2)
        schedule = pipeline.plan(path, profile, devices=2 * ranks, ranks_per_group=ranks, **limits)
        seen |= {item.op for item in schedule.instructions}
    assert {"redistribute", "reduce_scatter", "accumulate", "sum_modes", "fix_slice"} <= seen
    assert "fused" not in seen


SIZES = [(3, 40, 200), (40, 3, 70), (300, 5, 2), (2, 700, 64), (65, 65, 129)]


@pytest.mark.parametrize("name", ALGEBRAS)
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_products_of_matrices_of_all_sizes(name: str, m: int, n: int, k: int) -> None:
    check_products(name, m, n, k, batch=3, threads=2)


def check_products(name: str, m: int, n: int, k: int, batch: int, threads: int) -> None:
    random = np.random.default_rng([m, n, k])
    for inputs, output in (
        ((("i", "k"), ("j", "k")), ("i", "j")), ((("k", "i"), ("k", "j")), ("j", "i")),
        ((("t", "k", "i"), ("j", "t", "k")), ("i", "t", "j")), ((("i", "k"), ("k",)), ("i",)),
    ):  # fmt: skip
        sizes = {"i": m, "j": n, "k": k, "t": batch}
        used = set().union(*inputs)
        network = tnplan.Network(inputs, output, {index: sizes[index] for index in sizes if index in used})
        arrays = [values(name, network.shape(number), PRIMES[1], random) for number in (0, 1)]
        found = tnplan.contract(network, *arrays, algebra=make(name, PRIMES[1]), threads=threads)
        check(found, network, reference(network, arrays, name, PRIMES[1]))


@pytest.mark.parametrize("name", ALGEBRAS)
def test_threads_share_products(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, batches and tiles over three threads, as large products are."""
    monkeypatch.setattr(device, "PARALLEL_PRODUCTS", 1)
    monkeypatch.setattr(algebra_device, "PARALLEL_PRODUCTS", 1)
    for m, n, k, batch in ((50, 3, 70, 1), (7, 40, 3, 2), (2, 2, 5, 31), (130, 20, 65, 3)):
        check_products(name, m, n, k, batch, threads=3)


def test_the_prime_of_a_bound_contraction_changes() -> None:
    algebra = tnplan.Residues(7)
    network = tnplan.Network((("a", "b"), ("b", "c")), ("a", "c"), {"a": 9, "b": 200, "c": 9})
    profile = replace(tnplan.load_profile("cpu"), fused_bytes=0)
    schedule = pipeline.plan(tnplan.ContractionPath(network, ((0, 1),), (), "float64"), profile)
    random = np.random.default_rng(0)
    arrays = [random.integers(0, 7, network.shape(number)) for number in (0, 1)]
    with CompiledContraction(schedule, ContractionOptions(algebra=algebra)) as contraction:
        for prime in (7, 8388593, 11):
            algebra.prime = prime
            found = contraction(*(array.astype(float) for array in arrays))
            np.testing.assert_array_equal(found, arrays[0] @ arrays[1] % prime)


@pytest.mark.parametrize(
    ("options", "arrays", "line"),
    [
        ({"algebra": "max-times"}, [[1.0]], "'max-times' is unknown"),
        ({"algebra": ["max-plus"]}, [[1.0]], "is unknown"),
        ({"algebra": MAX_MIN, "device": "gpu"}, [[1.0]], "has no kernels for the algebra max-min"),
        ({"algebra": "max-plus", "strip_exponent": True}, [[1.0]], "is for numbers"),
        ({"algebra": "max-plus"}, [[np.nan]], "array 0: has NaN"),
        ({"algebra": "max-plus"}, [[np.inf]], "cannot add to -inf"),
        ({"algebra": "min-plus"}, [[-np.inf]], "cannot add to +inf"),
        ({"algebra": "boolean"}, [[2]], "other than 0 and 1"),
        ({"algebra": "max-plus"}, [[1j]], "would round"),
        ({"algebra": "max-plus"}, [[2**53 + 1]], "would round"),
    ],
)
def test_what_an_algebra_has_not_is_refused(options: Any, arrays: Any, line: str) -> None:
    with pytest.raises(tnplan.InputError, match=line.replace("+", r"\+")):
        tnplan.contract("a->", *arrays, **options)


@pytest.mark.parametrize("values", [[-1], [7], [0.5]])
def test_residues_are_integers_below_the_prime(values: Any) -> None:
    with pytest.raises(tnplan.InputError, match="not integers from 0 to 6"):
        tnplan.contract("a->", values, algebra=tnplan.Residues(7))


@pytest.mark.parametrize("prime", [1, 4, 2**23, 8388609, -7])
def test_other_moduli_are_refused(prime: int) -> None:
    with pytest.raises(tnplan.InputError, match="not a prime below"):
        tnplan.Residues(prime)


def test_schedules_of_numbers_are_refused() -> None:
    schedule = tnplan.plan(random_path(3, 500))
    arrays = [np.ones(tuple(schedule.size_dict[index] for index in leaf)) for leaf in schedule.leaves]
    with pytest.raises(tnplan.InputError, match="and the schedule is for plus-times"):
        tnplan.contract(schedule, *arrays, algebra="max-plus")


def test_plus_times_is_the_contraction_of_numbers() -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(tnplan.contract("ab,bc->ac", a, b, algebra="plus-times"), a @ b)


def test_empty_sums_are_the_zero() -> None:
    assert tnplan.contract("ab->a", np.ones((2, 0)), algebra="min-plus").tolist() == [np.inf, np.inf]


def test_primes() -> None:
    assert [number for number in range(30) if is_prime(number)] == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]
    assert all(is_prime(prime) and prime < LARGEST_PRIME for prime in PRIMES)


@pytest.mark.parametrize("wrong", [None, 3, 17])
def test_small_arrays_on_a_gpu_have_one_check(wrong: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays stand in for those of CuPy: small ones have one check, and a wrong one is named."""
    algebra, random, checks = Tropical(False), np.random.default_rng(5), []
    check_values = algebra.check

    def counted(given: Any, place: str) -> None:
        checks.append(place)
        check_values(given, place)

    monkeypatch.setattr(algebra, "check", counted)
    monkeypatch.setattr(algebra_contraction, "library_of", lambda array: "cupy")
    sizes = [1, 2, 3, 70_000, *range(4, 30)]
    arrays = {number: random.normal(size=size) for number, size in enumerate(sizes)}
    arrays[5] = arrays[5].astype(np.float32)
    if wrong is None:
        exact = algebra_contraction.exact_values(algebra, arrays)
        assert all((exact[number] == array).all() for number, array in arrays.items())
        assert {array.dtype for array in exact.values()} == {np.dtype(np.float64)}
        assert sorted(checks) == ["array 3", "array 5", "arrays"]
        return
    arrays[wrong][-1] = inf
    with pytest.raises(tnplan.InputError, match=f"array {wrong}: has [+]inf"):
        algebra_contraction.exact_values(algebra, arrays)

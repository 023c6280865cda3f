"""Compiled contractions: constants, updates and batches have the bits of a whole run; what they refuse."""

from __future__ import annotations

import copy
import pickle
import random
import threading
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from tests.support.networks import random_path
from tnplan import plan
from tnplan.calls.contract import compile as compile_contraction
from tnplan.common.errors import InputError
from tnplan.jobs.arrays import planning
from tnplan.jobs.arrays.compiled import CompiledContraction
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.jobs.arrays.ranks import bytes_with_inputs
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.tensors import random_tensors
from tnplan.planner.passes.lowering.keep_results import keep_results
from tnplan.planner.passes.verify import verify
from tnplan.planner.schedule.data_flow import DataFlow

N_PATHS = 40
CPU = ContractionOptions(device="cpu")


def ring(n: int, extent: int = 3) -> Network:
    """Matrices in a ring, whose contraction is a trace."""
    terms = tuple((f"i{k}", f"i{(k + 1) % n}") for k in range(n))
    return Network(terms, (), {f"i{k}": extent for k in range(n)})


def numbers(rng: random.Random, n: int) -> list[int]:
    """A few of n numbers."""
    return sorted(rng.sample(range(n), rng.randint(1, n)))


def fresh(network: Network, seed: int, chosen: Sequence[int]) -> dict[int, np.ndarray]:
    """New values of some tensors."""
    values = random_tensors(network, "complex128", seed)
    return {number: values[number] for number in chosen}


@pytest.mark.parametrize("fused", [False, True])
def test_updates_have_the_bits_of_a_whole_run(fused: bool) -> None:
    rng = random.Random(0)
    repeated = 0
    for seed in range(N_PATHS):
        path = random_path(seed, 4000)
        network = path.network
        schedule = plan(ContractionPath(network, path.ssa_path, path.sliced_inds, "complex128"), memory=inf)
        smallest = schedule.predicted.peak_bytes
        largest = keep_results(schedule).predicted.peak_bytes
        limit = rng.uniform(smallest, largest) if fused else inf
        kept = keep_results(schedule, None, limit)
        verify(kept)
        assert kept.predicted.peak_bytes <= max(limit, smallest)
        arrays = random_tensors(network, "complex128", seed)
        with CompiledContraction(kept, CPU) as updated, CompiledContraction(schedule, CPU) as whole:
            np.testing.assert_array_equal(updated(*arrays), whole(*arrays))
            for round_ in range(4):
                new = fresh(network, 100 + round_, numbers(rng, len(arrays)))
                for number, values in new.items():
                    arrays[number] = values
                np.testing.assert_array_equal(updated.update(new), whole(*arrays))
                repeated += len(new)
    assert repeated


@pytest.mark.parametrize("options", [{}, {"devices": 2}, {"strip_exponent": True}])
def test_an_update_of_nothing_gives_the_last_result(options: dict[str, Any]) -> None:
    """Slices are not contracted without what they share, nor added up over devices once more."""
    for seed in range(N_PATHS // 2):
        path = random_path(seed, 4000)
        path = ContractionPath(path.network, path.ssa_path, path.sliced_inds, "complex64")
        arrays = random_tensors(path.network, "complex64", seed)
        with CompiledContraction(plan(path, memory=inf), replace(CPU, **options)) as contraction:
            first = contraction(*arrays)
            for _ in range(2):
                again = contraction.update({})
                pairs = zip(first, again, strict=True) if isinstance(first, tuple) else [(first, again)]
                assert all(np.array_equal(one, other) for one, other in pairs)


def test_an_update_repeats_only_what_depends_on_it() -> None:
    network = ring(16)
    path = ContractionPath(network, tuple((2 * k, 2 * k + 1) for k in range(15)), (), "float64")
    with compile_contraction(path, keep=True) as kept:
        flow = DataFlow(kept.schedule)
        assert len(flow.needed({5})) == 1 + 4  # its load, and the four contractions up to the root
        assert len(flow.needed(range(16))) == 16 + 15


def test_constants_are_contracted_once() -> None:
    for seed in range(N_PATHS):
        rng = random.Random(seed)
        path = random_path(seed, 4000)
        network = path.network
        path = ContractionPath(network, path.ssa_path, path.sliced_inds, "complex128")
        arrays = random_tensors(network, "complex128", seed)
        constants = {number: arrays[number] for number in numbers(rng, len(arrays))}
        rest = [number for number in range(len(arrays)) if number not in constants]
        with (
            compile_contraction(path, constants=constants) as some,
            compile_contraction(path, keep=True) as whole,
        ):
            for round_ in range(3):
                new = fresh(network, 100 + round_, rest)
                arrays = [new.get(number, array) for number, array in enumerate(arrays)]
                np.testing.assert_array_equal(some(*new.values()), whole(*arrays))


def test_batches() -> None:
    for seed in range(N_PATHS):
        rng = random.Random(seed)
        path = random_path(seed, 1000)
        network = path.network
        path = ContractionPath(network, path.ssa_path, path.sliced_inds, "complex128")
        arrays = random_tensors(network, "complex128", seed)
        chosen = numbers(rng, len(arrays))
        length = rng.randint(0, 7)
        values: list[Any] = list(arrays)
        for number in chosen:
            shape = (length, *arrays[number].shape)
            values[number] = np.random.default_rng(seed).random(shape) + 0j
        with compile_contraction(path) as one, compile_contraction(path, batch=3, batched=chosen) as many:
            found = many(*values)
            assert found.shape == (length, *network.output_shape)
            for k in range(length):
                single = [values[n][k] if n in chosen else array for n, array in enumerate(arrays)]
                np.testing.assert_allclose(found[k], one(*single), rtol=1e-12, atol=1e-14)


def test_a_batch_is_as_large_as_the_memory_allows() -> None:
    network = ring(4, 16)
    one = compile_contraction(network, dtype="float64")
    limit = 20 * 4 * 16 * 16 * 8
    with one, compile_contraction(network, dtype="float64", batch=1024, memory=limit) as many:
        assert many.schedule.predicted.peak_bytes <= limit
        assert 1 < many.schedule.output_shape[0] < 1024
        values = np.random.default_rng(0).random((50, 16, 16))
        np.testing.assert_allclose(many(*[values] * 4), [one(*[value] * 4) for value in values])


def test_dtypes_that_would_be_rounded_are_refused() -> None:
    with compile_contraction(ring(3), dtype="float32") as narrow:
        arrays = [np.ones((3, 3), np.float32)] * 3
        assert narrow(*arrays).dtype == np.float32
        with pytest.raises(InputError, match="array 1: has dtype float64, and would be rounded to float32"):
            narrow(arrays[0], np.ones((3, 3)), arrays[2])
        assert narrow(*arrays) == 27


def test_calls_that_do_not_fit_leave_it_usable() -> None:
    arrays = [np.ones((3, 3))] * 3
    contraction = compile_contraction("ab,bc,ca->", *arrays)
    with contraction:
        with pytest.raises(InputError, match="update: comes before the first call"):
            contraction.update({0: arrays[0]})
        assert contraction(*arrays) == 27
        for call, message in (
            ((arrays[0],), "call: has 1 array, and takes 3"),
            ((*arrays[:2], np.ones((3, 2))), r"array 2: has shape \(3, 2\), and was compiled for \(3, 3\)"),
            ((*arrays[:2], np.ones((2, 3, 3))), r"array 2: has shape \(2, 3, 3\)"),
            ((*arrays[:2], "x"), "array 2"),
        ):
            with pytest.raises(InputError, match=message):
                contraction(*call)
        with pytest.raises(InputError, match="update: tensor 7 is constant, or does not exist"):
            contraction.update({7: arrays[0]})
        assert contraction.update({1: 2 * arrays[0]}) == 54
        assert "3 tensors of float64" in repr(contraction)
    for _ in range(2):
        contraction.close()
    assert "closed" in repr(contraction)
    with pytest.raises(InputError, match="compiled contraction: is closed"):
        contraction(*arrays)


def test_threads_call_one_after_the_other() -> None:
    network = ring(12, 8)
    arrays = [random_tensors(network, "float64", seed) for seed in range(4)]
    found: dict[int, list[Any]] = {k: [] for k in range(4)}
    with compile_contraction(network, dtype="float64") as shared:
        wanted = [shared(*values) for values in arrays]

        def work(k: int) -> None:
            for attempt in range(50):
                if attempt % 10 == k:
                    with pytest.raises(InputError):
                        shared(*arrays[k][:-1])
                found[k].append(shared(*arrays[k]))

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(found[k] == [wanted[k]] * 50 for k in range(4))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_holds_memory_is_not_copied(copied: Any) -> None:
    matrix = np.arange(4.0).reshape(2, 2)
    with compile_contraction("ab,bc->ac", matrix, matrix, device="cpu") as contraction:
        with pytest.raises(TypeError, match="compile its `schedule` once more"):
            copied(contraction)
        with compile_contraction(contraction.schedule, device="cpu") as again:
            assert np.array_equal(again(matrix, matrix), contraction(matrix, matrix))


@pytest.mark.parametrize("dtype", ["f8", float, np.float64, np.dtype(float)])
def test_dtypes_as_numpy_takes_them(dtype: Any) -> None:
    with compile_contraction("ab,bc->ac", (2, 3), (3, 4), dtype=dtype, device="cpu") as contraction:
        assert contraction.schedule.dtype == "float64"


def test_all_tensors_may_be_constant() -> None:
    a, b = np.random.default_rng(0).random((2, 3, 3))
    constants = {np.int64(0): a, 1: b}
    with compile_contraction("ab,bc->ac", a, b, constants=constants, device="cpu") as contraction:
        np.testing.assert_allclose(contraction(), a @ b)


def test_axes_that_are_broadcast_have_gradients() -> None:
    rng = np.random.default_rng(0)
    row, rows = rng.random((1, 5)), rng.random((4, 5))
    with compile_contraction("...i,...i->...", row, rows, device="cpu") as contraction:
        value, (by_row, by_rows) = contraction.vjp((row, rows), np.ones(4))
    np.testing.assert_allclose(value, rows @ row[0])
    np.testing.assert_allclose(by_row, rows.sum(axis=0, keepdims=True))
    np.testing.assert_allclose(by_rows, np.repeat(row, 4, axis=0))


def test_a_batch_of_arrays_that_are_broadcast() -> None:
    rng = np.random.default_rng(0)
    columns, rows = rng.random((7, 4, 1)), rng.random((7, 5, 6))
    with compile_contraction("ij,jk->ik", (4, 1), (5, 6), dtype=float, batch=3) as contraction:
        found = contraction(columns, rows)
    np.testing.assert_allclose(found, np.einsum("nij,njk->nik", columns, rows))


def test_a_batch_is_as_large_as_the_host_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "host_memory", lambda: (1 << 20, 1 << 20))
    with compile_contraction(ring(3), dtype="float64", batch=1 << 20, device="cpu") as contraction:
        schedule = contraction.schedule
    assert 1 < schedule.output_shape[0] < 1 << 13
    assert bytes_with_inputs(schedule) <= 1 << 20

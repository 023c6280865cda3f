"""Products by batches, as a GPU forms them: one body for NumPy's steps and for CuPy's on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_case import needs_gpus
from sbd_case import random_integrals, some_strings, string_set

from executor.sbd.batched import BatchedHamiltonian
from executor.sbd.davidson import Criteria, davidson
from executor.sbd.numpy_batch import NumpyBatch
from executor.sbd.product import ProductHamiltonian
from executor.sbd.start import lowest_of_product
from planner.errors import InputError


def gpu_steps() -> Any:
    from executor.device.cupy_batch import CupyBatch

    return CupyBatch()


STEPS = [
    pytest.param(NumpyBatch, id="cpu"),
    pytest.param(gpu_steps, id="gpu", marks=needs_gpus(1)),
]


def host(array: Any) -> np.ndarray:
    return array.get() if hasattr(array, "get") else array


@pytest.mark.parametrize("make", STEPS)
@pytest.mark.parametrize("scratch_bytes", [1, 20_000, 1 << 30])
@pytest.mark.parametrize(
    ("n", "electrons", "counts"),
    [
        (7, (3, 3), (29, 31)),
        (6, (3, 2), (20, 15)),
        (5, (2, 0), (7, 1)),
        (4, (1, 4), (3, 1)),
        (2, (1, 1), (1, 2)),
    ],
)
def test_batches_give_the_product(
    make: Any, scratch_bytes: int, n: int, electrons: tuple[int, int], counts: tuple[int, int]
) -> None:
    integrals = random_integrals(n, *electrons, seed=4)
    sets = [
        string_set(some_strings(n, spin, count, 9), integrals)
        for spin, count in zip(electrons, counts, strict=True)
    ]
    h = ProductHamiltonian(integrals, *sets, dense=True)
    steps = make()
    batched = BatchedHamiltonian(h, steps, scratch_bytes)
    x = np.random.default_rng(0).standard_normal(h.shape)
    y = h.apply(x)
    np.testing.assert_allclose(
        host(batched.apply(steps.put(x))), y, atol=1e-13 * max(1, np.abs(y).max() * 100)
    )
    np.testing.assert_array_equal(host(batched.diagonal()), h.diagonal())


@pytest.mark.parametrize("make", STEPS)
def test_a_solve_by_batches(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executor.sbd.start.DETERMINANTS", 10)
    integrals = random_integrals(7, 3, 3, seed=4)
    h = ProductHamiltonian(integrals, string_set(some_strings(7, 3, 30, 9), integrals), dense=True)
    start = lowest_of_product(h, 3)
    steps = make()
    criteria = Criteria(residual=1e-8, steps=200)
    found = davidson(
        BatchedHamiltonian(h, steps), 3, [(steps.put(vector), parity) for vector, parity in start], criteria
    )
    expected = davidson(h, 3, start, criteria)
    assert found.converged
    np.testing.assert_allclose(found.energies, expected.energies, atol=1e-10)


def test_sparse_matrices_are_refused() -> None:
    integrals = random_integrals(4, 2, 2, seed=1)
    h = ProductHamiltonian(integrals, string_set([3, 5, 6], integrals), dense=False)
    with pytest.raises(InputError, match="same-spin matrices: are sparse"):
        BatchedHamiltonian(h, NumpyBatch())

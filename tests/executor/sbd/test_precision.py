"""Early iterations in fp32: inner products, the change to fp64, states of several spins that lie close."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.effort import repeats
from tests.support.engines.sbd_symmetries import linked_atoms
from tnplan.executor.sbd.basis.determinants import from_product
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.strings import every_string
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.sigma.product_hamiltonian import ProductHamiltonian
from tnplan.executor.sbd.solver import initial_guess
from tnplan.executor.sbd.solver.davidson import Criteria, Operator, davidson
from tnplan.executor.sbd.solver.solve import SpinPenalty, solve
from tnplan.executor.sbd.solver.vector_backend import HostVectors

CRITERIA = Criteria(residual=1e-8, steps=300)


@pytest.fixture
def _by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small spaces are solved as large ones are, from few determinants."""
    monkeypatch.setattr(initial_guess, "WHOLE", 0)
    monkeypatch.setattr(initial_guess, "DETERMINANTS", 10)


class LongOperator:
    """A rank-one coupling and a diagonal far below zero, over many fp32 elements of very different size."""

    parities = (0,)

    def __init__(self, seed: int, size: int) -> None:
        chance = np.random.default_rng(seed)
        self.shape, self.lowest = (size,), -chance.uniform(80, 400)
        self.gaps = chance.uniform(0.5, 5, size).astype(np.float32)
        self.gaps[0] = 0
        self.coupling = (10 ** chance.uniform(-5, -2.5, size)).astype(np.float32)
        self.coupling[0] = 0.2

    def diagonal(self) -> Any:
        return self.gaps + np.float32(self.lowest)

    def apply(self, x: Any, parity: int, out: Any = None) -> Any:
        y = np.empty_like(x) if out is None else out
        overlap = np.dot(self.coupling.astype(np.float64), x.astype(np.float64))
        y[:] = (self.gaps.astype(np.float64) + self.lowest) * x - overlap * self.coupling
        return y

    def project(self, x: Any, parity: int) -> Any:
        return x

    def total(self, values: Any) -> Any:
        return values

    same = total


@pytest.mark.parametrize("seed", range(repeats(1, 3)))
def test_inner_products_of_fp32_lose_nothing_in_long_vectors(seed: int) -> None:
    """An energy that is wrong by a share of itself keeps residuals at that distance."""
    operator = LongOperator(seed, 3_000_001)
    start = np.zeros(operator.shape, np.float32)
    start[0] = 1
    criteria = Criteria(residual=1e-7 * -operator.lowest, energy=np.inf, steps=25, orthogonality=1e-5)
    found = davidson(operator, 1, [(start, 0)], criteria, rounded=np.inf)
    # The secular equation: 1 = sum of c^2 / (gap - e).
    low, high = -1.0, 0.0
    for _ in range(60):
        middle = (low + high) / 2
        is_above = (operator.coupling.astype(np.float64) ** 2 / (operator.gaps - middle)).sum() > 1
        low, high = (low, middle) if is_above else (middle, high)
    assert abs(found.energies[0] - operator.lowest - low) < 2e-7 * -operator.lowest
    assert found.residuals[0] < 1e-6 * -operator.lowest


class NoisyVectors(HostVectors):
    """Products in fp32 have errors of a share of their length, other ones every time."""

    share = 0.0

    def operator(self, dtype: str) -> Operator:
        made = super().operator(dtype)
        if dtype == "float64":
            return made
        chance, exact = np.random.default_rng(5), made.apply

        def apply(x: Any, parity: int, out: Any = None) -> Any:
            y = exact(x, parity, out)
            error = chance.standard_normal(y.shape)
            y += (self.share * np.linalg.norm(y) / np.linalg.norm(error)) * error
            y[:] = made.project(y, parity)
            return y

        made.apply = apply  # type: ignore[method-assign]
        return made


@pytest.mark.usefixtures("_by_steps")
@pytest.mark.parametrize("share", [1e-4, 1e-2, 0.3])
@pytest.mark.parametrize("spin", [None, 0])
def test_a_solve_that_fp32_cannot_end_goes_on_in_fp64(share: float, spin: float | None) -> None:
    for seed in range(500, 500 + repeats(2, 4)):
        integrals = linked_atoms(seed, 0.05)
        h = product(integrals)
        backend = NoisyVectors(h)
        backend.share = share
        penalty = None if spin is None else SpinPenalty(spin)
        expected = solve(h, integrals, criteria=CRITERIA, penalty=penalty)
        found = solve(h, integrals, criteria=CRITERIA, penalty=penalty, backend=backend, mixed_precision=True)
        assert expected.converged
        assert found.converged
        assert 0 < found.early_multiplications < 80
        np.testing.assert_allclose(found.energies, expected.energies, atol=1e-9)


@pytest.mark.usefixtures("_by_steps")
@pytest.mark.parametrize("seed", [*range(600, 600 + repeats(2, 6)), 700, 9031])
def test_spins_a_thousandth_apart_are_told_apart(seed: int) -> None:
    """Mixed precision and a penalty, beside states of one spin from dense matrices."""
    integrals = linked_atoms(seed, 0.01)
    h = product(integrals)
    listed = ListHamiltonian(
        integrals, from_product(h.alpha.strings, h.beta.strings, np.arange(h.shape[0] * h.shape[1]))
    )
    values, vectors = np.linalg.eigh([listed.apply_spin_square(unit) for unit in np.eye(listed.shape[0])])
    matrix, lowest = listed.dense(), []
    for spin in range(3):
        frame = vectors[:, np.abs(values - spin * (spin + 1)) < 1e-6]
        lowest.append(np.linalg.eigvalsh(frame.T @ matrix @ frame)[0] + integrals.core)
        penalty = SpinPenalty(spin)
        found = solve(h, integrals, criteria=CRITERIA, penalty=penalty, mixed_precision=True)
        assert found.converged
        assert found.early_multiplications > 0
        np.testing.assert_allclose(found.energies, lowest[-1:], atol=1e-9)
    assert np.ptp(lowest) < 1e-2


def product(integrals: Integrals) -> ProductHamiltonian:
    """The whole space."""
    n = integrals.n_orbitals
    strings = every_string(n, integrals.n_alpha), every_string(n, integrals.n_beta)
    return ProductHamiltonian(integrals, *strings, threads=1)

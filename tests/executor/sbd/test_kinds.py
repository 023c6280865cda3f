"""Complex orbitals, complex integrals and orbitals of each spin: products, states and densities."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.oracles.sbd import NumpyBatch
from tests.oracles.spin_orbitals import matrix_of_spins, matrix_over, spin_square_of
from tests.support.engines.sbd import every_string, string_set
from tests.support.engines.sbd_kinds import KINDS, ORBITALS, integrals_of, random_bodies
from tests.support.kernels.gpus import needs_gpus
from tnplan.calls.diagonalize import diagonalize
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.sbd.basis.determinants import from_product
from tnplan.executor.sbd.basis.integrals import from_arrays
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.properties.measure import densities
from tnplan.executor.sbd.sigma.batched import BatchedHamiltonian
from tnplan.executor.sbd.sigma.complex_hamiltonian import product_hamiltonian
from tnplan.executor.sbd.sigma.product_hamiltonian import ProductHamiltonian
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.executor.sbd.solver.memory_estimate import tables_bytes
from tnplan.executor.sbd.solver.solve import SpinPenalty, solve
from tnplan.executor.sbd.solver.vector_backend import DistributedVectors

Array = NDArray[Any]
N = 4
TIGHT: dict[str, Any] = {"criteria": Criteria(residual=1e-9), "device": "cpu", "threads": 1}
every_kind = pytest.mark.parametrize(("kind", "orbitals"), [*product(KINDS, ORBITALS)])


@pytest.fixture(autouse=True)
def few_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that solves take steps."""
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.DETERMINANTS", 8)
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.WHOLE", 0)


def random_state(shape: tuple[int, ...], is_complex: bool, seed: int = 3) -> Array:
    chance = np.random.default_rng(seed)
    x = chance.standard_normal(shape) + is_complex * 1j * chance.standard_normal(shape)
    return x if is_complex else np.ascontiguousarray(x.real)


@pytest.mark.parametrize("counts", [(2, 2), (2, 1), (3, 0)])
@every_kind
def test_products(kind: str, orbitals: str, counts: tuple[int, int]) -> None:
    bodies = random_bodies(kind, orbitals, N, 11)
    integrals = integrals_of(bodies, kind, counts)
    alpha, beta = every_string(N, counts[0])[1:][::-1], every_string(N, counts[1])
    same = counts[0] == counts[1]
    rows = string_set(alpha, integrals)
    columns = None if same else string_set(beta, integrals)
    beta = alpha if same else beta
    expected = matrix_of_spins(bodies, list(product(alpha, beta)))
    for dense in (True, False):
        h = product_hamiltonian(integrals, rows, columns, dense=dense, threads=1)
        assert h.symmetric == (same and orbitals == "shared")
        np.testing.assert_allclose(h.diagonal().ravel(), expected.diagonal().real, atol=1e-13)
        x = random_state(h.shape, integrals.is_complex)
        for parity in h.parities:
            state = x if parity == 0 else x + parity * x.T
            found = h.apply(state, parity)
            np.testing.assert_allclose(found.ravel(), expected @ state.ravel(), atol=1e-12)
        np.testing.assert_allclose(h.apply(x, 0).ravel(), expected @ x.ravel(), atol=1e-12)


@pytest.mark.parametrize("orbitals", ORBITALS)
def test_products_as_a_gpu_makes_them(orbitals: str) -> None:
    bodies = random_bodies("four-fold", orbitals, N, 12)
    integrals = integrals_of(bodies, "four-fold", (2, 2))
    strings = every_string(N, 2)
    h = product_hamiltonian(integrals, string_set(strings, integrals), threads=1)
    batched = BatchedHamiltonian(h, NumpyBatch())
    x = random_state(h.shape, False)
    for parity in h.parities:
        state = x if parity == 0 else x + parity * x.T
        y = np.zeros(h.shape)
        batched.add_rows(batched.block(0, h.shape[0]), state, state, y, parity != 0)
        if parity:
            y += parity * y.T
        np.testing.assert_allclose(y, h.apply(state, parity), atol=1e-12)


@pytest.mark.parametrize("orbitals", ORBITALS)
def test_the_memory_of_complex_tables_is_that_of_both_parts(orbitals: str) -> None:
    integrals = integrals_of(random_bodies("complex", orbitals, N, 12), "complex", (2, 2))
    strings = string_set(every_string(N, 2), integrals)
    whole = tables_bytes(product_hamiltonian(integrals, strings, threads=1))
    parts = [ProductHamiltonian(part, strings, threads=1) for part in (integrals.real, integrals.imaginary)]
    assert whole == sum(map(tables_bytes, parts))
    assert min(map(tables_bytes, parts)) > whole / 3


@every_kind
def test_states_densities_and_spin(kind: str, orbitals: str) -> None:
    bodies = random_bodies(kind, orbitals, N, 13)
    overlap = np.linalg.qr(random_state((N, N), kind == "complex"))[0] if orbitals == "each spin" else None
    integrals = integrals_of(bodies, kind, (2, 2), overlap)
    strings = every_string(N, 2)
    determinants = list(product(strings, strings))
    matrix = matrix_of_spins(bodies, determinants)
    expected = np.linalg.eigvalsh(matrix)[:4] + 0.5
    squares = spin_square_of(np.eye(N) if overlap is None else overlap, determinants)
    given = string_set(strings, integrals)
    space = from_product(given, given, np.arange(len(determinants)))
    for result in (
        diagonalize(integrals, strings, roots=4, rdm=True, **TIGHT),
        diagonalize(integrals, determinants=space, roots=4, rdm=True, **TIGHT),
    ):
        np.testing.assert_allclose(result.energies, expected, atol=1e-9)
        for state, density, square in zip(
            result.states, result.densities, result.report["spin_square"], strict=True
        ):
            x = state.ravel()
            if result.order is not None:
                x = x[np.argsort(result.order)]
            np.testing.assert_allclose(square, np.vdot(x, squares @ x).real, atol=1e-9)
            np.testing.assert_allclose(
                density.energy(integrals), np.vdot(x, matrix @ x).real + 0.5, atol=1e-9
            )
            np.testing.assert_allclose(density.alpha, density.alpha.T.conj(), atol=1e-12)


@needs_gpus(1)
@pytest.mark.parametrize("kind", ["real", "four-fold"])
@pytest.mark.parametrize("orbitals", ORBITALS)
def test_a_gpu_finds_the_states(kind: str, orbitals: str) -> None:
    """Of products and lists, also where orbitals are those of each spin or integrals have 4-fold symmetry."""
    bodies = random_bodies(kind, orbitals, N, 13)
    integrals = integrals_of(bodies, kind, (2, 2))
    strings = every_string(N, 2)
    expected = np.linalg.eigvalsh(matrix_of_spins(bodies, list(product(strings, strings))))[:3] + 0.5
    given = string_set(strings, integrals)
    space = from_product(given, given, np.arange(len(strings) ** 2))
    on_gpu = {**TIGHT, "device": "gpu"}
    for result in (
        diagonalize(integrals, strings, roots=3, **on_gpu),
        diagonalize(integrals, determinants=space, roots=3, **on_gpu),
    ):
        assert result.report["device"] == "gpu"
        np.testing.assert_allclose(result.energies, expected, atol=1e-9)


def test_a_complex_state_is_measured_like_its_rotated_real_one() -> None:
    bodies = random_bodies("complex", "shared", N, 14)
    integrals = integrals_of(bodies, "complex", (2, 1))
    alpha, beta = (string_set(every_string(N, count), integrals) for count in (2, 1))
    h = product_hamiltonian(integrals, alpha, beta, threads=1)
    x = random_state(h.shape, True)
    x /= np.linalg.norm(x)
    expected = integrals.core + np.vdot(x, h.apply(x, 0)).real
    np.testing.assert_allclose(densities(h, x).energy(integrals), expected, atol=1e-12)
    determinants = list(product(every_string(N, 2), every_string(N, 1)))
    squares = spin_square_of(np.eye(N), determinants)
    np.testing.assert_allclose(h.apply_spin_square(x).ravel(), squares @ x.ravel(), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_general_spin_orbitals(kind: str) -> None:
    bodies = random_bodies(kind, "shared", 6, 15)
    integrals = from_arrays(bodies[0], bodies[2], 3, 0, fold=8 if kind == "real" else 4, general=True)
    strings = every_string(6, 3)
    expected = np.linalg.eigvalsh(matrix_over(bodies[0], bodies[2], strings))[:2]
    result = diagonalize(integrals, strings, roots=2, rdm=True, **TIGHT)
    np.testing.assert_allclose(result.energies, expected, atol=1e-9)
    assert result.report["spin_square"] == [None, None]
    with pytest.raises(InputError, match="spin: needs orbitals that both spins share"):
        diagonalize(integrals, strings, penalty=SpinPenalty(0.5), **TIGHT)


@pytest.mark.parametrize("kind", ["four-fold", "complex"])
def test_a_spin_of_complex_orbitals(kind: str) -> None:
    bodies = random_bodies(kind, "shared", N, 16)
    integrals = integrals_of(bodies, kind, (2, 2))
    strings = every_string(N, 2)
    determinants = list(product(strings, strings))
    squares = spin_square_of(np.eye(N), determinants)
    penalized = matrix_of_spins(bodies, determinants) + 50 * (squares - 2 * np.eye(len(squares))) @ (
        squares - 2 * np.eye(len(squares))
    )
    expected = np.linalg.eigvalsh(penalized)[:2] + 0.5
    result = diagonalize(integrals, strings, roots=2, penalty=SpinPenalty(1.0, 50.0), **TIGHT)
    np.testing.assert_allclose(result.energies, expected, atol=1e-8)
    np.testing.assert_allclose(result.report["spin_square"], 2, atol=1e-7)


def test_a_solve_of_complex_states_goes_on(tmp_path: Path) -> None:
    bodies = random_bodies("complex", "shared", N, 17)
    integrals = integrals_of(bodies, "complex", (2, 2))
    strings, target = every_string(N, 2), tmp_path / "out.npz"
    begin = {**TIGHT, "criteria": Criteria(residual=1e-9, steps=3)}
    first = diagonalize(integrals, strings, output=target, **begin)
    assert not first.solution.converged
    whole = diagonalize(integrals, strings, output=target, resume=True, **TIGHT)
    assert whole.solution.converged
    again = diagonalize(integrals, strings, start=target, **TIGHT)
    np.testing.assert_allclose(again.energies, whole.energies, atol=1e-12)
    assert again.solution.steps <= 2
    with pytest.raises(InputError, match="precision: mixed is not available for complex integrals"):
        diagonalize(integrals, strings, precision="mixed", **TIGHT)
    with pytest.raises(InputError, match="device: complex integrals run only on a CPU; choose device cpu"):
        diagonalize(integrals, strings, device="gpu")


@pytest.mark.parametrize("gathers", [True, False])
@every_kind
def test_ranks_find_the_states(kind: str, orbitals: str, gathers: bool, tmp_path: Path) -> None:
    bodies = random_bodies(kind, orbitals, N, 18)
    integrals = integrals_of(bodies, kind, (2, 2))
    strings = string_set(every_string(N, 2), integrals)
    alone = product_hamiltonian(integrals, strings, threads=1)
    expected = solve(alone, integrals, 2, criteria=TIGHT["criteria"])
    held = tmp_path / "x.ckpt"

    def work(ranks: Communicator) -> Any:
        h = product_hamiltonian(integrals, strings, rank_of=(ranks.rank, ranks.size), threads=1)
        backend = DistributedVectors(h, ranks, h.as_type, gathers)
        short = solve(h, integrals, 2, criteria=Criteria(steps=2), backend=backend, checkpoint=held)
        whole = solve(
            h, integrals, 2, criteria=TIGHT["criteria"], backend=backend, checkpoint=held, resume=True
        )
        return short, whole

    results = run_ranks(3, work)
    assert not results[0][0].converged
    np.testing.assert_allclose(results[0][1].energies, expected.energies, atol=1e-10)
    for state, energy in zip(results[0][1].states, expected.energies, strict=True):
        np.testing.assert_allclose(np.vdot(state, alone.apply(state)).real + 0.5, energy, atol=1e-9)


@pytest.mark.parametrize("memory_bytes", [0, np.inf])
@every_kind
def test_ranks_find_the_states_of_a_list(kind: str, orbitals: str, memory_bytes: float) -> None:
    """With elements kept, and made again for every product."""
    bodies = random_bodies(kind, orbitals, N, 19)
    integrals = integrals_of(bodies, kind, (2, 1))
    alpha, beta = (string_set(every_string(N, count), integrals) for count in (2, 1))
    pairs = list(product(every_string(N, 2), every_string(N, 1)))
    chosen = np.arange(0, len(pairs), 2)
    expected = np.linalg.eigvalsh(matrix_of_spins(bodies, [pairs[k] for k in chosen]))[:2] + 0.5

    def work(ranks: Communicator) -> Any:
        h = ListHamiltonian(
            integrals, from_product(alpha, beta, chosen), threads=1, memory_bytes=memory_bytes,
            rank_of=(ranks.rank, ranks.size),
        )  # fmt: skip
        return solve(
            h, integrals, 2, criteria=TIGHT["criteria"], backend=DistributedVectors(h, ranks, lambda _: h)
        )

    np.testing.assert_allclose(run_ranks(3, work)[0].energies, expected, atol=1e-9)

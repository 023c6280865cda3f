"""Solves among lists of determinants: roots, spin penalties, checkpoints, ranks; densities of states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.engines.sbd import (
    every_string,
    fcidump_text,
    interleaved,
    random_integrals,
    reference_densities,
    reference_matrix,
    string_set,
)
from tests.support.engines.sbd_lists import as_list, random_list
from tests.support.kernels.emulator import needs_compiler
from tests.support.kernels.gpus import needs_gpus
from tests.support.mpirun import mpirun, needs_mpi
from tests.support.slow import slow_unless
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.sbd.lists import list_hamiltonian
from tnplan.executor.sbd.lists.batched_list import BatchedList
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.properties.measure import densities, occupations, string_weights
from tnplan.executor.sbd.properties.spin_square import spin_square
from tnplan.executor.sbd.sigma.product_hamiltonian import ProductHamiltonian
from tnplan.executor.sbd.solver import initial_guess as start_module
from tnplan.executor.sbd.solver import solve as checkpoint_module
from tnplan.executor.sbd.solver.davidson import Criteria, DavidsonStep
from tnplan.executor.sbd.solver.memory_estimate import fit_list
from tnplan.executor.sbd.solver.setup import SolveRequest, choose_device, set_up_solve
from tnplan.executor.sbd.solver.solve import SpinPenalty, solve
from tnplan.executor.sbd.solver.vector_backend import DistributedVectors

TIGHT = Criteria(residual=1e-9)


@pytest.fixture(autouse=True)
def few_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts that are far from the solution."""
    monkeypatch.setattr(start_module, "DETERMINANTS", 12)
    monkeypatch.setattr(start_module, "WHOLE", 0)


def spin_matrix(h: ListHamiltonian) -> np.ndarray:
    """S^2 among a list."""
    return np.array([h.apply_spin_square(unit) for unit in np.eye(len(h.basis))])


@pytest.mark.parametrize(("n", "electrons", "strings"), [(6, (3, 3), (20, 9)), (6, (3, 2), (8, 15))])
def test_spin_square_is_that_of_creation_and_annihilation(
    n: int, electrons: tuple[int, int], strings: tuple[int, int]
) -> None:
    integrals, determinants = random_list(n, electrons, strings, 90, 2)
    h = ListHamiltonian(integrals, as_list(determinants, n), threads=2)
    x = np.random.default_rng(1).standard_normal(90)
    x /= np.linalg.norm(x)
    ordered = [determinants[at] for at in h.basis.given]
    _, two = reference_densities(n, ordered, x)
    sz = (electrons[0] - electrons[1]) / 2
    expected = sz * (sz + 1) + electrons[1] - np.einsum("pqqp->", two[0, 1])
    np.testing.assert_allclose(spin_square(h, x), expected, atol=1e-12)
    matrix = spin_matrix(h)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-14)


@pytest.mark.parametrize("piece_bytes", [1 << 32, 1000])
@pytest.mark.parametrize("strings", [(20, 9), (9, 20), (1, 20)])
def test_densities_equal_the_reference(
    strings: tuple[int, int], piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_hamiltonian, "PIECE_BYTES", piece_bytes)
    integrals, determinants = random_list(6, (3, 3), strings, min(60, strings[0] * strings[1]), 3)
    h = ListHamiltonian(integrals, as_list(determinants, 6), threads=2)
    x = np.random.default_rng(3).standard_normal(h.shape)
    x /= np.linalg.norm(x)
    made = densities(h, x)
    one, two = reference_densities(6, [determinants[at] for at in h.basis.given], x)
    np.testing.assert_allclose([made.alpha, made.beta], one, atol=1e-13)
    np.testing.assert_allclose(made.two_alpha, two[0, 0], atol=1e-13)
    np.testing.assert_allclose(made.two_beta, two[1, 1], atol=1e-13)
    np.testing.assert_allclose(made.two_alpha_beta, two[0, 1], atol=1e-13)
    np.testing.assert_allclose(made.energy(integrals), np.vdot(x, h.apply(x)) + integrals.core, atol=1e-11)
    for filled, density in zip(occupations(h, x), (made.alpha, made.beta), strict=True):
        np.testing.assert_allclose(filled, density.diagonal(), atol=1e-13)
    assert [len(weights) for weights in string_weights(h, x)] == list(h.basis.product_shape)


@pytest.mark.parametrize(
    ("size", "spin"), slow_unless(lambda size, spin: size == 1 or size == spin, [1, 2, 3], [None, 0, 1])
)
def test_ranks_find_the_states(size: int, spin: float | None) -> None:
    integrals, determinants = random_list(6, (3, 3), (20, 20), 150, 4)
    basis = as_list(determinants, 6)
    alone = ListHamiltonian(integrals, basis, threads=1)
    matrix = alone.dense()
    penalty = None if spin is None else SpinPenalty(spin, 3.0, 2)
    if penalty is not None:
        away = spin_matrix(alone) - penalty.spin * (penalty.spin + 1) * np.eye(150)
        penalized = matrix + penalty.weight * away @ away
        columns = np.linalg.eigh(penalized)[1][:, :3].T
        expected = np.array([column @ matrix @ column for column in columns])
    else:
        expected = np.linalg.eigvalsh(matrix)[:3]

    def work(ranks: Communicator) -> Any:
        h = ListHamiltonian(integrals, basis, threads=1, memory_bytes=0, rank_of=(ranks.rank, ranks.size))
        backend = DistributedVectors(h, ranks, lambda dtype: h)
        return solve(h, integrals, 3, criteria=TIGHT, penalty=penalty, backend=backend)

    found = run_ranks(size, work)[0]
    assert found.converged
    np.testing.assert_allclose(found.energies, expected + integrals.core, atol=1e-7)
    again = solve(alone, integrals, 3, criteria=TIGHT, penalty=penalty)
    np.testing.assert_allclose(again.energies, found.energies, atol=1e-9)


@needs_compiler
def test_emulated_kernels_find_a_state_of_a_spin() -> None:
    pytest.importorskip("cupy", reason="needs CuPy")
    from tests.support.kernels.list_emulator import EmulatedList

    integrals, determinants = random_list(4, (2, 2), (6, 6), 24, 4)
    basis, loose = as_list(determinants, 4), Criteria(residual=1e-4)
    alone = ListHamiltonian(integrals, basis, threads=1)
    expected = solve(alone, integrals, criteria=loose, penalty=SpinPenalty(1, 3.0))

    def work(ranks: Communicator) -> Any:
        h = ListHamiltonian(integrals, basis, threads=1, memory_bytes=0, rank_of=(ranks.rank, ranks.size))
        rows = BatchedList(h, EmulatedList(4))
        backend = DistributedVectors(h, ranks, lambda dtype: rows)
        return solve(h, integrals, criteria=loose, penalty=SpinPenalty(1, 3.0), backend=backend)

    found = run_ranks(2, work)[0]
    assert found.converged
    np.testing.assert_allclose(found.energies, expected.energies, atol=1e-9)


def test_a_killed_solve_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module.SolveCheckpoint, "INTERVAL", 0)
    integrals, determinants = random_list(7, (3, 3), (30, 30), 400, 5)
    basis, path = as_list(determinants, 7), tmp_path / "state.ckpt"
    whole = solve(ListHamiltonian(integrals, basis), integrals, 2, criteria=TIGHT)

    def kill(step: DavidsonStep) -> None:
        if step.number == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(ListHamiltonian(integrals, basis), integrals, 2, criteria=TIGHT, checkpoint=path, progress=kill)

    def work(ranks: Communicator) -> Any:
        h = ListHamiltonian(integrals, basis, threads=1, rank_of=(ranks.rank, ranks.size))
        backend = DistributedVectors(h, ranks, lambda dtype: h)
        return solve(h, integrals, 2, criteria=TIGHT, checkpoint=path, resume=True, backend=backend)

    resumed = run_ranks(2, work)[0]
    assert resumed.steps < whole.steps
    np.testing.assert_allclose(resumed.energies, whole.energies, atol=1e-10)


def test_memory_of_a_list() -> None:
    integrals, determinants = random_list(7, (3, 3), (30, 30), 400, 5)
    h = ListHamiltonian(integrals, as_list(determinants, 7))
    few = fit_list(h, 1000, 1, Criteria(), 100_000)
    assert 6 <= few.criteria.vectors < 16
    assert few.predicted_bytes <= 100_000
    with pytest.raises(InputError, match="memory: is 977 KiB, but"):
        fit_list(h, 10**7, 1, Criteria(), 1e6)
    with pytest.raises(InputError, match="but the vectors of a solve need"):
        fit_list(h, 1000, 1, Criteria(), 5000)


@pytest.mark.parametrize(
    ("spin", "gathers", "batched"),
    slow_unless(lambda *places: places in ((0, 0, 0), (1, 1, 0)), [0, 1], [True, False], [True, False]),
)
def test_ranks_keep_a_spin_among_products(spin: int, gathers: bool, batched: bool) -> None:
    from tests.oracles.sbd import NumpyBatch
    from tnplan.executor.sbd.sigma.batched import BatchedHamiltonian

    integrals = random_integrals(6, 3, 3, 1)
    strings = string_set(every_string(6, 3)[:15], integrals)
    penalty = SpinPenalty(spin, 2.0)
    expected = solve(ProductHamiltonian(integrals, strings), integrals, 2, criteria=TIGHT, penalty=penalty)

    def work(ranks: Communicator) -> Any:
        h = ProductHamiltonian(integrals, strings, threads=1, rank_of=(ranks.rank, ranks.size))
        make: Any = (lambda dtype: BatchedHamiltonian(h, NumpyBatch(dtype))) if batched else h.as_type
        backend = DistributedVectors(h, ranks, make, gathers)
        return solve(h, integrals, 2, criteria=TIGHT, penalty=penalty, backend=backend)

    found = run_ranks(3, work)[0]
    assert found.converged
    assert found.parities == expected.parities
    np.testing.assert_allclose(found.energies, expected.energies, atol=1e-9)


def test_a_start_equals_the_lowest_determinants() -> None:
    integrals, determinants = random_list(6, (3, 3), (20, 20), 10, 4)
    h = ListHamiltonian(integrals, as_list(determinants, 6))
    low = start_module.lowest_determinants(h, 1)
    assert low.numbers.tolist() == list(range(10))
    matrix = reference_matrix(integrals, [determinants[at] for at in h.basis.given])
    np.testing.assert_allclose(low.energies, matrix.diagonal(), atol=1e-12)
    first = np.zeros(10)
    start_module.lowest_states(h, 1, low).states[0].add_to(first, 0)
    np.testing.assert_allclose(matrix @ first, np.linalg.eigvalsh(matrix)[0] * first, atol=1e-10)


@needs_gpus(1)
@pytest.mark.parametrize("spin", [None, 0])
def test_a_gpu_finds_the_states_in_the_memory_that_is_predicted(spin: float | None) -> None:
    integrals, determinants = random_list(12, (4, 4), (400, 400), 60_000, 4)
    basis = as_list(determinants, 12)
    penalty = None if spin is None else SpinPenalty(spin)
    criteria = Criteria(residual=1e-8)
    expected = solve(ListHamiltonian(integrals, basis), integrals, 2, criteria=criteria, penalty=penalty)

    def work(ranks: Communicator) -> Any:
        chosen = choose_device("gpu", ranks, 1)
        try:
            with chosen.on_stream():
                request = SolveRequest(2, criteria, np.inf, 1)
                site = set_up_solve(integrals, basis, chosen, ranks, request)
                found = solve(
                    site.hamiltonian, integrals, 2, criteria=criteria, penalty=penalty, backend=site.backend
                )
                return found, site.predicted_bytes, site.peak_bytes(), site.pairs_contributing
        finally:
            chosen.close()

    found, predicted, peak, pairs = run_ranks(1, work)[0]
    np.testing.assert_allclose(found.energies, expected.energies, atol=1e-8)
    assert pairs == ListHamiltonian(integrals, basis).pairs_contributing
    if penalty is None:
        assert 0.5 * predicted < peak < 1.05 * predicted


@needs_mpi
@pytest.mark.mpi
def test_processes_write_one_result(tmp_path: Path) -> None:
    integrals, determinants = random_list(6, (3, 3), (20, 20), 150, 4)
    (tmp_path / "h.fcidump").write_text(fcidump_text(integrals))
    (tmp_path / "d.txt").write_text(interleaved(determinants, 6))
    out = tmp_path / "out.npz"
    arguments = [
        "-m", "mpi4py", "-m", "tnplan", "sbd", tmp_path / "h.fcidump", "--determinants", tmp_path / "d.txt",
        "--spin", "1", "--spin-weight", "3", "--roots", "2", "--device", "cpu", "--threads", "1",
    ]  # fmt: skip
    done = mpirun(2, *arguments, "--rdm", "-o", out, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    alone = ListHamiltonian(integrals, as_list(determinants, 6), threads=1)
    expected = solve(alone, integrals, 2, penalty=SpinPenalty(1, 3.0), criteria=TIGHT)
    assert report["ranks"] == 2
    assert report["space"]["pairs_contributing"] == alone.pairs_contributing
    np.testing.assert_allclose(report["energies_hartree"], expected.energies, atol=1e-9)
    squares = [spin_square(alone, state) for state in expected.states]
    np.testing.assert_allclose(report["spin_square"], squares, atol=1e-5)
    with np.load(out) as file:
        assert file["states"].shape == (2, 150)
        assert np.array_equal(np.sort(file["order"]), np.arange(150))
    refused = mpirun(2, *arguments, "--memory", "10kB")
    assert refused.returncode == 2
    assert refused.stderr.count("tnplan: error: memory") == 1, refused.stderr

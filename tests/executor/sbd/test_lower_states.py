"""The lowest states of a space, whatever their symmetry: against dense matrices of random Hamiltonians."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.oracles.sbd import NumpyBatch
from tests.support.engines.sbd import every_string, random_integrals, string_set
from tests.support.engines.sbd_qubits import Term, as_text, reference_among, texts_of
from tests.support.engines.sbd_symmetries import Problem, linked_atoms, random_problem
from tests.support.slow import slow_after
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.sbd.basis.determinants import from_product
from tnplan.executor.sbd.basis.strings import from_integers
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.sigma.batched import BatchedHamiltonian
from tnplan.executor.sbd.sigma.complex_hamiltonian import product_hamiltonian
from tnplan.executor.sbd.sigma.product_hamiltonian import ProductHamiltonian
from tnplan.executor.sbd.solver import initial_guess, lower_states
from tnplan.executor.sbd.solver.davidson import Criteria, DavidsonStep, Solution
from tnplan.executor.sbd.solver.solve import SolveCheckpoint, SpinPenalty, identity_of_solve, solve
from tnplan.executor.sbd.solver.vector_backend import DistributedVectors

PATIENT = Criteria(steps=400)


@pytest.fixture
def _by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small spaces are solved as large ones are, from few determinants."""
    monkeypatch.setattr(initial_guess, "WHOLE", 0)
    monkeypatch.setattr(initial_guess, "DETERMINANTS", 4)


def assert_lowest(found: Solution, problem: Problem) -> None:
    assert found.converged, problem.name
    expected = problem.energies[: len(found.energies)]
    np.testing.assert_allclose(found.energies, expected, atol=1e-6, err_msg=problem.name)


@pytest.mark.usefixtures("_by_steps")
@pytest.mark.parametrize("seed", slow_after(10, [63, 114, *range(20)]))
def test_states_of_every_symmetry_are_found(seed: int) -> None:
    problem = random_problem(seed)
    for n_roots in (1, 2, 3):
        if n_roots <= len(problem.energies):
            found = solve(problem.hamiltonian, problem.integrals, n_roots, criteria=PATIENT)
            assert_lowest(found, problem)


def test_states_that_lie_close_are_known_within_the_usual_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial_guess, "WHOLE", 0)
    monkeypatch.setattr(initial_guess, "DETERMINANTS", 30)
    strings = every_string(6, 4)
    for seed in range(12):
        integrals = linked_atoms(seed, 0.003)
        sets = from_integers(strings, 6), from_integers(strings, 6)
        listed = ListHamiltonian(integrals, from_product(*sets, np.arange(len(strings) ** 2)), threads=1)
        h = ProductHamiltonian(integrals, *sets, threads=1)
        problem = Problem(f"seed {seed}", h, sets, np.linalg.eigvalsh(listed.dense()))
        assert np.sum(problem.energies < problem.energies[0] + 0.1) == 27
        assert_lowest(solve(h, integrals), problem)


@pytest.mark.slow
@pytest.mark.usefixtures("_by_steps")
@pytest.mark.parametrize("first", range(1000, 1200, 20))
def test_states_of_every_symmetry_are_found_in_larger_spaces(first: int) -> None:
    for seed in range(first, first + 20):
        problem = random_problem(seed, 700)
        assert_lowest(solve(problem.hamiltonian, problem.integrals, criteria=PATIENT), problem)


def test_small_spaces_are_solved_whole() -> None:
    for seed in range(40, 48):
        problem = random_problem(seed, 900)
        found = solve(problem.hamiltonian, problem.integrals, min(3, len(problem.energies)))
        assert found.is_whole
        assert (found.steps, found.test_multiplications) == (1, 0)
        np.testing.assert_allclose(found.energies, problem.energies[:3], atol=1e-10, err_msg=problem.name)
    matrix = random_integrals(8, 4, 3, 1)
    sets = [string_set(every_string(8, count), matrix) for count in (4, 3)]
    assert not solve(ProductHamiltonian(matrix, *sets, threads=1), matrix).is_whole


@pytest.mark.usefixtures("_by_steps")
def test_a_start_in_another_symmetry_is_left(tmp_path: Path) -> None:
    """An excited state is converged at once; given as a start or by a checkpoint it is no lowest state."""
    for seed in range(100, 106):
        problem = random_problem(seed)
        h = problem.hamiltonian
        if h.is_complex or len(problem.energies) < 5:
            continue
        excited = solve(h, problem.integrals, 5, criteria=Criteria(1e-9, steps=400))
        given = solve(h, problem.integrals, start=[excited.states[3]], criteria=PATIENT)
        assert_lowest(given, problem)
        path = tmp_path / f"{seed}.ckpt"
        store = SolveCheckpoint(path, identity_of_solve(h, problem.integrals, "1 None"))
        store.write([(excited.states[3], excited.parities[3])])
        resumed = solve(h, problem.integrals, checkpoint=path, resume=True, criteria=PATIENT)
        assert_lowest(resumed, problem)


@pytest.mark.usefixtures("_by_steps")
def test_a_test_that_does_not_end_confirms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower_states, "PATIENCE", 1)
    problem = next(one for one in map(random_problem, range(100, 200)) if len(one.energies) > 200)
    h = problem.hamiltonian
    exact = solve(h, problem.integrals, criteria=Criteria(1e-9, steps=400))
    heard: list[DavidsonStep] = []
    found = solve(h, problem.integrals, start=exact.states, criteria=Criteria(steps=1), progress=heard.append)
    assert [step.is_test for step in heard] == [False, True]
    assert found.residuals.max() < 1e-6
    assert not found.converged


@pytest.mark.usefixtures("_by_steps")
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_test_with_the_same_vectors(size: int, batched: bool) -> None:
    problems = [one for one in map(random_problem, range(200, 215)) if one.strings and len(one.energies) > 99]
    for problem in problems[:2]:
        integrals, strings = problem.integrals, problem.strings
        if batched and integrals.is_complex:
            continue

        def work(ranks: Communicator) -> Any:
            h = product_hamiltonian(integrals, *strings, threads=1, rank_of=(ranks.rank, ranks.size))  # noqa: B023
            make: Any = (lambda dtype: BatchedHamiltonian(h, NumpyBatch(dtype))) if batched else h.as_type
            backend = DistributedVectors(h, ranks, make)
            return solve(h, integrals, 2, criteria=PATIENT, backend=backend)  # noqa: B023

        found = run_ranks(size, work)[0]
        assert_lowest(found, problem)
        alone = solve(problem.hamiltonian, integrals, 2, criteria=PATIENT)
        assert found.test_multiplications == alone.test_multiplications


@pytest.mark.usefixtures("_by_steps")
def test_mixed_precision_finds_them_too() -> None:
    for seed in range(300, 312):
        problem = random_problem(seed)
        if isinstance(problem.hamiltonian, ProductHamiltonian) and not problem.hamiltonian.is_complex:
            found = solve(problem.hamiltonian, problem.integrals, mixed_precision=True, criteria=PATIENT)
            assert_lowest(found, problem)


def missed_of(seeds: range) -> tuple[int, int]:
    """Solves from an exact excited state that end above the lowest by more than they say; all solves.

    Only a test leads away from an exact state.
    """
    missed = solves = 0
    strings = every_string(6, 4)
    sets = from_integers(strings, 6), from_integers(strings, 6)
    for seed in seeds:
        chance = np.random.default_rng(seed)
        integrals = linked_atoms(seed, 10 ** chance.uniform(-3, -1))
        h = ProductHamiltonian(integrals, *sets, threads=1)
        listed = ListHamiltonian(integrals, from_product(*sets, np.arange(len(strings) ** 2)), threads=1)
        energies, vectors = np.linalg.eigh(listed.dense())
        for number in chance.choice(np.arange(1, 12), 3, replace=False):
            if energies[number] < energies[0] + 1e-4:
                continue
            start = [vectors[:, number].reshape(h.shape)]
            found = solve(h, integrals, start=start, criteria=PATIENT)
            assert found.converged
            assert 0 < found.lower_by <= 1e-5
            missed += found.energies[0] - integrals.core > energies[0] + found.lower_by
            solves += 1
    return missed, solves


@pytest.mark.usefixtures("_by_steps")
@pytest.mark.parametrize(("chance", "first"), [(1.0, 50000), (0.2, 50020)])
def test_lower_states_are_missed_no_oftener_than_is_said(
    chance: float, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that end early miss some states, so that few solves are enough to see how often."""
    monkeypatch.setattr(lower_states, "CHANCE", chance)
    missed, solves = missed_of(range(first, first + 8))
    assert solves > 12
    assert missed <= chance * solves / 2


@pytest.mark.slow
@pytest.mark.usefixtures("_by_steps")
@pytest.mark.parametrize("first", range(51000, 51300, 100))
def test_lower_states_are_missed_once_in_a_hundred_solves_at_most(first: int) -> None:
    missed, solves = missed_of(range(first, first + 100))
    assert solves > 200
    assert missed <= lower_states.CHANCE * solves


@pytest.mark.usefixtures("_by_steps")
@pytest.mark.parametrize("spin", [0, 1])
def test_a_penalty_keeps_to_the_lowest_states_of_its_operator(spin: int) -> None:
    for seed in range(400, 420):
        problem = random_problem(seed)
        h, integrals = problem.hamiltonian, problem.integrals
        if not isinstance(h, ListHamiltonian) or integrals.n_alpha != integrals.n_beta or h.shape[0] < 20:
            continue
        squares = np.array([h.apply_spin_square(unit) for unit in np.eye(h.shape[0])])
        away = squares - spin * (spin + 1) * np.eye(h.shape[0])
        matrix = h.dense()
        column = np.linalg.eigh(matrix + 2.0 * away @ away)[1][:, 0]
        found = solve(h, integrals, penalty=SpinPenalty(spin, 2.0, 2), criteria=PATIENT)
        assert found.converged
        np.testing.assert_allclose(
            found.energies[0], np.vdot(column, matrix @ column).real + integrals.core, atol=1e-6
        )


@pytest.mark.usefixtures("_by_steps")
@pytest.mark.parametrize("seed", range(12))
def test_states_of_every_symmetry_are_found_among_bit_strings(seed: int) -> None:
    """Rings of qubits, which translations, reflections and the number of ones leave alone."""
    chance, n = np.random.default_rng(seed), 7
    hop, turn, bias = chance.standard_normal(3) * (1, seed % 2, chance.choice([0, 1, 3]))
    terms: list[Term] = []
    for q in range(n):
        pair = (q, (q + 1) % n)
        terms += [("XX", pair, hop), ("YY", pair, hop), ("ZZ", pair, 0.7), ("Z", (q,), bias)]
        terms += [("XY", pair, turn), ("YX", pair, -turn)] if turn else []
    strings = list(range(2**n))
    matrix = reference_among(terms, strings)
    found = tnplan.diagonalize_qubits(
        as_text(terms), texts_of(strings, n), roots=2, criteria=PATIENT, device="cpu", threads=1
    )
    assert found.solution.converged
    np.testing.assert_allclose(found.energies, np.linalg.eigvalsh(matrix)[:2], atol=1e-6)

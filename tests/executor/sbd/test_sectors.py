"""States of one representation as blocks: against dense matrices of random molecules with a symmetry."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracles.sbd import CountingBatch, NumpyBatch
from tests.oracles.spin_orbitals import matrix_of_spins, matrix_over, spin_square_of
from tests.support.engines.sbd import (
    every_string,
    reference_densities,
    reference_matrix,
    string_set,
)
from tests.support.engines.sbd_kinds import KINDS, ORBITALS, integrals_of, random_bodies
from tests.support.engines.sector_cases import Case
from tests.support.engines.symmetric_molecules import (
    GROUPS,
    dense_states,
    determinants_of,
    spin_square_matrix,
    symmetric_molecule,
)
from tests.support.kernels.emulator import needs_compiler
from tests.support.kernels.gpus import needs_gpus
from tests.support.slow import slow_after
from tnplan.calls.diagonalize import diagonalize
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.sbd.basis.integrals import OrbitalLabels, dense_two, from_arrays
from tnplan.executor.sbd.basis.sector import Sector, string_irreps
from tnplan.executor.sbd.sigma import batched
from tnplan.executor.sbd.sigma.batched import BatchedSector
from tnplan.executor.sbd.sigma.product_hamiltonian import EVEN, NEITHER, ODD, ProductTables
from tnplan.executor.sbd.sigma.sector_hamiltonian import SectorHamiltonian
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.executor.sbd.solver.memory_estimate import batched_sector_bytes, fit_sector, whole_states_bytes
from tnplan.executor.sbd.solver.solve import SpinPenalty, solve
from tnplan.executor.sbd.solver.vector_backend import DistributedVectors

TIGHT: dict[str, Any] = {"criteria": Criteria(residual=1e-9), "device": "cpu", "threads": 1}


def emulated(dtype: str = "float64", in_shared: bool = True) -> Any:
    pytest.importorskip("cupy", reason="needs CuPy")
    from tests.support.kernels.list_emulator import EmulatedBatch

    return EmulatedBatch(dtype, in_shared)


def gpu_steps(dtype: str = "float64") -> Any:
    from tnplan.executor.sbd.cuda.steps import CupyBatch

    return CupyBatch(dtype)


@pytest.fixture
def few_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """No space is diagonalized as a whole."""
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.DETERMINANTS", 6)
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.WHOLE", 0)


CASES = [
    ("D2h", 6, (3, 3), True, 111), ("C2v", 6, (3, 2), False, 112), ("C1", 5, (2, 2), True, 113),
    ("D2h", 6, (2, 3), False, 114), ("C2v", 6, (2, 2), False, 115), ("Cs", 5, (1, 3), False, 116),
    ("D2h", 7, (1, 0), False, 117), ("C2v", 6, (3, 3), True, 118), ("D2h", 7, (2, 2), True, 119),
]  # fmt: skip


def check_products(case: Case, irrep: int, make: Any, tolerance: float, **options: Any) -> None:
    """H and S^2 times states of every parity, by blocks and by the reference."""
    h = case.sector(irrep, **options)
    pairs = case.pairs(irrep)
    matrix, squares = (of(case.integrals, pairs) for of in (reference_matrix, spin_square_matrix))
    operator = h if make is None else BatchedSector(h, make())
    for parity in (EVEN, ODD, NEITHER) if h.symmetric else (NEITHER,):
        x = h.project(np.random.default_rng(irrep).standard_normal(h.shape), parity)
        given = operator.put(x)
        listed = case.listed(h.blocks.whole(x), irrep)
        for made, wanted in (
            (operator.apply(given, parity), matrix @ listed),
            (operator.apply_spin_square(given), squares @ listed),
        ):
            found = case.listed(h.blocks.whole(operator.get(made)), irrep)
            np.testing.assert_allclose(found, wanted, atol=tolerance * max(1, np.abs(wanted).max()))
        projected = operator.get(operator.project(given, parity))
        np.testing.assert_allclose(projected, x, atol=tolerance)
    diagonal = case.listed(h.blocks.whole(operator.get(operator.diagonal())), irrep)
    np.testing.assert_allclose(diagonal, np.diag(matrix), atol=10 * tolerance)
    assert h.pairs_contributing >= np.count_nonzero(np.abs(matrix) > 1e-12)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("case", slow_after(4, CASES))
def test_products_of_blocks(case: Any, dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched, "ROWS_TRANSPOSED", 3)
    monkeypatch.setattr("tnplan.executor.sbd.sigma.cost_model.dense_is_faster", lambda *_: dense)
    molecule = Case(*case)
    for irrep in molecule.irreps():
        check_products(molecule, irrep, None, 1e-12)
        check_products(molecule, irrep, NumpyBatch, 1e-12)


@needs_compiler
@pytest.mark.parametrize(("dtype", "in_shared"), [("float64", True), ("float64", False), ("float32", True)])
@pytest.mark.parametrize("case", slow_after(2, [("D2h", 5, (2, 2), True, 211), ("C2v", 5, (3, 2), False, 212),
                                                ("C2v", 6, (3, 3), True, 213)]))  # fmt: skip
def test_products_of_the_kernels(case: Any, dtype: str, in_shared: bool) -> None:
    molecule, tolerance = Case(*case), 1e-12 if dtype == "float64" else 1e-5
    for irrep in molecule.irreps()[::3]:
        check_products(molecule, irrep, lambda: emulated(dtype, in_shared), tolerance)


@needs_gpus(1)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("case", CASES)
def test_products_of_a_gpu(case: Any, dtype: str, tolerance: float) -> None:
    molecule = Case(*case)
    for irrep in molecule.irreps():
        check_products(molecule, irrep, lambda: gpu_steps(dtype), tolerance)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("equal", [True, False])
def test_energies_of_all_representations(group: str, equal: bool, few_at_start: None) -> None:
    case = Case(group, 6, (2, 2), equal, 311 + GROUPS[group])
    beta = () if equal else (case.beta,)
    found = 0
    for irrep in case.irreps():
        pairs = case.pairs(irrep)
        roots = min(2, len(pairs))
        result = diagonalize(
            case.integrals, case.alpha, *beta, symmetry=irrep, roots=roots, rdm=True, **TIGHT
        )
        energies, _ = dense_states(case.integrals, pairs)
        np.testing.assert_allclose(result.energies, energies[:roots], atol=1e-9)
        assert result.report["symmetry"] == [irrep] * roots
        assert result.report["space"]["elements"] == len(pairs)
        for state, density, square in zip(
            result.states, result.densities, result.report["spin_square"], strict=True
        ):
            assert state.shape == (len(case.alpha), len(case.beta))
            listed = case.listed(state, irrep)
            np.testing.assert_allclose(np.linalg.norm(listed), np.linalg.norm(state), atol=1e-12)
            one, _ = reference_densities(6, pairs, listed)
            np.testing.assert_allclose(density.one, one.sum(0), atol=1e-10)
            assert abs(listed @ spin_square_matrix(case.integrals, pairs) @ listed - square) < 1e-10
        found += len(pairs)
    assert found == len(case.alpha) * len(case.beta)


@pytest.mark.parametrize("orbitals", ORBITALS)
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_integrals(kind: str, orbitals: str, few_at_start: None) -> None:
    labels = np.array([1, 2, 3, 1, 4])
    pairs = (labels - 1)[:, None] ^ (labels - 1)
    allowed = {2: pairs == 0, 4: pairs[:, :, None, None] == pairs}
    made = random_bodies(kind, orbitals, 5, 441)
    masked = {id(body): body * allowed[body.ndim] for body in made}
    bodies: Any = tuple(masked[id(body)] for body in made)
    integrals = integrals_of(bodies, kind, (2, 2), np.eye(5) if orbitals == "each spin" else None)
    integrals = replace(integrals, labels=OrbitalLabels(tuple(map(int, labels)), 1))
    strings = every_string(5, 2)
    for irrep in (1, 2, 4):
        chosen = determinants_of(integrals, strings, strings, irrep)
        wanted = np.linalg.eigvalsh(matrix_of_spins(bodies, chosen))[:2] + 0.5
        result = diagonalize(integrals, strings, symmetry=irrep, roots=2, rdm=True, **TIGHT)
        np.testing.assert_allclose(result.energies, wanted, atol=1e-9)
        squares = spin_square_of(np.eye(5), chosen)
        for state, square in zip(result.states, result.report["spin_square"], strict=True):
            x = np.array([state[strings.index(a), strings.index(b)] for a, b in chosen])
            assert abs(np.vdot(x, squares @ x) - square) < 1e-9
        # Complex orbitals are solved over all products of strings.
        size = len(chosen) if kind == "real" else len(strings) ** 2
        assert result.report["space"]["elements"] == size


@pytest.mark.parametrize("symmetry", [1, 3])
def test_general_spin_orbitals(symmetry: int, few_at_start: None) -> None:
    case = Case("C2v", 7, (3, 0), False, 451)
    one, two = case.integrals.one, dense_two(case.integrals)
    integrals = from_arrays(one, two, 3, 0, 0.25, general=True)
    integrals = replace(integrals, labels=case.integrals.labels)
    strings = every_string(7, 3)
    pairs = determinants_of(integrals, strings, [0], symmetry)
    wanted = np.linalg.eigvalsh(matrix_over(one, two, [alpha for alpha, _ in pairs]))[:2] + 0.25
    result = diagonalize(integrals, strings, symmetry=symmetry, roots=2, **TIGHT)
    np.testing.assert_allclose(result.energies, wanted, atol=1e-9)
    assert result.report["space"]["elements"] == len(pairs)


@pytest.mark.parametrize("spin", [0, 1, 2])
def test_a_spin(spin: int, few_at_start: None) -> None:
    integrals = symmetric_molecule("C2v", 5, (2, 2), 411)
    strings = every_string(5, 2)
    met = 0
    for irrep in range(1, 5):
        pairs = determinants_of(integrals, strings, strings, irrep)
        energies, states = dense_states(integrals, pairs)
        squares = np.einsum("ki,kl,li->i", states, spin_square_matrix(integrals, pairs), states)
        wanted = energies[np.abs(squares - spin * (spin + 1)) < 1e-6]
        if len(wanted):
            result = diagonalize(integrals, strings, symmetry=irrep, penalty=SpinPenalty(spin), **TIGHT)
            np.testing.assert_allclose(result.energies, wanted[:1], atol=1e-9)
            met += 1
    assert met


@pytest.mark.parametrize("make", [NumpyBatch, pytest.param(gpu_steps, marks=needs_gpus(1))])
@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("spin", [None, 1])
def test_a_solve_as_a_gpu_makes_it(make: Any, mixed: bool, spin: int | None, few_at_start: None) -> None:
    case = Case("D2h", 6, (3, 3), True, 461)
    irrep = max(case.irreps(), key=lambda irrep: len(case.pairs(irrep)))
    h, penalty = case.sector(irrep), None if spin is None else SpinPenalty(spin)

    def work(ranks: Any, **options: Any) -> Any:
        if options:
            options["backend"] = DistributedVectors(h, ranks, lambda dtype: BatchedSector(h, make(dtype)))
        criteria = Criteria(residual=1e-9)
        return solve(h, case.integrals, 2, criteria=criteria, penalty=penalty, **options)

    found = run_ranks(1, lambda ranks: work(ranks, mixed_precision=mixed))[0]
    np.testing.assert_allclose(found.energies, work(None).energies, atol=1e-9)
    assert found.early_multiplications > 0 if mixed else found.early_multiplications == 0
    if spin is None:
        energies, _ = dense_states(case.integrals, case.pairs(irrep))
        np.testing.assert_allclose(found.energies, energies[:2], atol=1e-9)
    for state in found.states:
        np.testing.assert_allclose(np.linalg.norm(case.listed(state, irrep)), 1, atol=1e-9)


@pytest.mark.parametrize("precision", ["fp64", "mixed"])
def test_a_solve_goes_on(precision: str, few_at_start: None, tmp_path: Path) -> None:
    case = Case("D2h", 7, (3, 3), True, 511)
    irrep = case.irreps()[0]
    energies, _ = dense_states(case.integrals, case.pairs(irrep))
    names = {"output": tmp_path / "out.npz", "symmetry": irrep, "precision": precision, "device": "cpu"}
    first = diagonalize(case.integrals, case.alpha, criteria=Criteria(steps=2), **names)
    assert not first.solution.converged
    other = {**names, "symmetry": case.irreps()[1]}
    with pytest.raises(InputError, match="belongs to another solve"):
        diagonalize(case.integrals, case.alpha, resume=True, **other)
    goes_on = diagonalize(case.integrals, case.alpha, resume=True, criteria=Criteria(residual=1e-9), **names)
    np.testing.assert_allclose(goes_on.energies, energies[:1], atol=1e-9)
    again = diagonalize(case.integrals, case.alpha, start=tmp_path / "out.npz", symmetry=irrep, **TIGHT)
    np.testing.assert_allclose(again.energies, energies[:1], atol=1e-9)
    assert again.solution.steps < 4


def test_a_start_of_another_symmetry_is_refused(few_at_start: None) -> None:
    case = Case("D2h", 6, (2, 2), True, 611)
    first, second = case.irreps()[:2]
    states = diagonalize(case.integrals, case.alpha, symmetry=first, **TIGHT).states
    with pytest.raises(InputError, match=f"start: has a state without any part of symmetry {second}; give"):
        diagonalize(case.integrals, case.alpha, symmetry=second, start=states, **TIGHT)
    with pytest.raises(InputError, match="start: has a state of shape"):
        diagonalize(case.integrals, case.alpha, symmetry=first, start=[states[0][1:]], **TIGHT)


@pytest.mark.parametrize("roots", [1, 3])
def test_memory_is_predicted(roots: int) -> None:
    integrals = symmetric_molecule("D2h", 15, (3, 3), 811)
    strings = string_set(every_string(15, 3), integrals)
    irreps = string_irreps(strings, integrals.labels.irreps)
    sector, criteria = Sector(irreps, irreps, 0), Criteria(residual=1e-12, energy=0.0, steps=12)
    warm = SectorHamiltonian(ProductTables(integrals, strings, threads=1), sector)
    solve(warm, integrals, roots, criteria=Criteria(steps=1))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        h = SectorHamiltonian(ProductTables(integrals, strings, threads=1), sector)
        whole_bytes = whole_states_bytes(h.whole_shape, roots)
        predicted = fit_sector(h, h.size_bytes, whole_bytes, roots, criteria, np.inf).predicted_bytes
        solve(h, integrals, roots, criteria=criteria)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert 0.8 * predicted < peak < 1.05 * predicted
    with pytest.raises(InputError, match=r"memory: is .*, but the solve needs"):
        fit_sector(h, h.size_bytes, whole_bytes, roots, criteria, h.size_bytes)


def test_memory_of_spin_tables_is_predicted() -> None:
    case = Case("C2v", 14, (4, 4), True, 831)
    h = case.sector(1)
    x = np.random.default_rng(831).standard_normal(h.shape)
    case.sector(1).apply_spin_square(x)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        h.apply_spin_square(x)
        made = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert h.matching_bytes < made < 1.2 * h.matching_bytes
    steps = CountingBatch()
    batches = BatchedSector(h, steps)
    before = steps.held_bytes
    batches.apply_spin_square(x)
    assert steps.held_bytes - before == h.partners_bytes + batches.spin_diagonal().nbytes


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("dense", [True, False])
def test_memory_of_batches_is_predicted(equal: bool, dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tnplan.executor.sbd.sigma.cost_model.dense_is_faster", lambda *_: dense)
    h = Case("C2v", 9, (4, 4), equal, 911).sector(1)
    steps = CountingBatch()
    BatchedSector(h, steps)
    predicted = batched_sector_bytes(h)
    assert abs(predicted - steps.held_bytes) <= 0.01 * predicted

"""Solves: energies, several roots, parities, spin, restarts, checkpoints; density matrices of the states."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.conftest import SharedData
from tests.support.effort import repeats
from tests.support.engines.sbd import (
    every_string,
    random_integrals,
    reference_densities,
    reference_matrix,
    some_strings,
    string_set,
)
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.determinants import from_product
from tnplan.executor.sbd.basis.fcidump import read_fcidump
from tnplan.executor.sbd.basis.orbitals import rotate_orbitals
from tnplan.executor.sbd.basis.string_files import read_spin_strings
from tnplan.executor.sbd.basis.strings import carry_over
from tnplan.executor.sbd.basis.strings import every_string as all_strings
from tnplan.executor.sbd.lists.list_hamiltonian import ListHamiltonian
from tnplan.executor.sbd.properties.measure import densities, occupations
from tnplan.executor.sbd.properties.reduced_density import product_weights
from tnplan.executor.sbd.properties.spin_square import spin_square
from tnplan.executor.sbd.sigma.product_hamiltonian import EVEN, ODD, ProductHamiltonian
from tnplan.executor.sbd.solver import initial_guess as start_module
from tnplan.executor.sbd.solver import solve as checkpoint_module
from tnplan.executor.sbd.solver.davidson import Criteria, DavidsonStep, Subspace, davidson
from tnplan.executor.sbd.solver.memory_estimate import fit_memory
from tnplan.executor.sbd.solver.solve import SolveCheckpoint, SpinPenalty, solve

TIGHT = Criteria(residual=1e-9)


def small(seed: int = 0, n: int = 6, counts: tuple[int, int] = (3, 3)) -> ProductHamiltonian:
    """The whole space of a random Hamiltonian."""
    integrals = random_integrals(n, *counts, seed)
    sets = [string_set(every_string(n, count), integrals) for count in counts]
    return ProductHamiltonian(integrals, *sets, threads=1)


@pytest.fixture
def few_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts that are far from the solution, also in small spaces."""
    monkeypatch.setattr(start_module, "DETERMINANTS", 10)
    monkeypatch.setattr(start_module, "WHOLE", 0)


@pytest.mark.usefixtures("few_at_start")
@pytest.mark.parametrize(("roots", "vectors"), [(1, 16), (1, 4), (4, 4), (4, 40), (7, 16)])
@pytest.mark.parametrize("counts", [(3, 3), (3, 2)])
def test_the_lowest_states_are_found(roots: int, vectors: int, counts: tuple[int, int]) -> None:
    h = small(3, counts=counts)
    found = solve(h, h.integrals, roots, criteria=Criteria(residual=1e-8, vectors=vectors, steps=300))
    energies = np.linalg.eigvalsh(ListHamiltonian(h.integrals, from_product(
        h.alpha.strings, h.beta.strings, np.arange(h.shape[0] * h.shape[1])
    )).dense())  # fmt: skip
    assert found.converged
    assert found.orthogonality < 1e-12
    np.testing.assert_allclose(found.energies, energies[:roots] + h.integrals.core, atol=1e-9)
    gram = np.array([[np.vdot(x, y) for x in found.states] for y in found.states])
    np.testing.assert_allclose(gram, np.eye(roots), atol=1e-8)


def test_states_keep_their_parity_and_spin() -> None:
    h = small(1)
    found = solve(h, h.integrals, 8, criteria=TIGHT)
    assert set(found.parities) == {EVEN, ODD}
    for state, parity in zip(found.states, found.parities, strict=True):
        assert h.parity_of(state) == parity
        spin = (np.sqrt(1 + 4 * spin_square(h, state)) - 1) / 2
        assert abs(spin - round(float(spin))) < 1e-6
        assert round(float(spin)) % 2 == (parity == ODD)


@pytest.mark.usefixtures("few_at_start")
@pytest.mark.parametrize("seed", range(repeats(12, 24)))
def test_a_penalty_selects_a_spin_and_energies_are_those_of_h(seed: int) -> None:
    """The weight is found where none is given: spins lie apart by a hundredth to ten Hartree."""
    chance = np.random.default_rng(seed)
    counts = ((3, 3), (3, 2), (2, 2), (4, 2))[seed % 4]
    drawn = small(seed, 5, counts)
    factor = 10 ** chance.uniform(-2, 0)
    integrals = replace(drawn.integrals, one=factor * drawn.integrals.one, two=factor * drawn.integrals.two)
    h = ProductHamiltonian(integrals, drawn.alpha.strings, drawn.beta.strings, threads=1)
    listed = ListHamiltonian(
        h.integrals, from_product(h.alpha.strings, h.beta.strings, np.arange(h.shape[0] * h.shape[1]))
    )
    squares = np.array([listed.apply_spin_square(unit) for unit in np.eye(listed.shape[0])])
    for spin in abs(counts[0] - counts[1]) / 2 + np.arange(3):
        # States of one total spin: the null space of S^2 - s (s + 1).
        values, vectors = np.linalg.eigh(squares)
        frame = vectors[:, np.abs(values - spin * (spin + 1)) < 1e-6]
        if not frame.shape[1]:
            continue
        energies = np.linalg.eigvalsh(frame.T @ listed.dense() @ frame) + h.integrals.core
        roots = min(int(chance.integers(1, 4)), len(energies))
        found = solve(
            h, h.integrals, roots, penalty=SpinPenalty(spin), criteria=Criteria(residual=1e-8, steps=300),
            mixed_precision=bool(seed % 3),
        )  # fmt: skip
        assert found.converged
        np.testing.assert_allclose(found.energies, energies[:roots], atol=1e-8)
        for state in found.states:
            assert abs(spin_square(h, state) - spin * (spin + 1)) < 1e-5
        assert (found.early_multiplications > 0) == bool(seed % 3)


@pytest.mark.parametrize("counts", [(3, 3), (4, 2), (2, 0), (5, 5)])
def test_all_strings_make_the_whole_space(counts: tuple[int, int]) -> None:
    """The lowest energy of a spin is the same where its electrons make it the least spin."""
    drawn = small(5, 5, counts)
    listed = [every_string(5, count) for count in counts]
    local = {"criteria": TIGHT, "device": "cpu", "threads": 1}
    found = tnplan.diagonalize(drawn.integrals, "all", **local)
    expected = tnplan.diagonalize(drawn.integrals, *listed, **local)
    np.testing.assert_allclose(found.energies, expected.energies, atol=1e-9)
    assert found.states[0].size == len(listed[0]) * len(listed[1])
    both = tnplan.diagonalize(drawn.integrals, "all", "all", **local)
    assert both.solution.parities == found.solution.parities
    if counts in ((3, 3), (4, 2)):
        penalty = SpinPenalty((counts[0] - counts[1]) // 2 + 1)
        raised = tnplan.diagonalize(drawn.integrals, "all", penalty=penalty, **local)
        own = replace(drawn.integrals, n_alpha=counts[0] + 1, n_beta=counts[1] - 1)
        alone = tnplan.diagonalize(own, "all", penalty=penalty, **local)
        np.testing.assert_allclose(alone.energies, raised.energies, atol=1e-8)


def test_too_many_strings() -> None:
    with pytest.raises(InputError, match="are 94,143,280, all of 27 electrons in 36 orbitals; give at most"):
        all_strings(36, 27)


def test_a_spin_that_cannot_be() -> None:
    h = small(1)
    for spin in (0.5, 4, 1e300):
        with pytest.raises(InputError, match="for 3 alpha and 3 beta electrons in 6 orbitals; give 0 to 3"):
            solve(h, h.integrals, 1, penalty=SpinPenalty(spin))
    alike = ProductHamiltonian(h.integrals, string_set([0b000111, 0b001011], h.integrals), threads=1)
    with pytest.raises(InputError, match="too few open shells"):
        solve(alike, h.integrals, 1, penalty=SpinPenalty(2))
    other = small(1, counts=(3, 2))
    with pytest.raises(InputError, match=r"give 0\.5 to .*, in steps of 1"):
        solve(other, other.integrals, 1, penalty=SpinPenalty(1))


@pytest.mark.parametrize(("spin", "kept"), [(0, 21), (1, 15), (2, 3)])
def test_a_spin_keeps_the_states_of_one_parity(spin: int, kept: int) -> None:
    h = small(1, n=4, counts=(2, 2))
    assert solve(h, h.integrals, kept, penalty=SpinPenalty(spin)).parities == [-1 if spin == 1 else 1] * kept
    with pytest.raises(InputError, match=f"roots: are {kept + 1}, but the space has only {kept} states"):
        solve(h, h.integrals, kept + 1, penalty=SpinPenalty(spin))


@pytest.mark.usefixtures("few_at_start")
def test_residuals_come_down_to_rounding_errors_and_no_further() -> None:
    h = small(3)
    assert solve(h, h.integrals, 2, criteria=Criteria(residual=2e-13)).converged
    found = solve(h, h.integrals, 2, criteria=Criteria(residual=1e-18))
    assert not found.converged
    assert found.steps < 100
    assert found.residuals.max() < 2e-13


@pytest.mark.parametrize("roots", [1, 5])
def test_every_state_of_a_tiny_space(roots: int) -> None:
    integrals = random_integrals(4, 1, 2, 6)
    alpha, beta = string_set([0b0010], integrals), string_set([3, 5, 6, 9, 12], integrals)
    h = ProductHamiltonian(integrals, alpha, beta)
    found = solve(h, integrals, roots)
    matrix = reference_matrix(integrals, list(product([0b0010], [3, 5, 6, 9, 12])))
    assert found.converged
    np.testing.assert_allclose(
        found.energies, np.linalg.eigvalsh(matrix)[:roots] + integrals.core, atol=1e-10
    )
    with pytest.raises(InputError, match="roots: are 6, but the space has only 5"):
        solve(h, integrals, 6)


@pytest.mark.usefixtures("few_at_start")
def test_a_list_has_the_energies_of_its_product() -> None:
    h = small(5, counts=(3, 2))
    listed = from_product(h.alpha.strings, h.beta.strings, np.arange(300))
    sparse = ListHamiltonian(h.integrals, listed)
    found = solve(sparse, h.integrals, 2, criteria=TIGHT)
    expected = solve(h, h.integrals, 2, criteria=TIGHT)
    np.testing.assert_allclose(found.energies, expected.energies, atol=1e-10)
    state = np.zeros(listed.product_shape)
    state[listed.alpha, listed.beta] = found.states[0]
    assert abs(abs(np.vdot(state, expected.states[0])) - 1) < 1e-9


@pytest.mark.usefixtures("few_at_start")
def test_a_lost_orthogonality_is_mended() -> None:
    h = small(2, counts=(3, 2))
    expected = solve(h, h.integrals, 2, criteria=TIGHT)
    spoiled = solve(h, h.integrals, 2, criteria=Criteria(residual=1e-9, steps=60, orthogonality=1e-30))
    assert not spoiled.converged
    np.testing.assert_allclose(spoiled.energies, expected.energies, atol=1e-9)


def test_too_few_vectors_to_start_from() -> None:
    h = small(2)
    x = np.zeros(h.shape)
    x[0, 0] = 1.0
    with pytest.raises(ValueError, match="1 independent vectors"):
        davidson(h, 2, [(x, EVEN), (2 * x, EVEN)], TIGHT)


@pytest.mark.usefixtures("few_at_start")
def test_a_solve_goes_on_from_given_states() -> None:
    h = small(4, counts=(3, 2))
    first = solve(h, h.integrals, 2, criteria=TIGHT)
    again = solve(h, h.integrals, 2, criteria=Criteria(residual=1e-8), start=first.states)
    assert again.steps <= 2
    mixed = first.states[0] + 0.1 * np.random.default_rng(0).standard_normal(h.shape)
    np.testing.assert_allclose(
        solve(h, h.integrals, 2, criteria=TIGHT, start=[mixed]).energies, first.energies, atol=1e-10
    )
    for given in ([first.states[0]] * 2, [first.states[1], 1e-200 * first.states[1], -first.states[1]]):
        found = solve(h, h.integrals, 2, criteria=TIGHT, start=given)
        np.testing.assert_allclose(found.energies, first.energies, atol=1e-10)
    with pytest.raises(InputError, match="start: has a state with only zeros"):
        solve(h, h.integrals, 1, start=[np.zeros(h.shape)])


@pytest.mark.usefixtures("few_at_start")
def test_a_killed_solve_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module.SolveCheckpoint, "INTERVAL", 0)
    h = small(6)
    path = tmp_path / "state.ckpt"
    whole = solve(h, h.integrals, 2, criteria=TIGHT)

    killed: list[float] = []
    found: list[float] = []

    def kill(step: DavidsonStep) -> None:
        killed.append(step.energies[0])
        if step.number == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(h, h.integrals, 2, criteria=TIGHT, checkpoint=path, progress=kill)
    with pytest.raises(InputError, match="checkpoint of an interrupted solve; continue it with resume"):
        solve(h, h.integrals, 2, criteria=TIGHT, checkpoint=path)
    with pytest.raises(InputError, match="belongs to another solve; resume with the integrals"):
        solve(h, h.integrals, 1, criteria=TIGHT, checkpoint=path, resume=True)
    resumed = solve(
        h, h.integrals, 2, criteria=TIGHT, checkpoint=path, resume=True,
        progress=lambda step: found.append(step.energies[0]),
    )  # fmt: skip
    assert found[0] <= killed[-1] + 1e-12
    np.testing.assert_allclose(resumed.energies, whole.energies, atol=1e-10)
    SolveCheckpoint(path, "x").write([(np.ones(h.shape), 1)])
    with pytest.raises(InputError, match="is damaged"):
        SolveCheckpoint(path, "x").open(True, (3, 3))
    path.write_bytes(b"PK no zip")
    with pytest.raises(InputError, match="is damaged, or of another version of tnplan"):
        SolveCheckpoint(path, "x").open(True, h.shape)


@pytest.mark.usefixtures("few_at_start")
def test_a_solve_that_does_not_converge_says_so(tmp_path: Path) -> None:
    h = small(6)
    found = solve(
        h, h.integrals, 1, criteria=Criteria(residual=1e-9, steps=3), checkpoint=tmp_path / "state.ckpt"
    )
    assert not found.converged
    assert found.steps == 3
    assert (tmp_path / "state.ckpt").exists()
    energy = np.vdot(found.states[0], h.apply(found.states[0])) + h.integrals.core
    np.testing.assert_allclose(found.energies[0], energy, atol=1e-10)


def test_memory_limits_the_vectors() -> None:
    few = fit_memory(10**6, 1, Criteria(), 500e6)
    assert 6 <= few.vectors < Criteria().vectors
    assert fit_memory(10**6, 1, Criteria(), np.inf) == Criteria()
    with pytest.raises(InputError, match=r"memory: is 9\.54 MiB, but"):
        fit_memory(10**6, 1, Criteria(), 1e7)


def test_a_restart_takes_the_memory_of_a_vector() -> None:
    h = small(2, 10, (3, 2))
    rng = np.random.default_rng(0)
    space = Subspace(h, np.zeros(h.shape), 16)
    for _ in range(16):
        assert space.add(rng.standard_normal(h.shape), h.parities[0])
    space.multiply()
    roots = space.roots()[:3]
    before = [space.vector(root) for root in roots]
    tracemalloc.start()
    try:
        roots = space.restart(3, roots)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(space) == 7
    assert peak < 1.1 * before[0].nbytes + 20_000
    for vector, root in zip(before, roots, strict=True):
        np.testing.assert_allclose(space.vector(root), vector, atol=1e-12)


@pytest.mark.parametrize(("counts", "sizes"), [((2, 2), (10, 10)), ((3, 2), (8, 7)), ((1, 0), (4, 1))])
def test_densities_equal_the_reference(counts: tuple[int, int], sizes: tuple[int, int]) -> None:
    n = 5
    integrals = random_integrals(n, *counts, seed=7)
    values = [some_strings(n, spin, size, 3) for spin, size in zip(counts, sizes, strict=True)]
    h = ProductHamiltonian(integrals, *(string_set(part, integrals) for part in values))
    x = np.random.default_rng(3).standard_normal(h.shape)
    x /= np.linalg.norm(x)
    made = densities(h, x)
    one, two = reference_densities(n, list(product(*values)), x)
    np.testing.assert_allclose([made.alpha, made.beta], one, atol=1e-13)
    np.testing.assert_allclose(made.two_alpha, two[0, 0], atol=1e-13)
    np.testing.assert_allclose(made.two_beta, two[1, 1], atol=1e-13)
    np.testing.assert_allclose(made.two_alpha_beta, two[0, 1], atol=1e-13)
    energy = np.vdot(x, h.apply(x)) + integrals.core
    np.testing.assert_allclose(made.energy(integrals), energy, atol=1e-11)
    np.testing.assert_allclose(made.spin_square(), spin_square(h, x), atol=1e-12)
    n_electrons = sum(counts)
    np.testing.assert_allclose(np.einsum("ppqq->", made.two), n_electrons * (n_electrons - 1), atol=1e-12)
    for filled, density in zip(occupations(h, x), (made.alpha, made.beta), strict=True):
        np.testing.assert_allclose(filled, density.diagonal(), atol=1e-13)


@pytest.mark.parametrize("kind", ["product", "list", "complex"])
def test_transitions_between_roots_equal_the_reference(kind: str, tmp_path: Path) -> None:
    n, counts, target = 4, (2, 1), tmp_path / "out.npz"
    integrals = random_integrals(n, *counts, seed=17)
    values = [every_string(n, count) for count in counts]
    pairs = list(product(*values))
    given: dict[str, Any] = {"alpha": values[0], "beta": values[1]}
    if kind == "list":
        sets = [string_set(part, integrals) for part in values]
        given = {"determinants": from_product(*sets, np.arange(len(pairs)))}
    if kind == "complex":
        both = np.random.default_rng(3).standard_normal((2, n, n))
        integrals = rotate_orbitals(integrals, np.linalg.qr(both[0] + 1j * both[1])[0])
    result = tnplan.diagonalize(
        integrals, roots=3, rdm=True, transitions=True, output=target, device="cpu", threads=1, **given
    )
    assert sorted(result.transitions) == [(0, 1), (0, 2), (1, 2)]
    with np.load(target) as saved:
        assert saved["transition_roots"].tolist() == [[0, 1], [0, 2], [1, 2]]
        kept = saved["transition_one"]
    for number, ((bra, ket), made) in enumerate(result.transitions.items()):
        one, two = reference_densities(n, pairs, result.states[ket], result.states[bra])
        np.testing.assert_allclose([made.alpha, made.beta], one, atol=1e-13)
        np.testing.assert_allclose(kept[number], one.sum(0), atol=1e-13)
        np.testing.assert_allclose(made.two_alpha, two[0, 0], atol=1e-13)
        np.testing.assert_allclose(made.two_alpha_beta, two[0, 1], atol=1e-13)
        # Eigenstates are orthogonal, and the Hamiltonian has no element between them.
        assert abs(np.trace(made.one)) < 1e-9
        assert abs(made.energy(integrals) - integrals.core) < 1e-7
    assert not tnplan.diagonalize(integrals, device="cpu", threads=1, **given).transitions


def test_densities_equal_those_of_pyscf(shared: SharedData) -> None:
    selected_ci = pytest.importorskip("pyscf.fci.selected_ci", reason="needs PySCF")
    integrals = read_fcidump(shared("sbd/n2_631g_14e18o.fcidump"))
    strings = read_spin_strings(shared("sbd/n2_alpha_1em3.txt"), 18, (7, 7), 0).strings
    values = np.array([int(line, 2) for line in strings.lines().split()])
    strings = strings.take(np.argsort(values)[:90])
    h = ProductHamiltonian(integrals, strings)
    x = np.random.default_rng(3).standard_normal(h.shape)
    x /= np.linalg.norm(x)
    made = densities(h, x)
    state = selected_ci._as_SCIvector(x, (np.sort(values)[:90],) * 2)
    (one_a, one_b), (aa, ab, bb) = selected_ci.SCI().make_rdm12s(state, 18, (7, 7))
    for own, other in (
        (made.alpha, one_a), (made.beta, one_b),
        (made.two_alpha, aa), (made.two_alpha_beta, ab), (made.two_beta, bb),
    ):  # fmt: skip
        np.testing.assert_allclose(own, other, atol=1e-10)


ENERGIES = {
    "n2_alpha_1em3": -109.041621098,
    "n2_alpha_3em4": -109.046973041,
    "h2o_alpha_1em3": -76.235946631,
}


@pytest.mark.parametrize("stem", ENERGIES)
def test_energies_of_molecules(shared: SharedData, stem: str) -> None:
    name = "n2_631g_14e18o" if stem.startswith("n2") else "h2o_ccpvdz_10e24o"
    integrals = read_fcidump(shared(f"sbd/{name}.fcidump"))
    counts = (integrals.n_alpha, integrals.n_alpha)
    strings = read_spin_strings(shared(f"sbd/{stem}.txt"), integrals.n_orbitals, counts, 0).strings
    h = ProductHamiltonian(integrals, strings, threads=1)
    found = solve(h, integrals, criteria=Criteria(residual=1e-5))
    assert found.converged
    assert found.multiplications <= 40
    assert abs(found.energies[0] - ENERGIES[stem]) < 1e-8


def test_a_whole_space_equals_pyscf() -> None:
    direct = pytest.importorskip("pyscf.fci.direct_spin1", reason="needs PySCF")
    from tnplan.executor.sbd.basis.integrals import dense_two

    h = small(9, n=6, counts=(3, 2))
    energies, _ = direct.kernel(h.integrals.one, dense_two(h.integrals), 6, (3, 2), nroots=2, tol=1e-12)
    found = solve(h, h.integrals, 2, criteria=TIGHT)
    np.testing.assert_allclose(found.energies, np.array(energies) + h.integrals.core, atol=1e-9)


def test_strings_of_most_weight_are_carried_over() -> None:
    weights = np.array([0.1, 0.5, 0.1, 0.3])
    assert carry_over(weights, ratio=0.5).tolist() == [1, 3]
    assert carry_over(weights, ratio=0.51).tolist() == [1, 3, 0]
    assert carry_over(weights, missing=0.2).tolist() == [1, 3]
    assert carry_over(weights, missing=0.1).tolist() == [1, 3, 0]
    assert carry_over(weights, missing=0.0).tolist() == [1, 3, 0, 2]
    for bad in ({}, {"ratio": 0.0}, {"ratio": 1.5}, {"missing": 1.0}, {"ratio": 0.5, "missing": 0.5}):
        with pytest.raises(InputError, match=r"carry|ratio|missing"):
            carry_over(weights, **bad)
    x = np.array([[0.6, 0.0], [0.0, 0.8]])
    np.testing.assert_allclose(product_weights(x)[0], [0.36, 0.64])

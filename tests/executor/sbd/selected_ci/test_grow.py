"""Lists that grow: whole spaces at a threshold of zero, limits, symmetries, ranks, and interrupted jobs."""

from __future__ import annotations

import signal
import tracemalloc
from functools import cache, partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tnplan
from tests.oracles.spin_orbitals import matrix_of_spins
from tests.support.engines.sbd import interleaved, reference_matrix
from tests.support.engines.sbd_growth import chain, every_determinant, labelled_text, strings_of
from tests.support.engines.sbd_kinds import KINDS, ORBITALS, integrals_of, random_bodies
from tests.support.robustness.checkpoint_files import arrays_of, changed, document_of, parted
from tests.support.slow import slow_after, slow_unless
from tests.support.stop import ask_to_stop
from tnplan.common.errors import InputError
from tnplan.executor.device.protocols.stop_signal import StoppedRunError
from tnplan.executor.sbd.selected_ci.grow import SETTLED
from tnplan.jobs.progress import Progress

Array = NDArray[Any]
N = 6
CHAIN = chain(N)
EVERY = every_determinant(N, (3, 3))
TIGHT: dict[str, Any] = {"criteria": tnplan.Criteria(residual=1e-9), "device": "cpu", "threads": 1}
WHOLE = tnplan.Growth((1e-1, 0.0), stable=0.0, epsilon_pt2=0.0)


@pytest.fixture(autouse=True)
def few_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that solves take steps."""
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.DETERMINANTS", 8)
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.WHOLE", 0)


@cache
def matrix() -> Array:
    return reference_matrix(CHAIN, EVERY)


def labels_of(determinants: list[tuple[int, int]]) -> Array:
    """0 for even and 1 for odd determinants of a chain."""
    odd = sum(1 << p for p in range(1, N, 2))
    return np.array([((a & odd).bit_count() + (b & odd).bit_count()) % 2 for a, b in determinants])


def points(report: dict[str, Any], name: str) -> list[float]:
    return [point[name][0] for point in report["growth"]["points"]]


@pytest.mark.parametrize(
    ("form", "counts"),
    slow_unless(lambda k, j: k % 3 == j, [*product(KINDS, ORBITALS)], [(2, 2), (3, 1), (2, 0)]),
)
def test_the_whole_space_is_found_at_zero(form: tuple[str, str], counts: tuple[int, int]) -> None:
    kind, orbitals = form
    bodies = random_bodies(kind, orbitals, 4, 11)
    every = every_determinant(4, counts)
    lowest = np.linalg.eigvalsh(matrix_of_spins(bodies, every))[0] + 0.5
    result = tnplan.diagonalize(integrals_of(bodies, kind, counts), grow=WHOLE, **TIGHT)
    np.testing.assert_allclose(result.energies, lowest, rtol=0, atol=1e-9)
    assert result.determinants is not None
    assert strings_of(result.determinants) == every
    assert points(result.report, "corrections_hartree")[-1] == 0
    assert result.report["growth"]["extrapolation"][0]["energy_hartree"] == result.energies[0]


@pytest.mark.slow
def test_a_molecule_has_the_energy_of_pyscf() -> None:
    gto = pytest.importorskip("pyscf.gto", reason="needs PySCF")
    from pyscf import ao2mo, fci, scf

    water = gto.M(atom="O 0 0 0; H 0 0.76 0.59; H 0 -0.76 0.59", basis="sto-3g", verbose=0)
    field = scf.RHF(water).run()
    one = field.mo_coeff.T @ field.get_hcore() @ field.mo_coeff
    two = ao2mo.kernel(water, field.mo_coeff)
    exact = fci.direct_spin0.FCI().kernel(one, two, 7, (5, 5), ecore=water.energy_nuc(), tol=1e-13)[0]
    integrals = tnplan.from_arrays(one, two, 5, 5, water.energy_nuc())
    result = tnplan.diagonalize(integrals, grow=tnplan.Growth((1e-3, 0.0), stable=0.0), **TIGHT)
    np.testing.assert_allclose(result.energies[0], exact, rtol=0, atol=1e-9)
    corrected = tnplan.diagonalize(integrals, grow=tnplan.Growth((1e-2, 5e-3, 2e-3)), **TIGHT)
    fit = corrected.report["growth"]["extrapolation"][0]
    assert abs(fit["energy_hartree"] - exact) < min(3e-4, 2 * fit["uncertainty_hartree"])


def test_corrections_are_those_of_the_full_matrix() -> None:
    growth = tnplan.Growth((0.2, 0.1), epsilon_pt2=0.0, stable=0.0)
    result = tnplan.diagonalize(CHAIN, grow=growth, **TIGHT)
    assert result.determinants is not None
    place = {determinant: at for at, determinant in enumerate(EVERY)}
    inside = [place[one] for one in strings_of(result.determinants)]
    outside = np.setdiff1d(np.arange(len(EVERY)), inside)
    terms = matrix()[np.ix_(outside, inside)] @ result.states[0]
    below = result.energies[0] - CHAIN.core - matrix().diagonal()[outside]
    np.testing.assert_allclose(
        points(result.report, "corrections_hartree")[-1], (terms**2 / below).sum(), rtol=1e-10
    )
    # No determinant is missing whose largest term is above the last threshold.
    sizes = np.abs(matrix()[np.ix_(outside, inside)] * result.states[0]).max(1)
    assert sizes.max() <= 0.1


def test_several_roots_are_those_of_the_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Singlets and triplets, even and odd ones."""
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.DETERMINANTS", 100)
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.WHOLE", 0)
    expected = np.linalg.eigvalsh(matrix())[:3] + CHAIN.core
    result = tnplan.diagonalize(CHAIN, grow=WHOLE, roots=3, **TIGHT)
    np.testing.assert_allclose(result.energies, expected, rtol=0, atol=1e-9)
    assert len(result.report["growth"]["extrapolation"]) == 3
    assert len(result.report["growth"]["points"][-1]["corrections_hartree"]) == 3


@pytest.mark.parametrize("wanted", [1, 2])
@pytest.mark.parametrize("asked_for", ["header", "option"])
def test_a_symmetry_is_kept(tmp_path: Path, wanted: int, asked_for: str) -> None:
    path = tmp_path / "chain.fcidump"
    path.write_text(labelled_text(CHAIN, wanted if asked_for == "header" else 1))
    option = wanted if asked_for == "option" else None
    result = tnplan.diagonalize(path, grow=WHOLE, symmetry=option, **TIGHT)
    label = 1 - wanted % 2 if asked_for == "option" or wanted > 1 else labels_of([(0b111, 0b111)])[0]
    chosen = np.flatnonzero(labels_of(EVERY) == label)
    lowest = np.linalg.eigvalsh(matrix()[np.ix_(chosen, chosen)])[0] + CHAIN.core
    np.testing.assert_allclose(result.energies[0], lowest, rtol=0, atol=1e-9)
    assert result.report["symmetry"] == [label + 1]
    assert result.determinants is not None
    assert set(labels_of(strings_of(result.determinants))) == {label}


def test_a_limit_of_determinants_ends_the_growth() -> None:
    lowest = np.linalg.eigvalsh(matrix())[0] + CHAIN.core
    energies = []
    for most in (1, 20, 60):
        result = tnplan.diagonalize(CHAIN, grow=tnplan.Growth(determinants=most), **TIGHT)
        assert result.determinants is not None
        assert most - 1 <= len(result.determinants) <= most  # a determinant and its flip stand together
        assert result.report["growth"]["ended"] == "determinants"
        assert result.report["growth"]["points"][-1]["determinants"] == len(result.determinants)
        energies.append(result.energies[0])
    assert energies[0] > energies[1] > energies[2] > lowest
    whole = tnplan.diagonalize(CHAIN, grow=tnplan.Growth(determinants=10**6, stable=0.0), **TIGHT)
    assert whole.report["growth"]["ended"] == "epsilon"
    np.testing.assert_allclose(whole.energies[0], lowest, rtol=0, atol=1e-9)


def test_the_list_grows_from_what_is_given(tmp_path: Path) -> None:
    """A list of the other symmetry stays there."""
    path = tmp_path / "start.txt"
    path.write_text(interleaved([(0b111, 0b1011), (0b1011, 0b111)], N))
    start = tnplan.diagonalize(CHAIN, determinants=path, **TIGHT)
    result = tnplan.diagonalize(CHAIN, determinants=path, grow=WHOLE, **TIGHT)
    odd = np.flatnonzero(labels_of(EVERY) == labels_of([(0b111, 0b1011)])[0])
    lowest = np.linalg.eigvalsh(matrix()[np.ix_(odd, odd)])[0] + CHAIN.core
    np.testing.assert_allclose(result.energies[0], lowest, rtol=0, atol=1e-9)
    assert start.energies[0] > lowest + 0.01


@pytest.mark.parametrize(("ranks", "threads"), [(2, 1), pytest.param(3, 2, marks=pytest.mark.slow)])
def test_ranks_and_threads_select_the_same(ranks: int, threads: int) -> None:
    growth = tnplan.Growth((0.1, 0.03), stable=0.0)
    options = {**TIGHT, "threads": threads, "ranks": ranks}
    alone, several = (tnplan.diagonalize(CHAIN, grow=growth, **one) for one in (TIGHT, options))
    assert alone.determinants is not None
    assert several.determinants is not None
    assert strings_of(several.determinants) == strings_of(alone.determinants)
    for name in ("energies_hartree", "corrections_hartree"):
        np.testing.assert_allclose(
            points(several.report, name), points(alone.report, name), rtol=0, atol=1e-9
        )


def test_memory_ends_the_growth_before_the_determinants() -> None:
    long = chain(8)
    options = {**TIGHT, "criteria": tnplan.Criteria(residual=1e-4)}
    growth = tnplan.Growth((0.1, 0.03, 0.01, 0.003, 1e-3, 1e-4, 1e-5), epsilon_pt2=None)
    whole = tnplan.diagonalize(long, grow=growth, **options)
    short = tnplan.diagonalize(long, grow=growth, memory="2MiB", **options)
    assert whole.report["growth"]["ended"] == "epsilon"
    assert short.report["growth"]["ended"] == "memory"
    assert SETTLED <= short.report["space"]["shape"][0] < whole.report["space"]["shape"][0]
    assert short.report["predicted_bytes"] <= 2**20
    assert short.energies[0] > whole.energies[0]
    assert short.report["growth"]["points"] == []
    assert short.report["growth"]["extrapolation"] == [None]


@pytest.mark.parametrize("memory_mib", slow_after(1, [1, 4]))
def test_a_growth_stays_within_its_memory(memory_mib: int) -> None:
    """Also where the next threshold selects many times what the list has."""
    integrals = chain(10)
    growth = tnplan.Growth((0.1, 0.03, 0.01, 0.003, 1e-3, 1e-4, 1e-6), epsilon_pt2=1e-6)
    options = {**TIGHT, "criteria": tnplan.Criteria(residual=1e-4)}
    grown = partial(tnplan.diagonalize, integrals, grow=growth, memory=f"{memory_mib}MiB", **options)
    grown()  # memory of the compiler does not count
    tracemalloc.start()
    found = grown()
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.report["growth"]["ended"] == "memory"
    assert len(found.report["growth"]["points"]) > 3
    assert peak_bytes <= memory_mib * 2**20


GROWTH = tnplan.Growth((0.3, 0.1, 0.03), stable=0.0)


def interrupted(target: Path, after: int, **options: Any) -> None:
    """A growth that a signal stops after so many lines of progress."""
    heard: list[Progress] = []

    def progress(at: Progress) -> None:
        heard.append(at)
        if len(heard) == after:
            ask_to_stop(signal.SIGTERM)

    with pytest.raises(StoppedRunError, match="stopped for SIGTERM, with a checkpoint"):
        tnplan.diagonalize(CHAIN, grow=GROWTH, output=target, progress=progress, **TIGHT, **options)
    assert [path.name for path in target.parent.iterdir()] == [f"{target.name}.ckpt"]


@cache
def lines_of_progress() -> int:
    """Of the whole growth."""
    heard: list[Progress] = []
    tnplan.diagonalize(CHAIN, grow=GROWTH, progress=heard.append, **TIGHT)
    return len(heard)


@cache
def late_checkpoint() -> bytes:
    """That of a growth that a signal stops before its last line of progress."""
    with TemporaryDirectory() as made:
        target = Path(made) / "r.npz"
        interrupted(target, lines_of_progress() - 1)
        return Path(f"{target}.ckpt").read_bytes()


def steps(report: dict[str, Any]) -> list[dict[str, Any]]:
    """What happened, without seconds."""
    taken = [*report["growth"]["iterations"], *report["growth"]["points"]]
    return [{key: one[key] for key in one if key not in ("time_s", "multiplications")} for one in taken]


@pytest.mark.parametrize("after", slow_after(2, [2, 5, 1, 4]))
def test_an_interrupted_growth_goes_on(tmp_path: Path, after: int) -> None:
    target = tmp_path / "r.npz"
    interrupted(target, after)
    resumed = tnplan.diagonalize(CHAIN, grow=GROWTH, output=target, resume=True, **TIGHT)
    whole = tnplan.diagonalize(CHAIN, grow=GROWTH, **TIGHT)
    np.testing.assert_allclose(resumed.energies, whole.energies, rtol=0, atol=1e-10)
    for mine, theirs in zip(steps(resumed.report), steps(whole.report), strict=True):
        numbers = [(name, value) for name in theirs for value in np.ravel(theirs[name])]
        found = [value for name in mine for value in np.ravel(mine[name])]
        assert list(mine) == list(theirs)
        assert found == pytest.approx([value for _, value in numbers], abs=1e-9)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.determinants.txt", "r.json", "r.npz"]


def test_a_checkpoint_of_another_job_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "r.npz"
    interrupted(target, 2)
    kept = (tmp_path / "r.npz.ckpt").read_bytes()
    with pytest.raises(InputError, match="interrupted growth; continue it with resume"):
        tnplan.diagonalize(CHAIN, grow=GROWTH, output=target, **TIGHT)
    with pytest.raises(InputError, match="belongs to another growth; resume with the integrals"):
        tnplan.diagonalize(CHAIN, grow=WHOLE, output=target, resume=True, **TIGHT)
    with pytest.raises(InputError, match=r"is tnplan\.sbd.growth 4, not tnplan\.sbd\.checkpoint 2"):
        tnplan.diagonalize(CHAIN, [0b111, 0b1011], output=target, resume=True, **TIGHT)
    (tmp_path / "r.npz.ckpt").write_bytes(kept[:-200])
    with pytest.raises(InputError, match="is damaged"):
        tnplan.diagonalize(CHAIN, grow=GROWTH, output=target, resume=True, **TIGHT)


def broken_electrons(path: Path, keys: np.ndarray, states: np.ndarray) -> None:
    keys[0, 0] = 0b1111
    changed(path, {0: keys})


def broken_repeat(path: Path, keys: np.ndarray, states: np.ndarray) -> None:
    changed(path, {0: np.concatenate([keys[:-1], keys[:1]])})


def broken_length(path: Path, keys: np.ndarray, states: np.ndarray) -> None:
    changed(path, {1: states * 2})


def broken_shape(path: Path, keys: np.ndarray, states: np.ndarray) -> None:
    changed(path, {1: states[:, :-1]})


def broken_energies(path: Path, keys: np.ndarray, states: np.ndarray) -> None:
    changed(path, document={**document_of(path), "energies": []})


def broken_document(path: Path, keys: np.ndarray, states: np.ndarray) -> None:
    changed(path, document=[])


def broken_rotation(path: Path, keys: np.ndarray, states: np.ndarray) -> None:
    changed(path, {2: 2 * np.eye(N)})


BROKEN = (
    broken_electrons, broken_repeat, broken_length, broken_shape, broken_energies, broken_document,
    broken_rotation,
)  # fmt: skip


@pytest.mark.parametrize("damage", BROKEN)
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, damage: Any) -> None:
    target, path = tmp_path / "r.npz", tmp_path / "r.npz.ckpt"
    path.write_bytes(late_checkpoint())
    damage(path, *arrays_of(parted(path.read_bytes())[0])[:2])
    with pytest.raises(InputError, match="is damaged \\(its parts do not fit each other\\); delete the file"):
        tnplan.diagonalize(CHAIN, grow=GROWTH, output=target, resume=True, **TIGHT)


def test_a_finished_list_is_not_selected_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state that the checkpoint holds after the last threshold needs one solve."""
    target = tmp_path / "r.npz"
    interrupted(target, lines_of_progress())
    monkeypatch.delattr("tnplan.executor.sbd.selected_ci.grow.select")
    resumed = tnplan.diagonalize(CHAIN, grow=GROWTH, output=target, resume=True, **TIGHT)
    assert resumed.solution.converged

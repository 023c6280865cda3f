"""Orbitals of lists: derivatives against differences, bounds that stay bounds, labels, files and ranks."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.effort import repeats
from tests.support.engines.sbd import every_string, interleaved, random_integrals, reference_matrix
from tests.support.engines.sbd_growth import chain, every_determinant, labelled_text, strings_of
from tests.support.engines.sbd_kinds import integrals_of, random_bodies
from tests.support.stop import ask_to_stop
from tnplan.common.errors import InputError
from tnplan.executor.device.protocols.stop_signal import StoppedRunError
from tnplan.executor.sbd.basis.fcidump import read_fcidump
from tnplan.executor.sbd.basis.integrals import OrbitalLabels
from tnplan.executor.sbd.basis.orbitals import rotate_orbitals
from tnplan.executor.sbd.selected_ci.orbital_optimization import descending_rotations, orbital_derivatives

TIGHT: dict[str, Any] = {"criteria": tnplan.Criteria(residual=1e-9), "device": "cpu", "threads": 1}
N = 6
EVERY = every_determinant(N, (3, 3))
GROWTH = tnplan.Growth(determinants=60, epsilon_pt2=None, optimize_orbitals=60)


def turn(n: int, p: int, q: int, angle: float) -> np.ndarray:
    """exp(kappa) for kappa[p, q] = angle."""
    rotation = np.eye(n)
    rotation[[p, q], [p, q]] = np.cos(angle)
    rotation[p, q], rotation[q, p] = np.sin(angle), -np.sin(angle)
    return rotation


@pytest.mark.parametrize("seed", range(4))
def test_derivatives_are_those_of_differences(tmp_path: Path, seed: int) -> None:
    """The gradient of the least energy, over one or several states, and the curvature of fixed states."""
    n, counts, roots = 5, [(2, 2), (3, 1), (3, 2), (2, 0)][seed], 1 + seed % 2
    chance = np.random.default_rng(seed)
    integrals = random_integrals(n, *counts, seed)
    every = every_determinant(n, counts)
    chosen = chance.choice(len(every), max(4, len(every) // 3), replace=False)
    path = tmp_path / "list.txt"
    path.write_text(interleaved([every[at] for at in chosen], n))
    result = tnplan.diagonalize(integrals, determinants=path, roots=roots, rdm=True, **TIGHT)
    mean = float(result.energies.mean())
    found = orbital_derivatives(integrals, result.densities, mean)
    np.testing.assert_allclose(found.gradient, -found.gradient.T, rtol=0, atol=1e-12)

    def least(rotation: np.ndarray) -> float:
        turned = rotate_orbitals(integrals, rotation)
        return float(tnplan.diagonalize(turned, determinants=path, roots=roots, **TIGHT).energies.mean())

    def fixed(rotation: np.ndarray) -> float:
        turned = rotate_orbitals(integrals, rotation)
        return float(np.mean([density.energy(turned) for density in result.densities]))

    for p, q in ((1, 0), (4, 2), (3, 1)):
        ups, downs = ([energy(turn(n, p, q, angle)) for energy in (least, fixed)] for angle in (1e-3, -1e-3))
        slope, curvature = (ups[0] - downs[0]) / 2e-3, (ups[1] + downs[1] - 2 * mean) / 1e-6
        assert found.gradient[p, q] == pytest.approx(slope, abs=1e-4)
        assert found.curvature[p, q] == pytest.approx(curvature, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_orbitals_come_to_rest(seed: int) -> None:
    """The whole space has no slope; one determinant ends where its mean field has none."""
    n = 5
    integrals = random_integrals(n, 2, 2, seed)

    def tried(strings: list[int]) -> list[Any]:
        search, found = descending_rotations(n, OrbitalLabels()), []
        rotation = next(search)
        while rotation is not None:
            turned = rotate_orbitals(integrals, rotation)
            result = tnplan.diagonalize(turned, strings, rdm=True, **TIGHT)
            found.append(orbital_derivatives(turned, result.densities, float(result.energies[0])))
            rotation = search.send(found[-1])
        return found

    for derivatives in tried(every_string(n, 2)):
        assert np.abs(derivatives.gradient).max() < 1e-7
    alone = tried([0b11])
    best = min(alone, key=lambda derivatives: derivatives.energy)
    assert np.abs(best.gradient).max() < 0.02 < np.abs(alone[0].gradient).max()
    assert best.energy < alone[0].energy - 0.01


@pytest.mark.parametrize("flips", [True, False])
@pytest.mark.parametrize("seed", range(repeats(1, 3)))
def test_energies_fall_and_stay_bounds(tmp_path: Path, seed: int, flips: bool) -> None:
    """What is written gives the same energy again; the whole space has that of the given orbitals."""
    integrals, target = random_integrals(N, 3, 3, seed), tmp_path / "r.npz"
    exact = np.linalg.eigvalsh(reference_matrix(integrals, EVERY))[0] + integrals.core
    growth = replace(GROWTH, flips=flips)
    plain = tnplan.diagonalize(integrals, grow=replace(growth, optimize_orbitals=0), **TIGHT)
    natural = tmp_path / "natural.fcidump"
    result = tnplan.diagonalize(integrals, grow=growth, output=target, natural=natural, **TIGHT)
    assert exact < result.energies[0] < plain.energies[0]
    lists = result.report["growth"]["orbital_lists"]
    assert all(each["optimized_hartree"] < each["energy_hartree"] for each in lists)
    orbitals, listed = tmp_path / "r.orbitals.fcidump", tmp_path / "r.determinants.txt"
    again = [
        tnplan.diagonalize(source, determinants=listed, rotation=rotation, start=target, **TIGHT)
        for source, rotation in ((integrals, target), (integrals, result.rotation), (orbitals, None))
    ]
    np.testing.assert_allclose([one.energies[0] for one in again], result.energies[0], rtol=0, atol=1e-10)
    every = [one for one, _ in EVERY[:: len(EVERY) // 20]]
    for source, rotation in ((orbitals, None), (integrals, natural.with_suffix(".npz")), (natural, None)):
        whole = tnplan.diagonalize(source, every, rotation=rotation, rdm=True, **TIGHT)
        np.testing.assert_allclose(whole.energies[0], exact, rtol=0, atol=1e-10)
    # A rotation that was given, and that of the optimization, make one of the given orbitals.
    onward = tnplan.diagonalize(integrals, grow=growth, rotation=target, **TIGHT)
    assert onward.determinants is not None
    listed.write_text(onward.determinants.lines())
    same = tnplan.diagonalize(integrals, determinants=listed, rotation=onward.rotation, **TIGHT)
    np.testing.assert_allclose(same.energies[0], onward.energies[0], rtol=0, atol=1e-10)


def test_labels_stay(tmp_path: Path) -> None:
    path, target = tmp_path / "chain.fcidump", tmp_path / "r.npz"
    path.write_text(labelled_text(chain(N), 1))
    result = tnplan.diagonalize(path, grow=GROWTH, symmetry=1, output=target, **TIGHT)
    labels = read_fcidump(tmp_path / "r.orbitals.fcidump").labels.irreps
    assert labels == read_fcidump(path).labels.irreps
    assert result.rotation is not None
    assert (result.rotation[np.not_equal.outer(labels, labels)] == 0).all()
    assert result.report["symmetry"] == [1]


def test_ranks_and_roots_go_together() -> None:
    integrals = random_integrals(N, 3, 2, 5)
    exact = np.linalg.eigvalsh(reference_matrix(integrals, every_determinant(N, (3, 2))))[:2]
    results = [
        tnplan.diagonalize(integrals, grow=GROWTH, roots=2, **TIGHT, **options)
        for options in ({}, {"ranks": 2})
    ]
    energies = [result.energies for result in results]
    np.testing.assert_allclose(*energies, rtol=0, atol=1e-7)
    assert (energies[0] > exact + integrals.core).all()


def stopping(after: int) -> Callable[[Any], None]:
    heard: list[Any] = []

    def progress(at: Any) -> None:
        heard.append(at)
        if len([one for one in heard if "epsilon" in one.text]) == after:
            ask_to_stop(signal.SIGTERM)

    return progress


def test_an_interrupted_growth_goes_on_over_its_orbitals(tmp_path: Path) -> None:
    integrals, target = random_integrals(N, 3, 3, 6), tmp_path / "r.npz"
    options: dict[str, Any] = {"grow": tnplan.Growth((0.3, 0.1, 0.03), optimize_orbitals=50), **TIGHT}
    whole = tnplan.diagonalize(integrals, **options)
    with pytest.raises(StoppedRunError):
        tnplan.diagonalize(integrals, output=target, progress=stopping(2), **options)
    resumed = tnplan.diagonalize(integrals, output=target, resume=True, **options)
    np.testing.assert_allclose(resumed.energies, whole.energies, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(resumed.rotation, whole.rotation)
    lists = [result.report["growth"]["orbital_lists"] for result in (resumed, whole)]
    assert lists[0] == lists[1] != []
    assert whole.determinants is not None
    assert resumed.determinants is not None
    assert strings_of(whole.determinants) == strings_of(resumed.determinants)


def test_what_is_not_optimized_is_refused() -> None:
    with pytest.raises(InputError, match="optimize_orbitals: is 61; give an integer from 0 to 60"):
        tnplan.Growth(determinants=60, optimize_orbitals=61)
    several = integrals_of(random_bodies("real", "each spin", 4, 1), "real", (2, 2))
    with pytest.raises(InputError, match="cannot be combined with orbitals of each spin; give real orbitals"):
        tnplan.diagonalize(several, grow=GROWTH, **TIGHT)
    with pytest.raises(InputError, match=r"takes .* for 20 orbitals; give more memory"):
        tnplan.diagonalize(chain(20), grow=GROWTH, memory="16MiB", **TIGHT)

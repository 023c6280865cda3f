"""Sampled second-order corrections scatter about those of all terms as their errors say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.engines.sbd import random_integrals
from tests.support.engines.sbd_growth import PLENTY, every_determinant, on_workers
from tests.support.engines.sbd_kinds import KINDS, integrals_of, random_bodies
from tests.support.engines.sbd_lists import as_list
from tests.support.slow import slow_after
from tnplan.executor.sbd.selected_ci import grow as grow_module
from tnplan.executor.sbd.selected_ci import semistochastic
from tnplan.executor.sbd.selected_ci.connections import Correction, second_order
from tnplan.executor.sbd.selected_ci.excitation_tables import excitation_tables
from tnplan.executor.sbd.selected_ci.grow import extrapolate
from tnplan.executor.sbd.selected_ci.semistochastic import sampled_second_order


@pytest.fixture(autouse=True)
def short_lists_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take less time otherwise."""
    monkeypatch.setattr(semistochastic, "MOST_VISITS", np.inf)
    monkeypatch.setattr(semistochastic, "DRAWN", 60)


N, COUNTS, MEMBERS = 6, (3, 3), 150
ENERGY = -50.0
"""Below the energies of all determinants."""
LEAST = 1e-7


def corrections(
    kind: str, seed: int, coarse: float, target: float, **workers: Any
) -> list[tuple[Correction, Correction]]:
    """Of a random Hamiltonian and a list with falling coefficients: by all terms, and sampled; by rank."""
    chance = np.random.default_rng(seed)
    integrals = integrals_of(random_bodies(kind, "shared", N, seed), kind, COUNTS)
    every = every_determinant(N, COUNTS)
    basis = as_list([every[at] for at in chance.permutation(len(every))[:MEMBERS]], N)
    state = chance.standard_normal(MEMBERS) * np.exp(-np.arange(MEMBERS) / 30) + 0j
    state += 0.1j * chance.standard_normal(MEMBERS)
    state = state if integrals.is_complex else state.real.copy()
    state /= np.linalg.norm(state)
    tables = excitation_tables(integrals, 0.0, PLENTY)
    return list(on_workers(lambda group: (
        second_order(basis, state, ENERGY, LEAST, tables, group),
        sampled_second_order(basis, state, ENERGY, (coarse, LEAST), target, tables, group),
    ), **workers))  # fmt: skip


@pytest.mark.parametrize("seeds", slow_after(1, [range(100, 102), range(102, 130)]))
def test_errors_cover_what_sampling_changes(seeds: range) -> None:
    deviations = []
    for kind in KINDS:
        for seed in seeds:
            ((whole, sampled),) = corrections(kind, seed, 0.05, 5e-3)
            assert 0 < sampled.error <= 5e-3
            assert sampled.determinants <= whole.determinants
            deviations.append((sampled.energy - whole.energy) / sampled.error)
    n = len(deviations)
    assert np.abs(deviations).max() < 4.5
    assert np.mean(np.square(deviations)) < 1 + 5 * np.sqrt(2 / n)
    assert abs(np.mean(deviations)) < 4 / np.sqrt(n)


def test_a_smaller_error_takes_more_samples() -> None:
    ((whole, rough),) = corrections("real", 140, 0.05, 1.0)
    ((_, fine),) = corrections("real", 140, 0.05, rough.error / 3)
    assert fine.error <= rough.error / 3
    assert abs(fine.energy - whole.energy) < 4.5 * fine.error


def test_nothing_is_sampled_where_all_terms_are_above_the_threshold() -> None:
    ((whole, sampled),) = corrections("real", 141, LEAST, 1e-9)
    assert sampled == whole


def test_short_lists_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    ((whole, sampled),) = corrections("real", 143, 0.05, 2e-3)
    assert sampled == whole


def test_ranks_and_threads_draw_the_same() -> None:
    ((_, alone),) = corrections("complex", 142, 0.05, 1e-2)
    for _, shared in corrections("complex", 142, 0.05, 1e-2, ranks=2, threads=2):
        assert shared.error == pytest.approx(alone.error, rel=1e-9)
        assert shared.energy == pytest.approx(alone.energy, rel=1e-12)


def test_errors_of_corrections_come_to_the_uncertainty() -> None:
    energies, values = [-1.0, -1.1, -1.16], [-0.2, -0.1, -0.04]
    exact = extrapolate(energies, values)
    sampled = extrapolate(energies, values, [1e-3, 1e-3, 1e-3])
    assert exact is not None
    assert sampled is not None
    assert exact.uncertainty is not None
    assert sampled.uncertainty is not None
    assert sampled.energy == exact.energy
    # The slope is 1, so that the line moves by about as much as its points.
    assert exact.uncertainty + 5e-4 < sampled.uncertainty < exact.uncertainty + 2e-3


@pytest.mark.parametrize("seed", slow_after(1, range(152, 170)))
def test_a_growth_with_sampled_corrections_holds_the_exact_energy(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    integrals = random_integrals(6, 3, 3, seed)
    exact = tnplan.diagonalize(integrals, "all", device="cpu", threads=1).report["energies_hartree"][0]
    monkeypatch.setattr(grow_module, "SUMMED", 0.5)
    grow = tnplan.Growth((0.3, 0.1, 0.05, 0.02), pt2_error=5e-3)
    report = tnplan.diagonalize(integrals, grow=grow, device="cpu", threads=1).report["growth"]
    assert any(point["correction_errors_hartree"][0] for point in report["points"])
    for point in report["points"]:
        assert point["correction_errors_hartree"][0] <= 5e-3
    fit = report["extrapolation"][0]
    if fit is not None and fit["uncertainty_hartree"] is not None:
        # A list of all determinants is exact but for rounding errors.
        assert abs(fit["energy_hartree"] - exact) <= fit["uncertainty_hartree"] + 1e-9

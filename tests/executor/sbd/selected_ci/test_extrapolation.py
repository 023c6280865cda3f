"""Extrapolations to no correction: exact on lines and parabolas, and no surer than the points allow."""

from __future__ import annotations

import numpy as np
import pytest

import tnplan
from tnplan.executor.sbd.selected_ci.grow import extrapolate, extrapolated
from tnplan.executor.sbd.selected_ci.growth import COLUMNS

CORRECTIONS = np.array([-0.03, -0.02, -0.012, -0.007, -0.003])
EXACT = -109.25


def test_a_line_is_found_exactly() -> None:
    found = extrapolate(EXACT - 0.9 * CORRECTIONS, CORRECTIONS)
    assert found is not None
    assert found.quadratic is not None
    np.testing.assert_allclose([found.energy, found.quadratic], EXACT, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.slope, -0.9, atol=1e-9)
    # What the line adds to the last energy.
    np.testing.assert_allclose(found.uncertainty, 0.9 * 0.003, rtol=1e-6)
    assert found.points == 3


def test_a_parabola_is_found_by_the_second_figure() -> None:
    found = extrapolate(EXACT - CORRECTIONS + 9 * CORRECTIONS**2, CORRECTIONS)
    assert found is not None
    assert found.quadratic is not None
    np.testing.assert_allclose(found.quadratic, EXACT, rtol=0, atol=1e-11)
    assert found.uncertainty is not None
    assert 1e-5 < abs(found.energy - EXACT) <= found.uncertainty


def test_the_standard_error_is_that_of_polyfit() -> None:
    noise = 1e-3 * np.array([1, -2, 2, -1, 1.5])
    energies = EXACT - CORRECTIONS + noise
    last = slice(-3, None)
    coefficients, covariance = np.polyfit(
        CORRECTIONS[last], (energies - EXACT)[last], 1, w=1 / np.abs(CORRECTIONS[last]), cov=True
    )
    found = extrapolate(energies, CORRECTIONS)
    assert found is not None
    assert found.quadratic is not None
    np.testing.assert_allclose([found.slope, found.energy - EXACT], coefficients, rtol=1e-7)
    error = np.sqrt(covariance[1, 1])
    others = abs(found.energy - found.quadratic), abs(energies[-1] + CORRECTIONS[-1] - found.energy)
    np.testing.assert_allclose(
        found.uncertainty, max(error, abs(energies[-1] - found.energy), *others), rtol=1e-6
    )


def test_the_largest_of_four_figures_counts() -> None:
    """Noise of one in three points makes the standard error the largest."""
    energies = EXACT - CORRECTIONS + np.array([0, 0, 0, 1e-2, 0])
    points = slice(-3, None)
    _, covariance = np.polyfit(
        CORRECTIONS[points], (energies - EXACT)[points], 1, w=1 / np.abs(CORRECTIONS[points]), cov=True
    )
    found = extrapolate(energies[points], CORRECTIONS[points])
    assert found is not None
    np.testing.assert_allclose(found.uncertainty, np.sqrt(covariance[1, 1]), rtol=1e-6)


def test_a_list_that_was_cut_counts_with_its_own_energy() -> None:
    """The last list is the reported one, also where a longer one has the smallest correction."""
    energies = np.array([0.30, 0.24, 0.29]) + EXACT
    found = extrapolate(energies, [-0.018, -0.008, -0.013])
    assert found is not None
    assert found.uncertainty is not None
    assert found.uncertainty >= energies[-1] - found.energy - 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_the_interval_reaches_the_upper_bound(seed: int) -> None:
    """The energy of a list is the one sure bound: no interval ends below it."""
    chance = np.random.default_rng(seed)
    energies = EXACT - CORRECTIONS * chance.uniform(0.5, 3) + chance.normal(0, 1e-3, 5)
    found = extrapolate(energies, CORRECTIONS)
    if found is None:
        return
    assert found.uncertainty is not None
    assert found.energy <= energies[-1]
    assert found.energy + found.uncertainty >= energies[-1] - 1e-12


def test_the_parabola_weighs_small_corrections_most() -> None:
    noise = 1e-3 * np.array([1, -2, 2, -1, 1.5])
    energies = EXACT - CORRECTIONS + noise
    found = extrapolate(energies, CORRECTIONS)
    assert found is not None
    expected = np.polyfit(CORRECTIONS, energies - EXACT, 2, w=1 / np.abs(CORRECTIONS))[-1] + EXACT
    np.testing.assert_allclose(found.quadratic, expected, rtol=0, atol=1e-11)


def test_the_five_smallest_corrections_are_used() -> None:
    more = np.concatenate([[-0.5, -0.3], CORRECTIONS])
    energies = np.concatenate([[0.0, 1.0], EXACT - CORRECTIONS])
    assert extrapolate(energies, more) == extrapolate(EXACT - CORRECTIONS, CORRECTIONS)


@pytest.mark.parametrize("count", [0, 1])
def test_few_points_give_nothing(count: int) -> None:
    assert extrapolate([EXACT] * count, [-0.1] * count) is None


def test_two_equal_corrections_give_nothing_and_two_others_a_line() -> None:
    assert extrapolate([EXACT, EXACT], [-0.1, -0.1]) is None
    found = extrapolate([EXACT + 0.2, EXACT + 0.1], [-0.2, -0.1])
    assert found is not None
    assert found.quadratic is None
    assert found.uncertainty is None
    np.testing.assert_allclose(found.energy, EXACT)


def test_nothing_is_said_above_the_bound() -> None:
    """A state that left the ground state of its list, or corrections of another state."""
    assert extrapolate([EXACT + 0.3, EXACT + 0.2], [-0.1, -0.2]) is None
    assert extrapolate([EXACT + 0.1, EXACT + 0.2, EXACT + 0.3], [-0.3, -0.2, -0.1]) is None


def test_a_list_that_lacks_nothing_is_exact() -> None:
    found = extrapolate([EXACT + 0.1, EXACT], [-0.1, 0.0])
    assert found is not None
    assert (found.energy, found.uncertainty) == (EXACT, 0.0)


def test_a_list_that_was_cut_after_it_lacked_nothing() -> None:
    found = extrapolate([EXACT + 0.1, EXACT, EXACT + 0.05], [-0.1, 0.0, -0.05])
    assert found is not None
    assert found.energy == EXACT
    np.testing.assert_allclose(found.uncertainty, 0.05, rtol=1e-9)


def test_corrections_that_leave_terms_out_get_no_uncertainty() -> None:
    """Terms below `epsilon_pt2` are missing: it has to be far below the last threshold."""
    points = [
        {"epsilon": epsilon} | dict(zip(COLUMNS, ([EXACT - 0.9 * x], [x], [0.0]), strict=True))
        for epsilon, x in zip((0.05, 0.02, 0.01), CORRECTIONS[1:4].tolist(), strict=True)
    ]
    for epsilon_pt2, is_sure in ((0.0, True), (3e-4, True), (4e-4, False), (1e-2, False)):
        growth = tnplan.Growth((0.05, 0.02, 0.01), epsilon_pt2=epsilon_pt2)
        found = extrapolated(growth, points, 0)
        assert found is not None
        assert (found.uncertainty is not None) == is_sure

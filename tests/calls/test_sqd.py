"""The solver for qiskit-addon-sqd: results of its kind, energies and density matrices against PySCF's."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.oracles.spin_orbitals import spin_square_of
from tests.support.engines.sbd import every_string, random_integrals, reference_matrix, some_strings
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.calls.sci_solver import sci_solver
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.integrals import dense_two
from tnplan.executor.sbd.solver.davidson import Criteria

N = 6
INTEGRALS = random_integrals(N, 3, 2, 5)
TIGHT = {"criteria": Criteria(residual=1e-8), "device": "cpu", "threads": 1}


@pytest.fixture
def addon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package, or stand-ins with the fields of its results where it is not installed."""
    try:
        import qiskit_addon_sqd.fermion  # noqa: F401
    except ImportError:

        @dataclass(frozen=True)
        class SCIState:
            amplitudes: np.ndarray
            ci_strs_a: np.ndarray
            ci_strs_b: np.ndarray
            norb: int
            nelec: tuple[int, int]

        @dataclass(frozen=True)
        class SCIResult:
            energy: float
            sci_state: SCIState | None
            orbital_occupancies: tuple[np.ndarray, np.ndarray]
            rdm1: np.ndarray | None = None
            rdm2: np.ndarray | None = None

        fermion: Any = ModuleType("qiskit_addon_sqd.fermion")
        fermion.SCIState, fermion.SCIResult = SCIState, SCIResult
        monkeypatch.setitem(sys.modules, "qiskit_addon_sqd", ModuleType("qiskit_addon_sqd"))
        monkeypatch.setitem(sys.modules, "qiskit_addon_sqd.fermion", fermion)


@pytest.mark.usefixtures("addon")
def test_subspaces_have_the_results_of_pyscf() -> None:
    direct = pytest.importorskip("pyscf.fci.direct_spin1", reason="needs PySCF")
    two = dense_two(INTEGRALS)
    whole = tuple(np.array(every_string(N, count)) for count in (3, 2))
    part = tuple(np.array(some_strings(N, count, 9, 2)) for count in (3, 2))
    first, second = sci_solver([whole, part], INTEGRALS.one, two, N, (3, 2), rdm=True, **TIGHT)
    energy, state = direct.kernel(INTEGRALS.one, two, N, (3, 2), tol=1e-12)
    one_body, two_body = direct.make_rdm12(state, N, (3, 2))
    np.testing.assert_allclose(first.energy, energy, atol=1e-9)
    np.testing.assert_allclose(first.rdm1, one_body, atol=1e-6)
    np.testing.assert_allclose(first.rdm2, two_body, atol=1e-6)
    occupancies = [density.diagonal() for density in direct.make_rdm1s(state, N, (3, 2))]
    np.testing.assert_allclose(first.orbital_occupancies, occupancies, atol=1e-6)
    assert second.energy > first.energy
    np.testing.assert_array_equal(second.sci_state.ci_strs_b, part[1])
    assert second.sci_state.amplitudes.shape == (9, 9)
    assert (second.sci_state.norb, second.sci_state.nelec) == (N, (3, 2))


@pytest.mark.usefixtures("addon")
def test_a_spin_is_selected() -> None:
    few = random_integrals(4, 2, 1, 5)
    whole = tuple(np.array(every_string(4, count)) for count in (2, 1))
    doublet, quartet = (
        sci_solver([whole], few.one / 20, dense_two(few) / 20, 4, (2, 1), spin_sq=square, **TIGHT)[0]
        for square in (0.75, 3.75)
    )
    assert doublet.rdm1 is None
    assert doublet.energy < quartet.energy


# fmt: off
REFUSED: list[Row] = [
    ({"norb": N + 1}, "one_body_tensor", "has the shape (6, 6) for 7 orbitals", "7 x 7"),
    ({"ci_strings": [(np.array([7]), np.array([7]))]}, "strings: line 1",
     "fills 3 orbitals, not 2", "electrons"),
    ({"criteria": Criteria(1e-12, steps=2)}, "sci_solver", "did not converge in 2 steps", "allow more steps"),
    ({"roots": 2}, "sci_solver: roots",
     "are 2, and a result of qiskit-addon-sqd has one state", "leave roots out"),
    ({"spin_sq": -1.0}, "sci_solver: spin_sq", "is -1.0", "give s (s + 1)"),
]
# fmt: on


@pytest.mark.usefixtures("addon")
@table(REFUSED)
def test_a_call_is_refused(refusal: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.DETERMINANTS", 10)
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.WHOLE", 0)
    usual = {
        "ci_strings": [tuple(np.array(every_string(N, count)) for count in (3, 2))],
        "one_body_tensor": INTEGRALS.one, "two_body_tensor": dense_two(INTEGRALS), "norb": N, "nelec": (3, 2),
    }  # fmt: skip
    refusal.raised_by(lambda: sci_solver(**{**usual, **TIGHT, **refusal.given}))


def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "qiskit_addon_sqd", None)
    monkeypatch.setitem(sys.modules, "qiskit_addon_sqd.fermion", None)
    with pytest.raises(InputError, match="pip install qiskit-addon-sqd"):
        sci_solver([], INTEGRALS.one, dense_two(INTEGRALS), N, (3, 2))


def penalized_energy(strings: list[int], square: float, power: int) -> float:
    """<H> of the lowest state of H + 0.1 (S^2 - square)^power among all pairs of strings."""
    pairs = list(product(strings, strings))
    h = reference_matrix(FOUR, pairs)
    away = spin_square_of(np.eye(4), pairs).real - square * np.eye(len(pairs))
    _, states = np.linalg.eigh(h + 0.1 * np.linalg.matrix_power(away, power))
    return float(states[:, 0] @ h @ states[:, 0])


FOUR = random_integrals(4, 2, 2, 8)


@pytest.mark.usefixtures("addon")
@pytest.mark.parametrize(("square", "power"), [(0.0, 1), (0.09, 1), (2.0, 2), (6.0, 2)])
def test_the_penalty_is_that_of_the_addon(square: float, power: int) -> None:
    strings = every_string(4, 2)[:5]
    given = np.array(strings)
    found = sci_solver([(given, given)], FOUR.one, dense_two(FOUR), 4, (2, 2), spin_sq=square, **TIGHT)[0]
    np.testing.assert_allclose(found.energy, penalized_energy(strings, square, power), atol=1e-9)


@pytest.mark.parametrize("square", [None, 0.0, 2.0])
def test_energies_are_those_of_the_addon(square: float | None) -> None:
    fermion = pytest.importorskip("qiskit_addon_sqd.fermion")
    given = np.array(every_string(4, 2)[:5])
    arguments = [(given, given)], FOUR.one, dense_two(FOUR), 4, (2, 2)
    theirs = fermion.solve_sci_batch(*arguments, spin_sq=square, tol=1e-13)[0]
    ours = sci_solver(*arguments, spin_sq=square, **TIGHT)[0]
    np.testing.assert_allclose(ours.energy, theirs.energy, atol=1e-7)
    np.testing.assert_allclose(ours.sci_state.spin_square(), theirs.sci_state.spin_square(), atol=1e-5)

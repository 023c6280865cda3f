"""Selections and second-order corrections equal those of full matrices, for Hamiltonians of every kind."""

from __future__ import annotations

import tracemalloc
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.oracles.spin_orbitals import matrix_of_spins
from tests.support.engines.sbd import random_integrals, reference_matrix
from tests.support.engines.sbd_growth import (
    PLENTY,
    every_determinant,
    keys_of,
    on_workers,
    outside_terms,
    strings_of,
)
from tests.support.engines.sbd_kinds import KINDS, ORBITALS, integrals_of, random_bodies
from tests.support.engines.sbd_lists import SPREAD, as_list, spread
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.integrals import Integrals, dense_two, from_arrays
from tnplan.executor.sbd.selected_ci import connections as connections_module
from tnplan.executor.sbd.selected_ci.connections import (
    Candidates,
    OutsideSum,
    from_keys,
    member_keys,
    second_order,
    select,
    with_keys,
)
from tnplan.executor.sbd.selected_ci.excitation_tables import excitation_tables

Array = NDArray[Any]
N = 5
every_kind = pytest.mark.parametrize(("kind", "orbitals"), [*product(KINDS, ORBITALS)])


class Case:
    """A Hamiltonian with its full matrix, and a state of some of its determinants in random order."""

    def __init__(self, integrals: Integrals, matrix: Array, count: int, seed: int = 1) -> None:
        chance = np.random.default_rng(seed)
        n, counts = integrals.n_orbitals, (integrals.n_alpha, integrals.n_beta)
        self.integrals, self.matrix = integrals, matrix
        self.every = every_determinant(n, counts)
        given = chance.permutation(len(self.every))[:count]
        self.basis = as_list([self.every[at] for at in given], n)
        self.inside = given[self.basis.given]
        state = chance.standard_normal(count) + integrals.is_complex * 1j * chance.standard_normal(count)
        state = state if integrals.is_complex else state.real.copy()
        state[0] = 0.0
        self.state = state / np.linalg.norm(state)

    def selected(self, epsilon: float) -> Candidates:
        sizes = np.abs(outside_terms(self.matrix, self.inside, np.abs(self.state))).max(1)
        chosen = np.flatnonzero(sizes > epsilon)
        keys = keys_of([self.every[at] for at in chosen])
        order = np.lexsort(keys.T)
        return Candidates(keys[order], sizes[chosen][order])

    def correction(self, energy: float, epsilon: float) -> float:
        terms = outside_terms(self.matrix, self.inside, self.state)
        terms[np.abs(terms) <= epsilon] = 0
        outside = np.setdiff1d(np.arange(len(self.every)), self.inside)
        return float((np.abs(terms.sum(1)) ** 2 / (energy - self.matrix.diagonal().real))[outside].sum())


def case_of(kind: str, orbitals: str, counts: tuple[int, int], count: int = 12) -> Case:
    bodies = random_bodies(kind, orbitals, N, 11)
    integrals = integrals_of(bodies, kind, counts)
    return Case(integrals, matrix_of_spins(bodies, every_determinant(N, counts)), count)


def check(case: Case, **workers: Any) -> None:
    tables = excitation_tables(case.integrals, 0.0, PLENTY)
    lowest = float(case.matrix.diagonal().real.min()) - 1
    for epsilon in (0.0, 0.02, 0.3):
        expected = case.selected(epsilon)
        for found in on_workers(
            lambda group: select(case.basis, np.abs(case.state), epsilon, tables, group),  # noqa: B023
            **workers,
        ):
            np.testing.assert_array_equal(found.keys, expected.keys)
            np.testing.assert_allclose(found.sizes, expected.sizes, atol=1e-13)
        for made in on_workers(
            lambda group: second_order(case.basis, case.state, lowest, epsilon, tables, group),  # noqa: B023
            **workers,
        ):
            np.testing.assert_allclose(made.energy, case.correction(lowest, epsilon), rtol=1e-12)
            assert made.determinants <= len(case.every) - len(case.basis)


@pytest.mark.parametrize("counts", [(2, 2), (3, 1), (3, 0), (0, 2)])
@every_kind
def test_all_kinds_equal_full_matrices(kind: str, orbitals: str, counts: tuple[int, int]) -> None:
    check(case_of(kind, orbitals, counts, 8))


@pytest.mark.parametrize(("ranks", "threads"), [(1, 3), (2, 1), (3, 2)])
def test_ranks_and_threads_agree(ranks: int, threads: int) -> None:
    check(case_of("complex", "each spin", (2, 2)), ranks=ranks, threads=threads)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("parity", "mixed"), [(1, 0.0), (-1, 0.0), (1, 1e-7), (1, 0.1)])
def test_states_of_a_parity_are_corrected_by_halves(
    kind: str, parity: int, mixed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a determinant and its flip stands for both, unless the state has no parity."""
    case = case_of(kind, "shared", (2, 2), 20)
    alone = set(strings_of(case.basis))
    case.basis = as_list(sorted(alone | {(beta, alpha) for alpha, beta in alone}), N)
    listed = strings_of(case.basis)
    case.inside = np.array([case.every.index(one) for one in listed])
    flips = [listed.index((beta, alpha)) for alpha, beta in listed]
    chance = np.random.default_rng(2)
    state = chance.standard_normal(len(listed)) + case.integrals.is_complex * 1j
    state = (state + parity * state[flips]) / 2
    case.state = state / np.linalg.norm(state) + mixed * chance.standard_normal(len(listed))
    halves = []
    of = OutsideSum.of

    def noted(*given: Any, **named: Any) -> Any:
        halves.append(named["half"])
        return of(*given, **named)

    monkeypatch.setattr(OutsideSum, "of", noted)
    tables = excitation_tables(case.integrals, 0.0, PLENTY)
    energy = float(case.matrix.diagonal().real.min()) - 1
    (made,) = on_workers(lambda group: second_order(case.basis, case.state, energy, 0.0, tables, group))
    np.testing.assert_allclose(
        made.energy, case.correction(energy, 0.0), rtol=1e-12 if mixed != 1e-7 else 1e-10
    )
    assert halves == [mixed < 1e-2]
    outside = np.setdiff1d(np.arange(len(case.every)), case.inside)
    assert made.determinants == (np.abs(case.matrix[np.ix_(outside, case.inside)]) > 0).any(1).sum()


def test_general_spin_orbitals_equal_full_matrices() -> None:
    real = random_integrals(6, 3, 0, 3)
    general = from_arrays(real.one, dense_two(real), 3, 0, general=True)
    check(Case(general, reference_matrix(real, every_determinant(6, (3, 0))), 5))


def test_little_memory_makes_more_parts() -> None:
    """Until the table of one part has no room for one pair's excitations, which is refused."""
    integrals = random_integrals(8, 4, 4, 7)
    tables = excitation_tables(integrals, 0.0, PLENTY)
    basis = as_list([(0b1111, 0b1111), (0b10111, 0b1111), (0b1111, 0b110011)], 8)
    state = np.array([0.9, 0.3, -0.3])
    results = []
    for memory_bytes in (PLENTY, 40_000, 20_000):
        (candidates,) = on_workers(
            lambda group: select(basis, state, 1e-3, tables, group), memory_bytes=8 * memory_bytes
        )
        (correction,) = on_workers(
            lambda group: second_order(basis, state, -90.0, 0, tables, group), memory_bytes=memory_bytes
        )
        results.append((candidates, correction))
    for candidates, correction in results[1:]:
        np.testing.assert_array_equal(candidates.keys, results[0][0].keys)
        np.testing.assert_allclose(correction.energy, results[0][1].energy, rtol=1e-13)
        assert correction.determinants == results[0][1].determinants
    with pytest.raises(InputError, match=r"memory: has [\d.]+ KiB for tables of determinants outside"):
        on_workers(lambda group: select(basis, state, 1e-3, tables, group), memory_bytes=4000)
    with pytest.raises(InputError, match=r"but sorted integrals need .*; give more memory"):
        excitation_tables(integrals, 0.0, 1000)


@pytest.mark.parametrize(("ranks", "threads"), [(1, 1), (1, 2), (2, 1)])
def test_a_selection_stays_within_its_memory_or_is_refused(ranks: int, threads: int) -> None:
    integrals = random_integrals(9, 4, 4, 3)
    tables = excitation_tables(integrals, 0.0, PLENTY)
    chance = np.random.default_rng(5)
    every = every_determinant(9, (4, 4))
    basis = as_list([every[at] for at in chance.permutation(len(every))[:300]], 9)
    weights = np.full(300, 0.05)

    def selection(memory_bytes: float) -> list[int]:
        found: list[int] = on_workers(
            lambda group: len(select(basis, weights, 1e-9, tables, group)), ranks, threads, memory_bytes
        )
        return found

    selection(PLENTY)  # what compiles kernels is not counted
    selected, refused = 0, 0
    for memory_bytes in (3e6, 2e6, 1.5e6, 1e6, 6e5):
        tracemalloc.start()
        try:
            found = selection(memory_bytes)
            selected += 1
            assert found == [15_576] * ranks
        except InputError as error:
            refused += 1
            assert "give more memory or a larger epsilon" in str(error)  # noqa: PT017
        finally:
            peak_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak_bytes <= ranks * memory_bytes
    assert selected
    assert refused


def test_orbitals_in_several_words() -> None:
    """The same determinants under other names of their orbitals, beyond 64 of them."""
    integrals = random_integrals(N, 2, 2, 5)
    names = SPREAD[2:7]
    inside = [(0b11, 0b11), (0b101, 0b11), (0b110, 0b1010)]
    state = np.array([0.8, -0.5, 0.33])
    narrow, wide = as_list(inside, N), as_list(inside, N, names)
    found = {}
    for label, basis, of in (("narrow", narrow, integrals), ("wide", wide, spread(integrals, names))):
        tables = excitation_tables(of, 1e-9, PLENTY)
        x = state[basis.given]
        candidates = on_workers(lambda group: select(basis, abs(x), 1e-3, tables, group))[0]  # noqa: B023
        longer = with_keys(basis, candidates.keys)
        assert len(longer) == 3 + len(candidates)
        bits = longer.alpha_strings.occupied[longer.alpha], longer.beta_strings.occupied[longer.beta]
        chosen = names if label == "wide" else range(N)
        filled = np.concatenate([side[:, list(chosen)] for side in bits], axis=1)
        found[label] = set(map(tuple, filled.tolist()))
        made = on_workers(lambda group: second_order(basis, x, -90.0, 0, tables, group))[0]  # noqa: B023
        found[f"{label} energy"] = made.energy
    assert found["wide"] == found["narrow"]
    np.testing.assert_allclose(found["wide energy"], found["narrow energy"], rtol=1e-13)


def test_tables_leave_small_elements_out() -> None:
    integrals = random_integrals(N, 2, 2, 5)
    whole, cut = (excitation_tables(integrals, least, PLENTY) for least in (0.0, 0.4))
    for spin in range(3):
        doubles = [(t.alpha.doubles, t.beta.doubles, t.opposite)[spin] for t in (whole, cut)]
        sizes = np.abs(doubles[0].value)
        np.testing.assert_array_equal(doubles[1].value, doubles[0].value[sizes > 0.4])
        for begin, end in zip(doubles[0].start, doubles[0].start[1:], strict=False):
            assert (np.diff(sizes[begin:end]) <= 0).all()
    assert cut.size_bytes < whole.size_bytes


def test_the_largest_candidates_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = keys_of([(3, 5), (5, 3), (3, 6), (6, 3)])
    found = Candidates(keys, np.array([0.1, 0.3, 0.3, 0.2]))
    np.testing.assert_array_equal(found.largest(1).keys, keys[1:2])
    np.testing.assert_array_equal(found.largest(3).keys, keys[1:])
    np.testing.assert_array_equal(found.largest(9).keys, keys)
    # Orbitals 0, 1, 2 have labels 1, 2, 3: (3, 6) fills 0, 1 and 1, 2, of product 1 + (0 ^ 1 ^ 1 ^ 2) = 3.
    for at_once in (1, 3, 4):
        monkeypatch.setattr(connections_module, "AT_ONCE", at_once)
        np.testing.assert_array_equal(found.of_irrep(3, (1, 2, 3)).keys, keys[2:])


def test_keys_are_lists_of_determinants() -> None:
    basis = as_list([(3, 5), (5, 3), (3, 6), (6, 3)], N)
    again = from_keys(member_keys(basis)[::-1], N)
    assert strings_of(again) == strings_of(basis) == sorted(strings_of(basis))
    np.testing.assert_array_equal(again.given, [3, 2, 1, 0])

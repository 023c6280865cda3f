"""Starts of growths: determinants of low energy, broken spins, and the ground state of any symmetry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tnplan
from tests.support.effort import repeats
from tests.support.engines.sbd import random_integrals, reference_matrix
from tests.support.engines.sbd_growth import PLENTY, chain, every_determinant, strings_of
from tests.support.engines.sbd_lists import as_list
from tests.support.slow import slow_after
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.integrals import Integrals, OrbitalLabels, from_arrays
from tnplan.executor.sbd.selected_ci import grow
from tnplan.executor.sbd.selected_ci.excitation_tables import excitation_tables
from tnplan.executor.sbd.selected_ci.starts import DETERMINANTS, DeterminantSearch

Array = NDArray[Any]
OPTIONS: dict[str, Any] = {"device": "cpu", "threads": 1, "checkpoint": False}
N = 6
EVERY = every_determinant(N, (3, 3))


def model(seed: int) -> Integrals:
    """A chain, ring or ladder of six sites with repulsion, over orbitals of its hops, of sites, or between.

    Its ground state has any of the symmetries that the hops, the exchange of spins and the orbitals leave.
    """
    chance = np.random.default_rng(seed)
    hop = np.zeros((N, N))
    kind = ("chain", "ring", "ladder")[seed % 3]
    for p in range(N - 1):
        hop[p, p + 1] = -chance.choice([1.0, 1.0, chance.uniform(0.3, 1.5)])
    if kind == "ring":
        hop[0, N - 1] = -1
    if kind == "ladder":
        hop = np.zeros((N, N))
        for p in range(0, N, 2):
            hop[p, p + 1] = -1
        for p in range(N - 2):
            hop[p, p + 2] = -chance.choice([0.5, 1.0])
    hop = hop + hop.T + np.diag(chance.choice([0.0, 1.0]) * np.where(np.arange(N) % 2, 0.5, -0.5))
    places = np.arange(N)
    distance = np.abs(places[:, None] - places)
    if kind == "ring":
        distance = np.minimum(distance, N - distance)
    repulsion = chance.uniform(0.5, 6) / (1 + chance.uniform(0.5, 4) * distance)
    orbitals = np.linalg.eigh(hop)[1]
    if chance.random() < 0.3:
        orbitals = np.eye(N)
    elif chance.random() < 0.3:
        orbitals = orbitals @ np.linalg.qr(np.eye(N) + 0.1 * chance.standard_normal((N, N)))[0]
    two = np.einsum("ip,iq,ij,jr,js->pqrs", orbitals, orbitals, repulsion, orbitals, orbitals, optimize=True)
    one = orbitals.T @ (hop - np.diag(repulsion.sum(1) / 2)) @ orbitals
    one, two = (np.where(np.abs(values) < 1e-12, 0, values) for values in (one, two))
    return from_arrays(one, two, 3, 3, 0.0)


@pytest.mark.parametrize("counts", [(2, 2), (3, 1), (3, 0)])
def test_the_lowest_determinants_are_those_of_the_diagonal(counts: tuple[int, int]) -> None:
    """The first hundred, of random integrals."""
    integrals = random_integrals(7, *counts, 3)
    energies = excitation_tables(integrals, 0.0, PLENTY).energies
    every = every_determinant(7, counts)
    diagonal = reference_matrix(integrals, every).diagonal().real
    filled = DeterminantSearch(integrals, energies).lowest()
    found = [tuple(int((spin << np.arange(7)).sum()) for spin in bits) for bits in filled]
    assert len(set(found)) == len(found) <= DETERMINANTS
    reached = [diagonal[every.index(one)] for one in found]
    np.testing.assert_allclose(reached[:100], np.sort(diagonal)[: min(100, len(every))], atol=1e-12)


@pytest.mark.parametrize("memory_bytes", slow_after(1, [1.0, 1e4, PLENTY]))
def test_determinants_keep_the_representation_and_the_open_shells(memory_bytes: float) -> None:
    integrals = chain(N)
    energies = excitation_tables(integrals, 0.0, PLENTY).energies
    labelled = replace(integrals, labels=OrbitalLabels(tuple(1 + p % 2 for p in range(N))))
    diagonal = reference_matrix(integrals, EVERY).diagonal().real
    odd = sum(1 << p for p in range(1, N, 2))
    for irrep in (1, 2):
        for least_open in (0, 2, 4, 6):
            search = DeterminantSearch(labelled, energies, irrep, least_open, memory_bytes)
            fits = [
                ((a & odd).bit_count() + (b & odd).bit_count()) % 2 == irrep - 1
                and (a ^ b).bit_count() >= least_open
                for a, b in EVERY
            ]
            places = np.flatnonzero(fits)
            lowest = EVERY[places[np.argmin(diagonal[places])]] if len(places) else None
            filled = search.lowest()
            found = [tuple(int((spin << np.arange(N)).sum()) for spin in bits) for bits in filled]
            is_open = [(a ^ b).bit_count() >= least_open for a, b in found]
            first = next((one for one, has in zip(found, is_open, strict=True) if has), None)
            assert (
                first is None
                if lowest is None
                else diagonal[EVERY.index(first)] == pytest.approx(diagonal[EVERY.index(lowest)])
            )


def test_spins_alternate_where_sites_repel() -> None:
    """Half a filling of a chain with strong repulsion: spins up and down in turn, over orbitals of sites."""
    hop = -np.eye(N, k=1) - np.eye(N, k=-1)
    two = np.zeros((N, N, N, N))
    for p in range(N):
        two[p, p, p, p] = 8.0
        for q in (p - 1, p + 1):
            if 0 <= q < N:  # exchange of neighbours, so that placements differ
                two[p, q, q, p] = two[p, q, p, q] = -0.3
    integrals = from_arrays(hop, two, 3, 3)
    energies = excitation_tables(integrals, 0.0, PLENTY).energies
    broken = DeterminantSearch(integrals, energies).broken()
    patterns = {tuple(bits[0].tolist()) for bits in broken if (bits[0] ^ bits[1]).all()}
    turns = np.arange(N) % 2 == 0
    assert patterns & {tuple(turns.tolist()), tuple((~turns).tolist())}


@pytest.mark.parametrize("seed", slow_after(3, range(repeats(12, 24))))
def test_a_growth_reaches_the_ground_state_of_any_symmetry(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """To a threshold of zero, which reaches all of the symmetry of the start and nothing else.

    From ten determinants, so that most of the space is beyond those that starts are made of.
    """
    monkeypatch.setattr("tnplan.executor.sbd.selected_ci.starts.DETERMINANTS", 10)
    integrals = model(seed)
    lowest = np.linalg.eigvalsh(reference_matrix(integrals, EVERY))[0]
    growth = tnplan.Growth((0.1, 0.01, 0.0), stable=0.0, epsilon_pt2=0.0)
    result = tnplan.diagonalize(integrals, grow=growth, **OPTIONS)
    np.testing.assert_allclose(result.energies[0], lowest, rtol=0, atol=1e-8)


@pytest.mark.parametrize("seed", [1, 3, 9])
def test_early_lists_are_of_the_state_that_a_start_leads_to(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """From a start of another symmetry, which couples to the ground state by less than early thresholds."""
    monkeypatch.setattr("tnplan.executor.sbd.selected_ci.starts.DETERMINANTS", 10)
    monkeypatch.setattr(grow, "ROUNDS", ((6, 16, 1e-3), (500, 3, 1e-4)))
    starts = grow.start_states
    monkeypatch.setattr(
        grow, "start_states", lambda *given: sorted(starts(*given), key=lambda start: start.energy)[-1:]
    )
    integrals, weak = model(seed), 1e-3 * np.random.default_rng(seed).normal(size=(N, N))
    integrals = replace(integrals, one=integrals.one + weak + weak.T)
    lowest = np.linalg.eigvalsh(reference_matrix(integrals, EVERY))[0]
    growth = tnplan.Growth((0.3, 0.1, 1e-5), epsilon_pt2=0.0)
    points = tnplan.diagonalize(integrals, grow=growth, **OPTIONS).report["growth"]["points"]
    above = [point["energies_hartree"][0] - lowest for point in points]
    assert above[0] < 1
    assert above[2] < 1e-4


def test_two_roots_are_not_those_of_the_start() -> None:
    """Six atoms of hydrogen: quintets are the lowest states among few determinants, 22 mHa above."""
    gto = pytest.importorskip("pyscf.gto", reason="needs PySCF")
    from pyscf import ao2mo, fci, scf

    places = [
        (-0.882, 1.832, -0.376), (-1.372, -0.223, -0.584), (2.03, 0.299, -3.483), (0.793, -3.307, -1.479),
        (-1.545, -2.531, -0.358), (0.713, 0.071, -2.037),
    ]  # fmt: skip
    molecule = gto.M(atom=[("H", place) for place in places], basis="sto-3g", verbose=0)
    field = scf.RHF(molecule)
    field.max_cycle = 200
    field.run()
    one = field.mo_coeff.T @ field.get_hcore() @ field.mo_coeff
    two = ao2mo.restore(1, ao2mo.kernel(molecule, field.mo_coeff), 6)
    core = molecule.energy_nuc()
    exact = fci.direct_spin1.FCI().kernel(one, two, 6, (3, 3), nroots=6, ecore=core)[0][:2]
    growth = tnplan.Growth((0.05, 0.02, 0.01))
    result = tnplan.diagonalize(from_arrays(one, two, 3, 3, core), grow=growth, roots=2, **OPTIONS)
    assert (result.energies - exact < 0.015).all()
    assert result.report["spin_square"][0] < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("distance", [1.25, 1.6])
def test_the_ground_state_of_c2_is_found(distance: float) -> None:
    """Singlets and triplets of C2 cross here, and the lowest determinants are those of other states."""
    gto = pytest.importorskip("pyscf.gto", reason="needs PySCF")
    from pyscf import ao2mo, fci, scf

    molecule = gto.M(atom=f"C 0 0 0; C 0 0 {distance}", basis="sto-3g", verbose=0)
    field = scf.RHF(molecule).run()
    one = field.mo_coeff.T @ field.get_hcore() @ field.mo_coeff
    two = ao2mo.restore(1, ao2mo.kernel(molecule, field.mo_coeff), 10)
    core = molecule.energy_nuc()
    exact = min(fci.direct_spin1.FCI().kernel(one, two, 10, (6, 6), nroots=4, ecore=core)[0])
    result = tnplan.diagonalize(from_arrays(one, two, 6, 6, core), grow=tnplan.Growth(), **OPTIONS)
    fit = result.report["growth"]["extrapolation"][0]
    assert exact < result.energies[0] < exact + 2e-4
    assert abs(fit["energy_hartree"] - exact) <= fit["uncertainty_hartree"] < 3e-3


@pytest.mark.parametrize("seed", range(repeats(2, 6)))
def test_lists_are_closed_under_spin_flips(seed: int) -> None:
    integrals = model(seed)
    result = tnplan.diagonalize(integrals, grow=tnplan.Growth((0.3, 0.1)), **OPTIONS)
    assert result.determinants is not None
    strings = set(strings_of(result.determinants))
    assert strings == {(b, a) for a, b in strings}
    given = as_list([(0b111, 0b1011)], N)
    grown = tnplan.diagonalize(integrals, determinants=given, grow=tnplan.Growth((0.3,)), **OPTIONS)
    assert grown.determinants is not None
    assert {(0b111, 0b1011), (0b1011, 0b111)} <= set(strings_of(grown.determinants))


@pytest.mark.parametrize("seed", range(repeats(2, 6)))
def test_lists_without_flips(seed: int) -> None:
    """One pattern of spins stands alone where sites repel, and all are reached in the end."""
    chance = np.random.default_rng(seed)
    hop = -(np.eye(N, k=1) + np.eye(N, k=-1)) + np.diag(0.1 * chance.standard_normal(N))
    two = np.zeros((N, N, N, N))
    two[*[np.arange(N)] * 4] = chance.uniform(8.0, 16.0)
    integrals = from_arrays(hop, two, 3, 3)
    with pytest.raises(InputError, match="2 determinants with the same orbitals belong together"):
        tnplan.diagonalize(integrals, grow=tnplan.Growth(determinants=1), **OPTIONS)
    alone = tnplan.diagonalize(integrals, grow=tnplan.Growth(determinants=1, flips=False), **OPTIONS)
    assert alone.determinants is not None
    [(alpha, beta)] = strings_of(alone.determinants)
    assert alpha ^ beta == (1 << N) - 1
    assert alone.energies[0] == pytest.approx(hop.trace(), abs=1e-12)
    growth = tnplan.Growth((0.1, 0.0), stable=0.0, epsilon_pt2=0.0, flips=False)
    whole = tnplan.diagonalize(integrals, grow=growth, **OPTIONS)
    lowest = np.linalg.eigvalsh(reference_matrix(integrals, EVERY))[0]
    np.testing.assert_allclose(whole.energies[0], lowest, rtol=0, atol=1e-8)


@pytest.mark.parametrize("spin", slow_after(2, [0.0, 3.0, 1.0, 2.0]))
@pytest.mark.parametrize("seed", slow_after(1, range(3)))
def test_a_spin_is_exact_in_every_list(seed: int, spin: float) -> None:
    """Also in short ones, since all placements of the spins stand together."""
    integrals = model(seed)
    penalty = tnplan.SpinPenalty(spin, weight=2.0)
    for growth in (tnplan.Growth((0.3,)), tnplan.Growth((0.1, 0.0), stable=0.0, epsilon_pt2=0.0)):
        result = tnplan.diagonalize(integrals, grow=growth, penalty=penalty, **OPTIONS)
        assert result.report["spin_square"][0] == pytest.approx(spin * (spin + 1), abs=1e-6)
    full = tnplan.diagonalize(
        integrals, [a for a, b in EVERY if b == 0b111], penalty=penalty, roots=1, **OPTIONS
    )
    np.testing.assert_allclose(result.energies, full.energies, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_the_uncertainty_holds_the_exact_energy() -> None:
    """In 95 of 100 growths, wherever one is stated; and no estimate lies above the energy of the list."""
    held, stated = 0, 0
    for seed in range(1000, 1000 + repeats(40, 200)):
        integrals, chance = model(seed), np.random.default_rng(seed)
        lowest = np.linalg.eigvalsh(reference_matrix(integrals, EVERY))[0]
        growth = tnplan.Growth(tuple(chance.uniform(0.1, 0.8) * 0.5 ** np.arange(4)))
        result = tnplan.diagonalize(integrals, grow=growth, **OPTIONS)
        fit = result.report["growth"]["extrapolation"][0]
        assert fit is None or fit["energy_hartree"] <= result.energies[0] + 1e-12
        if fit is None or fit["uncertainty_hartree"] is None:
            continue
        stated += 1
        held += abs(fit["energy_hartree"] - lowest) <= fit["uncertainty_hartree"] + 1e-7
    assert stated > repeats(20, 100)
    assert held >= 0.95 * stated

"""Symmetry-adapted orbitals from integrals alone: groups that a rotation hides are found, energies stay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.effort import repeats
from tests.support.engines.sbd import every_string, random_integrals
from tests.support.engines.symmetric_molecules import GROUPS, symmetric_molecule
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.calls.diagonalize import diagonalize
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.fcidump import write_fcidump
from tnplan.executor.sbd.basis.integrals import Integrals, OrbitalLabels, dense_two, from_arrays
from tnplan.executor.sbd.basis.orbitals import rotate_orbitals
from tnplan.executor.sbd.basis.symmetry_adapted import adapted_orbitals

POINTS: dict[str, tuple[list[tuple[int, ...]], int]] = {
    "C3v": ([(1, 2, 0), (1, 0, 2)], 2), "D4": ([(1, 2, 3, 0), (0, 3, 2, 1)], 4),
    "Td": ([(1, 2, 3, 0), (1, 0, 2, 3)], 4), "D6": ([(1, 2, 3, 4, 5, 0), (0, 5, 4, 3, 2, 1)], 4),
    "C1": ([(0, 1, 2)], 1),
}  # fmt: skip
"""Generators of groups by what they do to equal atoms, and the representations of their largest subgroup of
twofold operations."""


def random_orthogonal(n: int, seed: int) -> NDArray[np.float64]:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]


def hidden(integrals: Integrals, seed: int) -> Integrals:
    """The same over random orbitals, without labels."""
    rotated = rotate_orbitals(integrals, random_orthogonal(integrals.n_orbitals, seed))
    return replace(rotated, labels=OrbitalLabels())


def forbidden(integrals: Integrals) -> float:
    """The largest integral that the labels forbid."""
    labels = np.array(integrals.labels.irreps) - 1
    pairs = labels[:, None] ^ labels
    one = np.abs(integrals.one[pairs != 0]).max(initial=0.0)
    two = np.abs(dense_two(integrals)[pairs[:, :, None, None] != pairs]).max(initial=0.0)
    return float(max(one, two))


def group_of(generators: list[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """All permutations that products of these make."""
    reached, new = set[tuple[int, ...]](), {tuple(range(len(generators[0])))}
    while new:
        reached |= new
        new = {tuple(g[i] for i in each) for each in new for g in generators} - reached
    return iter(reached)


def molecule_of_points(name: str, counts: tuple[int, int], seed: int) -> Integrals:
    """Random integrals with the symmetry of equal atoms, an orbital each, and two in their middle."""
    generators, _ = POINTS[name]
    group = [(*each, len(each), len(each) + 1) for each in group_of(generators)]
    made = random_integrals(len(group[0]), *counts, seed)
    one, two = np.asarray(made.one), dense_two(made)
    return from_arrays(
        sum(one[np.ix_(g, g)] for g in group) / len(group),
        sum(two[np.ix_(g, g, g, g)] for g in group) / len(group), *counts, 0.5,
    )  # fmt: skip


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("seed", [9_400_000 + i for i in range(repeats(3, 30))])
def test_a_hidden_group_is_found(group: str, seed: int) -> None:
    made = symmetric_molecule(group, 8, (2, 2), seed)
    adapted, matrix = adapted_orbitals(hidden(made, seed))
    assert np.allclose(matrix.T @ matrix, np.eye(8), atol=1e-12)
    assert len(set(adapted.labels.irreps)) >= len(set(made.labels.irreps))
    assert forbidden(adapted) < 1e-8
    assert adapted.labels.irreps[0] == 1


@pytest.mark.parametrize("name", POINTS)
def test_degenerate_levels_are_turned_to_axes_and_planes(name: str) -> None:
    """Of groups with threefold and fourfold axes, nearly always the largest twofold subgroup."""
    seeds = range(9_500_000, 9_500_000 + repeats(3, 20))
    complete = 0
    for seed in seeds:
        adapted, _ = adapted_orbitals(hidden(molecule_of_points(name, (2, 2), seed), seed))
        assert forbidden(adapted) < 1e-6
        # Labels of few orbitals may not show all representations: their products do.
        spanned = {0}
        for irrep in adapted.labels.irreps:
            spanned |= {each ^ (irrep - 1) for each in spanned}
        complete += len(spanned) >= POINTS[name][1]
    assert complete >= 0.9 * len(seeds)


def test_orbitals_stay_near_those_given() -> None:
    """Orbitals that are adapted already come back, in their order."""
    made = symmetric_molecule("D2h", 8, (2, 2), 9_700_000)
    adapted, matrix = adapted_orbitals(replace(made, labels=OrbitalLabels()))
    assert np.allclose(matrix, np.eye(8), atol=1e-6)
    assert np.allclose(adapted.one, made.one, atol=1e-9)


@pytest.mark.parametrize("seed", [9_600_000 + i for i in range(repeats(2, 12))])
def test_the_lowest_energy_is_that_of_one_representation(seed: int, tmp_path: Path) -> None:
    """By the call, from a file, beside the solve over the orbitals given."""
    counts = (2, 1 + seed % 2)
    file = write_fcidump(tmp_path / "h.fcidump", hidden(symmetric_molecule("D2h", 6, counts, seed), seed))
    strings = [every_string(6, count) for count in counts]
    plain = diagonalize(file, *strings, device="cpu", threads=1)
    energies = []
    for irrep in range(1, 9):
        with suppress(InputError):  # no determinant has this representation
            solved = diagonalize(file, *strings, rotation="adapted", symmetry=irrep, device="cpu", threads=1)
            energies.append(solved.energies[0])
    assert min(energies) == pytest.approx(plain.energies[0], abs=1e-7)


def complex_integrals() -> Integrals:
    return rotate_orbitals(random_integrals(3, 1, 1, 1), np.diag([1, 1j, 1]) @ random_orthogonal(3, 1))


ROWS: list[Row] = [
    (complex_integrals(), "rotation", "takes real integrals", "give a matrix"),
    (rotate_orbitals(random_integrals(3, 1, 1, 1), [random_orthogonal(3, 1), random_orthogonal(3, 2)]),
     "rotation", "that both spins share", "leave it out"),
]  # fmt: skip


@table(ROWS)
def test_complex_integrals_and_orbitals_of_each_spin_are_refused(refusal: Refusal) -> None:
    refusal.raised_by(lambda: adapted_orbitals(refusal.given))


@pytest.mark.parametrize("seed", range(12))
def test_levels_that_are_the_same_in_every_direction(seed: int) -> None:
    """Two or three orbitals of an atom (Kanamori, 1963), beside others: no direction differs."""
    chance, n, others = np.random.default_rng(seed), 2 + seed % 2, seed % 3
    repulsion, exchange = chance.uniform(0.3, 1), chance.uniform(0.02, 0.2)
    two = np.zeros((n + others,) * 4)
    for p, q in np.ndindex(n, n):
        two[p, p, q, q] = repulsion - 2 * exchange * (p != q)
        if p != q:
            two[p, q, p, q] = two[p, q, q, p] = exchange
    for p, q in np.ndindex(n + others, n + others):
        if max(p, q) >= n:
            two[p, p, q, q] = 0.3 * (1 + (p == q))
    one = np.diag([0.0] * n + [*range(1, others + 1)])
    new, matrix = adapted_orbitals(from_arrays(one, two, 1, 1))
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(n + others), atol=1e-12)
    assert forbidden(new) < 1e-12
    assert len(set(new.labels.irreps)) >= n

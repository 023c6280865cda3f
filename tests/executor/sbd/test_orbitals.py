"""Rotated orbitals give the same energies and S^2; natural orbitals, their labels, and their files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.engines.sbd import every_string, random_integrals
from tests.support.engines.sbd_kinds import KINDS, integrals_of, random_bodies
from tnplan.calls.diagonalize import diagonalize
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.fcidump import read_fcidump
from tnplan.executor.sbd.basis.integrals import OrbitalLabels, dense_two, from_arrays
from tnplan.executor.sbd.basis.orbitals import natural_orbitals, rotate_orbitals
from tnplan.executor.sbd.solver.davidson import Criteria

N = 4
TIGHT: dict[str, Any] = {"criteria": Criteria(residual=1e-9), "device": "cpu", "threads": 1}
STRINGS = every_string(N, 2)


def unitary(n: int, is_complex: bool, seed: int) -> np.ndarray:
    chance = np.random.default_rng(seed)
    made = chance.standard_normal((n, n)) + is_complex * 1j * chance.standard_normal((n, n))
    return np.asarray(np.linalg.qr(made if is_complex else made.real)[0])


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("each_spin", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_rotations_keep_energies_and_spins(kind: str, each_spin: bool, is_complex: bool) -> None:
    integrals = integrals_of(random_bodies(kind, "shared", N, 41), kind, (2, 2))
    rotation = unitary(N, is_complex, 1)
    if each_spin:
        rotation = np.array([rotation, unitary(N, is_complex, 2)])
    rotated = rotate_orbitals(integrals, rotation)
    assert rotated.is_complex == (is_complex or kind == "complex")
    assert rotated.has_ordered_pairs == (is_complex or kind != "real")
    assert rotated.has_common_orbitals != each_spin
    found, expected = (diagonalize(one, STRINGS, roots=3, **TIGHT) for one in (rotated, integrals))
    np.testing.assert_allclose(found.energies, expected.energies, atol=1e-9)
    np.testing.assert_allclose(found.report["spin_square"], expected.report["spin_square"], atol=1e-7)


@pytest.mark.parametrize("each_spin", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_natural_orbitals_have_a_diagonal_density(kind: str, each_spin: bool, tmp_path: Path) -> None:
    orbitals = "each spin" if each_spin else "shared"
    integrals = integrals_of(random_bodies(kind, orbitals, N, 42), kind, (2, 2))
    target, matrix = tmp_path / "n.fcidump", tmp_path / "n.npz"
    before = diagonalize(integrals, STRINGS, rdm=True, natural=target, **TIGHT)
    natural = natural_orbitals(before.densities, integrals)
    after = diagonalize(target, STRINGS, rdm=True, **TIGHT)
    np.testing.assert_allclose(after.energies, before.energies, atol=1e-9)
    density = after.densities[0]
    for made, counts in (
        zip((density.alpha, density.beta), natural.occupations, strict=True)
        if each_spin
        else ((density.one, natural.occupations),)
    ):
        np.testing.assert_allclose(made, np.diag(counts), atol=1e-6)
        np.testing.assert_allclose(counts.sum(), 2 if each_spin else 4, atol=1e-9)
    again = diagonalize(integrals, STRINGS, rotation=matrix, **TIGHT)
    np.testing.assert_allclose(again.energies, before.energies, atol=1e-9)


def test_labels_are_kept_where_they_can_be(tmp_path: Path) -> None:
    labels = (1, 2, 1, 2)
    made = random_integrals(N, 2, 2, 43)
    allowed = np.equal.outer(labels, labels)
    two = dense_two(made) * (allowed[:, :, None, None] == allowed[None, None])
    integrals = from_arrays(made.one * allowed, two, 2, 2)
    integrals = replace(integrals, labels=OrbitalLabels(labels, 1))
    target = tmp_path / "n.fcidump"
    result = diagonalize(integrals, STRINGS, rdm=True, symmetry=1, natural=target, **TIGHT)
    assert read_fcidump(target).labels.irreps == labels
    again = diagonalize(target, STRINGS, symmetry=1, **TIGHT)
    np.testing.assert_allclose(again.energies, result.energies, atol=1e-9)
    order = np.eye(N)[:, [1, 0, 3, 2]]
    assert rotate_orbitals(integrals, order).labels.irreps == (2, 1, 2, 1)
    assert rotate_orbitals(integrals, unitary(N, False, 3)).labels == OrbitalLabels()
    assert rotate_orbitals(integrals, [order, np.eye(N)]).labels.irreps == ()


def test_rotations_that_are_none_are_refused(tmp_path: Path) -> None:
    integrals = random_integrals(N, 2, 2, 44)
    for rotation, message in (
        (np.eye(3), r"rotation: has the shape \(3, 3\) for 4 orbitals"),
        (2 * np.eye(N), "rotation: is 3 from unitary"),
        (np.full((N, N), np.nan), "rotation: is nan from unitary"),
        ([["a"]], "rotation: is not a matrix"),
        (tmp_path / "none.npy", "cannot be read"),
    ):
        with pytest.raises(InputError, match=message):
            diagonalize(integrals, STRINGS, rotation=rotation, **TIGHT)
    np.savez(tmp_path / "x.npz", other=np.eye(N))
    with pytest.raises(InputError, match="an array named matrix is missing"):
        diagonalize(integrals, STRINGS, rotation=tmp_path / "x.npz", **TIGHT)
    with pytest.raises(InputError, match="natural orbitals: need density matrices"):
        natural_orbitals((), integrals)
    with pytest.raises(InputError, match=r"natural: is .*, which -o writes too"):
        diagonalize(integrals, STRINGS, natural=tmp_path / "o.f", output=tmp_path / "o.npz", **TIGHT)

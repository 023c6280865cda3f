"""Integrals over rotated orbitals, and the natural orbitals of states.

Column p of a rotation holds new orbital p over the old ones. Knows matrices; no determinants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.integrals import BetaIntegrals, Integrals, OrbitalLabels, packed, unpacked

UNITARY = 1e-8
"""How far a rotation times its adjoint may be from 1."""
MIXED = 1e-8
"""Of a rotation, elements up to this mix no labels."""


@dataclass(frozen=True)
class NaturalOrbitals:
    """Natural orbitals, by falling occupation within each label.

    Parameters
    ----------
    occupations
        Mean numbers of electrons [orbital]; or [spin, orbital] where each spin has orbitals of its own.
    matrix
        The orbitals [old orbital, natural orbital]; or [spin, old orbital, natural orbital].

    Examples
    --------
    >>> tnplan.NaturalOrbitals(np.array([2.0, 0.0]), np.eye(2))
    NaturalOrbitals(2 orbitals)
    """

    occupations: Array
    matrix: Array

    def __repr__(self) -> str:
        return f"NaturalOrbitals({self.matrix.shape[-1]} orbitals)"


def rotate_orbitals(integrals: Integrals, matrix: Any) -> Integrals:
    """The same Hamiltonian over other orbitals.

    Symmetry labels are kept where no new orbital mixes old ones of different labels, and dropped otherwise.

    Parameters
    ----------
    integrals : Integrals
        Over the old orbitals.
    matrix : array
        Unitary, [old orbital, new orbital]; or two such matrices, of alpha and of beta, for orbitals of each
        spin. A complex one gives complex integrals.

    Returns
    -------
    Integrals

    Raises
    ------
    InputError
        For a matrix that is not unitary or has another shape.

    Examples
    --------
    >>> integrals = tnplan.from_arrays(np.diag([-1.0, 1.0]), np.zeros((2, 2, 2, 2)), 1, 1)
    >>> tnplan.rotate_orbitals(integrals, [[0, 1], [1, 0]]).one
    array([[ 1.,  0.],
           [ 0., -1.]])
    """
    rotations = _rotations(integrals, matrix)
    first, last = rotations[0], rotations[-1]
    own = integrals.beta
    each = own is not None or len(rotations) == 2
    # h' = C^dagger h C; in (pq|rs) every index is rotated by its spin's matrix.
    one, two = _rotated(*integrals.of_spin(0), first, first)
    beta = None
    if each:
        h_beta, v_beta = _rotated(*integrals.of_spin(1), last, last)
        _, mixed = _rotated(integrals.one, integrals.mixed, first, last)
        old_overlap = np.eye(integrals.n_orbitals) if own is None else own.overlap
        # The overlap of alpha's and beta's orbitals, which S^2 needs: S' = C_alpha^dagger S C_beta.
        overlap = None if old_overlap is None else first.conj().T @ old_overlap @ last
        beta = BetaIntegrals(h_beta, v_beta, mixed, overlap)
    labels = _labels(integrals.labels, rotations)
    return replace(integrals, one=one, two=two, beta=beta, labels=labels)


def natural_orbitals(densities: Sequence[Any], integrals: Integrals) -> NaturalOrbitals:
    """The natural orbitals of states: eigenvectors of their mean one-body density matrix.

    Orbitals of different symmetry labels are not mixed, so that every natural orbital has a label.

    Parameters
    ----------
    densities : sequence of Densities
        Those of the states, as `diagonalize(..., rdm=True)` gives them.
    integrals : Integrals
        Over the orbitals of the states.

    Returns
    -------
    NaturalOrbitals

    Raises
    ------
    InputError
        Where there are no density matrices.

    Examples
    --------
    >>> integrals = tnplan.from_arrays(np.diag([-1.0, 1.0]), np.zeros((2, 2, 2, 2)), 1, 1)
    >>> result = tnplan.diagonalize(integrals, [0b01, 0b10], device="cpu", rdm=True)
    >>> tnplan.natural_orbitals(result.densities, integrals).occupations.round(6)
    array([2., 0.])
    """
    if not len(densities):
        raise InputError("natural orbitals", "need density matrices", "diagonalize with rdm=True")
    n = len(densities)
    spins = [sum(density.alpha for density in densities) / n, sum(density.beta for density in densities) / n]
    if integrals.beta is None:
        return NaturalOrbitals(*_natural(spins[0] + spins[1], integrals.labels))
    of_spins = [_natural(density, integrals.labels) for density in spins]
    return NaturalOrbitals(*(np.array(arrays) for arrays in zip(*of_spins, strict=True)))


def _natural(density: Array, labels: OrbitalLabels) -> tuple[Array, Array]:
    """Occupations and orbitals; the number of an orbital keeps its label."""
    n = len(density)
    keys = list(zip(labels.irreps or (1,) * n, labels.momenta or (0,) * n, strict=True))
    occupations, matrix = np.zeros(n), np.zeros_like(density)
    for key in sorted(set(keys)):
        members = np.array([orbital for orbital, other in enumerate(keys) if other == key])
        # <p+ q> has conjugate orbitals for eigenvectors.
        counts, vectors = np.linalg.eigh(density[np.ix_(members, members)].conj())
        occupations[members] = counts[::-1]
        matrix[np.ix_(members, members)] = vectors[:, ::-1]
    return occupations, matrix


def _rotations(integrals: Integrals, matrix: Any) -> list[Array]:
    """One unitary matrix, or one for each spin."""
    n = integrals.n_orbitals
    try:
        array = np.asarray(matrix)
        array = array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("rotation", f"is not a matrix ({error})", f"give {n} x {n} numbers") from None
    if array.shape not in ((n, n), (2, n, n)) or (array.ndim == 3 and integrals.is_general):
        raise InputError(
            "rotation", f"has the shape {array.shape} for {n} orbitals", f"give {n} x {n} numbers"
        )
    rotations = [array] if array.ndim == 2 else list(array)
    for rotation in rotations:
        away = np.abs(rotation.conj().T @ rotation - np.eye(n)).max()
        if not away <= UNITARY:
            raise InputError("rotation", f"is {away:.2g} from unitary", "give orthonormal orbitals")
    return rotations


def _rotated(one: Array, two: Array, left: Array, right: Array) -> tuple[Array, Array]:
    """Integrals over new orbitals: `left` of the first electron, `right` of the second."""
    n = len(left)
    four = unpacked(two, n)
    for rotation in (left.conj(), left, right.conj(), right):
        four = np.tensordot(four, rotation, ((0,), (0,)))
    one_body = left.conj().T @ one @ left
    ordered = len(two) == n * n and n > 1
    is_real = not (np.iscomplexobj(four) or np.iscomplexobj(one_body))
    values = packed(four, ordered or not is_real)
    if left is right:
        values = (values + values.T) / 2
    return (one_body + one_body.conj().T) / 2, values


def _labels(labels: OrbitalLabels, rotations: Sequence[Array]) -> OrbitalLabels:
    """The labels of new orbitals, where each mixes old ones of one label, the same for both spins."""
    irreps, momenta = (_unmixed(own, rotations) for own in (labels.irreps, labels.momenta))
    return OrbitalLabels(irreps, labels.wanted if irreps else 1, momenta)


def _unmixed(labels: tuple[int, ...], rotations: Sequence[Array]) -> tuple[int, ...]:
    new_labels: list[tuple[int, ...]] = []
    for rotation in rotations if labels else ():
        label_sets = [{labels[p] for p in np.flatnonzero(np.abs(column) > MIXED)} for column in rotation.T]
        if any(len(old_labels) != 1 for old_labels in label_sets):
            return ()
        new_labels.append(tuple(old_labels.pop() for old_labels in label_sets))
    return new_labels[0] if len(set(new_labels)) == 1 else ()

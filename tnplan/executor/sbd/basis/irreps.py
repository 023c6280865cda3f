"""Irreducible representations of strings and states, from the labels of orbitals (ORBSYM of an FCIDUMP).

The product of representations a and b is 1 + ((a - 1) xor (b - 1)), as in groups with no more than two-fold
rotations. Knows labels and strings; no Hamiltonian's action.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.determinants import DeterminantList
from tnplan.executor.sbd.basis.integrals import LARGEST_IRREP, Integrals, number_pairs
from tnplan.executor.sbd.basis.strings import StringSet

BROKEN = 1e-6
"""Integrals up to this, in Hartree, may be there between orbitals whose labels forbid them."""
PURE = 1 - 1e-6
"""A state has a representation if this share of its weight does."""


def string_irreps(strings: StringSet, irreps: Sequence[int]) -> Array:
    """The representation of every string, from 0: uint8 [string]."""
    products = np.zeros(len(strings), np.uint8)
    for orbital, irrep in enumerate(irreps):
        products[strings.occupied[:, orbital]] ^= np.uint8(irrep - 1)
    return products


def pair_irreps(integrals: Integrals) -> Array:
    """The representation of every pair of orbitals as integrals number them, from 0: int64 [pair]."""
    n, orbital_irreps = integrals.n_orbitals, np.array(integrals.labels.irreps) - 1
    p, q = (side.ravel() for side in np.indices((n, n)))
    result = np.zeros(len(integrals.two), np.int64)
    result[number_pairs(p, q, n, len(result))] = orbital_irreps[p] ^ orbital_irreps[q]
    return result


def list_irreps(basis: DeterminantList, irreps: Sequence[int]) -> Array:
    """The representation of every determinant of a list, from 0: uint8 [determinant]."""
    alpha, beta = (string_irreps(strings, irreps) for strings in (basis.alpha_strings, basis.beta_strings))
    return np.asarray(alpha[basis.alpha] ^ beta[basis.beta])


def irrep_weights(irreps: tuple[Array, ...], weights: Array) -> Array:
    """The sum of the weights of every representation, from 0.

    `irreps` are those of determinants, or of alpha and of beta strings; `weights` have the shape of a state.
    """
    if len(irreps) == 1:
        return np.bincount(irreps[0], weights, LARGEST_IRREP)
    numbers = np.arange(LARGEST_IRREP)
    alpha, beta = (np.eye(LARGEST_IRREP)[labels] for labels in irreps)
    pairs = alpha.T @ weights @ beta
    return np.bincount((numbers[:, None] ^ numbers).ravel(), pairs.ravel(), LARGEST_IRREP)


def irrep_counts(irreps: tuple[Array, ...]) -> Array:
    """How many determinants every representation has, from 0."""
    counts = [np.bincount(labels, minlength=LARGEST_IRREP) for labels in irreps]
    if len(counts) == 1:
        return counts[0]
    numbers = np.arange(LARGEST_IRREP)
    return np.array([(counts[0] * counts[1][numbers ^ number]).sum() for number in numbers])


def state_irrep(x: Array, irreps: tuple[Array, ...]) -> int | None:
    """The representation of a state, from 1; None where it has several."""
    weights = irrep_weights(irreps, np.abs(x) ** 2)
    largest = int(np.argmax(weights))
    return largest + 1 if weights[largest] >= PURE * weights.sum() else None


def wanted_irrep(integrals: Integrals, requested: int | None) -> int | None:
    """The representation that states are to have: the requested one, or the header's; None for any.

    ISYM is 1 in files of programs that do not use it, so that 1 alone asks for nothing. 0 asks for any.
    """
    labels = integrals.labels
    irrep = labels.wanted if requested is None and labels.wanted > 1 else requested
    if not irrep:
        return None
    place = "ISYM" if requested is None else "--symmetry"
    if not labels.irreps or not 1 <= irrep <= LARGEST_IRREP:
        reason = "labels go from 1 to 8" if labels.irreps else "orbitals have no labels"
        remedy = "give an FCIDUMP with ORBSYM and a number from 1 to 8, or 0 for states of any symmetry"
        raise InputError(place, f"is {irrep}, and {reason}", remedy)
    _check_labels(place, integrals)
    return irrep


def _check_labels(place: str, integrals: Integrals) -> None:
    """Refuse labels that integrals do not have."""
    orbital_irreps, of_pairs = np.array(integrals.labels.irreps) - 1, pair_irreps(integrals)
    bodies = [integrals.of_spin(spin) for spin in (0, 1)]
    checked = [(one, orbital_irreps) for one, _ in bodies] + [(two, of_pairs) for _, two in bodies]
    checked.append((integrals.mixed, of_pairs))
    # h_pq is 0 unless p and q have one irrep, (pq|rs) unless the products of pq and of rs are one.
    worst = max(
        np.abs(values[labels[:, None] != labels[None, :]]).max(initial=0.0) for values, labels in checked
    )
    if worst > BROKEN:
        raise InputError(
            place, f"asks for a symmetry that integrals break by {worst:.2g} Hartree: ORBSYM is wrong",
            "correct ORBSYM, or give --symmetry 0 for states of any symmetry",
        )  # fmt: skip

"""States of one irreducible representation as dense blocks: alpha strings of one, beta strings of another.
Representations come from the labels of orbitals (ORBSYM of an FCIDUMP).

    x = sum over g of x_g[alpha strings of g, beta strings of g times the state's]

A vector holds the blocks one after the other, and no other products of strings. Knows labels and numbers of
strings; no Hamiltonian.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.determinants import DeterminantList
from tnplan.executor.sbd.basis.integrals import LARGEST_IRREP, Integrals, number_pairs
from tnplan.executor.sbd.basis.strings import StringSet


class Sector(NamedTuple):
    """The products of strings with alpha[i] ^ beta[j] == irrep: representations, from 0."""

    alpha: Array
    beta: Array
    irrep: int


@dataclass(frozen=True)
class StateBlock:
    """All products of alpha strings of the representation `irrep` and of beta strings, both in rising order.

    Elements `begin` .. `end` - 1 of a vector are the block's, row by row. Where a rank has some rows of it,
    `begin` counts from the rank's first element, and `first` is the number of its first row in the block.
    """

    irrep: int
    alpha: Array
    beta: Array
    begin: int
    first: int = 0

    @property
    def rows(self) -> slice:
        """The numbers of the rows in the block."""
        return slice(self.first, self.first + len(self.alpha))

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of alpha and of beta strings."""
        return len(self.alpha), len(self.beta)

    @property
    def end(self) -> int:
        """One after the block's last element in a vector."""
        return self.begin + len(self.alpha) * len(self.beta)

    def view(self, vector: Any) -> Any:
        """The block of a vector, on any device."""
        return vector[self.begin : self.end].reshape(self.shape)


class SectorBlocks:
    """The blocks of a sector, and how its vectors and whole states [alpha string, beta string] turn into each
    other."""

    def __init__(self, sector: Sector) -> None:
        self.sector = sector
        self.whole_shape = len(sector.alpha), len(sector.beta)
        self.blocks: list[StateBlock] = []
        begin = 0
        for irrep in range(LARGEST_IRREP):
            alpha = np.flatnonzero(sector.alpha == irrep)
            beta = np.flatnonzero(sector.beta == irrep ^ sector.irrep)
            if len(alpha) and len(beta):
                self.blocks.append(StateBlock(irrep, alpha, beta, begin))
                begin = self.blocks[-1].end
        self.size = begin

    @cached_property
    def of_irrep(self) -> dict[int, int]:
        """The number of the block that has alpha strings of a representation."""
        return {block.irrep: number for number, block in enumerate(self.blocks)}

    def within(self, first: int, last: int) -> list[StateBlock]:
        """The rows of every block, maybe none, that elements first .. last-1 of a vector hold."""
        result = []
        for block in self.blocks:
            width = len(block.beta)
            # Invariant: a range begins and ends with whole rows.
            low, high = (
                (min(max(number, block.begin), block.end) - block.begin) // width for number in (first, last)
            )
            begin = max(block.begin + low * width - first, 0)
            result.append(StateBlock(block.irrep, block.alpha[low:high], block.beta, begin, low))
        return result

    def mirror(self, number: int) -> int:
        """The block that exchange of the spins turns a block into, where both have the same strings."""
        return self.of_irrep[self.blocks[number].irrep ^ self.sector.irrep]

    def vector(self, whole: Array) -> Array:
        """The vector of a whole state; InputError where the state has no part of the representation."""
        parts = [whole[np.ix_(block.alpha, block.beta)].ravel() for block in self.blocks]
        vector = np.concatenate(parts)
        if np.any(whole) and not np.any(vector):
            raise InputError(
                "start", f"has a state without any part of symmetry {self.sector.irrep + 1}",
                "give states of that symmetry, or --symmetry 0 for states of any",
            )  # fmt: skip
        return vector

    def whole(self, vector: Array) -> Array:
        """The whole state of a vector."""
        whole = np.zeros(self.whole_shape, vector.dtype)
        for block in self.blocks:
            whole[np.ix_(block.alpha, block.beta)] = block.view(vector)
        return whole

    def trace(self, elements: Array, first: int) -> Any:
        """The sum over products of two equal strings in elements of a vector from `first` on.

        Both spins have the same strings.
        """
        if self.sector.irrep:
            return 0
        rows = self.within(first, first + len(elements))
        return sum(block.view(elements).trace(block.first) for block in rows)

    def in_whole(self, numbers: Array) -> Array:
        """The flat numbers in a whole state of elements of a vector."""
        bounds = [block.begin for block in self.blocks]
        result = np.empty_like(numbers)
        for number, block in enumerate(self.blocks):
            mine = np.searchsorted(bounds, numbers, side="right") - 1 == number
            row, column = np.divmod(numbers[mine] - block.begin, len(block.beta))
            result[mine] = block.alpha[row] * self.whole_shape[1] + block.beta[column]
        return result

    def in_vector(self, numbers: Array) -> Array:
        """The numbers in a vector of elements of a whole state, given by flat numbers; the reverse."""
        rows, columns = np.divmod(numbers, self.whole_shape[1])
        irreps = self.sector.alpha[rows]
        result = np.empty_like(numbers)
        for block in self.blocks:
            mine = irreps == block.irrep
            row = np.searchsorted(block.alpha, rows[mine])
            result[mine] = block.begin + row * len(block.beta) + np.searchsorted(block.beta, columns[mine])
        return result


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

"""States of one irreducible representation as dense blocks: alpha strings of one, beta strings of another.

    x = sum over g of x_g[alpha strings of g, beta strings of g times the state's]

A vector holds the blocks one after the other, and no other products of strings. Knows labels and numbers of
strings; no Hamiltonian.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.integrals import LARGEST_IRREP


class Sector(NamedTuple):
    """The products of strings with alpha[i] ^ beta[j] == irrep: representations, from 0."""

    alpha: Array
    beta: Array
    irrep: int


@dataclass(frozen=True)
class StateBlock:
    """All products of alpha strings of the representation `irrep` and of beta strings, both in rising order.

    Elements `begin` .. `end` - 1 of a vector are the block's, row by row.
    """

    irrep: int
    alpha: Array
    beta: Array
    begin: int

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

    def trace(self, vector: Array) -> Any:
        """The sum of the elements of products of two equal strings, where both spins have the same."""
        if self.sector.irrep:
            return 0
        return sum(block.view(vector).trace() for block in self.blocks)

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

"""Lists of determinants that are no product of half-strings, and their files.

A determinant is a pair of an alpha and a beta string. In files it is one bitstring of both spins in turn: the
rightmost bit is alpha's first orbital, the next one beta's first, and so on. Knows strings
and electron counts; nothing of Hamiltonians.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.strings import (
    StringSet,
    check_distinct,
    from_occupied,
    read_bits,
    strings_of,
    text_lines,
)

NEITHER = 0
"""The parity of states of a list: none, since nothing is exchanged."""


@dataclass(frozen=True)
class DeterminantList:
    """Distinct determinants in order of alpha, then beta: determinant d is (alpha[d], beta[d]).

    Parameters
    ----------
    alpha_strings, beta_strings
        The half-strings that occur.
    alpha, beta
        Their numbers for each determinant, int64 [determinant].
    given
        Determinant d was number given[d] of those given, int64 [determinant].

    Examples
    --------
    >>> strings = tnplan.StringSet(np.eye(2, dtype=bool), np.array([[0b01], [0b10]], np.uint64))
    >>> numbers = np.arange(2)
    >>> tnplan.DeterminantList(strings, strings, numbers, numbers, numbers)
    DeterminantList(2 determinants of 2 alpha and 2 beta strings)
    """

    alpha_strings: StringSet
    beta_strings: StringSet
    alpha: Array
    beta: Array
    given: Array

    def __len__(self) -> int:
        return len(self.alpha)

    def __repr__(self) -> str:
        n_alpha, n_beta = self.product_shape
        return f"DeterminantList({len(self)} determinants of {n_alpha} alpha and {n_beta} beta strings)"

    @property
    def product_shape(self) -> tuple[int, int]:
        """Numbers of the alpha and beta strings."""
        return len(self.alpha_strings), len(self.beta_strings)

    def take(self, chosen: Array) -> DeterminantList:
        """The determinants of these numbers, which rise, with the strings that they have."""
        alpha_strings, alpha = _that_occur(self.alpha_strings, self.alpha[chosen])
        beta_strings, beta = _that_occur(self.beta_strings, self.beta[chosen])
        return DeterminantList(alpha_strings, beta_strings, alpha, beta, self.given[chosen])

    def lines(self) -> str:
        """The text of a file of these determinants."""
        bits = np.empty((len(self), 2 * self.alpha_strings.n_orbitals), bool)
        bits[:, ::2] = self.alpha_strings.occupied[self.alpha]
        bits[:, 1::2] = self.beta_strings.occupied[self.beta]
        return text_lines(bits)


def _that_occur(strings: StringSet, numbers: Array) -> tuple[StringSet, Array]:
    """The strings of these numbers alone, in their order, and the numbers among them."""
    occurs = np.bincount(numbers, minlength=len(strings)) > 0
    if occurs.all():
        return strings, numbers
    return strings.take(np.flatnonzero(occurs)), (np.cumsum(occurs) - 1)[numbers]


def read_determinants(path: str | Path, integrals: Integrals) -> DeterminantList:
    """The determinants of a file, one a line; raises InputError naming the line that cannot be used."""
    bits, lines = read_bits(path, 2 * integrals.n_orbitals)
    if not len(bits):
        raise InputError(str(path), "holds no determinant", "give at least one")
    for name, spin, expected in (("alpha", 0, integrals.n_alpha), ("beta", 1, integrals.n_beta)):
        counts = bits[:, spin::2].sum(1)
        if (counts != expected).any():
            at = int(np.argmax(counts != expected))
            raise InputError(
                f"{path}: line {lines[at]}", f"has {counts[at]} {name} electrons, not {expected}",
                "give determinants of the Hamiltonian's electrons, alpha and beta bits in turn",
            )  # fmt: skip
    check_distinct(bits, str(path), lines, "determinant")
    # Bits of both spins stand in turn, alpha's first.
    return from_bits(bits[:, ::2], bits[:, 1::2])


def from_bits(alpha: Array, beta: Array) -> DeterminantList:
    """A list from tables of booleans [determinant, orbital] of both spins; distinct, no check."""
    return from_words(from_occupied(alpha).words, from_occupied(beta).words, alpha.shape[1])


def from_words(alpha: Array, beta: Array, n_orbitals: int) -> DeterminantList:
    """The same from words [determinant, word] as a `StringSet` has them."""
    sets: list[StringSet] = []
    numbers: list[Array] = []
    for words in (alpha, beta):
        # Rows of one word are sorted many times faster than rows of several.
        if words.shape[1] == 1:
            distinct, inverse = np.unique(words[:, 0], return_inverse=True)
        else:
            distinct, inverse = np.unique(words[:, ::-1], axis=0, return_inverse=True)
        sets.append(strings_of(distinct.reshape(-1, words.shape[1])[:, ::-1], n_orbitals))
        numbers.append(inverse.ravel())
    order = np.argsort(numbers[0] * np.int64(len(sets[1])) + numbers[1])
    return DeterminantList(sets[0], sets[1], numbers[0][order], numbers[1][order], order)


def from_product(alpha: StringSet, beta: StringSet, chosen: Array) -> DeterminantList:
    """The determinants of these flat numbers of a product of strings."""
    rows, columns = np.divmod(chosen, len(beta))
    return from_bits(alpha.occupied[rows], beta.occupied[columns])


class OneRank:
    """What operators ask of ranks, where one has a whole state, and of arrays, where they are on the host."""

    shape: tuple[int, ...]
    dtype: Any

    def empty(self, *shape: int) -> Any:
        """An array of the operator's type, not set."""
        return np.empty(shape, self.dtype)

    def put(self, array: Array) -> Any:
        """The array in the operator's type."""
        return np.ascontiguousarray(array, self.dtype)

    def get(self, array: Any) -> Array:
        """The array on the host: where it is already."""
        return array

    def block(self, first: int, last: int) -> Any:
        """What rows first .. last-1 of a state contribute from."""
        raise NotImplementedError

    def spin_diagonal(self) -> Array:
        """The diagonal of S^2."""
        raise NotImplementedError

    def add_exchange(self, block: Any, factor: float, x: Array, y: Array) -> None:
        """Add to y factor times the sum over p != q of E^a_pq E^b_qp x."""
        raise NotImplementedError

    def apply_spin_square(self, x: Array) -> Array:
        """S^2 x within the space, a new array."""
        x = np.ascontiguousarray(x)
        y = self.spin_diagonal() * x
        self.add_exchange(self.block(0, self.shape[0]), -1.0, x, y)
        return y

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """The shape of a whole state: that of a vector, unless vectors leave something out."""
        return self.shape

    def vector(self, whole: Array) -> Array:
        """The vector of a whole state."""
        return whole

    def whole(self, vector: Array) -> Array:
        """The whole state of a vector."""
        return vector

    def total(self, values: Array) -> Array:
        """Sums over all elements of a state: those given, since all elements are here."""
        return values

    def same(self, values: Array) -> Array:
        """The values, since there is one rank."""
        return values


class ListOfStates(OneRank):
    """The same where states are listed: they have no symmetry of exchange, and rows are given together."""

    symmetric = False
    sector = None

    def block(self, first: int, last: int) -> None:
        """What rows first .. last-1 of a state contribute from."""
        if (first, last) != (0, self.shape[0]):
            raise ValueError("a list takes all rows of a state at once")

    def trace(self, elements: Array) -> int:
        """0: products of two equal strings count where states have a parity, and here they have none."""
        return 0

"""Lists of determinants that are no product of half-strings, and the Hamiltonian among them, sparse.

A determinant is a pair of an alpha and a beta string. In files it is one bitstring of both spins in turn: the
rightmost bit is alpha's first orbital, the next one beta's first, and so on. Knows strings, integrals and
sparse rows; nothing of solvers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tnplan.executor.device.cpu.host_facts import cores
from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.sbd.basis.integrals import Integrals
from tnplan.executor.sbd.basis.strings import StringSet, check_distinct, from_occupied, read_bits
from tnplan.planner.common.arrays import Array
from tnplan.planner.common.errors import InputError
from tnplan.planner.common.units import size_text

NEITHER = 0
"""The parity of states of a list: none, since nothing is exchanged."""
INDEX_BYTES, VALUE_BYTES = 4, 8
"""What an element of a sparse matrix takes: its column, and every real number of its value."""


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
        """The determinants of these numbers, which rise."""
        return DeterminantList(
            self.alpha_strings, self.beta_strings, self.alpha[chosen], self.beta[chosen], self.given[chosen]
        )

    def embed(self, x: Array) -> Array:
        """A state [determinant] as a matrix [alpha string, beta string], zero elsewhere."""
        whole = np.zeros(self.product_shape, x.dtype)
        whole[self.alpha, self.beta] = x
        return whole


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
    return from_bits(bits[:, ::2], bits[:, 1::2])


def from_bits(alpha: Array, beta: Array) -> DeterminantList:
    """A list from tables of booleans [determinant, orbital] of both spins; distinct, no check."""
    sets: list[StringSet] = []
    numbers: list[Array] = []
    for occupied in (alpha, beta):
        words = from_occupied(occupied).words
        _, first, inverse = np.unique(words[:, ::-1], axis=0, return_index=True, return_inverse=True)
        sets.append(from_occupied(np.ascontiguousarray(occupied[first])))
        numbers.append(inverse.ravel())
    order = np.lexsort((numbers[1], numbers[0]))
    return DeterminantList(sets[0], sets[1], numbers[0][order], numbers[1][order], order)


def from_product(alpha: StringSet, beta: StringSet, chosen: Array) -> DeterminantList:
    """The determinants of these flat numbers of a product of strings."""
    rows, columns = np.divmod(chosen, len(beta))
    return from_bits(alpha.occupied[rows], beta.occupied[columns])


class OneRank:
    """What `Operator` asks of ranks, where one has all elements of a state."""

    def total(self, values: Array) -> Array:
        """Sums over all elements of a state: those given, since all elements are here."""
        return values

    def same(self, values: Array) -> Array:
        """The values, since there is one rank."""
        return values


class ListHamiltonian(OneRank):
    """H, without the core energy, among a list of determinants: its elements are kept, row by row."""

    def __init__(
        self, integrals: Integrals, basis: DeterminantList, *, threads: int | None = None,
        room_bytes: float = np.inf,
    ) -> None:  # fmt: skip
        """Raises InputError where the elements do not fit in `room_bytes`."""
        from tnplan.executor.sbd.basis import determinant_kernel

        self.threads = threads or cores()
        self.integrals, self.basis = integrals, basis
        self.shape = (len(basis),)
        self.parities = (NEITHER,)
        n = len(basis)
        begin = np.searchsorted(basis.alpha, np.arange(len(basis.alpha_strings) + 1))
        parts = (integrals.real, integrals.imaginary) if integrals.is_complex else (integrals,)
        self.dtype = integrals.two.dtype
        tables = basis.alpha_strings.words, basis.beta_strings.words, basis.alpha, basis.beta, begin
        counts, start = np.zeros(n, np.int64), np.zeros(n + 1, np.int64)
        column = np.empty(0, np.int32)

        def rows(fill: bool, part: Integrals, value: Array) -> None:
            over_rows(
                n, self.threads,
                lambda first, last: determinant_kernel.assemble_rows(
                    first, last, fill, *tables, part.tables, counts, start, column, value
                ),
            )  # fmt: skip

        rows(False, parts[0], np.empty(0))
        start = np.concatenate([[0], np.cumsum(counts)])
        needed_bytes = int(start[-1]) * (INDEX_BYTES + len(parts) * VALUE_BYTES)
        if needed_bytes > room_bytes:
            needed = size_text(needed_bytes)
            raise InputError(
                "memory", f"holds {size_text(room_bytes)} of the {needed} that the matrix needs",
                "give fewer determinants or more memory",
            )  # fmt: skip
        column = np.empty(start[-1], np.int32)
        values = [np.empty(start[-1]) for _ in parts]
        for part, value in zip(parts, values, strict=True):
            rows(True, part, value)
        self.start, self.column = start, column
        self.value = values[0] if len(values) == 1 else values[0] + 1j * values[1]

    @property
    def pairs_contributing(self) -> int:
        """Pairs of determinants whose element is not zero by the rules of Slater and Condon."""
        return int(self.start[-1])

    def diagonal(self) -> Array:
        """The diagonal of H, by determinant."""
        rows = np.repeat(np.arange(len(self.basis)), np.diff(self.start))
        return self.value[self.column == rows].real

    def project(self, x: Array, parity: int) -> Array:
        """x itself: a list has no symmetry of exchange."""
        return x

    def apply(self, x: Array, parity: int | None = None, out: Array | None = None) -> Array:
        """H x, a new array or `out`."""
        from tnplan.executor.sbd.basis import determinant_kernel

        if x.shape != self.shape:
            raise ValueError(f"a state of shape {x.shape} where {self.shape} is expected")
        y = np.empty(self.shape, self.dtype) if out is None else out
        tables = self.start, self.column, self.value, np.ascontiguousarray(x, self.dtype), y
        over_rows(
            len(y), self.threads, lambda first, last: determinant_kernel.sparse_product(first, last, *tables)
        )
        return y

    def dense(self) -> Array:
        """H as a full matrix."""
        n = len(self.basis)
        matrix = np.zeros((n, n), self.dtype)
        matrix[np.repeat(np.arange(n), np.diff(self.start)), self.column] = self.value
        return matrix

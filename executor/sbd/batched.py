"""Rows of H over products of half-strings by batches of alpha strings: the form that a GPU takes.

Every pair of an alpha and a beta excitation is visited once, as on a CPU; `mixed_spin` makes the tables of
both. Of every alpha string of a batch, LANES excitations at a time are brought side by side: their rows of
the state and their coefficients with the active pairs of beta. A group of LANES threads then makes each
element, reading both for every excitation of a beta string. Number operators of beta, of which many meet in
one element, are summed before. Knows tables of a `ProductHamiltonian`; where arrays lie and what works on
them is up to `BatchSteps`.

Work of a multiplication in fp64, for Na x Nb strings of s excitations each and c active pairs:

    within a spin   2 Na Nb (Na + Nb) operations dense, half of it with a parity
    numbers         16 Na s Nb bytes read, most of them from the level-2 cache
    take            16 Na s Nb bytes
    weigh           8 Na s c bytes written
    pairs           Na Nb s^2 products of two numbers, 16 bytes read for each; half of it with a parity

fe4s4 (6,000 x 6,000, s 52, c 628) with a parity: 4.3e11 operations within a spin, 3.0e10 bytes to take, and
4.8e10 products, which read 7.7e11 bytes: 0.026 s where all come from level-1 caches, 128 bytes a cycle each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from executor.sbd.mixed_spin import LANES
from executor.sbd.product import ProductHamiltonian, SourceBlock
from executor.sbd.same_spin import DenseMatrix, SpinMatrix

Array = Any
"""An array where the steps work."""
Host = NDArray[Any]
Matrix = Any
"""A dense matrix alone, or start, column and value of a sparse one, in a tuple."""

SCRATCH_BYTES = 1 << 28
"""Of the batches of a GPU: 256 MiB take few enough launches that none waits for the next."""
ROWS_TURNED = 256
"""Rows of a state that are transposed at once where the beta matrix is sparse."""


class BatchSteps(Protocol):
    """The steps of a batch on one device, for real numbers of type `dtype`. Calls run one after the other.

    Place 0 of an alpha string is the string itself, place 1 + e its excitation e; lane 0 has place `first`.
    Lanes past the last place have zeros; strings without any place of the lanes may keep what they have.
    """

    dtype: str

    def put(self, array: Host) -> Array:
        """A copy where the steps work."""

    def get(self, array: Array) -> Host:
        """A copy on the host."""

    def empty(self, *shape: int) -> Array:
        """An array there, not set."""

    def take(
        self, rows: Array, first: int, start: Array, other: Array, shift: int, x: Array, values: Array
    ) -> None:
        """values[b, j, lane] = x[row + shift, j] at place 0 (0 for shift < 0), then x[other, j]."""

    def weigh(
        self, rows: Array, first: int, start: Array, pairs: Array, sign: Array, active: Array, own: Array,
        weights: Array,
    ) -> None:  # fmt: skip
        """weights[b, a, lane] = own[row, a] at place 0, then +-active[pair, a]."""

    def pairs(
        self, rows: Array, first: int, above: int, half: bool, start: Array, bounds: Array, entries: Array,
        weights: Array, values: Array, y: Array,
    ) -> None:  # fmt: skip
        """y[row, j] += the sum of +-weights[b, pair, lane] values[b, source, lane] over lanes and entries.

        The entries of j are bounds[2 j] .. bounds[2 j + 2] - 1, those from bounds[2 j + 1] on negative. With
        `half` only for the half of the strings from j = row + above on and round, and 1/2 of that for this j.
        """

    def numbers(
        self, start: Array, other: Array, pairs: Array, sign: Array, filled: Array, numbers: Array,
        factor: float, shift: int, x: Array, y: Array,
    ) -> None:  # fmt: skip
        """y[row, j] += the sum over excitations of +-numbers[pair, j] x[other, j].

        For shift >= 0 also factor x[row + shift, j] times the sum over orbitals p of filled[row, p]
        numbers[p, j].
        """

    def add_product(self, a: Array, b: Array, y: Array) -> None:
        """y += a b, for matrices whose columns are adjacent."""

    def sparse(self, start: Array, column: Array, value: Array, x: Array, y: Array) -> None:
        """y[i] += the sum over e in start[i] .. start[i+1]-1 of value[e] x[column[e]]."""

    def copy(self, source: Array, target: Array) -> None:
        """target = source, for views of any strides."""


@dataclass(frozen=True)
class Batch:
    """Alpha strings, by their numbers among the rows held, and the most places that one of them has."""

    rows: Array
    places: int


@dataclass(frozen=True)
class BatchedBlock:
    """A `SourceBlock` where the steps work: tables of the rows held, `shift` as `take` wants it."""

    first: int
    last: int
    shift: int
    start: Array
    other: Array
    pairs: Array
    sign: Array
    matrix: Matrix
    batches: tuple[Batch, ...]


class BatchedHamiltonian:
    """The rows of H that a `ProductHamiltonian` holds, without the core energy, made where `steps` work."""

    def __init__(
        self, hamiltonian: ProductHamiltonian, steps: BatchSteps, scratch_bytes: int = SCRATCH_BYTES
    ) -> None:
        """`scratch_bytes` limits what a batch holds at once, one string at least."""
        self._tables = h = hamiltonian.as_type(steps.dtype)
        self._steps = steps
        self.shape, self.rows, self.parities, self.symmetric = h.shape, h.rows, h.parities, h.symmetric
        mixed, n_beta = h.mixed_tables(), h.shape[1]
        self._active, self._own, self._filled, self._numbers, self._bounds, self._entries = map(
            steps.put, (mixed.active, mixed.own, mixed.filled, mixed.numbers, mixed.bounds, mixed.entries)
        )
        self._beta: Matrix = () if h.symmetric else self._put_matrix(h.beta.matrix)
        item_bytes = np.dtype(steps.dtype).itemsize
        self._scratch = steps.empty(scratch_elements(h, scratch_bytes // item_bytes))
        self._turned = [steps.empty(n_beta * ROWS_TURNED) for _ in range(2 * (len(self._beta) == 3))]

    def _put_matrix(self, matrix: SpinMatrix) -> Matrix:
        """A same-spin matrix where the steps work."""
        if isinstance(matrix, DenseMatrix):
            return (self._steps.put(matrix.values),)
        return tuple(self._steps.put(table) for table in (matrix.start, matrix.column, matrix.value))

    def block(self, first: int, last: int) -> BatchedBlock:
        """What rows first .. last-1 of a state contribute from, ready for `add_rows`."""
        block, put = self._tables.block(first, last), self._steps.put
        singles, held = block.singles, self.rows
        begin, end = int(singles.start[held[0]]), int(singles.start[held[1]])
        entries = slice(begin, end)
        place = block.place(held[0])
        return BatchedBlock(
            first, last, -1 if place is None else place, put(singles.start[held[0] : held[1] + 1] - begin),
            put(singles.other[entries]), put(singles.pairs[entries]), put(singles.sign[entries]),
            self._put_matrix(block.matrix), self._batches(block),
        )  # fmt: skip

    def _batches(self, block: SourceBlock) -> tuple[Batch, ...]:
        """Strings in batches of rising numbers of excitations."""
        held = self.rows
        counts = np.diff(block.singles.start[held[0] : held[1] + 1])
        order = np.argsort(counts, kind="stable")
        at_once = len(self._scratch) // string_elements(self._tables)
        parts = (order[first : first + at_once] for first in range(0, len(order), at_once))
        return tuple(Batch(self._steps.put(rows), int(counts[rows[-1]]) + 1) for rows in parts)

    def empty(self, *shape: int) -> Array:
        """An array where the steps work, not set."""
        return self._steps.empty(*shape)

    def put(self, array: Host) -> Array:
        """A copy where the steps work, in their precision."""
        return self._steps.put(np.asarray(array, self._steps.dtype))

    def get(self, array: Array) -> Host:
        """A copy on the host."""
        return self._steps.get(array)

    def diagonal(self) -> Array:
        """The diagonal of H over the rows held."""
        return self.put(self._tables.diagonal())

    def add_rows(self, block: BatchedBlock, x: Array, own: Array, y: Array, half: bool) -> None:
        """See `ProductHamiltonian.add_rows`. Allocates nothing."""
        self._add_product(block.matrix, x, y)
        if block.shift >= 0 and not half:
            self._add_transposed(own, y)
        factor = 0.5 if half else 1.0
        self._steps.numbers(
            block.start, block.other, block.pairs, block.sign, self._filled, self._numbers, factor,
            block.shift, x, y,
        )  # fmt: skip
        for batch in block.batches:
            self._add_mixed(block, batch, x, y, half)

    def _add_product(self, matrix: Matrix, x: Array, y: Array) -> None:
        """y += the rows held of the alpha matrix times x."""
        if len(matrix) == 1:
            self._steps.add_product(matrix[0], x, y)
        else:
            start, column, value = matrix
            self._steps.sparse(start, column, value, x, y)

    def _add_transposed(self, own: Array, y: Array) -> None:
        """y += the rows held of the state times the beta matrix."""
        if len(self._beta) == 1:
            self._steps.add_product(own, self._beta[0], y)
            return
        start, column, value = self._beta
        for first in range(0, len(y), ROWS_TURNED):
            rows = slice(first, min(len(y), first + ROWS_TURNED))
            count = rows.stop - first
            x_turned, y_turned = (
                held[: self.shape[1] * count].reshape(self.shape[1], count) for held in self._turned
            )
            self._steps.copy(own[rows].T, x_turned)
            self._steps.copy(y[rows].T, y_turned)
            self._steps.sparse(start, column, value, x_turned, y_turned)
            self._steps.copy(y_turned.T, y[rows])

    def _add_mixed(self, block: BatchedBlock, batch: Batch, x: Array, y: Array, half: bool) -> None:
        """Add what excitations of beta give in the rows of a batch."""
        steps, count, n_beta = self._steps, len(batch.rows), self.shape[1]
        n_active = self._active.shape[1]
        values = self._scratch[: count * n_beta * LANES].reshape(count, n_beta, LANES)
        weights = self._scratch[values.size :][: count * n_active * LANES].reshape(count, n_active, LANES)
        # Alpha's number operators with excitations of beta are the transpose of beta's with those of alpha.
        for first in range(1 if half or block.shift < 0 else 0, batch.places, LANES):
            steps.take(batch.rows, first, block.start, block.other, block.shift, x, values)
            steps.weigh(
                batch.rows, first, block.start, block.pairs, block.sign, self._active, self._own, weights
            )
            steps.pairs(
                batch.rows, first, self.rows[0], half, block.start, self._bounds, self._entries, weights,
                values, y,
            )  # fmt: skip


def string_elements(hamiltonian: ProductHamiltonian) -> int:
    """The scratch that one string of a batch needs: values and weights."""
    return LANES * (hamiltonian.shape[1] + len(hamiltonian.beta.matching.pairs))


def scratch_elements(hamiltonian: ProductHamiltonian, most: int) -> int:
    """The scratch of all batches: `most` elements, or what all rows or one of them need."""
    one, (first, last) = string_elements(hamiltonian), hamiltonian.rows
    return max(one, min(most, (last - first) * one))

"""Rows of H over products of half-strings by batches of alpha strings: the form that a GPU takes.

The strings of a batch have nearly as many singles as each other; they are padded to the same number, so that
one batched matrix product makes their half-transformed rows for a range of columns, which are the number
operators of beta and its active pairs of orbitals. Where states have a parity, a range of pairs needs only
the singles of alpha whose pair does not come after it. A range whose pairs have few excitations is gathered
without keeping products; `cost` decides. Knows tables of a `ProductHamiltonian`; where arrays lie and what
works on them is up to `BatchSteps`.

Work of a multiplication in fp64, for Na x Nb strings of s singles and c columns (s' of s needed in the mean):

    within a spin   2 Na Nb (Na + Nb) operations dense, half of it with a parity
    take            16 Na (s + 1) Nb bytes
    products        2 c (s' + 1) Na Nb operations; 8 c Na Nb bytes written
    collect         Na Nb (s + filled orbitals) elements read, in sectors of 32 bytes

fe4s4 (6,000 x 6,000, s 52, c 664) with a parity, all columns by products: 4.3e11 + 6.4e11 operations (1.2e12
with padding), 0.03 s at 60e12 a second; 3.1e11 bytes, 0.075 s at 4.2e12 a second. Traffic is the floor, and
most of it is products that are written and read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from executor.sbd import cost
from executor.sbd.product import ProductHamiltonian, SourceBlock
from executor.sbd.same_spin import DenseMatrix, SpinMatrix

Array = Any
"""An array where the steps work."""
Host = NDArray[Any]
Matrix = Any
"""A dense matrix alone, or start, column and value of a sparse one, in a tuple."""

SCRATCH_BYTES = 1 << 31
"""Of the batches of a GPU: 2 GiB take few enough launches that none waits for the next."""
COLUMNS_AT_ONCE = 128
ROWS_TURNED = 256
"""Rows of a state that are transposed at once where the beta matrix is sparse."""


class BatchSteps(Protocol):
    """The steps of a batch on one device, for real numbers of type `dtype`. Calls run one after the other."""

    dtype: str

    def put(self, array: Host) -> Array:
        """A copy where the steps work."""

    def get(self, array: Array) -> Host:
        """A copy on the host."""

    def empty(self, *shape: int) -> Array:
        """An array there, not set."""

    def weigh(
        self, rows: Array, start: Array, pairs: Array, sign: Array, two: Array, numbers: Array, first: int,
        factor: float, weights: Array,
    ) -> None:  # fmt: skip
        """weights[b, c, place] = factor numbers[row, first + c] at place 0, then +-two[first + c, pair]."""

    def take(self, rows: Array, start: Array, other: Array, shift: int, x: Array, values: Array) -> None:
        """values[b, place, j] = x[row + shift, j] at place 0 (0 for shift < 0), then x[other, j]; else 0."""

    def multiply(self, a: Array, b: Array, out: Array, add: bool = False) -> None:
        """out[i] = a[i] b[i], or is added, for matrices whose columns are adjacent."""

    def collect(self, rows: Array, start: Array, code: Array, held: Array, y: Array) -> None:
        """y[row, j] += the sum over e in start[j] .. start[j+1]-1 of element code[e] // 2 of held[b].

        Odd codes are subtracted.
        """

    def gather(self, rows: Array, start: Array, code: Array, weights: Array, values: Array, y: Array) -> None:
        """As `collect`, of the products of weights and the first places of values, which are not kept."""

    def sparse(self, start: Array, column: Array, value: Array, x: Array, y: Array) -> None:
        """y[i] += the sum over e in start[i] .. start[i+1]-1 of value[e] x[column[e]]."""

    def copy(self, source: Array, target: Array) -> None:
        """target = source, for views of any strides."""


@dataclass(frozen=True)
class Columns:
    """Columns first .. last-1, and what beta string j collects of them: code[e] for e from start[j] on."""

    first: int
    last: int
    start: Array
    code: Array


@dataclass(frozen=True)
class Batch:
    """Alpha strings (numbers of the rows held) with so many places.

    For every `Columns`, the places that it needs and whether it is gathered: of any state, and of one with a
    parity.
    """

    rows: Array
    places: int
    whole: tuple[tuple[int, bool], ...]
    half: tuple[tuple[int, bool], ...]


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
        self, hamiltonian: ProductHamiltonian, steps: BatchSteps, scratch_bytes: int = SCRATCH_BYTES,
        gather: bool | None = None,
    ) -> None:  # fmt: skip
        """`scratch_bytes` limits what a batch holds at once, one string at least.

        `gather` forces the way of the mixed-spin part (None: the faster one for each range of columns).
        """
        self._tables = h = hamiltonian.as_type(steps.dtype)
        self._steps, self._gather = steps, gather
        self.shape, self.rows, self.parities, self.symmetric = h.shape, h.rows, h.parities, h.symmetric
        n, n_beta = h.integrals.n_orbitals, h.shape[1]
        self._columns = tuple(
            Columns(columns.first, columns.last, steps.put(columns.start), steps.put(columns.code))
            for columns in column_ranges(h)
        )
        two, rank, pairs = h.integrals.two.astype(h.dtype), h.beta.singles.rank, h.beta.matching.pairs
        two = np.ascontiguousarray(two[np.concatenate([np.arange(n), pairs])])
        self._two, self._above = steps.put(two), None
        if h.symmetric:
            above = (rank[pairs][:, None] > rank[None, :]).astype(h.dtype)
            above[np.arange(len(pairs)), pairs] = 0.5
            self._above = steps.put(two * np.concatenate([np.zeros((n, len(rank)), h.dtype), above]))
        self._numbers = steps.put(h.alpha.filled[slice(*h.rows)] @ two[:, :n].T)
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
        """Strings in batches of rising numbers of singles."""
        h, singles, held = self._tables, block.singles, self.rows
        start = singles.start[held[0] : held[1] + 1]
        counts = np.diff(start)
        own = np.repeat(np.arange(len(counts)), counts)
        active = h.beta.matching.active[singles.pairs[start[0] : start[-1]]]
        needed = np.zeros((len(counts), len(self._columns)), np.int64)
        for number, columns in enumerate(self._columns):
            before = active < columns.last - h.integrals.n_orbitals
            needed[:, number] = np.bincount(own[before], minlength=len(counts))
        order = np.argsort(counts, kind="stable")
        widest = widest_range(h)
        room, batches, first = len(self._scratch), [], 0
        while first < len(order):
            last = first + 1
            while last < len(order):
                places = int(counts[order[last]]) + 1
                if (last + 1 - first) * string_elements(places, widest, h.shape[1]) > room:
                    break
                last += 1
            rows = order[first:last]
            places = int(counts[rows[-1]]) + 1
            half = [1, *(needed[rows].max(0) + 1).tolist()[1:]]
            whole = [places] * len(half)
            batches.append(Batch(self._steps.put(rows), places, self._ways(whole), self._ways(half)))
            first = last
        return tuple(batches)

    def _ways(self, places: Sequence[int]) -> tuple[tuple[int, bool], ...]:
        """The places of each range of columns, and whether it is gathered."""
        found = []
        for needed, columns in zip(places, self._columns, strict=True):
            width, entries = columns.last - columns.first, len(columns.code)
            gathered = self._gather
            if gathered is None:
                gathered = cost.batch_gathers(needed, width, self.shape[1], entries)
            found.append((needed, gathered))
        return tuple(found)

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
        for batch in block.batches:
            self._add_mixed(block, batch, x, y, half)

    def _add_product(self, matrix: Matrix, x: Array, y: Array) -> None:
        """y += the rows held of the alpha matrix times x."""
        if len(matrix) == 1:
            self._steps.multiply(matrix[0][None], x[None], y[None], add=True)
        else:
            start, column, value = matrix
            self._steps.sparse(start, column, value, x, y)

    def _add_transposed(self, own: Array, y: Array) -> None:
        """y += the rows held of the state times the beta matrix."""
        if len(self._beta) == 1:
            self._steps.multiply(own[None], self._beta[0][None], y[None], add=True)
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
        """Add the mixed-spin part to the rows of a batch."""
        steps, count, n_beta = self._steps, len(batch.rows), self.shape[1]
        values = self._scratch[: count * batch.places * n_beta].reshape(count, batch.places, n_beta)
        rest = self._scratch[values.size :]
        steps.take(batch.rows, block.start, block.other, block.shift, x, values)
        two = self._above if half else self._two
        ways = batch.half if half else batch.whole
        for columns, (places, gathered) in zip(self._columns, ways, strict=True):
            width = columns.last - columns.first
            weights = rest[: count * width * places].reshape(count, width, places)
            # Number operators of both spins give a symmetric part, of which the transpose brings one half.
            factor = 0.5 if half and columns.first == 0 else 1.0
            steps.weigh(
                batch.rows, block.start, block.pairs, block.sign, two, self._numbers, columns.first, factor,
                weights,
            )  # fmt: skip
            if gathered:
                steps.gather(batch.rows, columns.start, columns.code, weights, values, y)
                continue
            held = rest[weights.size :][: count * width * n_beta].reshape(count, width, n_beta)
            steps.multiply(weights, values[:, :places], held)
            steps.collect(batch.rows, columns.start, columns.code, held, y)


def string_elements(places: int, n_columns: int, n_beta: int) -> int:
    """The scratch that one string of a batch needs: values, weights and half-transformed rows."""
    return places * (n_columns + n_beta) + n_columns * n_beta


def scratch_elements(hamiltonian: ProductHamiltonian, most: int) -> int:
    """The scratch of all batches: `most` elements, or what all rows or one of them need."""
    h = hamiltonian
    largest = string_elements(h.alpha.singles.most + 1, widest_range(h), h.shape[1])
    return max(largest, min(most, (h.rows[1] - h.rows[0]) * largest))


def column_edges(hamiltonian: ProductHamiltonian) -> list[int]:
    """Where ranges of columns begin, and the end of the last one: the number operators, then active pairs."""
    n, n_beta = hamiltonian.integrals.n_orbitals, hamiltonian.shape[1]
    at_once = min(COLUMNS_AT_ONCE, (1 << 30) // n_beta)
    last = n + len(hamiltonian.beta.matching.pairs)
    return [0, *range(n, last, at_once), last]


def widest_range(hamiltonian: ProductHamiltonian) -> int:
    """The most columns of a range."""
    return max(end - first for first, end in pairwise(column_edges(hamiltonian)))


def column_ranges(hamiltonian: ProductHamiltonian) -> list[Columns]:
    """The number operators of beta, then its active pairs in ranges, and what every beta string collects."""
    beta, n, n_beta = hamiltonian.beta, hamiltonian.integrals.n_orbitals, hamiltonian.shape[1]
    string, orbital = np.nonzero(beta.strings.occupied)
    own = np.repeat(np.arange(n_beta), np.diff(beta.singles.start))
    rows = np.concatenate([string, own])
    source = np.concatenate([string, beta.singles.other]).astype(np.int64)
    column = np.concatenate([orbital, n + beta.matching.active[beta.singles.pairs].astype(np.int64)])
    negative = np.concatenate([np.zeros(len(string), np.int8), beta.singles.sign]) < 0
    ranges = []
    for first, end in pairwise(column_edges(hamiltonian)):
        inside = np.flatnonzero((column >= first) & (column < end))
        inside = inside[np.argsort(rows[inside], kind="stable")]
        code = 2 * ((column[inside] - first) * n_beta + source[inside]) + negative[inside]
        start = np.searchsorted(rows[inside], np.arange(n_beta + 1))
        ranges.append(Columns(first, end, start.astype(np.int64), code.astype(np.int32)))
    return ranges

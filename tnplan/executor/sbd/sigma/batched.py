"""Rows of H over products of half-strings, all at once: the form that a GPU takes.

The opposite-spin part goes by tiles of active pairs and strings of beta (see `pair_tiling`): of every alpha
string, products of matrices bring its excitations together, and each excitation of beta wants one element.
Number operators of beta, of which many meet in one element, are summed before. Knows tables of a
`ProductHamiltonian`; where arrays lie and what works on them is up to `BatchSteps`.

Work of a multiplication in fp64, for Na x Nb strings of s excitations each and c active pairs:

    within a spin   2 Na Nb (Na + Nb) operations dense, half of it with a parity
    numbers         16 Na s Nb bytes read, most of them from the level-2 cache
    opposite spin   2 Na s operations for each pair and string of a tile, and 8 Na s bytes for each string of
                    a tile, read from the level-2 cache, half of both with a parity; then Na Nb s additions

fe4s4 (6,000 x 6,000, s 52, c 628) with a parity: 4.3e11 operations within a spin; in tiles 5.6e11 operations,
7.0e10 bytes and 1.9e9 additions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.sbd.basis.excitations import Matching
from tnplan.executor.sbd.sigma.product_hamiltonian import NEITHER, ProductHamiltonian
from tnplan.executor.sbd.sigma.same_spin import DenseMatrix, SpinMatrix
from tnplan.executor.sbd.sigma.sector_hamiltonian import BlockedOperator, Link, SectorHamiltonian

Array = Any
"""An array where the steps work."""
Host = NDArray[Any]
Matrix = Any
"""A dense matrix alone, or start, column and value of a sparse one, in a tuple."""

ROWS_TRANSPOSED = 256
"""Rows of a state that are transposed at once where the beta matrix is sparse."""


class BatchSteps(Protocol):
    """The steps of a product on one device, for real numbers of type `dtype`, one after the other."""

    dtype: str

    def put(self, array: Host) -> Array:
        """A copy where the steps work."""

    def get(self, array: Array) -> Host:
        """A copy on the host."""

    def empty(self, *shape: int) -> Array:
        """An array there, not set."""

    def add_opposite_spin(
        self, block: BatchedBlock, tables: BatchedTables, half: bool, x: Array, y: Array
    ) -> None:
        """y[row, j] += the sum over excitations of the row and of beta string j of +-(pair | a) x[other, j'].

        For shift >= 0 with number_weights[row] and x[row + shift] too, as if by an excitation before the
        others, unless `half`: then only with excitations whose pair, by its number rank[pair] among active
        pairs, stands before a, and one half of those by a itself.
        """

    def add_number_operators(
        self, block: BatchedBlock, tables: BatchedTables, factor: float, x: Array, y: Array
    ) -> None:
        """y[row, j] += the sum over excitations of +-numbers[pair, j] x[other, j].

        For shift >= 0 also factor x[row + shift, j] times the sum over orbitals p of filled[row, p]
        numbers[p, j].
        """

    def add_exchange(
        self, block: BatchedBlock, active: Array, partners: Array, factor: float, x: Array, y: Array
    ) -> None:
        """y[row, j] += factor times the sum of +-x[other, j'] over excitations of the row and of string j.

        Both are by the same pair, in opposite directions; see `exchange_partners`.
        """

    def add_product(self, a: Array, b: Array, y: Array) -> None:
        """y += a b, for matrices whose columns are adjacent."""

    def sparse(self, start: Array, column: Array, value: Array, x: Array, y: Array) -> None:
        """y[i] += the sum over e in start[i] .. start[i+1]-1 of value[e] x[column[e]]."""

    def copy(self, source: Array, target: Array) -> None:
        """target = source, for views of any strides."""


@dataclass(frozen=True)
class BatchedBlock:
    """A `SourceBlock` where the steps work: tables of this rank's rows, numbered from 0.

    Row i is string i + shift of the block; shift is -1 where the block is of other rows. `singles` are start,
    other, pairs and sign of their `Singles`, `up` says which of these create the higher orbital; `tasks` are
    table, split and bounds of their `RowTasks`.
    """

    shift: int
    singles: tuple[Array, ...]
    matrix: Matrix
    tasks: tuple[Array, ...]
    up: Array


class BatchedTables(NamedTuple):
    """Tables of all blocks where the steps work.

    `rank` are the numbers of pairs among the active ones, `active`, `number_weights`, `filled` and `numbers`
    those of `OppositeSpinTables`, `tiles` start, columns, more and slots of a `PairTiles`; `spare` has at
    least the spare rows of any block's tasks.
    """

    rank: Array
    active: Array
    number_weights: Array
    filled: Array
    numbers: Array
    tiles: tuple[Array, ...]
    spare: Array


def exchange_partners(matching: Matching, n_strings: int) -> Host:
    """What string an active pair takes each string to, int32 [active pair, string].

    4 j' for string j', + 2 where the string itself fills the higher orbital, + 1 where the excitation has a
    minus; -1 where the pair does not excite the string.
    """
    partners = np.full((len(matching.pairs), n_strings), -1, np.int32)
    sides = np.diff(matching.start)
    side = np.repeat(np.arange(len(sides)), sides)
    pair, minus = np.divmod(side, 2)
    partners[pair, matching.upper] = 4 * matching.lower + 2 + minus
    partners[pair, matching.lower] = 4 * matching.upper + minus
    return partners


class SpinProducts:
    """Products with matrices within a spin, where the steps work."""

    def __init__(self, steps: BatchSteps, n_columns: int) -> None:
        """States have up to so many columns."""
        self._steps, self._n_columns = steps, n_columns
        self._transposed: list[Array] = []

    def put(self, matrix: SpinMatrix) -> Matrix:
        """A same-spin matrix where the steps work."""
        if isinstance(matrix, DenseMatrix):
            return (self._steps.put(matrix.values),)
        return tuple(self._steps.put(table) for table in (matrix.start, matrix.column, matrix.value))

    def add(self, matrix: Matrix, x: Array, y: Array) -> None:
        """y += the matrix times x."""
        if len(matrix) == 1:
            self._steps.add_product(matrix[0], x, y)
        else:
            start, column, value = matrix
            self._steps.sparse(start, column, value, x, y)

    def reserve(self) -> None:
        """Take the memory for transposes of rows, with which a sparse matrix acts on columns."""
        self._transposed = [self._steps.empty(self._n_columns * ROWS_TRANSPOSED) for _ in range(2)]

    def add_transposed(self, matrix: Matrix, x: Array, y: Array) -> None:
        """y += x times the symmetric matrix."""
        if len(matrix) == 1:
            self._steps.add_product(x, matrix[0], y)
            return
        (start, column, value), n_columns = matrix, y.shape[1]
        for first in range(0, len(y), ROWS_TRANSPOSED):
            rows = slice(first, min(len(y), first + ROWS_TRANSPOSED))
            count = rows.stop - first
            x_transposed, y_transposed = (
                memory[: n_columns * count].reshape(n_columns, count) for memory in self._transposed
            )
            self._steps.copy(x[rows].T, x_transposed)
            self._steps.copy(y[rows].T, y_transposed)
            self._steps.sparse(start, column, value, x_transposed, y_transposed)
            self._steps.copy(y_transposed.T, y[rows])


class BatchedHamiltonian:
    """The rows of H that a `ProductHamiltonian` holds, without the core energy, made where `steps` work."""

    def __init__(self, hamiltonian: ProductHamiltonian, steps: BatchSteps) -> None:
        """Puts the tables where the steps work."""
        self._hamiltonian = h = hamiltonian.as_type(steps.dtype)
        self._steps = steps
        self.shape, self.rows, self.parities, self.symmetric = h.shape, h.rows, h.parities, h.symmetric
        self.sector, self.empty, self.get = h.sector, steps.empty, steps.get
        put, tables, n_beta = steps.put, h.opposite_spin, h.shape[1]
        self._tables = BatchedTables(
            put(h.beta.pairs.active), put(tables.active), put(tables.number_weights), put(tables.filled),
            put(tables.numbers), tuple(map(put, h.tiles)), steps.empty(0, n_beta),
        )  # fmt: skip
        self._products = SpinProducts(steps, n_beta)
        self._beta: Matrix = () if h.symmetric else self._products.put(h.beta_matrix)
        if len(self._beta) == 3:
            self._products.reserve()

    def block(self, first: int, last: int) -> BatchedBlock:
        """What rows first .. last-1 of a state contribute from, ready for `add_rows`."""
        block, put = self._hamiltonian.block(first, last), self._steps.put
        singles, local = block.singles, self.rows
        begin, end = int(singles.start[local[0]]), int(singles.start[local[1]])
        entries = slice(begin, end)
        shift = block.local_row(local[0])
        tasks = self._hamiltonian.row_tasks(block)
        if tasks.spare > len(self._tables.spare):
            self._tables = self._tables._replace(spare=self._steps.empty(tasks.spare, self.shape[1]))
        start = singles.start[local[0] : local[1] + 1] - begin
        chosen = (table[entries] for table in (singles.other, singles.pairs, singles.sign))
        up = (singles.create > singles.destroy)[entries].astype(np.int8)
        return BatchedBlock(
            -1 if shift is None else shift, tuple(map(put, (start, *chosen))),
            self._products.put(block.matrix), tuple(map(put, tasks)), put(up),
        )  # fmt: skip

    def put(self, array: Host) -> Array:
        """A copy where the steps work, in their precision."""
        return self._steps.put(np.asarray(array, self._steps.dtype))

    def diagonal(self) -> Array:
        """The diagonal of H over the local rows."""
        return self.put(self._hamiltonian.diagonal())

    def spin_diagonal(self) -> Array:
        """The diagonal of S^2 over the local rows."""
        return self.put(self._hamiltonian.spin_diagonal())

    @cached_property
    def _partners(self) -> Array:
        return self._steps.put(exchange_partners(self._hamiltonian.beta.matching, self.shape[1]))

    def add_exchange(self, block: BatchedBlock, factor: float, x: Array, y: Array) -> None:
        """Add to y, the local rows, factor times the sum of E^a_pq E^b_qp x for p != q, x rows of a block."""
        self._steps.add_exchange(block, self._tables.rank, self._partners, factor, x, y)

    def add_rows(self, block: BatchedBlock, x: Array, local: Array, y: Array, half: bool) -> None:
        """See `ProductHamiltonian.add_rows`. Allocates nothing."""
        self._products.add(block.matrix, x, y)
        if block.shift >= 0 and not half:
            self._products.add_transposed(self._beta, local, y)
        factor = 0.5 if half else 1.0
        self._steps.add_number_operators(block, self._tables, factor, x, y)
        self._steps.add_opposite_spin(block, self._tables, half, x, y)


class BatchedLink(NamedTuple):
    """A `Link` where the steps work."""

    source: int
    is_own: bool
    rows: BatchedBlock
    tables: BatchedTables


def partners(link: Link) -> Host:
    """What string of the source an active pair takes each beta string to, as `exchange_partners` has them."""
    singles, tables = link.beta, link.tables
    table = np.full((len(link.pairs.pairs), len(tables.bounds) // 2), -1, np.int32)
    own = np.repeat(np.arange(table.shape[1]), np.diff(singles.start))
    up, minus = singles.create > singles.destroy, singles.sign < 0
    table[link.pairs.active[singles.pairs], own] = 4 * singles.other + 2 * up + minus
    return table


class BatchedSector(BlockedOperator):
    """H over the blocks of a sector, without the core energy, made where `steps` work."""

    def __init__(self, hamiltonian: SectorHamiltonian, steps: BatchSteps) -> None:
        """Puts the tables where the steps work."""
        self._hamiltonian = h = hamiltonian.as_type(steps.dtype)
        self._steps = steps
        self.dtype, self.shape, self.rows = h.dtype, h.shape, h.rows
        self.parities, self.symmetric, self.blocks, self.local = h.parities, h.symmetric, h.blocks, h.local
        self._coefficients: dict[int, Array] = {}
        self._spare, self._turned = steps.empty(h.spare_elements), steps.empty(h.turned_elements)
        self._links = [
            [self._put_link(*entry) for entry in zip(links, tiled, strict=True)]
            for links, tiled in zip(h.links, h.tiles, strict=True)
        ]
        self._products = SpinProducts(steps, max(block.shape[1] for block in h.blocks.blocks))
        self._alpha = {irrep: self._products.put(matrix) for irrep, matrix in h.alpha_matrices.items()}
        self._beta = self._alpha
        if h.beta_matrices is not h.alpha_matrices:
            self._beta = {irrep: self._products.put(matrix) for irrep, matrix in h.beta_matrices.items()}
        if any(len(matrix) == 3 for matrix in self._beta.values()):
            self._products.reserve()

    def _put_link(self, link: Link, tiled: Any) -> BatchedLink:
        """A link's tables where the steps work; coefficients, which links share, are put there once."""
        put, tables, singles = self._steps.put, link.tables, link.singles
        tiles, tasks = tiled
        shared = id(tables.active)
        if shared not in self._coefficients:
            self._coefficients[shared] = put(tables.active)
        n_beta = len(tables.bounds) // 2
        spare = self._spare[: tasks.spare * n_beta].reshape(tasks.spare, n_beta)
        up = (singles.create > singles.destroy).astype(np.int8)
        chosen = singles.start, singles.other, singles.pairs, singles.sign
        rows = BatchedBlock(
            link.first if link.is_own else -1, tuple(map(put, chosen)), (), tuple(map(put, tasks)), put(up)
        )
        on_device = BatchedTables(
            put(link.pairs.active), self._coefficients[shared], put(tables.number_weights),
            put(tables.filled), put(tables.numbers), tuple(map(put, tiles)), spare,
        )  # fmt: skip
        return BatchedLink(link.source, link.is_own, rows, on_device)

    def empty(self, *shape: int) -> Array:
        """An array where the steps work, not set."""
        return self._steps.empty(*shape)

    def put(self, array: Host) -> Array:
        """A copy where the steps work, in their precision."""
        return self._steps.put(np.asarray(array, self.dtype))

    def get(self, array: Array) -> Host:
        """A copy on the host."""
        return self._steps.get(array)

    def diagonal(self) -> Array:
        """The diagonal of H."""
        return self.put(self._hamiltonian.diagonal())

    def apply(self, x: Array, parity: int, out: Array | None = None) -> Array:
        """H x for x of that parity, a new vector or `out`."""
        if parity != NEITHER or not self.symmetric:
            return super().apply(x, parity, out)
        # Rows are dealt for states of a parity.
        y = super().apply(self.project(x, 1), 1, out)
        y += super().apply(self.project(x, -1), -1)
        return y

    def _add_block(self, number: int, x: Array, y: Array, half: bool) -> None:
        blocks, steps = self.blocks.blocks, self._steps
        irrep, own = blocks[number].irrep, blocks[number].view(x)
        self._products.add(self._alpha[irrep], own, y)
        if not half:
            beta = self._beta[irrep ^ self.blocks.sector.irrep]
            self._products.add_transposed(beta, own[self.local[number].rows], y)
        for link in self._links[number]:
            if link.is_own:
                steps.add_number_operators(link.rows, link.tables, 0.5 if half else 1.0, own, y)
            steps.add_opposite_spin(link.rows, link.tables, half, blocks[link.source].view(x), y)

    def spin_diagonal(self) -> Array:
        """The diagonal of S^2, made once."""
        return self._spin_diagonal

    @cached_property
    def _spin_diagonal(self) -> Array:
        return self.put(self._hamiltonian.spin_diagonal())

    @cached_property
    def _partners(self) -> list[list[Array]]:
        """For every link of every block, see `partners`."""
        return [[self._steps.put(partners(link)) for link in links] for links in self._hamiltonian.links]

    def _add_exchange(self, number: int, factor: float, x: Array, y: Array) -> None:
        for link, of_link in zip(self._links[number], self._partners[number], strict=True):
            source = self.blocks.blocks[link.source].view(x)
            self._steps.add_exchange(link.rows, link.tables.rank, of_link, factor, source, y)

    def _add_transpose(self, y: Array, parity: int) -> None:
        turned = self._turned[: y.shape[0] * y.shape[1]].reshape(y.shape)
        turned[:] = y.T
        if parity > 0:
            y += turned
        else:
            y -= turned

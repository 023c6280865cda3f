"""Products of alpha and beta half-strings: their tables, and the Hamiltonian over all of them on a CPU.

A state is a matrix x[alpha string, beta string]. With E_pq restricted to the selected strings the
opposite-spin part is exact, since the space is a product:

    y = H_aa x + x H_bb + sum over p, q, r, s of (pq|rs) E^a_pq x (E^b_rs)^T

`OppositeSpinTables` visits every pair of excitations once. With equal sets of strings and x equal to +-its
transpose, half of y is formed, and the rest follows as the transpose.

Knows strings, integrals and arrays; nothing of solvers and files.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.common.system_calls import cores
from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.sbd.basis.determinants import OneRank
from tnplan.executor.sbd.basis.excitations import (
    ActivePairs,
    Matching,
    Singles,
    active_pairs,
    find_singles,
    match_pairs,
)
from tnplan.executor.sbd.basis.integrals import Integrals, add_by_parts, spin_constant
from tnplan.executor.sbd.basis.sector import Sector
from tnplan.executor.sbd.basis.strings import StringSet
from tnplan.executor.sbd.sigma import cost_model as cost
from tnplan.executor.sbd.sigma.cost_model import partition_rows
from tnplan.executor.sbd.sigma.opposite_spin import (
    DEEP,
    LANES,
    MOST,
    ROWS,
    OppositeSpinTables,
    PairTiles,
    beta_entries,
    block_warps,
    opposite_spin_tables,
    pair_tiles,
    tile_counts,
)
from tnplan.executor.sbd.sigma.same_spin import SpinMatrix, same_spin, string_energies

# How alpha rows are dealt to blocks of threads in the opposite-spin part, by the tiles of each row.
#
# A row whose work is more than a block's share of what is left goes to several blocks, which take some of its
# tiles each: rows of very many excitations, and the last rows, in ever smaller pieces. So no block works when
# all others have ended.
#
# Knows numbers of excitations and of tiles; no strings.


WARPS_AT_ONCE = 3168
"""That take a share of what is left: twice the 12 that a GPU works on in each of 132 multiprocessors, so that
the last pieces end more evenly."""
LEAST = 8
"""Pieces that a row of mean work goes to at most."""


class RowTasks(NamedTuple):
    """The pieces of rows, in the order in which blocks take them.

    table [piece, 4]: row, first and one after the last of its rows of tiles, and where its sums go: -1 for
    the row itself, otherwise a spare row. Spare rows bounds[k] .. bounds[k+1]-1 belong to row split[k].
    """

    table: Array
    split: Array
    bounds: Array

    @property
    def spare(self) -> int:
        """How many spare rows there are."""
        return int(self.bounds[-1])

    @property
    def size_bytes(self) -> int:
        """The memory of the tables."""
        return sum(table.nbytes for table in self)


def tile_work(counts: Array, active: Array | None, tiles: Array) -> Array:
    """Seconds of a GPU [row, row of tiles] for one column of tiles, for rows of so many excitations.

    `active` are their active pairs, row by row, where with a parity only those of earlier pairs are
    multiplied; None where all are. tiles[m] are there of active pairs ROWS m .. ROWS (m + 1) - 1.
    """
    shape = len(counts), len(tiles)
    if active is None:
        depth = np.broadcast_to(counts[:, None], shape)
    else:
        cells = np.repeat(np.arange(shape[0]) * shape[1], counts) + active // ROWS
        depth = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape).cumsum(1)
    return np.asarray(tiles * (cost.STEP_S * -(-depth // DEEP) + cost.VISIT_S * -(-depth // MOST)))


def balance_rows(work: Array, at_once: int) -> RowTasks:
    """The pieces of rows with so much work [row, row of tiles], for `at_once` blocks.

    Rows come as they stand: neighbours share rows of the state, which caches keep. A piece has no more work
    than is left for each of those at once. Rows of none have no piece.
    """
    # Guided self-scheduling (Polychronopoulos and Kuck, IEEE Trans. Comput. C-36, 1425 (1987)) with
    # pieces of rows: each piece is at most 1 / at_once of the work that is left from its row on, or
    # 1 / LEAST of a mean row where that is more.
    rows = work.sum(1)
    mean = rows.sum() / max(1, len(rows))
    order = np.flatnonzero(rows > 0)
    work, rows = work[order], rows[order, None]
    work_ahead = np.cumsum(rows[::-1])[::-1, None]
    numbers = np.ceil(rows / np.maximum(work_ahead / at_once, mean / LEAST))
    # A row of tiles goes to the piece where its middle lies.
    piece = np.minimum((np.cumsum(work, 1) - work / 2) / rows * numbers // 1, numbers - 1)
    # A piece begins where its number changes along the row.
    row, first = np.nonzero(np.diff(piece, axis=1, prepend=-1))
    following = np.append(first, 0)[1:]
    last = np.where(following > 0, following, work.shape[1])
    spare = np.where(first > 0, np.cumsum(first > 0) - 1, -1)
    split, extra = np.unique(row[first > 0], return_counts=True)
    bounds = np.concatenate([[0], np.cumsum(extra)])
    return RowTasks(np.stack([order[row], first, last, spare], 1), order[split], bounds)


EVEN, ODD, NEITHER = 1, -1, 0
"""How a state behaves under exchange of its strings: x^T = x, x^T = -x, or neither."""
TRANSPOSED_AT_ONCE = 64
"""Rows and columns of a block in which a state is added to its transpose."""


@dataclass(frozen=True)
class Spin:
    """What one spin contributes: its strings and their excitations.

    `energies` is the diagonal of the Hamiltonian within the spin. `pairs` are the excitations' pairs as the
    integrals number them.
    """

    strings: StringSet
    filled: Array
    singles: Singles
    matching: Matching
    pairs: ActivePairs
    energies: Array


@dataclass(frozen=True)
class SourceBlock:
    """What rows first .. last-1 of a state contribute from: excitations from these alpha strings, and their
    columns of the alpha matrix, both numbered from 0."""

    first: int
    last: int
    singles: Singles
    matrix: SpinMatrix

    def local_row(self, i: int) -> int | None:
        """The row of the block that alpha string i has, if any."""
        return i - self.first if self.first <= i < self.last else None


class ProductTables:
    """The strings of both spins and their excitations, with which whole states are measured."""

    dtype = "float64"

    def __init__(
        self, integrals: Integrals, alpha: StringSet, beta: StringSet | None = None, *,
        threads: int | None = None,
    ) -> None:  # fmt: skip
        """Beta strings default to those of alpha."""
        for name, strings in (("alpha", alpha), ("beta", beta)):
            if strings is not None and strings.n_orbitals != integrals.n_orbitals:
                raise InputError(
                    f"{name} strings", f"have {strings.n_orbitals} orbitals, not {integrals.n_orbitals}",
                    "give strings of the integrals' orbitals",
                )  # fmt: skip
        if integrals.is_complex:
            raise ValueError("integrals are complex: use product_hamiltonian")
        self.threads = threads or cores()
        self.integrals = integrals
        same = beta is None or beta.same_as(alpha)
        # Equal strings and orbitals: H commutes with the exchange of the spins, x -> x^T.
        self.symmetric = same and integrals.has_common_orbitals
        other = alpha if same or beta is None else beta
        singles = find_singles(alpha, self.threads, integrals.has_ordered_pairs)
        others = singles if same else find_singles(other, self.threads, integrals.has_ordered_pairs)

        def spin(number: int, strings: StringSet, excitations: Singles) -> Spin:
            filled = strings.occupied.astype(np.float64)
            energies = string_energies(strings, integrals.of_spin(number))
            matching, pairs = match_pairs(excitations), active_pairs(excitations)
            return Spin(strings, filled, excitations, matching, pairs, energies)

        self.alpha = spin(0, alpha, singles)
        self.beta = self.alpha if self.symmetric else spin(1, other, others)
        self.shape: tuple[int, ...] = (len(self.alpha.strings), len(self.beta.strings))
        # A single alpha string has even states alone, which are all there are.
        self.parities: tuple[int, ...] = (EVEN, ODD) if self.symmetric and len(alpha) > 1 else (NEITHER,)

    def diagonal_of(self, rows: slice | Array, columns: slice | Array) -> Array:
        """The diagonal of H over the products of some alpha and some beta strings."""
        from tnplan.executor.sbd.sigma import opposite_spin_kernel

        # E_i + E_j + sum_{p, r} n_ip (pp|rr) n_jr; diagonal pairs are the first n.
        n = self.integrals.n_orbitals
        numbers, of_beta = self.integrals.mixed[:n, :n], self.beta.strings.occupied.astype(np.float64)
        of_alpha = of_beta if self.symmetric else self.alpha.strings.occupied.astype(np.float64)
        # Invariant: with equal sets both sums take the same numbers, so that the diagonal is symmetric to
        # the last bit, and parities stay exact.
        others = of_beta @ numbers.T
        weights = (others if self.symmetric else of_alpha @ numbers)[rows]
        sides = (of_alpha[rows], weights, self.alpha.energies[rows]), (
            np.ascontiguousarray(of_beta[columns].T), np.ascontiguousarray(others[columns].T),
            self.beta.energies[columns],
        )  # fmt: skip
        diagonal = np.empty((len(weights), len(sides[1][2])), self.dtype)
        over_rows(
            len(diagonal), self.threads,
            lambda first, last: opposite_spin_kernel.fill_diagonal(
                first, last, *sides, diagonal, np.empty(diagonal.shape[1])
            ),
        )  # fmt: skip
        return diagonal

    def doubly_filled(self, rows: slice = slice(None)) -> Array:
        """The numbers of doubly occupied orbitals of the determinants of some alpha strings."""
        return np.asarray(self.alpha.filled[rows] @ self.beta.filled.T)

    def apply_spin_square(self, x: Array) -> Array:
        """S^2 x within the space for a whole state, a new array."""
        x = np.ascontiguousarray(x)
        y = (spin_constant(self.integrals) - self.doubly_filled()) * x
        add_by_parts(partial(self._add_exchange, 0, self.alpha.singles, -1.0), x, y)
        return y

    def spin_square_of(self, whole: Array) -> float:
        """The expectation value of S^2 in a whole normalized state."""
        return float(np.vdot(whole, self.apply_spin_square(whole)).real)

    def _add_exchange(self, above: int, singles: Singles, factor: float, x: Array, y: Array) -> None:
        """Add to y, rows from `above` on, factor times the sum of E^a_pq E^b_qp x for p != q."""
        from tnplan.executor.sbd.sigma import opposite_spin_kernel

        arguments = above, factor, singles, (self.beta.matching, self.beta.matching), x, y
        over_rows(
            len(y), self.threads,
            lambda first, last: opposite_spin_kernel.exchange_spins(first, last, *arguments),
        )  # fmt: skip


class ProductHamiltonian(ProductTables, OneRank):
    """H, without the core energy, over alpha x beta strings; for complex integrals see `ComplexHamiltonian`.

    `apply` gives the same bits whenever it is called with the same number of threads. Of several ranks
    each has a range of rows, the local ones, and makes these alone, by `add_rows`.
    """

    sector: Array | None = None
    """Which products of the local rows states may have, bool; None: all."""
    restricted: Sector | None = None
    """What `restrict` was given."""

    def __init__(
        self, integrals: Integrals, alpha: StringSet, beta: StringSet | None = None, *,
        threads: int | None = None, dense: bool | None = None, memory_bytes: float = np.inf,
        rank_of: tuple[int, int] = (0, 1), rates: cost.Rates = cost.CPU,
    ) -> None:  # fmt: skip
        """`dense` forces the way of the same-spin part (None: the faster one).

        `memory_bytes` is the memory that same-spin matrices may take. Beta strings default to those of alpha.
        `rank_of` is this rank and how many there are; it makes the rows that `partition` gives it.
        """
        super().__init__(integrals, alpha, beta, threads=threads)
        # Alpha rows are divided over ranks by their work; all beta strings are on every rank.
        costs = row_costs(self.alpha.singles, self.beta.singles, self.symmetric, rates)
        self.partition = partition_rows(costs, rank_of[1])
        self.rows = self.partition.rows(rank_of[0])
        spin_bytes = memory_bytes if self.symmetric else memory_bytes / 2

        # Dense matrices where products of matrices are faster than sparse ones and the memory holds them.
        def matrix(number: int, spin: Spin, rows: tuple[int, int]) -> SpinMatrix:
            strings, linked, chosen = spin.strings, spin.singles.linked, dense
            if chosen is None:
                chosen = cost.dense_is_faster(len(strings), int(linked.sum()), rates)
                chosen = chosen and cost.dense_bytes(rows[1] - rows[0], len(strings)) <= spin_bytes
            return same_spin(strings, integrals.of_spin(number), linked, chosen, self.threads, rows)

        self.alpha_matrix = matrix(0, self.alpha, self.rows)
        """The local rows of the Hamiltonian within the spin; those of beta are all."""
        self.beta_matrix = self.alpha_matrix
        if not self.symmetric:
            self.beta_matrix = matrix(1, self.beta, (0, self.shape[1]))
        self._all_rows: Any = self.block(0, self.shape[0])

    def restrict(self, sector: Sector) -> None:
        """From now on states have products of strings of a sector alone."""
        self.restricted = sector
        self.sector = sector.alpha[slice(*self.rows), None] ^ sector.beta[None, :] == sector.irrep

    def identity_arrays(self) -> list[Array]:
        """Arrays that tell this space from others."""
        words = [self.alpha.strings.words, self.beta.strings.words]
        return [*words, *(np.asarray(array) for array in self.restricted or ())]

    def as_type(self, dtype: str) -> ProductHamiltonian:
        """The same with products in "float32" or "float64"."""
        other = copy.copy(self)
        other.dtype = dtype
        other.alpha = replace(self.alpha, filled=self.alpha.filled.astype(dtype))
        other.alpha_matrix = self.alpha_matrix.as_type(dtype)
        other.beta, other.beta_matrix = other.alpha, other.alpha_matrix
        if not self.symmetric:
            other.beta = replace(self.beta, filled=self.beta.filled.astype(dtype))
            other.beta_matrix = self.beta_matrix.as_type(dtype)
        other.__dict__.pop("opposite_spin", None)
        other._all_rows = other.block(0, self.shape[0])
        return other

    def block(self, first: int, last: int) -> SourceBlock:
        """What rows first .. last-1 of a state contribute from."""
        if (first, last) == (0, self.shape[0]):
            return SourceBlock(first, last, self.alpha.singles, self.alpha_matrix)
        singles = self.alpha.singles.within(first, last)
        return SourceBlock(first, last, singles, self.alpha_matrix.columns(first, last))

    @cached_property
    def opposite_spin(self) -> OppositeSpinTables:
        """The tables of the opposite-spin part, made where rows are first made here."""
        filled, beta = self.alpha.filled[slice(*self.rows)], self.beta
        tables = opposite_spin_tables(self.integrals.mixed, filled, beta.filled, beta.singles, beta.pairs)
        return tables.as_type(self.dtype)

    @cached_property
    def tiles(self) -> PairTiles:
        """Excitations of beta in tiles, made where rows are first made by them."""
        bounds, entries = beta_entries(self.beta.singles, self.beta.pairs)
        return pair_tiles(bounds, entries, len(self.beta.pairs.pairs), block_warps(self.shape[1]))

    def row_tasks(self, block: SourceBlock) -> RowTasks:
        """How the local rows are dealt to blocks of threads, for what a block of rows contributes."""
        bounds, tiles = block.singles.start[self.rows[0] : self.rows[1] + 1], self.tiles
        # Without a parity the row itself counts as one more.
        itself = not self.symmetric and block.local_row(self.rows[0]) is not None
        # Invariant: pairs of alpha's excitations are active in beta too where the sets are equal.
        active = self.beta.pairs.active[block.singles.pairs[bounds[0] : bounds[-1]]]
        work = tile_work(np.diff(bounds) + itself, active if self.symmetric else None, np.diff(tiles.start))
        return balance_rows(work, WARPS_AT_ONCE // tiles.columns.shape[1])

    @property
    def pairs_contributing(self) -> int:
        """Pairs of determinants whose element is not zero by the rules of Slater and Condon."""
        alpha, beta = self.alpha.singles, self.beta.singles
        # linked counts 0, 1 and 2 excitations: alpha ones for each beta string, beta ones for each
        # alpha string, the diagonal being in both; and singles of both spins.
        singles = len(alpha.other) * len(beta.other)
        rows, columns = self.shape
        return int(alpha.linked.sum()) * columns + int(beta.linked.sum()) * rows + singles - rows * columns

    def diagonal(self) -> Array:
        """The diagonal of H over the local rows."""
        return self.diagonal_of(slice(*self.rows), slice(None))

    @property
    def is_complex(self) -> bool:
        """Whether elements are complex numbers."""
        return self.integrals.is_complex

    def spin_diagonal(self) -> Array:
        """The diagonal of S^2 over the local rows."""
        return np.asarray(spin_constant(self.integrals) - self.doubly_filled(slice(*self.rows)), self.dtype)

    def open_shells(self) -> Array:
        """The numbers of singly occupied orbitals of the local determinants."""
        return self.integrals.n_alpha + self.integrals.n_beta - 2 * self.doubly_filled(slice(*self.rows))

    def add_exchange(self, block: SourceBlock, factor: float, x: Array, y: Array) -> None:
        """Add to y, the local rows, factor times the sum of E^a_pq E^b_qp x for p != q, x rows of a block."""
        self._add_exchange(self.rows[0], block.singles, factor, x, y)

    def trace(self, elements: Array) -> Any:
        """The sum over products of two equal strings among the local ones; both spins have the same."""
        return elements.trace(self.rows[0])

    @property
    def matrices_bytes(self) -> int:
        """The memory of the matrices within a spin."""
        matrices = [self.alpha_matrix] if self.symmetric else [self.alpha_matrix, self.beta_matrix]
        return sum(matrix.size_bytes for matrix in matrices)

    @property
    def tables_of_parts(self) -> tuple[ProductHamiltonian, ...]:
        """The Hamiltonians of real tables of which this one is made: itself alone."""
        return (self,)

    def parity_of(self, x: Array) -> int:
        """EVEN or ODD where the sets are equal and x equals plus or minus its transpose to the last bit."""
        if not self.symmetric:
            return NEITHER
        if np.array_equal(x, x.T):
            return EVEN
        return ODD if np.array_equal(x, -x.T) else NEITHER

    def project(self, x: Array, parity: int) -> Array:
        """The part of x that has a parity, and lies in the sector."""
        # (x +- x^T) / 2.
        of_parity = x if parity == NEITHER else (x + parity * x.T) / 2
        return of_parity if self.sector is None else of_parity * self.sector

    def apply(self, x: Array, parity: int | None = None, out: Array | None = None) -> Array:
        """H x, a new array or `out`. `parity` is that of x (None: looked up)."""
        x = np.ascontiguousarray(x, self.dtype)
        if x.shape != self.shape:
            raise ValueError(f"a state of shape {x.shape} where {self.shape} is expected")
        parity = self.parity_of(x) if parity is None else parity
        y = np.empty_like(x) if out is None else out
        y[:] = 0.0
        self.add_rows(self._all_rows, x, x, y, parity != NEITHER)
        if parity != NEITHER:
            self.add_half(y, parity)
        return y

    def add_half(self, y: Array, parity: int) -> None:
        """Add to all rows of a product what `add_rows` left out with `half`."""
        add_transpose(y, parity, self.threads)

    def add_rows(self, block: SourceBlock, x: Array, local: Array, y: Array, half: bool) -> None:
        """Add to y, the local rows, what the rows x of a block contribute.

        `local` are the local rows of the state; where they lie in the block, the beta matrix acts on them.
        With `half`, what the transpose of all rows gives is left out.
        """
        from tnplan.executor.sbd.sigma import opposite_spin_kernel

        # y = H_aa x + x H_bb^T + the opposite-spin part. H_bb acts within a row, so it is applied
        # once, by the block that has the row. With `half`, x H_bb is the transpose of H_aa x.
        inside = block.local_row(self.rows[0]) is not None
        tables, above, below, singles = self.opposite_spin, self.rows[0], block.first, block.singles

        def rows(first: int, last: int) -> None:
            block.matrix.add_product(first, last, x, y)
            if inside and not half:
                self.beta_matrix.add_transposed(first, last, local, y)
            opposite_spin_kernel.add_opposite_spin(
                first, last, above, below, half, singles, tables, x, tables.scratch(x.dtype, x.shape[1]), y
            )

        over_rows(len(y), self.threads, rows)


def row_costs(alpha: Singles, beta: Singles, symmetric: bool, rates: cost.Rates) -> Array:
    """The work of every alpha row for one beta string; with equal sets, that of states with a parity."""
    # Only ratios matter: ranks get rows of equal sums.
    singles, n_beta = np.diff(alpha.start), len(beta.start) - 1
    spin = cost.spin_seconds(alpha.linked, len(singles), rates)
    if rates.product_s is None:
        opposite = _tile_seconds(alpha, beta, symmetric) / n_beta
    else:
        opposite = singles * len(beta.other) / n_beta / (1 + symmetric) * rates.product_s
    return np.asarray(spin + singles * rates.value_s + opposite)


def _tile_seconds(alpha: Singles, beta: Singles, symmetric: bool) -> Array:
    """Seconds of a GPU in the opposite-spin part of every alpha row."""
    n_beta = len(beta.start) - 1
    active = active_pairs(beta).active
    n_columns = LANES * block_warps(n_beta)
    tiles = tile_counts(active[beta.pairs] // ROWS, beta.other, -(-(active.max() + 1) // ROWS), n_columns)
    numbers = active[alpha.pairs] if symmetric else None
    counts = np.diff(alpha.start)
    row = np.repeat(np.arange(len(counts)), counts)
    far = np.abs(alpha.other - row) > cost.FAR
    if numbers is None:
        n_tiles = np.full(len(row), tiles.sum())
    else:
        n_tiles = np.cumsum(tiles[::-1])[::-1][numbers // ROWS]
    n_far = np.bincount(row[far], n_tiles[far], len(counts))
    return np.asarray(n_columns * (tile_work(counts, numbers, tiles).sum(1) + cost.FAR_S * n_far))


def add_transpose(y: Array, parity: int, threads: int) -> None:
    """y += parity y^T, in place, tile by tile; no two rows of tiles touch the same elements."""
    from tnplan.executor.sbd.sigma import opposite_spin_kernel

    step = TRANSPOSED_AT_ONCE

    def tiles(first: int, last: int) -> None:
        opposite_spin_kernel.add_transpose(first * step, min(len(y), last * step), step, parity, y)

    over_rows(-(-len(y) // step), threads, tiles)

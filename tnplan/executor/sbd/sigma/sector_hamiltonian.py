"""The Hamiltonian over states of one irreducible representation, block by block, on a CPU.

A pair of orbitals has the representation w of their product, and (pq|rs) is 0 unless pq and rs have the same.
So an excitation of alpha by a pair of w goes only with those of beta by pairs of w: block g is made from the
blocks g times w. Each is a product of strings as in `product_hamiltonian`, with the same kernels, of only the
pairs of one w. Of G representations of equal size, a state has 1/G of the products of strings, and the
opposite-spin part 1/G^2 of the operations.

Knows blocks, strings and integrals; nothing of solvers and files.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.device.cpu.parallel_rows import over_rows
from tnplan.executor.sbd.basis.determinants import OneRank
from tnplan.executor.sbd.basis.excitations import ActivePairs, Matching, Singles, match_between
from tnplan.executor.sbd.basis.integrals import LARGEST_IRREP, spin_constant
from tnplan.executor.sbd.basis.sector import Sector, SectorBlocks, StateBlock, pair_irreps
from tnplan.executor.sbd.basis.strings import StringSet
from tnplan.executor.sbd.sigma import cost_model as cost
from tnplan.executor.sbd.sigma.cost_model import RowPartition
from tnplan.executor.sbd.sigma.opposite_spin import (
    OppositeSpinTables,
    PairTiles,
    beta_entries,
    block_warps,
    pair_tiles,
    scratch_bytes,
)
from tnplan.executor.sbd.sigma.product_hamiltonian import (
    NEITHER,
    WARPS_AT_ONCE,
    ProductTables,
    RowTasks,
    Spin,
    add_transpose,
    balance_rows,
    tile_work,
)
from tnplan.executor.sbd.sigma.same_spin import SpinMatrix, same_spin


class Link(NamedTuple):
    """What a block gets from the block `source` by excitations of both spins, by pairs of one representation.

    `singles` are alpha's, from strings of the source to the rank's of the block, `beta` those of beta. Pairs
    are numbered among those of the representation; `pairs` are the active ones, which `tables` are over.
    Where `is_own`, the source is the block itself, and number operators count too. The rank's rows begin with
    row `first` of the block.
    """

    source: int
    is_own: bool
    first: int
    singles: Singles
    beta: Singles
    pairs: ActivePairs
    tables: OppositeSpinTables

    @property
    def size_bytes(self) -> int:
        """The memory of the tables that no other link has, on a CPU."""
        excitations = 20 * (len(self.singles.other) + len(self.beta.other))
        return self.numbers_bytes + self.tables.bounds.nbytes + self.tables.entries.nbytes + excitations

    @property
    def numbers_bytes(self) -> int:
        """The memory of the tables of real numbers that no other link has."""
        tables = self.tables
        return sum(array.nbytes for array in (tables.numbers, tables.number_weights, tables.filled))

    @property
    def matching_bytes(self) -> int:
        """The memory of the tables of S^2 on a CPU."""
        return 8 * len(self.beta.other) + 16 * (2 * len(self.pairs.pairs) + 1)

    @property
    def partners_bytes(self) -> int:
        """The memory of the tables of S^2 of a `BatchedLink`."""
        return 4 * len(self.pairs.pairs) * (len(self.tables.bounds) // 2)

    @property
    def batched_bytes(self) -> int:
        """The memory of a `BatchedLink` besides tiles and tasks, in fp64."""
        singles = self.singles
        # For every excitation its string and pair, its sign and its direction.
        return self.numbers_bytes + 10 * len(singles.other) + singles.start.nbytes + self.pairs.active.nbytes

    def tiles(self) -> PairTiles:
        """Excitations of beta in tiles."""
        tables = self.tables
        n_active, warps = len(self.pairs.pairs), block_warps(len(tables.bounds) // 2)
        return pair_tiles(tables.bounds, tables.entries, n_active, warps)

    def row_tasks(self, tiles: PairTiles, half: bool) -> RowTasks:
        """How the block's rows are dealt to blocks of threads; `half`: where states have a parity."""
        active = self.pairs.active[self.singles.pairs]
        counts = np.diff(self.singles.start) + (self.is_own and not half)
        work = tile_work(counts, active if half else None, np.diff(tiles.start))
        return balance_rows(work, WARPS_AT_ONCE // tiles.columns.shape[1])


class BlockedOperator(OneRank):
    """What products over the blocks of a sector share, wherever arrays lie; a state is a vector of blocks."""

    sector = None
    """All elements of a vector may be there."""
    blocks: SectorBlocks
    local: list[StateBlock]
    """The rank's rows of every block."""
    symmetric: bool

    def _add_block(self, number: int, x: Any, y: Any, half: bool) -> None:
        """Add the product's rows of a block to y; with `half`, what its transpose gives is left out."""
        raise NotImplementedError

    def _add_transpose(self, y: Any, parity: int) -> None:
        """y += parity y^T, for a square block."""
        raise NotImplementedError

    def _add_exchange(self, number: int, factor: float, x: Any, y: Any) -> None:
        """Add to y, rows of a block, factor times the sum of E^a_pq E^b_qp x for p != q."""
        raise NotImplementedError

    def block(self, first: int, last: int) -> None:
        """What all of a state contributes from: links, which every block knows."""

    def add_exchange(self, block: None, factor: float, x: Any, y: Any) -> None:
        """Add to y, the local elements, factor times the sum over p != q of E^a_pq E^b_qp x."""
        for number, each in enumerate(self.local):
            self._add_exchange(number, factor, x, each.view(y))

    def add_rows(self, block: None, x: Any, local: Any, y: Any, half: bool) -> None:
        """Add to y, the local elements, the product with x, a whole vector.

        With `half`, y plus or minus its transpose is the product, of which this is a part.
        """
        for number, each in enumerate(self.local):
            # A half is made of a block that is its own mirror. Of others, all is made and half is taken.
            target, is_own = each.view(y), half and self.blocks.mirror(number) == number
            self._add_block(number, x, target, is_own)
            if half and not is_own:
                target *= 0.5

    def apply_spin_square(self, x: Any) -> Any:
        """S^2 x within the space, a new vector."""
        y = self.spin_diagonal() * x
        self.add_exchange(None, -1.0, x, y)
        return y

    def project(self, x: Any, parity: int) -> Any:
        """The part of x that has a parity; a new vector unless that is x."""
        if parity == NEITHER:
            return x
        y, blocks = self.empty(*self.shape), self.blocks.blocks
        for number, block in enumerate(blocks):
            target = block.view(y)
            target[:] = blocks[self.blocks.mirror(number)].view(x).T
            target *= parity
            target += block.view(x)
            target *= 0.5
        return y

    def apply(self, x: Any, parity: int, out: Any = None) -> Any:
        """H x for x of that parity, a new vector or `out`."""
        y = self.empty(*self.shape) if out is None else out
        y[:] = 0.0
        blocks = self.blocks.blocks
        for number, block in enumerate(blocks):
            mirror = number if parity == NEITHER else self.blocks.mirror(number)
            # Of two blocks that the exchange of the spins turns into each other, the first is made as a
            # whole, and the other is its transpose. Of one that is its own mirror, a half is made.
            if mirror < number:
                continue
            target, half = block.view(y), parity != NEITHER and mirror == number
            self._add_block(number, x, target, half)
            if half:
                self._add_transpose(target, parity)
            elif mirror != number:
                other = blocks[mirror].view(y)
                other[:] = target.T
                other *= parity
        return y


class SectorHamiltonian(BlockedOperator):
    """H, without the core energy, over the products of strings of one representation, in fp64 or fp32."""

    dtype = "float64"
    is_complex = False

    def __init__(
        self, tables: ProductTables, sector: Sector, *,
        memory_bytes: float = np.inf, rates: cost.Rates = cost.CPU, rank_of: tuple[int, int] = (0, 1),
    ) -> None:  # fmt: skip
        """`tables` are those of all strings; for the others see `ProductHamiltonian`."""
        self.blocks, self.integrals, self.threads = SectorBlocks(sector), tables.integrals, tables.threads
        self.alpha, self.beta, self.symmetric = tables.alpha, tables.beta, tables.symmetric
        self.tables, self.parities = tables, tables.parities
        self.shape = (self.blocks.size,)
        # What each rank makes is adjacent in a vector: rows of some blocks.
        spins: list[tuple[Spin, Array]] = [(self.alpha, sector.alpha), (self.beta, sector.beta)]
        of_spin = [_strings_of(*spin, self.threads) for spin in spins[: 1 if self.symmetric else 2]]
        of_pairs = pair_irreps(self.integrals)
        work = _row_work(self.blocks, spins, of_spin[0], of_pairs, rates)
        self.partition = _partition(self.blocks, work, rank_of[1])
        self.rows = self.partition.rows(rank_of[0])
        self.local = self.blocks.within(*self.rows)
        kinds = [_PairKind(tables, np.flatnonzero(of_pairs == irrep)) for irrep in range(8)]
        self.coefficient_bytes = sum(kind.active.nbytes for kind in kinds)
        self.links = [self._links_to(block, kinds) for block in self.local]
        choose = _MatrixChoice(rates, memory_bytes / len(of_spin), self.threads)
        rows = {block.irrep: block.rows for block in self.local}
        self.alpha_matrices = choose.matrices(of_spin[0], self.integrals.of_spin(0), rows)
        self.beta_matrices = self.alpha_matrices
        if not self.symmetric or (rank_of[1] > 1 and sector.irrep):
            columns = {block.irrep ^ sector.irrep: slice(None) for block in self.blocks.blocks}
            self.beta_matrices = choose.matrices(of_spin[-1], self.integrals.of_spin(1), columns)
        self.pairs_contributing = 0
        for block, links in zip(self.local, self.links, strict=True):
            n_alpha, n_beta = block.shape
            linked, linked_beta = of_spin[0][block.irrep][1], of_spin[-1][block.irrep ^ sector.irrep][1]
            # As in `ProductHamiltonian.pairs_contributing`.
            self.pairs_contributing += (int(linked[block.rows].sum()) - n_alpha) * n_beta
            self.pairs_contributing += int(linked_beta.sum()) * n_alpha
            self.pairs_contributing += sum(
                len(link.singles.other) * len(link.tables.entries) for link in links
            )

    def _links_to(self, block: StateBlock, kinds: list[_PairKind]) -> list[Link]:
        """What the rank's rows of a block are made from."""
        links: list[Link] = []
        if not len(block.alpha):
            return links
        for irrep, kind in enumerate(kinds):
            number = self.blocks.of_irrep.get(block.irrep ^ irrep)
            if number is None:
                continue
            source, is_own = self.blocks.blocks[number], irrep == 0
            alpha, beta = (
                kind.numbered(spin.singles.between(*strings))
                for spin, strings in (
                    (self.alpha, (block.alpha, source.alpha)), (self.beta, (block.beta, source.beta))
                )
            )  # fmt: skip
            if is_own or (len(alpha.other) and len(beta.other)):
                filled = self.alpha.filled[block.alpha], self.beta.filled[block.beta]
                tables = kind.tables(filled if is_own else None, len(block.alpha), beta)
                links.append(Link(number, is_own, block.first, alpha, beta, kind.pairs, tables))
        return links

    def identity_arrays(self) -> list[Array]:
        """Arrays that tell this space from others, and its vectors from whole states."""
        words = self.alpha.strings.words, self.beta.strings.words
        return [np.frombuffer(b"blocks", np.uint8), *words, *map(np.asarray, self.blocks.sector)]

    @property
    def whole_shape(self) -> tuple[int, int]:
        """The shape of a whole state [alpha string, beta string]."""
        return self.blocks.whole_shape

    def vector(self, whole: Array) -> Array:
        """The vector of a whole state; InputError where the state has no part of the representation."""
        return self.blocks.vector(whole)

    def whole(self, vector: Array) -> Array:
        """The whole state of a vector."""
        return self.blocks.whole(vector)

    def spin_square_of(self, whole: Array) -> float:
        """The expectation value of S^2 in a whole normalized state."""
        # Of blocks divided over ranks this rank makes some rows, of whole states all.
        if not self.has_all_rows:
            return self.tables.spin_square_of(whole)
        vector = self.vector(whole)
        return float(np.vdot(vector, self.apply_spin_square(vector)))

    def trace(self, elements: Array) -> Any:
        """The sum over products of two equal strings among the local ones; both spins have the same."""
        return self.blocks.trace(elements, self.rows[0])

    @property
    def has_all_rows(self) -> bool:
        """Whether this rank has all rows of all blocks."""
        return self.rows == (0, self.blocks.size)

    def as_type(self, dtype: str) -> SectorHamiltonian:
        """The same with products in "float32" or "float64"."""
        other = copy.copy(self)
        other.dtype = dtype
        # Coefficients, which links share, are made once.
        active = {id(link.tables.active): link.tables.active for links in self.links for link in links}
        active = {key: array.astype(dtype, copy=False) for key, array in active.items()}

        def of_type(link: Link) -> Link:
            tables = link.tables._replace(active=active[id(link.tables.active)])
            return link._replace(tables=tables.as_type(dtype))

        other.links = [[of_type(link) for link in links] for links in self.links]
        shared = self.beta_matrices is self.alpha_matrices
        other.alpha_matrices, other.beta_matrices = (
            {irrep: matrix.as_type(dtype) for irrep, matrix in matrices.items()}
            for matrices in (self.alpha_matrices, {} if shared else self.beta_matrices)
        )
        if shared:
            other.beta_matrices = other.alpha_matrices
        return other

    @cached_property
    def matrices_bytes(self) -> int:
        """The memory of the matrices within a spin."""
        shared = self.beta_matrices is self.alpha_matrices
        sets = [self.alpha_matrices] if shared else [self.alpha_matrices, self.beta_matrices]
        return sum(matrix.size_bytes for matrices in sets for matrix in matrices.values())

    @property
    def size_bytes(self) -> int:
        """The memory of all tables, and of every thread's scratch."""
        tables = sum(link.size_bytes for links in self.links for link in links)
        spins = [self.alpha] if self.symmetric else [self.alpha, self.beta]
        excitations = sum(20 * len(spin.singles.other) for spin in spins)
        most = max(block.shape[1] for block in self.blocks.blocks)
        scratch = self.threads * scratch_bytes(most, len(self.beta.pairs.pairs))
        tables += self.matrices_bytes + excitations + scratch + self.coefficient_bytes
        return tables + self.integrals.mixed.nbytes

    @property
    def matching_bytes(self) -> int:
        """The memory of the tables of S^2 on a CPU."""
        return sum(link.matching_bytes for links in self.links for link in links)

    @property
    def partners_bytes(self) -> int:
        """The memory of the tables of S^2 of a `BatchedSector`."""
        return sum(link.partners_bytes for links in self.links for link in links)

    @cached_property
    def tiles(self) -> list[list[tuple[PairTiles, RowTasks]]]:
        """Excitations of beta in tiles, and the tasks of rows, for every link of every block."""
        # States of a parity make a half of the blocks that are their own mirrors.
        half = self.symmetric and self.blocks.sector.irrep == 0
        tiled = []
        for links in self.links:
            tiles = [link.tiles() for link in links]
            tiled.append(
                [(each, link.row_tasks(each, half)) for each, link in zip(tiles, links, strict=True)]
            )
        return tiled

    @property
    def spare_elements(self) -> int:
        """Elements of the spare rows of any link."""
        blocks = zip(self.local, self.tiles, strict=True)
        return max((tasks.spare * block.shape[1] for block, tiled in blocks for _, tasks in tiled), default=0)

    @property
    def turned_elements(self) -> int:
        """Elements of the transpose of any block that is its own mirror, where one rank has it."""
        own = self.symmetric and self.blocks.sector.irrep == 0 and self.has_all_rows
        return max(block.end - block.begin for block in self.blocks.blocks) if own else 0

    def diagonal(self) -> Array:
        """The diagonal of H over the local elements."""
        diagonal = self._of_blocks(lambda block: self.tables.diagonal_of(block.alpha, block.beta))
        return np.asarray(diagonal, self.dtype)

    def _of_blocks(self, values: Callable[[StateBlock], Array]) -> Array:
        """The local elements of a vector, from the values of every block."""
        return np.concatenate([values(block).ravel() for block in self.local])

    def doubly_filled(self) -> Array:
        """The numbers of doubly occupied orbitals of the determinants."""
        alpha, beta = self.alpha.filled, self.beta.filled
        return self._of_blocks(lambda block: np.asarray(alpha[block.alpha] @ beta[block.beta].T))

    def open_shells(self) -> Array:
        """The numbers of singly occupied orbitals of the determinants."""
        return self.integrals.n_alpha + self.integrals.n_beta - 2 * self.doubly_filled()

    def spin_diagonal(self) -> Array:
        """The diagonal of S^2."""
        return np.asarray(spin_constant(self.integrals) - self.doubly_filled(), self.dtype)

    @cached_property
    def _matchings(self) -> list[list[tuple[Matching, Matching]]]:
        return [[match_between(link.beta, link.pairs) for link in links] for links in self.links]

    def _add_exchange(self, number: int, factor: float, x: Array, y: Array) -> None:
        from tnplan.executor.sbd.sigma import opposite_spin_kernel

        def rows(arguments: Any, first: int, last: int) -> None:
            opposite_spin_kernel.exchange_spins(first, last, *arguments)

        for link, matchings in zip(self.links[number], self._matchings[number], strict=True):
            source = self.blocks.blocks[link.source].view(x)
            arguments = 0, factor, link.singles, matchings, source, y
            over_rows(len(y), self.threads, partial(rows, arguments))

    def _add_block(self, number: int, x: Array, y: Array, half: bool) -> None:
        from tnplan.executor.sbd.sigma import opposite_spin_kernel

        blocks, local = self.blocks.blocks, self.local[number].rows
        irrep, own = blocks[number].irrep, blocks[number].view(x)
        alpha = self.alpha_matrices[irrep]

        def rows(first: int, last: int) -> None:
            alpha.add_product(first, last, own, y)
            if not half:
                beta = self.beta_matrices[irrep ^ self.blocks.sector.irrep]
                beta.add_transposed(first, last, own[local], y)
            for link in self.links[number]:
                source, tables = blocks[link.source].view(x), link.tables
                # The rows of another block are none of y's: no number operators.
                below = 0 if link.is_own else local.stop
                # The kernel counts rows from the block's first.
                start = np.concatenate([np.zeros(local.start, link.singles.start.dtype), link.singles.start])
                singles = link.singles._replace(start=start)
                opposite_spin_kernel.add_opposite_spin(
                    first, last, local.start, below, half, singles, tables, source,
                    tables.scratch(x.dtype, source.shape[1]), y,
                )  # fmt: skip

        over_rows(len(y), self.threads, rows)

    def _add_transpose(self, y: Array, parity: int) -> None:
        add_transpose(y, parity, self.threads)


class _PairKind:
    """The pairs of orbitals of one representation, numbered among themselves, and their coefficients."""

    def __init__(self, tables: ProductTables, numbers: Array) -> None:
        mixed, active = tables.integrals.mixed, tables.beta.pairs
        self.number_of = np.full(len(mixed), -1, np.int32)
        self.number_of[numbers] = np.arange(len(numbers))
        # Invariant: active pairs keep their order, in which excitations of a string stand.
        chosen = self.number_of[active.pairs[self.number_of[active.pairs] >= 0]]
        table = np.full(len(numbers), -1, np.int32)
        table[chosen] = np.arange(len(chosen))
        self.pairs = ActivePairs(chosen.astype(np.int64), table)
        # Diagonal pairs are the first of all, and so of those of the symmetric representation.
        n = tables.integrals.n_orbitals
        self._with_numbers = np.ascontiguousarray(mixed[numbers][:, :n])
        self.active = np.ascontiguousarray(mixed[np.ix_(numbers, numbers[chosen])])

    def numbered(self, singles: Singles) -> Singles:
        """Excitations with the pairs' numbers."""
        return singles._replace(pairs=self.number_of[singles.pairs])

    def tables(self, filled: tuple[Array, Array] | None, n_rows: int, beta: Singles) -> OppositeSpinTables:
        """Tables of beta's excitations, and of what both spins fill where number operators count."""
        bounds, entries = beta_entries(beta, self.pairs)
        if filled is None:
            numbers, occupied = np.empty((len(self.active), 0)), np.empty((n_rows, 0))
            return OppositeSpinTables(numbers, self.active, occupied, occupied, bounds, entries)
        of_alpha, of_beta = filled
        return OppositeSpinTables(
            np.ascontiguousarray(self._with_numbers @ of_beta.T), self.active,
            of_alpha @ self.active[: of_alpha.shape[1]], of_alpha, bounds, entries,
        )  # fmt: skip


StringsOf = dict[int, tuple[StringSet, Array]]
"""By representation: its strings of a spin, and how many elements each has within the spin."""


def _strings_of(spin: Spin, irreps: Array, threads: int) -> StringsOf:
    """The strings of every representation."""
    sets = {irrep: spin.strings.take(np.flatnonzero(irreps == irrep)) for irrep in np.unique(irreps).tolist()}
    return {irrep: (strings, strings.linked(threads)) for irrep, strings in sets.items()}


@dataclass(frozen=True)
class _MatrixChoice:
    """How matrices within a spin are made: dense where that is faster, and all of a spin fit as such."""

    rates: cost.Rates
    memory_bytes: float
    threads: int

    def matrices(
        self, sets: StringsOf, integrals: tuple[Array, Array], rows: dict[int, slice]
    ) -> dict[int, SpinMatrix]:
        """Some rows of the Hamiltonian within a spin, for each representation of its strings."""
        ranges = {irrep: chosen.indices(len(sets[irrep][0]))[:2] for irrep, chosen in rows.items()}
        needed = sum(
            cost.dense_bytes(last - first, len(sets[irrep][0])) for irrep, (first, last) in ranges.items()
        )
        matrices = {}
        for irrep, within in ranges.items():
            strings, linked = sets[irrep]
            dense = cost.dense_is_faster(len(strings), int(linked.sum()), self.rates)
            dense = dense and needed <= self.memory_bytes
            matrices[irrep] = same_spin(strings, integrals, linked, dense, self.threads, within)
        return matrices


def _row_work(
    blocks: SectorBlocks, spins: list[tuple[Spin, Array]], alpha_sets: StringsOf, pair_irreps: Array,
    rates: cost.Rates,
) -> list[Array]:  # fmt: skip
    """The work of every row of every block, of which only ratios matter."""
    # How many excitations a string has by pairs of each representation.
    counts = []
    for spin, _ in spins:
        n_strings = len(spin.strings)
        own = np.repeat(np.arange(n_strings), np.diff(spin.singles.start))
        numbers = LARGEST_IRREP * own + pair_irreps[spin.singles.pairs]
        counts.append(np.bincount(numbers, minlength=LARGEST_IRREP * n_strings).reshape(n_strings, -1))
    product_s = rates.product_s or cost.STEP_S
    work = []
    for block in blocks.blocks:
        n_alpha, n_beta = block.shape
        linked = alpha_sets[block.irrep][1]
        of_beta = counts[1][block.beta].sum(0)
        excited = counts[0][block.alpha] @ (rates.value_s * n_beta + product_s * of_beta)
        work.append(n_beta * cost.spin_seconds(linked, n_alpha, rates) + excited)
    return work


def _partition(blocks: SectorBlocks, work: list[Array], size: int) -> RowPartition:
    """Ranges of elements, whole rows of nearly the same work, for so many ranks."""
    # The first element of every row of all blocks, and the end.
    begins = [block.begin + len(block.beta) * np.arange(len(block.alpha)) for block in blocks.blocks]
    bounds = np.append(np.concatenate(begins), blocks.size)
    return RowPartition(tuple(bounds[list(cost.partition_rows(np.concatenate(work), size).bounds)].tolist()))

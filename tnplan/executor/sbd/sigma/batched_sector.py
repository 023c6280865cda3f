"""Products over the blocks of one irreducible representation, each at once: the form that a GPU takes.

Every block is made from each of its links by the steps of `batched`, as if it were a product of strings.
Knows tables of a `SectorHamiltonian`; where arrays lie and what works on them is up to `BatchSteps`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tnplan.executor.sbd.sigma.batched import (
    Array,
    BatchedBlock,
    BatchedTables,
    BatchSteps,
    Host,
    SpinProducts,
)
from tnplan.executor.sbd.sigma.product_hamiltonian import NEITHER
from tnplan.executor.sbd.sigma.sector_hamiltonian import BlockedOperator, Link, SectorHamiltonian


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
        self.parities, self.symmetric, self.blocks = h.parities, h.symmetric, h.blocks
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
            0 if link.is_own else -1, tuple(map(put, chosen)), (), tuple(map(put, tasks)), put(up)
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
            self._products.add_transposed(self._beta[irrep ^ self.blocks.sector.irrep], own, y)
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

"""H over ranks: each holds a range of rows of every state, and makes the same rows of products.

A row is all determinants of an alpha string, or one determinant of a list; of a sector, those in a block.

A product needs all rows of x. They are gathered where they fit; otherwise blocks of rows go round a ring, the
next one arriving while the last one is worked on. Rows of the product are computed where they lie, so that
nothing is summed over ranks but dot products, in the order of the ranks. Where states have a parity, ranks
exchange blocks of the transpose.

Knows ranges of rows and flat messages; what makes rows is a `HamiltonianRows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.protocols.communicator import Communicator, messages
from tnplan.executor.sbd.sigma.cost_model import RowPartition
from tnplan.executor.sbd.sigma.product_hamiltonian import NEITHER
from tnplan.executor.sbd.sigma.sector_hamiltonian import BlockedOperator

Array = Any
"""An array where the rows are made."""
Host = NDArray[Any]


class HamiltonianRows(Protocol):
    """Rows of H on one rank, over products of strings or a list of determinants, on a CPU or a GPU."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a whole state."""

    @property
    def rows(self) -> tuple[int, int]:
        """The first local row, and the one after the last."""

    @property
    def parities(self) -> tuple[int, ...]:
        """The parities that occur."""

    @property
    def symmetric(self) -> bool:
        """Whether a state can be even or odd under exchange of the spins' strings."""

    @property
    def sector(self) -> Host | None:
        """Which local elements states may have; None: all."""

    def block(self, first: int, last: int) -> Any:
        """What rows first .. last-1 of a state contribute from."""

    def add_rows(self, block: Any, x: Array, local: Array, y: Array, half: bool) -> None:
        """Add to y what the rows x of a block contribute; `local` are the local rows of the state."""

    def diagonal(self) -> Array:
        """The diagonal of H over the local rows."""

    def spin_diagonal(self) -> Array:
        """The diagonal of S^2 over the local rows."""

    def add_exchange(self, block: Any, factor: float, x: Array, y: Array) -> None:
        """Add to y factor times the sum over p != q of E^a_pq E^b_qp of the rows x of a block."""

    def empty(self, *shape: int) -> Array:
        """An array, not set."""

    def put(self, array: Host) -> Array:
        """A copy where the rows are made, in their precision."""

    def get(self, array: Array) -> Host:
        """A copy on the host."""


class DistributedHamiltonian:
    """H, without the core energy, on the ranks of a group; states are arrays of the local rows.

    All calls are collective. `apply` of a state with a parity, or over different sets of strings, allocates
    no array.
    """

    def __init__(
        self, rows: HamiltonianRows, shares: RowPartition, ranks: Communicator, gathers: bool = True
    ) -> None:
        """`gathers` says whether all rows of a state fit on every rank."""
        self._rows, self._partition, self._ranks = rows, shares, ranks
        row = rows.shape[1:]
        self.shape = (shares.count(ranks.rank), *row)
        self.parities = rows.parities
        self._gathers = gathers or ranks.size == 1
        self._sector = None if rows.sector is None else rows.put(rows.sector)
        width, most = prod(row), shares.most
        if self._gathers:
            self._blocks = [rows.block(0, rows.shape[0])]
            self._all_rows: Array = rows.empty(rows.shape[0] * (ranks.size > 1), *row)
        else:
            self._blocks = [rows.block(*shares.rows(rank)) for rank in range(ranks.size)]
            self._ring = [rows.empty(most * width) for _ in range(2)]
        turned = self.shape[0] * width if rows.symmetric else 0
        self._sent, self._received = (rows.empty(turned * (ranks.size > 1)), rows.empty(turned))

    def diagonal(self) -> Array:
        """The diagonal of H over the local rows."""
        return self._rows.diagonal()

    def total(self, values: Host) -> Host:
        """The sum over the ranks of small arrays, added in the order of the ranks."""
        of_ranks = self._ranks.gather_objects(values) if self._ranks.size > 1 else [values]
        return np.asarray(sum(of_ranks[1:], of_ranks[0]))

    def same(self, values: Host) -> Host:
        """Rank 0's values."""
        return np.asarray(self._ranks.broadcast_object(values, 0))

    def project(self, x: Array, parity: int) -> Array:
        """The part of x that has a parity, and lies in the sector; a new array unless that is x."""
        if parity == NEITHER:
            return x if self._sector is None else x * self._sector
        turned = self._rows.empty(*self.shape)
        turned[:] = x
        self._add_transpose(turned, parity)
        turned *= 0.5
        if self._sector is not None:
            turned *= self._sector
        return turned

    def apply(self, x: Array, parity: int, out: Array | None = None) -> Array:
        """H x for x of that parity, a new array or `out`."""
        y = self._rows.empty(*self.shape) if out is None else out
        if parity == NEITHER and self._rows.symmetric:
            # Of equal sets only the local rows of one matrix are known: parities are treated alone.
            y[:] = self.apply(self.project(x, 1), 1)
            y += self.apply(self.project(x, -1), -1)
            return y
        y[:] = 0.0
        # y = L + parity L^T, where each rank makes its rows of L: the transpose takes one exchange
        # of all with all.
        half = parity != NEITHER
        self._over_blocks(x, lambda block, rows: self._rows.add_rows(block, rows, x, y, half))
        if half:
            self._add_transpose(y, parity)
        return y

    def apply_spin_square(self, x: Array) -> Array:
        """S^2 x within the space, a new array."""
        y = self.spin_diagonal() * x
        self._over_blocks(x, lambda block, rows: self._rows.add_exchange(block, -1.0, rows, y))
        return y

    def spin_diagonal(self) -> Array:
        """The diagonal of S^2 over the local rows, made once."""
        return self._spin_diagonal

    @cached_property
    def _spin_diagonal(self) -> Array:
        return self._rows.spin_diagonal()

    def _over_blocks(self, x: Array, work: Callable[[Any, Array], None]) -> None:
        """Call work(block, its rows of the state x) for all rows, as they come to this rank."""
        if self._gathers:
            work(self._blocks[0], self._gathered(x))
        else:
            self._over_ring(x, work)

    def _gathered(self, x: Array) -> Array:
        """All rows of x."""
        ranks, shares = self._ranks, self._partition
        if ranks.size == 1:
            return x
        sends, receives = [], []
        for peer in self._peers():
            sends += messages(peer, [x])
            receives += messages(peer, [self._all_rows[slice(*shares.rows(peer))]])
        # The copy of the own rows hides part of the exchange.
        begin, end = ranks.bind_exchange(sends, receives)
        begin()
        self._all_rows[slice(*shares.rows(ranks.rank))] = x
        end()
        return self._all_rows

    def _over_ring(self, x: Array, work: Callable[[Any, Array], None]) -> None:
        """Every rank's rows, which arrive from the next rank one after the other."""
        ranks, shares, row = self._ranks, self._partition, self.shape[1:]
        before, after = (ranks.rank - 1) % ranks.size, (ranks.rank + 1) % ranks.size
        # At step k this rank works on the rows of rank + k, while those of rank + k + 1 arrive. Two buffers,
        # in turn: one is read while the other is written. Invariant: the own rows x are never written.
        block = x
        for step in range(ranks.size):
            owner = (ranks.rank + step) % ranks.size
            end = None
            if step < ranks.size - 1:
                coming = shares.count((owner + 1) % ranks.size)
                arriving = self._ring[step % 2][: coming * prod(row)].reshape(coming, *row)
                begin, end = ranks.bind_exchange(messages(before, [block]), messages(after, [arriving]))
                begin()
            if len(block):
                work(self._blocks[owner], block)
            if end is not None:
                end()
                block = arriving

    def _add_transpose(self, y: Array, parity: int) -> None:
        """y += parity times the local rows of its transpose."""
        n_rows, shares, rank = self.shape[0], self._partition, self._ranks.rank
        sends, receives = [], []
        for peer in self._peers():
            # The columns that a peer holds as rows, packed so that the peer can add them as they come.
            columns = slice(*shares.rows(peer))
            packed = self._columns_of(self._sent, peer, (shares.count(peer), n_rows))
            packed[:] = y[:, columns].T
            sends += messages(peer, [packed])
            receives += messages(peer, [self._columns_of(self._received, peer, (n_rows, shares.count(peer)))])
        own_columns = self._columns_of(self._received, rank, (n_rows, n_rows))
        own_columns[:] = y[:, slice(*shares.rows(rank))].T
        if self._ranks.size > 1:
            self._ranks.exchange(sends, receives)
        for peer in range(self._ranks.size):
            columns_of_peer = self._columns_of(self._received, peer, (n_rows, shares.count(peer)))
            target = y[:, slice(*shares.rows(peer))]
            if parity > 0:
                target += columns_of_peer
            else:
                target -= columns_of_peer

    def _columns_of(self, buffer: Array, peer: int, shape: tuple[int, int]) -> Array:
        """The range of a flat buffer for the columns that a peer holds as rows."""
        first = self.shape[0] * self._partition.rows(peer)[0]
        return buffer[first : first + shape[0] * shape[1]].reshape(shape)

    def _peers(self) -> list[int]:
        """All other ranks, each rank's next one first."""
        size, rank = self._ranks.size, self._ranks.rank
        return [(rank + step) % size for step in range(1, size)]


class DistributedSector(DistributedHamiltonian):
    """H, without the core energy, on the ranks of a group; states are arrays of the local elements."""

    def __init__(self, operator: BlockedOperator, shares: RowPartition, ranks: Communicator) -> None:
        """`operator` makes this rank's rows, of whole vectors."""
        rows: Any = operator
        super().__init__(rows, shares, ranks)
        self._mirror = operator.blocks.mirror
        self._of_ranks = [operator.blocks.within(*shares.rows(rank)) for rank in range(ranks.size)]

    def _add_transpose(self, y: Array, parity: int) -> None:
        """y += parity times the local elements of its transpose, each block that of its mirror."""
        rank, ranks = self._ranks.rank, range(self._ranks.size)
        sends, receives, begin, begin_received = [], [], 0, 0
        arrived = []
        for peer in ranks:
            leaving = [columns.T for columns in self._columns(y, rank, peer)]
            adding = list(self._columns_of_mirror(y, rank, peer))
            end = begin + sum(columns.size for columns in leaving)
            end_received = begin_received + sum(target.size for target in adding)
            received = self._received[begin_received:end_received]
            # The own columns do not travel.
            _pack(leaving, received if peer == rank else self._sent[begin:end])
            if peer != rank:
                sends += messages(peer, [self._sent[begin:end]])
                receives += messages(peer, [received])
            arrived.append((adding, received))
            begin, begin_received = end, end_received
        self._ranks.exchange(sends, receives)
        for adding, received in arrived:
            first = 0
            for target in adding:
                columns = received[first : first + target.size].reshape(target.shape)
                first += target.size
                if parity > 0:
                    target += columns
                else:
                    target -= columns

    def _columns(self, y: Array, rank: int, peer: int) -> Iterator[Array]:
        """Of every block's rows on a rank, the columns that a peer holds as rows of the mirror."""
        for number, block in enumerate(self._of_ranks[rank]):
            yield block.view(y)[:, self._of_ranks[peer][self._mirror(number)].rows]

    def _columns_of_mirror(self, y: Array, rank: int, peer: int) -> Iterator[Array]:
        """Of every block's mirror the same, in the order in which the peer sends what is to be added."""
        for number, block in enumerate(self._of_ranks[peer]):
            yield self._of_ranks[rank][self._mirror(number)].view(y)[:, block.rows]


def _pack(arrays: list[Array], target: Array) -> None:
    """Copy arrays to a flat one, one after the other."""
    begin = 0
    for array in arrays:
        target[begin : begin + array.size].reshape(array.shape)[:] = array
        begin += array.size

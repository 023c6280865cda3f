"""H over the blocks of one representation, over ranks: each holds some rows of them, and makes those.

A rank's rows are adjacent in a vector, so that states are gathered as those of lists are. The transpose of a
block is that of its mirror, whose rows other ranks hold. Knows blocks and ranges of elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tnplan.executor.device.protocols.communicator import Communicator, messages
from tnplan.executor.sbd.sigma.cost_model import RowPartition
from tnplan.executor.sbd.sigma.distributed import Array, DistributedHamiltonian
from tnplan.executor.sbd.sigma.sector_hamiltonian import BlockedOperator


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

"""Pieces of boxes between shards and buffers: what packed, chunked and compressed messages and copies share.

Knows boxes and the device's interface; never a communicator.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tnplan.executor.contraction.redistribute.plan import (
    BoxTransfer,
    MessageRounds,
    ShardBox,
    box_copy,
    leading_modes,
)
from tnplan.executor.device.protocols.copy import row_major
from tnplan.executor.device.protocols.device import Call, Device, View
from tnplan.planner.hardware.process_grid import box_shape

ONE_ROUND = MessageRounds(1, 1, 1)


class Piece:
    """Piece `number` of the box of a transfer: a range of its rows. Without rounds it is the whole box."""

    def __init__(self, transfer: BoxTransfer, number: int = 0, rounds: MessageRounds = ONE_ROUND) -> None:
        self.bounds = transfer.bounds
        self.shape = box_shape(transfer.bounds)
        self.n_lead = leading_modes(self.shape, rounds.pieces)
        rows = prod(self.shape[: self.n_lead])
        self.row_elements = transfer.elements // rows
        # Invariant: pieces of a box are disjoint ranges of its rows, the same at both ends, and cover all of
        # them.
        self.rows = (rows * number // rounds.pieces, rows * (number + 1) // rounds.pieces)
        self.elements = (self.rows[1] - self.rows[0]) * self.row_elements
        self.packed_strides = row_major(self.shape)

    def packed_start(self, cursor: int) -> int:
        """Where row 0 would stand in a buffer in which the piece begins at `cursor`."""
        return cursor - self.rows[0] * self.row_elements

    def in_place(self, shard: ShardBox) -> View | None:
        """The piece's elements in the shard itself, where they are contiguous there."""
        if not box_copy(self.shape, shard.strides, self.packed_strides).contiguous:
            return None
        first = shard.start(self.bounds) + self.rows[0] * self.row_elements
        return shard.view[first : first + self.elements]


@dataclass(frozen=True)
class Packing:
    """Binds copies of pieces between this rank's shards of source and target and buffers of packed pieces."""

    device: Device
    source: ShardBox
    target: ShardBox

    def keep(self, piece: Piece, add: bool = False) -> Call:
        """From the source's shard to the target's."""
        copy = box_copy(piece.shape, self.source.strides, self.target.strides, piece.n_lead)
        return self.device.bind_copy(
            self.target.view, self.source.view, copy, self.target.start(piece.bounds),
            self.source.start(piece.bounds), piece.rows, add,
        )  # fmt: skip

    def pack(self, piece: Piece, buffer: View, cursor: int = 0) -> Call:
        """From the source's shard to a buffer, in which the piece begins at `cursor`."""
        copy = box_copy(piece.shape, self.source.strides, piece.packed_strides, piece.n_lead)
        starts = piece.packed_start(cursor), self.source.start(piece.bounds)
        return self.device.bind_copy(buffer, self.source.view, copy, *starts, piece.rows)

    def unpack(self, piece: Piece, buffer: View, cursor: int = 0, add: bool = False) -> Call:
        """From a buffer, in which the piece begins at `cursor`, to the target's shard."""
        copy = box_copy(piece.shape, piece.packed_strides, self.target.strides, piece.n_lead)
        starts = self.target.start(piece.bounds), piece.packed_start(cursor)
        return self.device.bind_copy(self.target.view, buffer, copy, *starts, piece.rows, add)

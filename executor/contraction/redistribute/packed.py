"""A change of layout on a device: packs, exchanges and unpacks, round by round, bound once.

Where the communicator can work beside the device, a round is packed while the one before it moves.

Knows the device's and the communicator's interfaces and boxes; never schedules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from tnplan.executor.contraction.redistribute.peer_copy import (
    ArenaOffsets,
    bind_peer_copies,
    can_copy_to_peers,
)
from tnplan.executor.contraction.redistribute.plan import (
    BoxTransfer,
    MessageRounds,
    RedistributionPlan,
    ShardedTensor,
    leading_modes,
    plan_redistribution,
)
from tnplan.executor.contraction.redistribute.shard_box import ShardBox, piece_copy
from tnplan.executor.device.protocols.communicator import Communicator, Message, PeerMemory
from tnplan.executor.device.protocols.copy import row_major
from tnplan.executor.device.protocols.device import Call, Device, View
from tnplan.planner.hardware.process_grid import Grid, box, box_shape, rank_digits


class Piece:
    """Piece `number` of the box of a transfer: a range of its rows."""

    def __init__(self, transfer: BoxTransfer, number: int, rounds: MessageRounds) -> None:
        self.bounds = transfer.bounds
        self.shape = box_shape(transfer.bounds)
        self.n_lead = leading_modes(self.shape, rounds.pieces)
        rows = 1
        for extent in self.shape[: self.n_lead]:
            rows *= extent
        self.row_elements = transfer.elements // rows
        self.rows = (rows * number // rounds.pieces, rows * (number + 1) // rounds.pieces)
        self.elements = (self.rows[1] - self.rows[0]) * self.row_elements
        self.packed_strides = row_major(self.shape)

    def packed_start(self, cursor: int) -> int:
        """Where row 0 would stand in a buffer in which the piece begins at `cursor`."""
        return cursor - self.rows[0] * self.row_elements

    def in_place(self, side: ShardBox) -> View | None:
        """The piece's elements in the shard itself, where they are contiguous there."""
        if not piece_copy(self.shape, side.strides, self.packed_strides, 0).contiguous:
            return None
        first = side.start(self.bounds) + self.rows[0] * self.row_elements
        return side.view[first : first + self.elements]


def bind_redistribution(
    source: ShardedTensor, out: ShardedTensor, extents: Mapping[int, int], grid: Grid, device: Device,
    communicator: Communicator, source_view: View, out_view: View, workspace: View | None,
    source_strides: tuple[int, ...], out_strides: tuple[int, ...],
    memory: PeerMemory | None = None, places: ArenaOffsets | None = None,
) -> Call:  # fmt: skip
    """The call that fills this rank's shard of `out`; strides are over the source's modes.

    With the peers' `memory`, and the places of the tensors there, buffers are left out where they can be.
    """
    capacity = 0 if workspace is None else len(workspace)
    plan = plan_redistribution(source, out, extents, grid, communicator.rank, capacity, communicator.overlaps)
    digits = rank_digits(communicator.rank, grid)
    own = ShardBox(box(source.modes, source.layout, extents, digits, grid), source_strides, source_view)
    result = ShardBox(box(source.modes, out.layout, extents, digits, grid), out_strides, out_view)
    if memory is not None and places is not None:
        shared = source, out, extents, grid, communicator.rank, plan, memory
        if can_copy_to_peers(*shared, places.itemsize):
            return bind_peer_copies(*shared, places, own, result, device)
    summed = set(source.partial) != set(out.partial)
    binder = _RoundBinder(plan, own, result, device, communicator, workspace, summed)
    kept = []
    if not summed:
        whole = MessageRounds(1, 1, 1)
        kept = [
            binder.local(Piece(transfer, 0, whole), False)
            for transfer in plan.receives
            if transfer.peer == communicator.rank
        ]
    rounds = [
        binder.round(number, wave)
        for number in range(plan.rounds.pieces)
        for wave in range(plan.rounds.waves)
    ]
    calls = _in_order(rounds, kept, plan.rounds.turns)

    def run() -> None:
        for call in calls:
            call()

    return run


@dataclass(frozen=True)
class _BoundRound:
    """The calls of one round, in the order in which they must come."""

    packs: list[Call]
    begin: list[Call]
    end: list[Call]
    unpacks: list[Call]


def _in_order(rounds: list[_BoundRound], kept: list[Call], turns: int) -> list[Call]:
    """All calls, with `turns` rounds begun before the first of them ends.

    A round packs into its part of the workspace after the round that had it has ended, and begins after
    that one is unpacked; what a rank keeps is copied while the first rounds move.
    """
    calls: list[Call] = []
    for round_ in rounds[:turns]:
        calls += round_.packs + round_.begin
    calls += kept
    for number, round_ in enumerate(rounds):
        calls += round_.end + round_.unpacks
        for following in rounds[number + turns : number + turns + 1]:
            calls += following.packs + following.begin
    return calls


class _RoundBinder:
    def __init__(
        self, plan: RedistributionPlan, own: ShardBox, result: ShardBox, device: Device, communicator: Communicator,
        workspace: View | None, summed: bool,
    ) -> None:  # fmt: skip
        self._plan = plan
        self._own = own
        self._result = result
        self._device = device
        self._communicator = communicator
        self._workspace = workspace
        self._summed = summed

    def local(self, piece: Piece, add: bool) -> Call:
        """Copy or add a piece of this rank's own source."""
        copy = piece_copy(piece.shape, self._own.strides, self._result.strides, piece.n_lead)
        return self._device.bind_copy(
            self._result.view, self._own.view, copy,
            self._result.start(piece.bounds), self._own.start(piece.bounds), piece.rows, add,
        )  # fmt: skip

    def round(self, number: int, wave: int) -> _BoundRound:
        """The packs, the exchange and the unpacks of one round."""
        turns = self._plan.rounds.turns
        size = 0 if self._workspace is None else len(self._workspace) // turns
        first = (number * self._plan.rounds.waves + wave) % turns * size
        packs, sends = self._packs(number, wave, first)
        unpacks, receives = self._unpacks(number, wave, first + size // 2)
        begin, end = [], []
        if sends or receives:
            bound = self._communicator.bind_exchange(sends, receives)
            begin, end = [bound[0]], [bound[1]]
        return _BoundRound(packs, begin, end, unpacks)

    def _packs(self, number: int, wave: int, cursor: int) -> tuple[list[Call], list[Message]]:
        calls: list[Call] = []
        sends: list[Message] = []
        for transfer in self._plan.sends:
            piece = Piece(transfer, number, self._plan.rounds)
            if transfer.wave != wave or not piece.elements:
                continue
            view = piece.in_place(self._own)
            if view is None:
                assert self._workspace is not None
                view = self._workspace[cursor : cursor + piece.elements]
                copy = piece_copy(piece.shape, self._own.strides, piece.packed_strides, piece.n_lead)
                calls.append(
                    self._device.bind_copy(
                        self._workspace,
                        self._own.view,
                        copy,
                        piece.packed_start(cursor),
                        self._own.start(piece.bounds),
                        piece.rows,
                    )
                )
                cursor += piece.elements
            sends.append((transfer.peer, view))
        return calls, sends

    def _unpacks(self, number: int, wave: int, cursor: int) -> tuple[list[Call], list[Message]]:
        calls: list[Call] = []
        receives: list[Message] = []
        for _, terms in groupby(self._plan.receives, key=lambda transfer: transfer.bounds):
            for place, transfer in enumerate(terms):
                piece = Piece(transfer, number, self._plan.rounds)
                add = place > 0
                if transfer.peer == self._communicator.rank:
                    if self._summed and piece.elements:
                        calls.append(self.local(piece, add))
                    continue
                if transfer.wave != wave or not piece.elements:
                    continue
                view = None if self._summed else piece.in_place(self._result)
                if view is None:
                    assert self._workspace is not None
                    view = self._workspace[cursor : cursor + piece.elements]
                    copy = piece_copy(piece.shape, piece.packed_strides, self._result.strides, piece.n_lead)
                    calls.append(
                        self._device.bind_copy(
                            self._result.view,
                            self._workspace,
                            copy,
                            self._result.start(piece.bounds),
                            piece.packed_start(cursor),
                            piece.rows,
                            add,
                        )
                    )
                    cursor += piece.elements
                receives.append((transfer.peer, view))
        return calls, receives

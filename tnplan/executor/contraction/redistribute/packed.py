"""A redistribution by packed messages: packs, exchanges and unpacks, round by round, bound once.

Where the communicator works while the device does, a round is packed while the one before it moves. Knows the
device's and the communicator's interfaces and boxes; never schedules.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from tnplan.executor.contraction.redistribute.packing import Packing, Piece
from tnplan.executor.contraction.redistribute.peer_copy import bind_peer_copies, can_copy_to_peers
from tnplan.executor.contraction.redistribute.plan import (
    Redistribution,
    RedistributionPlan,
    plan_redistribution,
)
from tnplan.executor.device.protocols.communicator import Communicator, Message, PeerMemory
from tnplan.executor.device.protocols.device import Call, Device, View, call_in_turn


def bind_redistribution(
    change: Redistribution, device: Device, communicator: Communicator, views: tuple[View, View],
    workspace: View | None, memory: PeerMemory | None = None,
) -> Call:  # fmt: skip
    """The call that fills this rank's shard of the target; `views` are those of its shards before and after.

    With the peers' `memory`, in which the tensors have their offsets, buffers are left out where they can be.
    """
    capacity = 0 if workspace is None else len(workspace)
    plan = plan_redistribution(change, capacity, communicator.overlaps)
    packing = Packing(device, *change.shards(*views))
    dtype = np.dtype(views[0].dtype).name
    # Invariant: the same answer on all ranks that exchange with each other, or some would wait for messages
    # that nobody sends.
    if memory is not None and can_copy_to_peers(change, memory, dtype):
        return bind_peer_copies(plan, packing, memory, dtype)
    binder = _RoundBinder(plan, packing, communicator, workspace)
    own_copies = []
    if not change.summed:
        own_copies = [packing.keep(Piece(item)) for item in plan.receives if item.peer == change.rank]
    rounds = [
        binder.round(number, wave)
        for number in range(plan.rounds.pieces)
        for wave in range(plan.rounds.waves)
    ]
    return call_in_turn(_in_order(rounds, own_copies, plan.rounds.turns))


@dataclass(frozen=True)
class _BoundRound:
    """The calls of one round, in the order in which they must come."""

    packs: list[Call]
    begin: list[Call]
    end: list[Call]
    unpacks: list[Call]


def _in_order(rounds: list[_BoundRound], own_copies: list[Call], turns: int) -> list[Call]:
    """All calls, with `turns` rounds begun before the first of them ends.

    A round packs into its part of the workspace after the round that had it has ended, and begins after
    that one is unpacked; what a rank keeps is copied while the first rounds move.
    """
    calls: list[Call] = []
    for round_ in rounds[:turns]:
        calls += round_.packs + round_.begin
    calls += own_copies
    for number, round_ in enumerate(rounds):
        calls += round_.end + round_.unpacks
        for following in rounds[number + turns : number + turns + 1]:
            calls += following.packs + following.begin
    return calls


class _RoundBinder:
    def __init__(
        self, plan: RedistributionPlan, packing: Packing, communicator: Communicator, workspace: View | None
    ) -> None:
        self._plan = plan
        self._packing = packing
        self._communicator = communicator
        self._workspace = workspace
        self._summed = bool(plan.change.summed)

    def round(self, number: int, wave: int) -> _BoundRound:
        """The packs, the exchange and the unpacks of one round."""
        turns = self._plan.rounds.turns
        size = 0 if self._workspace is None else len(self._workspace) // turns
        # Rounds take turns in parts of the workspace: the first half of a part is sent from, the second
        # received into.
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
            # Contiguous in the shard: sent from there, without a copy.
            view = piece.in_place(self._packing.source)
            if view is None:
                assert self._workspace is not None
                view = self._workspace[cursor : cursor + piece.elements]
                calls.append(self._packing.pack(piece, self._workspace, cursor))
                cursor += piece.elements
            sends.append((transfer.peer, view))
        return calls, sends

    def _unpacks(self, number: int, wave: int, cursor: int) -> tuple[list[Call], list[Message]]:
        calls: list[Call] = []
        receives: list[Message] = []
        # The first term is written and further ones are added to it, in the order of `receives`.
        for _, terms in groupby(self._plan.receives, key=lambda transfer: transfer.bounds):
            for term, transfer in enumerate(terms):
                piece = Piece(transfer, number, self._plan.rounds)
                add = term > 0
                if transfer.peer == self._communicator.rank:
                    if self._summed and piece.elements:
                        calls.append(self._packing.keep(piece, add))
                    continue
                if transfer.wave != wave or not piece.elements:
                    continue
                view = None if self._summed else piece.in_place(self._packing.target)
                if view is None:
                    assert self._workspace is not None
                    view = self._workspace[cursor : cursor + piece.elements]
                    calls.append(self._packing.unpack(piece, self._workspace, cursor, add))
                    cursor += piece.elements
                receives.append((transfer.peer, view))
        return calls, receives

"""A redistribution in chunks, each bound so that contractions overlap with it: ranges from shard to shard.

Ranges are copied between arenas where ranks reach each other's memory; elsewhere they are messages, if those
move while the device works. Knows boxes, chunks and the interfaces of devices, communicators and peers'
memory; never schedules, nor what overlaps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tnplan.common.arrays import ITEM_BYTES
from tnplan.executor.contraction.redistribute.packing import Packing, Piece
from tnplan.executor.contraction.redistribute.peer_copy import can_copy_to_peers, in_turn_of_ranks
from tnplan.executor.contraction.redistribute.plan import (
    Redistribution,
    RedistributionPlan,
    ShardBox,
    ShardedTensor,
    plan_redistribution,
)
from tnplan.executor.device.protocols.communicator import Communicator, OverlappedExchange, PeerMemory
from tnplan.executor.device.protocols.device import Device, View
from tnplan.planner.hardware.chunked_overlap import cut_modes


def bind_chunks(
    change: Redistribution, chunks: int, capacity: int, dtype: str, device: Device,
    communicator: Communicator, memory: PeerMemory | None,
) -> list[OverlappedExchange] | None:  # fmt: skip
    """One exchange for each chunk, by their numbers; `capacity` is the elements of the workspace.

    None where nothing moves while the device works, or pieces of a chunk are no ranges: then the exchange is
    to be made whole. The same for all ranks that exchange with each other.
    """
    # The cutting modes are whole on every rank and first on both sides: a chunk is the same redistribution
    # without them, at an offset of chunk number times its size.
    change = replace(
        change, source=_behind_cut(change, change.source, chunks),
        target=_behind_cut(change, change.target, chunks),
    )  # fmt: skip
    plan = plan_redistribution(change, capacity)
    reached = memory if memory is not None and can_copy_to_peers(change, memory, dtype) else None
    if reached is None and not communicator.overlaps:
        return None
    bound = []
    for number in range(chunks):
        chunk = _Chunk(plan, number, dtype, device)
        exchange = chunk.by_messages(communicator) if reached is None else chunk.by_copies(reached)
        if exchange is None:
            return None
        bound.append(exchange)
    return bound


def _behind_cut(change: Redistribution, tensor: ShardedTensor, chunks: int) -> ShardedTensor:
    """A chunk of the tensor: without the first modes, which number the chunks."""
    cut = cut_modes(tensor.modes, tensor.layout, change.extents, change.grid, chunks)
    if cut is None:
        raise ValueError(
            f"shards of modes {tensor.modes} are not cut into {chunks} chunks by the first of them"
        )
    return replace(tensor, modes=tuple(mode for mode in tensor.modes if mode not in cut))


class _Chunk:
    """Chunk `number` of a redistribution on one rank; none is bound where a piece of it is no range."""

    def __init__(self, plan: RedistributionPlan, number: int, dtype: str, device: Device) -> None:
        change = plan.change
        self._change, self._plan, self._number, self._dtype = change, plan, number, dtype
        self._source = self._shard(change.rank, change.source, device.view)
        self._target = self._shard(change.rank, change.target, device.view)
        self._packing = Packing(device, self._source, self._target)
        self._own_pieces = [Piece(item) for item in plan.receives if item.peer == change.rank]

    def by_copies(self, memory: PeerMemory) -> OverlappedExchange | None:
        """Every rank writes to its peers, beginning with the one after it."""
        change = self._change
        sends = in_turn_of_ranks(change, self._plan.sends)
        moved = []
        for transfer in sends:
            view, piece = partial(memory.view, transfer.peer), Piece(transfer)
            theirs = self._shard(transfer.peer, change.target, view)
            moved.append((piece.in_place(theirs), piece.in_place(self._source)))
        own = [(piece.in_place(self._target), piece.in_place(self._source)) for piece in self._own_pieces]
        sent_bytes = sum(transfer.elements for transfer in sends) * ITEM_BYTES[self._dtype]
        if any(view is None for pair in (*moved, *own) for view in pair):
            return None
        return memory.bind_overlapped(moved, own, change.peers(), sent_bytes)

    def by_messages(self, communicator: Communicator) -> OverlappedExchange | None:
        """What a rank keeps is copied by its device while messages move."""
        received = [transfer for transfer in self._plan.receives if transfer.peer != self._change.rank]
        sends = [(item.peer, Piece(item).in_place(self._source)) for item in self._plan.sends]
        receives = [(item.peer, Piece(item).in_place(self._target)) for item in received]
        if any(view is None for _, view in (*sends, *receives)):
            return None
        copies = [self._packing.keep(piece) for piece in self._own_pieces]
        bound = communicator.bind_overlapped(sends, receives)

        def begin() -> None:
            bound.begin()
            for copy in copies:
                copy()

        return replace(bound, begin=begin)

    def _shard(self, rank: int, tensor: ShardedTensor, view: Callable[[int, int, str], View]) -> ShardBox:
        """The chunk in a rank's shard, which `view` gives."""
        dtype, number = self._dtype, self._number
        return self._change.shard_box(
            tensor, rank,
            lambda count: view(tensor.offset_bytes + number * count * ITEM_BYTES[dtype], count, dtype),
        )  # fmt: skip

"""A change of layout in parts, each bound so that contractions go beside it: ranges from shard to shard.

Ranges are copied between arenas where ranks reach each other's memory; elsewhere they are messages, if those
move beside the device's work. Knows boxes, parts and the interfaces of devices, communicators and peers'
memory; never schedules, nor what goes beside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import prod

from tnplan.executor.contraction.redistribute.peer_copy import ArenaOffsets, can_copy_to_peers, subgroup
from tnplan.executor.contraction.redistribute.plan import (
    BoxTransfer,
    RedistributionPlan,
    ShardedTensor,
    plan_redistribution,
)
from tnplan.executor.contraction.redistribute.shard_box import ShardBox, piece_copy, side_of
from tnplan.executor.device.protocols.communicator import Communicator, OverlappedExchange, PeerMemory
from tnplan.executor.device.protocols.copy import row_major
from tnplan.executor.device.protocols.device import Device, View
from tnplan.planner.hardware.chunked_overlap import cut_modes
from tnplan.planner.hardware.process_grid import Grid, box_shape


def bind_chunks(
    source: ShardedTensor, out: ShardedTensor, extents: Mapping[int, int], grid: Grid, parts: int, device: Device,
    communicator: Communicator, memory: PeerMemory | None, places: ArenaOffsets, capacity: int,
) -> list[OverlappedExchange] | None:  # fmt: skip
    """One exchange for each part, by their numbers; `capacity` is the elements of the workspace.

    None where nothing moves beside the device's work, or pieces of a part are no ranges: then the exchange is
    to be made whole. The same for all ranks that exchange with each other.
    """
    source, out = (_behind_cut(shards, extents, grid, parts) for shards in (source, out))
    rank = communicator.rank
    plan = plan_redistribution(source, out, extents, grid, rank, capacity)
    direct = memory is not None and can_copy_to_peers(
        source, out, extents, grid, rank, plan, memory, places.itemsize
    )
    if not direct and not communicator.overlaps:
        return None
    bound = []
    for number in range(parts):
        part = _Chunk(source, out, extents, grid, number, plan, device, communicator, places)
        beside = part.by_copies(memory) if direct and memory is not None else part.by_messages()
        if beside is None:
            return None
        bound.append(beside)
    return bound


def _behind_cut(shards: ShardedTensor, extents: Mapping[int, int], grid: Grid, parts: int) -> ShardedTensor:
    cut = cut_modes(shards.modes, shards.layout, extents, grid, parts)
    if cut is None:
        raise ValueError(
            f"shards of modes {shards.modes} are not cut into {parts} parts by the first of them"
        )
    return replace(shards, modes=tuple(mode for mode in shards.modes if mode not in cut))


class _Chunk:
    """Part `number` of a change of layout, on one rank; none is bound where a piece of it is no range."""

    def __init__(
        self, source: ShardedTensor, out: ShardedTensor, extents: Mapping[int, int], grid: Grid, number: int,
        plan: RedistributionPlan, device: Device, communicator: Communicator, places: ArenaOffsets,
    ) -> None:  # fmt: skip
        self._modes, self._out, self._extents, self._grid = source.modes, out, extents, grid
        self._number, self._plan, self._places = number, plan, places
        self._device, self._communicator = device, communicator
        rank = communicator.rank
        self._own = self._side(rank, source, places.source_bytes, device.view)
        self._result = self._side(rank, out, places.out_bytes, device.view)
        self._kept = [transfer for transfer in plan.receives if transfer.peer == rank]

    def by_copies(self, memory: PeerMemory) -> OverlappedExchange | None:
        """Every rank writes to its peers, beginning with the one after it."""
        rank = self._communicator.rank
        n_ranks = prod(digit.radix for digit in self._grid)
        sends = sorted(self._plan.sends, key=lambda transfer: (transfer.peer - rank) % n_ranks)
        moved = []
        for transfer in sends:
            view = partial(memory.view, transfer.peer)
            theirs = self._side(transfer.peer, self._out, self._places.out_bytes, view)
            moved.append((_range(theirs, transfer), _range(self._own, transfer)))
        kept = [(_range(self._result, transfer), _range(self._own, transfer)) for transfer in self._kept]
        peers = [peer for peer in subgroup(rank, self._grid, self._plan.moving) if peer != rank]
        sent_bytes = sum(transfer.elements for transfer in sends) * self._places.itemsize
        if any(view is None for pair in (*moved, *kept) for view in pair):
            return None
        return memory.bind_overlapped(moved, kept, peers, sent_bytes)

    def by_messages(self) -> OverlappedExchange | None:
        """What a rank keeps is copied by its device while messages move."""
        rank = self._communicator.rank
        received = [transfer for transfer in self._plan.receives if transfer.peer != rank]
        sends = [(transfer.peer, _range(self._own, transfer)) for transfer in self._plan.sends]
        receives = [(transfer.peer, _range(self._result, transfer)) for transfer in received]
        if any(view is None for _, view in (*sends, *receives)):
            return None
        own, result = self._own, self._result
        copies = [
            self._device.bind_copy(
                result.view, own.view,
                piece_copy(box_shape(transfer.bounds), own.strides, result.strides, 0),
                result.start(transfer.bounds), own.start(transfer.bounds),
            )
            for transfer in self._kept
        ]  # fmt: skip
        bound = self._communicator.bind_overlapped(sends, receives)

        def begin() -> None:
            bound.begin()
            for copy in copies:
                copy()

        return replace(bound, begin=begin)

    def _side(
        self, rank: int, shards: ShardedTensor, offset_bytes: int, view: Callable[[int, int, str], View]
    ) -> ShardBox:
        """The part in a rank's shard, which `view` gives."""
        bounds, strides = side_of(rank, self._modes, shards, self._extents, self._grid)
        elements = prod(box_shape(bounds))
        start_bytes = offset_bytes + self._number * elements * self._places.itemsize
        return ShardBox(bounds, strides, view(start_bytes, elements, self._places.dtype))


def _range(side: ShardBox, transfer: BoxTransfer) -> View | None:
    """Where a piece lies, in the order of the source's modes; None where it is no range."""
    shape = box_shape(transfer.bounds)
    if not piece_copy(shape, side.strides, row_major(shape), 0).contiguous:
        return None
    start = side.start(transfer.bounds)
    return side.view[start : start + transfer.elements]

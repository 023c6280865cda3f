"""A change of layout in parts, each bound so that contractions go beside it: ranges from shard to shard.

Knows boxes, parts and the interface of peers' memory; never schedules, nor what goes beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from executor.contraction.bind_direct import Places, can_be_direct, subgroup
from executor.contraction.exchange import Exchange, Shards, Transfer, plan_exchange
from executor.contraction.side import Side, piece_copy, side_of
from executor.device.communicator import Beside, PeerMemory
from executor.device.device import View
from planner.hardware.layout import Grid, box_shape
from planner.hardware.overlap import cut_modes


def bind_parts(
    source: Shards, out: Shards, extents: Mapping[int, int], grid: Grid, rank: int, parts: int,
    memory: PeerMemory, places: Places, capacity: int,
) -> list[Beside] | None:  # fmt: skip
    """One exchange for each part, by their numbers; `capacity` is the elements of the workspace.

    None where ranks do not reach each other's memory, or pieces of a part are no ranges: then the exchange is
    to be made whole. The same for all ranks that exchange with each other.
    """
    source, out = (_behind_cut(shards, extents, grid, parts) for shards in (source, out))
    plan = plan_exchange(source, out, extents, grid, rank, capacity)
    if not can_be_direct(source, out, extents, grid, rank, plan, memory, places.itemsize):
        return None
    bound = []
    for number in range(parts):
        blocks = _blocks(source, out, extents, grid, rank, number, plan, memory, places)
        if blocks is None:
            return None
        bound.append(blocks)
    return bound


def _behind_cut(shards: Shards, extents: Mapping[int, int], grid: Grid, parts: int) -> Shards:
    cut = cut_modes(shards.modes, shards.layout, extents, grid, parts)
    if cut is None:
        raise ValueError(
            f"shards of modes {shards.modes} are not cut into {parts} parts by the first of them"
        )
    return replace(shards, modes=tuple(mode for mode in shards.modes if mode not in cut))


def _blocks(
    source: Shards, out: Shards, extents: Mapping[int, int], grid: Grid, rank: int, number: int,
    plan: Exchange, memory: PeerMemory, places: Places,
) -> Beside | None:  # fmt: skip
    """Part `number`; every rank writes to its peers, beginning with the one after it."""

    def side(peer: int, shards: Shards, offset_bytes: int) -> Side:
        bounds, strides = side_of(peer, source.modes, shards, extents, grid)
        elements = prod(box_shape(bounds))
        start_bytes = offset_bytes + number * elements * places.itemsize
        return Side(bounds, strides, memory.view(peer, start_bytes, elements, places.dtype))

    def block(transfer: Transfer, target: Side) -> tuple[View, View] | None:
        if not piece_copy(box_shape(transfer.bounds), own.strides, target.strides, 0).contiguous:
            return None
        into, start = target.start(transfer.bounds), own.start(transfer.bounds)
        return target.view[into : into + transfer.elements], own.view[start : start + transfer.elements]

    own = side(rank, source, places.source_bytes)
    result = side(rank, out, places.out_bytes)
    n_ranks = prod(digit.radix for digit in grid)
    sends = sorted(plan.sends, key=lambda transfer: (transfer.peer - rank) % n_ranks)
    moved = [block(transfer, side(transfer.peer, out, places.out_bytes)) for transfer in sends]
    kept = [block(transfer, result) for transfer in plan.receives if transfer.peer == rank]
    if None in moved or None in kept:
        return None
    peers = [peer for peer in subgroup(rank, grid, plan.moving) if peer != rank]
    sent_bytes = sum(transfer.elements for transfer in sends) * places.itemsize
    return memory.bind_beside(
        [pair for pair in moved if pair is not None], [pair for pair in kept if pair is not None],
        peers, sent_bytes,
    )  # fmt: skip

"""A change of layout in which every rank copies straight between its shard and its peers', bound once.

No buffers and no packing: each element is read once and written once, to its place. Knows boxes and the
interface of peers' memory; never schedules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from tnplan.executor.contraction.redistribute.plan import BoxTransfer, RedistributionPlan, ShardedTensor
from tnplan.executor.contraction.redistribute.shard_box import ShardBox, piece_copy, side_of
from tnplan.executor.device.protocols.communicator import PeerMemory
from tnplan.executor.device.protocols.copy import Copy
from tnplan.executor.device.protocols.device import Call, Device, View
from tnplan.planner.hardware.process_grid import Grid, box_shape, rank_digits, rank_of

SHORTEST_RUN_BYTES = 64
"""What lies together on one side at least; shorter pieces would waste the width of a link."""


@dataclass(frozen=True)
class ArenaOffsets:
    """Where both tensors begin in every rank's arena, in bytes, and their dtype."""

    source_bytes: int
    out_bytes: int
    dtype: str
    itemsize: int


def subgroup(rank: int, grid: Grid, moving: Sequence[int]) -> list[int]:
    """The ranks that differ from `rank` in the moving digits at most, in rising order."""
    digits = list(rank_digits(rank, grid))
    ranks = []
    for values in product(*(range(grid[digit].radix) for digit in moving)):
        for digit, value in zip(moving, values, strict=True):
            digits[digit] = value
        ranks.append(rank_of(tuple(digits), grid))
    return sorted(ranks)


def runs(
    source: ShardedTensor, out: ShardedTensor, extents: Mapping[int, int], moving: Sequence[int]
) -> tuple[int, int]:
    """The elements of a transfer that lie together in the source's shards, and in those of `out`.

    They are the modes behind the last one that the other side spreads over a moving digit.
    """

    def behind(modes: Sequence[int], cut: Sequence[int | None]) -> int:
        last = max((modes.index(mode) for mode in cut if mode is not None), default=-1)
        return prod(extents[mode] for mode in modes[last + 1 :])

    return (
        behind(source.modes, [out.layout[digit] for digit in moving]),
        behind(out.modes, [source.layout[digit] for digit in moving]),
    )


def can_copy_to_peers(
    source: ShardedTensor, out: ShardedTensor, extents: Mapping[int, int], grid: Grid, rank: int, plan: RedistributionPlan,
    memory: PeerMemory, itemsize: int,
) -> bool:  # fmt: skip
    """Whether all ranks that exchange with each other reach each other's memory, and runs are long enough.

    The same for all of them. Sums never are: every rank adds their terms in one order, so that all of them
    would read from the same one at the same time.
    """
    if not plan.moving or set(source.partial) != set(out.partial):
        return False
    if not memory.ranks.issuperset(subgroup(rank, grid, plan.moving)):
        return False
    return max(runs(source, out, extents, plan.moving)) * itemsize >= SHORTEST_RUN_BYTES


def bind_peer_copies(
    source: ShardedTensor, out: ShardedTensor, extents: Mapping[int, int], grid: Grid, rank: int, plan: RedistributionPlan,
    memory: PeerMemory, places: ArenaOffsets, own: ShardBox, result: ShardBox, device: Device,
) -> Call:  # fmt: skip
    """The call that fills this rank's shard of `out`, or its part of everyone's; see `can_copy_to_peers`.

    Ranks write to their peers where what arrives lies together for longer, and read from them otherwise. Each
    begins with the rank after it, so that no two work on the same one; what it keeps is copied meanwhile.
    """
    n_ranks = prod(digit.radix for digit in grid)
    source_run, out_run = runs(source, out, extents, plan.moving)

    def theirs(peer: int, shards: ShardedTensor, offset_bytes: int) -> ShardBox:
        bounds, strides = side_of(peer, source.modes, shards, extents, grid)
        view = memory.view(peer, offset_bytes, prod(box_shape(bounds)), places.dtype)
        return ShardBox(bounds, strides, view)

    def bound(transfer: BoxTransfer, target: ShardBox, origin: ShardBox) -> tuple[View, View, Copy, int, int]:
        copy = piece_copy(box_shape(transfer.bounds), origin.strides, target.strides, 0)
        return target.view, origin.view, copy, target.start(transfer.bounds), origin.start(transfer.bounds)

    writes = out_run >= source_run
    copies, kept = [], []
    for transfer in plan.receives:
        if transfer.peer == rank:
            kept.append(device.bind_copy(*bound(transfer, result, own)))
    moved = plan.sends if writes else plan.receives
    for transfer in sorted(moved, key=lambda transfer: (transfer.peer - rank) % n_ranks):
        peer = transfer.peer
        if peer == rank:
            continue
        if writes:
            sides = theirs(peer, out, places.out_bytes), own
        else:
            sides = result, theirs(peer, source, places.source_bytes)
        copies.append(memory.bind_copy(*bound(transfer, *sides)))
    peers = [peer for peer in subgroup(rank, grid, plan.moving) if peer != rank]
    sent = sum(transfer.elements for transfer in plan.sends if transfer.peer != rank)
    return memory.bind(copies, kept, peers, sent * places.itemsize)

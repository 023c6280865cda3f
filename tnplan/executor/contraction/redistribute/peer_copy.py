"""A redistribution in which every rank copies straight between its shard and its peers', bound once.

No buffers and no packing: each element is read once and written once, to its place. Knows boxes and the
interface of peers' memory; never schedules.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tnplan.common.arrays import ITEM_BYTES
from tnplan.executor.contraction.redistribute.packing import Packing, Piece
from tnplan.executor.contraction.redistribute.plan import (
    BoxTransfer,
    Redistribution,
    RedistributionPlan,
    ShardBox,
    ShardedTensor,
    box_copy,
)
from tnplan.executor.device.protocols.communicator import PeerMemory
from tnplan.executor.device.protocols.copy import Copy
from tnplan.executor.device.protocols.device import Call, View
from tnplan.planner.hardware.process_grid import box_shape

SHORTEST_RUN_BYTES = 64
"""What lies together on one side at least; shorter pieces would waste the width of a link."""


def runs(change: Redistribution) -> tuple[int, int]:
    """The elements of a transfer that lie together in the source's shards, and in those of the target.

    They are the modes behind the last one that the other side spreads over a moving digit.
    """

    def behind(tensor: ShardedTensor, other: ShardedTensor) -> int:
        # A transfer cuts the shard in the modes that the other side spreads: what lies behind the last of
        # them is one run.
        cut = [mode for digit in change.moving if (mode := other.layout[digit]) is not None]
        last = max(map(tensor.modes.index, cut), default=-1)
        return prod(change.extents[mode] for mode in tensor.modes[last + 1 :])

    return behind(change.source, change.target), behind(change.target, change.source)


def can_copy_to_peers(change: Redistribution, memory: PeerMemory, dtype: str) -> bool:
    """Whether all ranks that exchange with each other reach each other's memory, and runs are long enough.

    The same for all of them. Sums never are: every rank adds their terms in one order, so that all of them
    would read from the same one at the same time.
    """
    if not change.moving or change.summed:
        return False
    if not memory.ranks.issuperset((change.rank, *change.peers())):
        return False
    return max(runs(change)) * ITEM_BYTES[dtype] >= SHORTEST_RUN_BYTES


def bind_peer_copies(plan: RedistributionPlan, packing: Packing, memory: PeerMemory, dtype: str) -> Call:
    """The call that fills this rank's shard of the target, or its part of everyone's.

    For what `can_copy_to_peers`. Ranks write to their peers where what arrives lies together for longer, and
    read from them otherwise. Each begins with the rank after it, so that no two work on the same one; what it
    keeps is copied meanwhile.
    """
    change = plan.change
    source_run, target_run = runs(change)

    def shard_of(peer: int, tensor: ShardedTensor) -> ShardBox:
        return change.shard_box(
            tensor, peer, lambda count: memory.view(peer, tensor.offset_bytes, count, dtype)
        )

    def bound(transfer: BoxTransfer, target: ShardBox, origin: ShardBox) -> tuple[View, View, Copy, int, int]:
        copy = box_copy(box_shape(transfer.bounds), origin.strides, target.strides)
        return target.view, origin.view, copy, target.start(transfer.bounds), origin.start(transfer.bounds)

    # Remote accesses are to be the longer runs; of equal ones writes, which wait for no answer.
    writes = target_run >= source_run
    own_copies = [packing.keep(Piece(transfer)) for transfer in plan.receives if transfer.peer == change.rank]
    copies = []
    for transfer in in_turn_of_ranks(change, plan.sends if writes else plan.receives):
        peer = transfer.peer
        if writes:
            ends = shard_of(peer, change.target), packing.source
        else:
            ends = packing.target, shard_of(peer, change.source)
        copies.append(memory.bind_copy(*bound(transfer, *ends)))
    sent = sum(transfer.elements for transfer in plan.sends if transfer.peer != change.rank)
    return memory.bind(copies, own_copies, change.peers(), sent * ITEM_BYTES[dtype])


def in_turn_of_ranks(change: Redistribution, transfers: Sequence[BoxTransfer]) -> list[BoxTransfer]:
    """The transfers with other ranks, beginning with the rank after this one."""
    others = [transfer for transfer in transfers if transfer.peer != change.rank]
    # A rotation: in lockstep each rank is the target of one other at most, as in a ring.
    return sorted(others, key=lambda transfer: change.distance(transfer.peer))

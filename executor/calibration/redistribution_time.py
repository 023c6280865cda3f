"""What devices do together: the seconds of changes of layout, through the executor's own exchange.

Knows layouts and the interfaces of devices and communicators; never schedules or profiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tnplan.executor.calibration.timing import REPEATS, seconds
from tnplan.executor.contraction.redistribute.packed import bind_redistribution
from tnplan.executor.contraction.redistribute.peer_copy import ArenaOffsets
from tnplan.executor.contraction.redistribute.plan import ShardedTensor
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.device.protocols.copy import row_major
from tnplan.executor.device.protocols.device import Device
from tnplan.planner.hardware.process_grid import Digit, prime_factors

DTYPE, ITEM_BYTES = "complex64", 8


@dataclass(frozen=True)
class RedistributionTime:
    """A change of layout: bytes that a rank receives, and keeps, and seconds on the slowest rank."""

    received_bytes: int
    kept_bytes: int
    time_s: float


def redistribution_time(
    device: Device, communicator: Communicator, shard_bytes: int, buffer_bytes: int, workspace_bytes: int
) -> RedistributionTime:
    """Every digit of the grid moves from the slowest modes of a tensor to the next ones; collective.

    Source, result and workspace lie at bytes 0, `buffer_bytes` and 2 `buffer_bytes` of the arena.
    """
    radices = prime_factors(communicator.size)
    inner = shard_bytes // (ITEM_BYTES * communicator.size)
    extents = dict(enumerate((*radices, *radices, inner)))
    modes = tuple(extents)
    before, after = modes[: len(radices)], modes[len(radices) : -1]

    def strides(cut: tuple[int, ...]) -> tuple[int, ...]:
        return row_major([1 if mode in cut else extents[mode] for mode in modes])

    count = prod(radices) * inner
    source, out = (device.view(place * buffer_bytes, count, DTYPE) for place in (0, 1))
    workspace = device.view(2 * buffer_bytes, workspace_bytes // ITEM_BYTES, DTYPE)
    arena = device.view(0, 2 * buffer_bytes + workspace_bytes, "uint8")
    call = bind_redistribution(
        ShardedTensor(modes, before), ShardedTensor(modes, after), extents, tuple(Digit(radix, 0) for radix in radices),
        device, communicator, source, out, workspace, strides(before), strides(after),
        communicator.open_memory(arena), ArenaOffsets(0, buffer_bytes, DTYPE, ITEM_BYTES),
    )  # fmt: skip
    communicator.connect()
    communicator.barrier()
    times = communicator.gather_objects(seconds(device, call, REPEATS))
    communicator.close_memory()
    kept_bytes = inner * ITEM_BYTES
    return RedistributionTime(count * ITEM_BYTES - kept_bytes, kept_bytes, max(times))

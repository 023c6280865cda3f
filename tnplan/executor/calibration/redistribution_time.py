"""What devices do together: the seconds of changes of layout, through the executor's own exchange.

Knows layouts and the interfaces of devices and communicators; never schedules or profiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tnplan.common.memory import ITEM_BYTES
from tnplan.executor.calibration.timing import REPEATS, seconds
from tnplan.executor.contraction.redistribute.packed import bind_redistribution
from tnplan.executor.contraction.redistribute.redistribution import Redistribution, ShardedTensor
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.device.protocols.device import Device
from tnplan.planner.hardware.process_grid import Digit, prime_factors

DTYPE = "complex64"
ITEMSIZE = ITEM_BYTES[DTYPE]


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
    inner = shard_bytes // (ITEMSIZE * communicator.size)
    extents = dict(enumerate((*radices, *radices, inner)))
    modes = tuple(extents)
    before, after = modes[: len(radices)], modes[len(radices) : -1]

    count = prod(radices) * inner
    source, out = (device.view(place * buffer_bytes, count, DTYPE) for place in (0, 1))
    workspace = device.view(2 * buffer_bytes, workspace_bytes // ITEMSIZE, DTYPE)
    arena = device.view(0, 2 * buffer_bytes + workspace_bytes, "uint8")
    change = Redistribution(
        ShardedTensor(modes, before), ShardedTensor(modes, after, (), buffer_bytes), extents,
        tuple(Digit(radix, 0) for radix in radices), communicator.rank,
    )  # fmt: skip
    call = bind_redistribution(
        change, device, communicator, source, out, workspace, communicator.open_memory(arena),
    )  # fmt: skip
    communicator.connect()
    communicator.barrier()
    times = communicator.gather_objects(seconds(device, call, REPEATS))
    communicator.close_memory()
    kept_bytes = inner * ITEMSIZE
    return RedistributionTime(count * ITEMSIZE - kept_bytes, kept_bytes, max(times))

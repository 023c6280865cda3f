"""Which calls of a schedule have to wait for which, so that a device may make the others at the same time.

Two calls keep their order where one writes bytes of the arena that the other reads or writes. A planned arena
uses the same bytes again and again, which orders nearly all calls; so small buffers get bytes of their own
first. Chains keep their order too: a device may hold the branches of one at a time. Knows instructions and
buffers; nothing of devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from tnplan.common.arrays import ALIGNMENT_BYTES, round_up
from tnplan.executor.contraction.bind.program import arena_bytes
from tnplan.planner.schedule.data_flow import reads, writes
from tnplan.planner.schedule.schedule import Fused, Instruction, Schedule

MOST_CALLS = 4096
"""Of more calls the order is the one of the schedule: that of all pairs would take too long."""
LARGER_ARENA, SMALL_ARENA = 1 / 128, 16 << 20
"""The share of the arena that small buffers may take besides, or so many bytes where that is less."""


def small_buffers_apart(schedule: Schedule) -> Schedule:
    """The schedule with its smallest buffers behind the arena, each in bytes of its own: as many as have
    room in `LARGER_ARENA` of it, and in the memory that the plan may take."""
    end, profile = arena_bytes(schedule), schedule.profile
    limit = profile["memory_bytes"] - profile["reserved_bytes"]
    if schedule.memory_bytes is not None:
        limit = min(limit, schedule.memory_bytes)
    room = min(max(int(end * LARGER_ARENA), SMALL_ARENA), limit - end)
    buffers = list(schedule.buffers)
    used = [number for number, buffer in enumerate(buffers) if buffer.size_bytes]
    by_size = sorted(used, key=lambda number: buffers[number].size_bytes)
    ends = accumulate(round_up(buffers[number].size_bytes, ALIGNMENT_BYTES) for number in by_size)
    start = round_up(end, ALIGNMENT_BYTES)
    for number, last in zip(by_size, ends, strict=True):
        if start + last > end + room:
            break
        size = round_up(buffers[number].size_bytes, ALIGNMENT_BYTES)
        buffers[number] = replace(buffers[number], offset_bytes=start + last - size)
    return replace(schedule, buffers=tuple(buffers))


def waits(schedule: Schedule, instructions: Sequence[Instruction]) -> list[tuple[int, ...]] | None:
    """For each instruction the earlier ones that must be over before it begins; None for too many of them.

    What follows from others is left out: with 0 before 1 and 1 before 2, instruction 2 waits for 1 alone.
    """
    if len(instructions) > MOST_CALLS:
        return None
    spans = np.array(
        [(buffer.offset_bytes, buffer.offset_bytes + buffer.size_bytes) for buffer in schedule.buffers]
    )
    read = [spans[list(reads(item))].reshape(-1, 2) for item in instructions]
    written = [spans[list(writes(item))].reshape(-1, 2) for item in instructions]
    touched = [np.concatenate(pair) for pair in zip(read, written, strict=True)]
    before: list[int] = []  # for each instruction, the set of those that are over before it ends, as bits
    direct: list[tuple[int, ...]] = []
    for number in range(len(instructions)):
        known, last = 1 << number, list[int]()
        for earlier in range(number - 1, -1, -1):
            if known >> earlier & 1:
                continue
            if (
                _overlap(written[number], touched[earlier]) or _overlap(read[number], written[earlier])
                or (isinstance(instructions[number], Fused) and isinstance(instructions[earlier], Fused))
            ):  # fmt: skip
                last.append(earlier)
                known |= before[earlier]
        before.append(known)
        direct.append(tuple(last))
    return direct


def _overlap(first: NDArray[np.int64], second: NDArray[np.int64]) -> bool:
    """Whether a span of the first shares a byte with one of the second."""
    return bool(((first[:, None, 0] < second[:, 1]) & (second[:, 0] < first[:, None, 1])).any())

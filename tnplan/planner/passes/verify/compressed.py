"""What is wrong with the parts of a schedule that are compressed; `verify` refuses the first problem.

Knows bounds and buffers, never a codec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tnplan.planner.hardware.profile import Profile
from tnplan.planner.schedule.schedule import Decode, Encode, Redistribute, Schedule


def memory_problems(schedule: Schedule, profile: Profile) -> Iterator[str]:
    """Whether the codec fits besides the arena. Raises InputError where the profile has no such codec."""
    if schedule.compression is None or not any(schedule.compressed_counts):
        return
    peak_bytes, limit_bytes = schedule.predicted.peak_bytes, schedule.memory_bytes
    workspace_bytes = profile.codec(schedule.compression.setting).workspace_bytes
    if limit_bytes is not None and peak_bytes + workspace_bytes > limit_bytes:
        yield (
            f"its peak of {peak_bytes} bytes and {workspace_bytes} for the codec are over its limit of "
            f"{limit_bytes}"
        )


def exchange_problems(schedule: Schedule, item: Redistribute) -> Iterator[str]:
    """Whether an exchange can be compressed on its tiers."""
    if not item.compressed:
        return
    if schedule.compression is None or schedule.compression.exchange is None:
        yield "the schedule has no bound for tensors that are exchanged"
    if not all(0 <= tier < len(schedule.profile["tiers"]) for tier in item.compressed):
        yield "a compressed tier does not exist"
    if item.workspace is None:
        yield "it is compressed without a workspace"


def stored_problems(schedule: Schedule, item: Encode | Decode, stored: Mapping[int, int]) -> Iterator[str]:
    """Whether a tensor can be compressed, or is restored as it was; `stored`: compressed buffers now, and the
    tensors that they hold."""
    source, out = schedule.buffers[item.source], schedule.buffers[item.out]
    if schedule.compression is None or schedule.compression.store is None:
        yield "the schedule has no bound for tensors that are stored"
    if isinstance(item, Encode):
        if source.workspace or not out.workspace:
            yield "it does not compress a tensor into bytes"
    elif item.source not in stored:
        yield f"buffer {item.source} holds no compressed tensor"
    else:
        tensor = schedule.buffers[stored[item.source]]
        same = (tensor.modes, tensor.layout, tensor.partial) == (out.modes, out.layout, out.partial)
        if not same or out.workspace:
            yield "out is not the tensor that was compressed"

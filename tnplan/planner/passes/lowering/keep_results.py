"""A schedule whose results stay in the arena after a run, so that a later run need not make them again.

A pass on a finished schedule of one rank: it takes out `Free`s of the part before the first slice and plans
the arena anew. Values and the order of instructions are the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import inf

from tnplan.common.errors import InputError
from tnplan.planner.passes.lowering.buffer_assignment import in_one_arena, until_freed
from tnplan.planner.schedule.data_flow import DataFlow, reads, writes
from tnplan.planner.schedule.file import with_identity
from tnplan.planner.schedule.schedule import Free, Fused, Instruction, Schedule, with_parts


def keep_results(
    schedule: Schedule, changing: Collection[int] | None = None, memory_bytes: float = inf
) -> Schedule:
    """Keep results for later runs, as many as the memory allows: first those that cost most a byte.

    - `schedule`: For one rank.
    - `changing`: The input tensors that change with every run: kept is what no other instruction needs of the
      rest. Default: any may change, and all results are worth keeping.
    - `memory_bytes`: The largest arena.
    - returns: The schedule itself where nothing can be kept.
    - raises InputError: where the schedule is for several ranks.
    """
    if schedule.ranks_per_group > 1:
        problem = f"is for {schedule.ranks_per_group} ranks, and results are kept only on one device"
        raise InputError("schedule", problem, "plan for one device")
    wanted = _by_gain(schedule, changing)
    # Bisection on how many of the best are kept, all of them first. The arena is taken to grow with their
    # number.
    fewest, most, best = 0, len(wanted), schedule
    while fewest < most:
        number = most if best is schedule and most == len(wanted) else (fewest + most + 1) // 2
        tried = _keeping(schedule, set(wanted[:number]))
        if tried.predicted.peak_bytes <= memory_bytes:
            fewest, best = number, tried
        else:
            most = number - 1
    return best if best is schedule else with_identity(best)


def _by_gain(schedule: Schedule, changing: Collection[int] | None) -> list[int]:
    """The buffers that are worth keeping, those first that take most seconds a byte to make."""
    flow = DataFlow(schedule)
    gains: dict[int, float] = {}
    readers: dict[int, list[Instruction]] = {}
    for item in flow.instructions:
        for buffer in reads(item):
            readers.setdefault(buffer, []).append(item)
        for buffer in writes(item):
            if not schedule.buffers[buffer].workspace:
                gains[buffer] = _seconds(schedule, item) / max(schedule.buffers[buffer].size_bytes, 1)
    if changing is not None:
        varied = {buffer for buffer, needed in flow.leaves.items() if not needed.isdisjoint(changing)}
        gains = {
            buffer: gain
            for buffer, gain in gains.items()
            if buffer not in varied
            and any(not varied.isdisjoint(writes(item)) for item in readers.get(buffer, ()))
        }
    return sorted(gains, key=lambda buffer: -gains[buffer])


def _seconds(schedule: Schedule, item: Instruction) -> float:
    """The predicted seconds of an instruction; of one that belongs to no step, its copy."""
    numbers = item.steps if isinstance(item, Fused) else (getattr(item, "step", None),)
    return sum(schedule.steps[number].predicted_s for number in numbers if number is not None)


def _keeping(schedule: Schedule, buffers_kept: set[int]) -> Schedule:
    """The schedule without the `Free` of some buffers of its first part, in an arena of their size."""
    once = [item for item in schedule.once if not (isinstance(item, Free) and item.buffer in buffers_kept)]
    parts = [once, *(level.instructions for level in schedule.parts[1:])]
    result = {schedule.result: len(once)} if len(parts) > 1 else {}
    lived = until_freed(parts, schedule.buffers, {**result, **dict.fromkeys(buffers_kept, 0)})
    buffers, arena = in_one_arena(schedule.buffers, lived)
    predicted = replace(schedule.predicted, peak_bytes=arena.size_bytes, live_bytes=arena.live_bytes)
    return replace(with_parts(schedule, parts), buffers=buffers, predicted=predicted)

"""How long buffers live."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain

from tnplan.planner.passes.lowering.buffer_assignment import Lifetime
from tnplan.planner.schedule.data_flow import writes
from tnplan.planner.schedule.schedule import Buffer, Free, Instruction


def lifetimes(
    segments: Sequence[Sequence[Instruction]], early_sum: range, buffers: Sequence[Buffer], result: int
) -> tuple[Lifetime, ...]:
    """From the first write of each buffer to its `Free`, or else to the end, that of the `early_sum` for one
    made there; of one that nobody uses, no bytes."""
    starts = [0, *accumulate(map(len, segments))]
    end = starts[-1]
    inside = range(starts[early_sum.start], starts[early_sum.stop])
    first: dict[int, int] = {result: len(segments[0])} if len(segments) > 1 else {}
    last: dict[int, int] = {}
    for now, instruction in enumerate(chain.from_iterable(segments)):
        for number in writes(instruction):
            first.setdefault(number, now)
        if isinstance(instruction, Free):
            last[instruction.buffer] = now
    return tuple(
        Lifetime(
            buffer.size_bytes,
            first[number],
            last.get(number, inside.stop - 1 if first[number] in inside else end),
        )
        if number in first
        else Lifetime(0, 0, 0)
        for number, buffer in enumerate(buffers)
    )

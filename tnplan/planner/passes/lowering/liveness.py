"""How long buffers live, and where they lie in an arena that is planned for a finished schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain

from tnplan.planner.passes.lowering.buffer_assignment import Arena, Lifetime, assign
from tnplan.planner.schedule.data_flow import writes
from tnplan.planner.schedule.schedule import Buffer, Free, Instruction


def lifetimes(
    segments: Sequence[Sequence[Instruction]], early_sum: range, buffers: Sequence[Buffer], result: int
) -> tuple[Lifetime, ...]:
    """From the first write of each buffer to its `Free`, or else to the end, that of the `early_sum` for one
    made there; an unused one has no bytes."""
    # Moments are numbers of instructions over all segments, one after the other, as they stand in the program
    # and not as they are replayed: what is freed nowhere lives to the end, as a replay reads it again.
    starts = [0, *accumulate(map(len, segments))]
    end = starts[-1]
    inside = range(starts[early_sum.start], starts[early_sum.stop])
    starting = {result: len(segments[0])} if len(segments) > 1 else {}
    first, last = _first_and_last(chain.from_iterable(segments), starting)
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


def until_freed(
    segments: Iterable[Sequence[Instruction]], buffers: Sequence[Buffer], starting: Mapping[int, int]
) -> dict[int, Lifetime]:
    """From the first write of a buffer, or when it is `starting` to begin, to its `Free`, or to the end."""
    items = list(chain.from_iterable(segments))
    first, last = _first_and_last(items, starting)
    return {
        number: Lifetime(buffers[number].size_bytes, start, last.get(number, len(items)))
        for number, start in first.items()
    }


def in_one_arena(
    buffers: Sequence[Buffer], lived: Mapping[int, Lifetime]
) -> tuple[tuple[Buffer, ...], Arena]:
    """The buffers with their offsets in an arena; those that do not live are where they were."""
    used = sorted(lived)
    arena = assign([lived[number] for number in used])
    offsets = dict(zip(used, arena.offsets, strict=True))
    placed = at_offsets(buffers, (offsets.get(number) for number in range(len(buffers))))
    return placed, arena


def at_offsets(buffers: Iterable[Buffer], offsets: Iterable[int | None]) -> tuple[Buffer, ...]:
    """The buffers where an arena has them; one without an offset is where it was."""
    return tuple(
        buffer if offset is None else replace(buffer, offset_bytes=offset)
        for buffer, offset in zip(buffers, offsets, strict=True)
    )


def _first_and_last(
    instructions: Iterable[Instruction], starting: Mapping[int, int]
) -> tuple[dict[int, int], dict[int, int]]:
    """When each buffer is written first, unless it is given, and when it is freed."""
    first, last = dict(starting), {}
    for now, instruction in enumerate(instructions):
        for number in writes(instruction):
            first.setdefault(number, now)
        if isinstance(instruction, Free):
            last[instruction.buffer] = now
    return first, last

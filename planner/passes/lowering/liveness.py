"""Which buffers an instruction reads and writes, the steps that it belongs to, and how long buffers live."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain

from tnplan.planner.passes.lowering.buffer_assignment import Lifetime
from tnplan.planner.schedule.overlap_rows import others
from tnplan.planner.schedule.schedule import (
    Accumulate,
    Buffer,
    Contract,
    Decode,
    Encode,
    FixSlice,
    Free,
    Fused,
    Instruction,
    Load,
    Redistribute,
    ReduceScatter,
    SumModes,
    Zero,
)


def reads(instruction: Instruction) -> tuple[int, ...]:
    """The buffers that an instruction reads, its workspace not among them."""
    match instruction:
        case Load() | Zero() | Free():
            return ()
        case Contract():
            return (instruction.a, instruction.b)
        case Fused():
            return (instruction.operand, *others(instruction))
        case FixSlice() | SumModes() | Accumulate() | Encode() | Decode():
            return (instruction.source,)
        case Redistribute() | ReduceScatter():
            return (instruction.source,)


def writes(instruction: Instruction) -> tuple[int, ...]:
    """The buffers that an instruction writes, its workspace among them."""
    match instruction:
        case Free():
            return ()
        case Contract():
            return _with(instruction.c, instruction.workspace)
        case Redistribute() | ReduceScatter():
            return _with(instruction.out, instruction.workspace)
        case _:
            return (instruction.out,)


def _with(out: int, workspace: int | None) -> tuple[int, ...]:
    return (out,) if workspace is None else (out, workspace)


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

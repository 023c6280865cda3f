"""Separate: the schedule for an engine that does single contractions and can move data inside of them.

A schedule's chains become their steps again. An exchange that follows a contraction is left to it, so that
the contraction writes in the layout that is wanted next, where that takes few messages; others stay. The
tree, the orders of modes and the layouts are the same; the arena is planned anew. Knows no engine. The result
is none for `verify`: operands and result of a contraction may be spread differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from planner.hardware.cost import ITEM_BYTES
from planner.hardware.layout import Layout, largest_shard
from planner.passes.memory import Lifetime, assign
from planner.passes.place import restrict_layout
from planner.schedule import (
    Accumulate,
    Buffer,
    Contract,
    FixSlice,
    Free,
    Fused,
    Gather,
    Instruction,
    Load,
    Redistribute,
    ReduceScatter,
    Schedule,
    SumModes,
)

ENGINE = "cutensor"
MOST_MESSAGES = 256
"""An exchange of more pieces a rank stays an instruction of its own: cuTENSORMp sends each piece by itself,

at about 5 microseconds (H200, NVLink), where packing them costs two passes over the tensor.
"""


def separate(schedule: Schedule) -> Schedule:
    """The schedule as single contractions by a tensor library, some of which redistribute their own results.

    Each is multiplied as the schedule's precision says, also where the schedule takes a more exact one.
    """
    buffers = list(schedule.buffers)
    once = _folded(schedule, _unfused(schedule, schedule.once, buffers), buffers)
    body = _folded(schedule, _unfused(schedule, schedule.body, buffers), buffers)
    lifetimes = _lifetimes(schedule, once, body, buffers)
    used = sorted(lifetimes)
    arena = assign([lifetimes[number] for number in used])
    for number, offset_bytes in zip(used, arena.offsets, strict=True):
        buffers[number] = replace(buffers[number], offset_bytes=offset_bytes)
    for number in set(range(len(buffers))) - set(used):
        buffers[number] = replace(buffers[number], offset_bytes=0, size_bytes=0)
    predicted = replace(schedule.predicted, peak_bytes=arena.size_bytes, live_bytes=arena.live_bytes)
    return replace(schedule, buffers=tuple(buffers), once=tuple(once), body=tuple(body), predicted=predicted)


def _unfused(schedule: Schedule, part: Sequence[Instruction], buffers: list[Buffer]) -> list[Instruction]:
    """The part without `Free`, with every chain as its steps; appends the buffers in between."""
    instructions: list[Instruction] = []
    for instruction in part:
        if isinstance(instruction, Fused):
            instructions += _steps(schedule, instruction, buffers)
        elif isinstance(instruction, Contract):
            instructions.append(
                replace(instruction, workspace=None, engine=ENGINE, precision=schedule.precision)
            )
        elif not isinstance(instruction, Free):
            instructions.append(instruction)
    return instructions


def _steps(schedule: Schedule, chain: Fused, buffers: list[Buffer]) -> list[Instruction]:
    """The contractions of a chain; results in between have the order and the layout of their annotations."""
    held = chain.operand
    contractions: list[Instruction] = []
    for branch, number in zip(chain.branches, chain.steps, strict=True):
        step = schedule.steps[number]
        out = chain.out
        if number != chain.steps[-1]:
            out = len(buffers)
            buffers.append(_shards(schedule, step.c_modes, step.layout))
        a, b = held, branch
        if set(buffers[held].modes) != set(step.a_modes):
            a, b = b, a
        contractions.append(Contract(a, b, out, None, number, ENGINE, schedule.precision))
        held = out
    return contractions


def _shards(schedule: Schedule, modes: tuple[int, ...], layout: Layout) -> Buffer:
    own = restrict_layout(layout, frozenset(modes))
    elements = largest_shard(modes, own, schedule.extents, schedule.grid)
    return Buffer(modes, own, 0, elements * ITEM_BYTES[schedule.dtype])


def _folded(schedule: Schedule, part: list[Instruction], buffers: Sequence[Buffer]) -> list[Instruction]:
    """The part with exchanges left to the contraction before them."""
    readers: dict[int, int] = {}
    maker: dict[int, int] = {}
    for place, instruction in enumerate(part):
        for number in reads(instruction):
            readers[number] = readers.get(number, 0) + 1
        if isinstance(instruction, Contract):
            maker[instruction.c] = place
    folded: list[Instruction | None] = list(part)
    for place, instruction in enumerate(part):
        if not isinstance(instruction, Redistribute | Gather) or instruction.source not in maker:
            continue
        made = maker[instruction.source]
        contraction = folded[made]
        assert isinstance(contraction, Contract)
        source, out = buffers[instruction.source], buffers[instruction.out]
        tensors = (buffers[contraction.a], buffers[contraction.b], out)
        if (
            readers[instruction.source] == 1
            and not source.partial
            and all(in_blocks(schedule, tensor) for tensor in tensors)
            and 1 < _messages(schedule, source, out) <= MOST_MESSAGES
        ):
            folded[made] = replace(contraction, c=instruction.out)
            folded[place] = None
    return [instruction for instruction in folded if instruction is not None]


def in_blocks(schedule: Schedule, tensor: Buffer) -> bool:
    """Whether it is whole on every rank, or in equal blocks, one a rank in the order of its modes."""
    spread = [mode for mode in tensor.modes if mode in tensor.layout]
    if not spread:
        return True
    even = all(
        mode is not None and schedule.extents[mode] % digit.radix == 0
        for mode, digit in zip(tensor.layout, schedule.grid, strict=True)
    )
    return even and list(tensor.layout) == spread


def _messages(schedule: Schedule, source: Buffer, out: Buffer) -> int:
    """The contiguous pieces that a shard of the source falls into when its layout changes; 1: nothing moves.

    A rank takes its part of a tensor that it holds whole from itself.
    """
    if source.layout == out.layout or all(mode is None for mode in source.layout):
        return 1
    spread = {mode for mode in (*source.layout, *out.layout) if mode is not None}
    innermost = max(place for place, mode in enumerate(source.modes) if mode in spread)
    run = prod(schedule.extents[mode] for mode in source.modes[innermost + 1 :])
    shard = largest_shard(source.modes, source.layout, schedule.extents, schedule.grid)
    return max(2, -(-shard // run))


def reads(instruction: Instruction) -> tuple[int, ...]:
    """The buffers that an instruction reads, its workspace not among them."""
    match instruction:
        case Load() | Free():
            return ()
        case Contract():
            return (instruction.a, instruction.b)
        case Fused():
            return (instruction.operand, *instruction.branches)
        case FixSlice() | SumModes() | Redistribute() | Gather() | ReduceScatter() | Accumulate():
            return (instruction.source,)


def writes(instruction: Instruction) -> tuple[int, ...]:
    """The buffers that an instruction writes, its workspace among them."""
    match instruction:
        case Free():
            return ()
        case Contract():
            return (instruction.c,)
        case Redistribute() | Gather() | ReduceScatter():
            workspace = () if instruction.workspace is None else (instruction.workspace,)
            return (instruction.out, *workspace)
        case _:
            return (instruction.out,)


def _lifetimes(
    schedule: Schedule, once: Sequence[Instruction], body: Sequence[Instruction], buffers: Sequence[Buffer]
) -> dict[int, Lifetime]:
    """When each buffer holds something; what a slice reads and does not make stays to the end."""
    end = len(once) + len(body)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    if body:
        first[schedule.result] = len(once)
    for now, instruction in enumerate((*once, *body)):
        for number in writes(instruction):
            first.setdefault(number, now)
            last[number] = now
        for number in reads(instruction):
            last[number] = end if first[number] < len(once) <= now else now
    last[schedule.result] = end
    return {number: Lifetime(buffers[number].size_bytes, first[number], last[number]) for number in first}

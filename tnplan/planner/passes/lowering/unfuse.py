"""Separate: the schedule for a tensor library that contracts in any order of modes and exchanges blocks.

A schedule's chains become their steps again. Tensors between a contraction, an exchange and the contractions
after it are stored so that ranks exchange contiguous blocks: the modes that the exchange spreads come first
before it, and those that it gathers come first after it. The tree, the layouts and the order of the steps are
the same; the arena is planned anew. Knows no library. The result is none for `verify`: contractions are not
matrix products on the data as it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tnplan.common.arrays import ITEM_BYTES
from tnplan.planner.hardware.process_grid import Layout, largest_shard
from tnplan.planner.passes.chunk_exchanges import with_first
from tnplan.planner.passes.lowering.buffer_assignment import Lifetime, in_one_arena
from tnplan.planner.passes.sharding.sharded_tree import restrict_layout
from tnplan.planner.schedule.data_flow import others, reads, writes
from tnplan.planner.schedule.schedule import (
    Accumulate,
    Buffer,
    Contract,
    Free,
    Fused,
    Instruction,
    Redistribute,
    Schedule,
    with_parts,
)

ENGINE = "cutensor"


def unfuse(schedule: Schedule) -> Schedule:
    """The schedule as single contractions by a tensor library, and exchanges of blocks.

    Each is multiplied as the schedule's precision says, also where the schedule takes a more exact one.
    """
    buffers = list(schedule.buffers)
    parts = [_unfused(schedule, segment.instructions, buffers) for segment in schedule.parts]
    for segment in parts:
        _order_for_exchange(segment, buffers)
    lived = _lifetimes(schedule, parts, buffers)
    # What no instruction touches any more has no bytes; its number stays, as others are named by theirs.
    for number in set(range(len(buffers))) - set(lived):
        buffers[number] = replace(buffers[number], offset_bytes=0, size_bytes=0)
    placed, arena = in_one_arena(buffers, lived)
    predicted = replace(schedule.predicted, peak_bytes=arena.size_bytes, live_bytes=arena.live_bytes)
    return replace(with_parts(schedule, parts), buffers=placed, predicted=predicted)


def _unfused(schedule: Schedule, segment: Sequence[Instruction], buffers: list[Buffer]) -> list[Instruction]:
    """The instructions without `Free`, with every chain as its steps; appends the buffers in between."""
    instructions: list[Instruction] = []
    for instruction in segment:
        if isinstance(instruction, Fused):
            instructions += _steps(schedule, instruction, buffers)
        elif isinstance(instruction, Contract):
            instructions.append(
                replace(instruction, workspace=None, engine=ENGINE, precision=schedule.precision)
            )
        elif isinstance(instruction, Redistribute):
            instructions.append(replace(instruction, parts=1, before=0, after=0, falling=False))
        elif not isinstance(instruction, Free):
            instructions.append(instruction)
    return instructions


def _steps(schedule: Schedule, chain: Fused, buffers: list[Buffer]) -> list[Instruction]:
    """The contractions of a chain; results in between have the order and the layout of their annotations."""
    operand, result = chain.operand, chain.out
    if chain.adds:
        result = len(buffers)
        buffers.append(replace(buffers[chain.out]))
    contractions: list[Instruction] = []
    for branch, number in zip(others(chain), chain.steps, strict=True):
        step = schedule.steps[number]
        out = result
        if number != chain.steps[-1]:
            out = len(buffers)
            buffers.append(_shards(schedule, step.c_modes, step.layout))
        a, b = operand, branch
        # The chain's operand may be the right one of the step that the annotation describes.
        if set(buffers[operand].modes) != set(step.a_modes):
            a, b = b, a
        contractions.append(Contract(a, b, out, None, number, ENGINE, schedule.precision))
        operand = out
    if chain.adds:
        contractions.append(Accumulate(result, chain.out))
    return contractions


def _shards(schedule: Schedule, modes: tuple[int, ...], layout: Layout) -> Buffer:
    restricted = restrict_layout(layout, frozenset(modes))
    elements = largest_shard(modes, restricted, schedule.extents, schedule.grid)
    return Buffer(modes, restricted, 0, elements * ITEM_BYTES[schedule.dtype])


def _order_for_exchange(segment: Sequence[Instruction], buffers: list[Buffer]) -> None:
    """Store what is exchanged, where only contractions make and read it, as its blocks go."""
    readers: dict[int, list[Instruction]] = {}
    written = set()
    for instruction in segment:
        for number in reads(instruction):
            readers.setdefault(number, []).append(instruction)
        if isinstance(instruction, Contract):
            written.add(instruction.c)
    for instruction in segment:
        if not isinstance(instruction, Redistribute) or instruction.source not in written:
            continue
        source, out = buffers[instruction.source], buffers[instruction.out]
        after = readers.get(instruction.out, [])
        if len(readers[instruction.source]) == 1 and after and all(isinstance(r, Contract) for r in after):
            # Leading modes are outermost in row-major order: a block for one rank is then one range of bytes.
            buffers[instruction.source] = replace(source, modes=_first(source.modes, out.layout))
            buffers[instruction.out] = replace(out, modes=_first(out.modes, source.layout))


def _first(modes: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
    """The modes with those of a layout first."""
    return with_first(tuple(mode for mode in layout if mode is not None), modes)


def _lifetimes(
    schedule: Schedule, parts: Sequence[Sequence[Instruction]], buffers: Sequence[Buffer]
) -> dict[int, Lifetime]:
    """When each buffer holds something; what a part reads and does not make stays to the end."""
    end = sum(map(len, parts))
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    if schedule.body:
        first[schedule.result] = len(parts[0])
    start = 0
    for segment in parts:
        for now, instruction in enumerate(segment, start):
            for number in writes(instruction):
                first.setdefault(number, now)
                last[number] = now
            for number in reads(instruction):
                last[number] = end if first[number] < start else now
        start += len(segment)
    last[schedule.result] = end
    return {number: Lifetime(buffers[number].size_bytes, first[number], last[number]) for number in first}

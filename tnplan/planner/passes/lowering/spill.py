"""Spill: tensors that wait for later steps are kept compressed, until the program fits its memory.

Where most bytes live at once, the largest tensor that is idle then is compressed right after it is made,
and restored right before it is read. What is counted on is the least ratio of the request; a tensor that
compresses less is refused when it happens. Knows sizes and times, never a codec.
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import replace
from itertools import accumulate

from tnplan.common.arrays import ALIGNMENT_BYTES, round_up
from tnplan.planner.hardware.compression_options import LEAST_MESSAGE_BYTES
from tnplan.planner.hardware.cost import CostModel
from tnplan.planner.passes.lowering.buffer_assignment import Arena, assign, lifetimes, most_alive
from tnplan.planner.passes.lowering.lower import LoweredProgram
from tnplan.planner.schedule.data_flow import reads, writes
from tnplan.planner.schedule.schedule import (
    Buffer,
    Contract,
    Decode,
    Encode,
    Free,
    Fused,
    Instruction,
    Redistribute,
    ReduceScatter,
)

Makers = Contract | Fused | Redistribute | ReduceScatter


def spill(
    program: LoweredProgram, model: CostModel, limit_bytes: float
) -> tuple[LoweredProgram, Arena] | None:
    """The program with its arena of at most `limit_bytes`; None where compressing is not enough."""
    while True:
        # Each round takes one tensor off the moment of most bytes, so that the loop ends after as many rounds
        # as there are tensors.
        moment, live_bytes = most_alive([
            replace(item, size_bytes=round_up(item.size_bytes, ALIGNMENT_BYTES)) for item in program.lifetimes
        ])  # fmt: skip
        if live_bytes <= limit_bytes:
            arena = assign(program.lifetimes)
            if arena.size_bytes <= limit_bytes:
                return program, arena
        chosen = _largest_idle(program, moment)
        if chosen is None:
            return None
        program = _spilled(program, model, *chosen)


def _largest_idle(program: LoweredProgram, moment: int) -> tuple[int, int, int] | None:
    """Of the tensors that were made by a step before a moment and are read after it: the buffer, and the
    numbers of the instructions that make and read it."""
    instructions = [item for segment in program.segments for item in segment]
    written: dict[int, int] = {}
    read: dict[int, list[int]] = {}
    for number, item in enumerate(instructions):
        if isinstance(item, Makers) and not getattr(item, "adds", False):
            written[writes(item)[0]] = number
        for buffer in reads(item):
            read.setdefault(buffer, []).append(number)
    idle = [
        (program.buffers[buffer].size_bytes, buffer, maker, read[buffer][0])
        for buffer, maker in written.items()
        if maker < moment and len(read.get(buffer, ())) == 1 and moment < read[buffer][0]
        and isinstance(instructions[read[buffer][0]], Makers)
        and program.buffers[buffer].size_bytes >= LEAST_MESSAGE_BYTES
    ]  # fmt: skip
    return max(idle)[1:] if idle else None


def _spilled(
    program: LoweredProgram, model: CostModel, buffer: int, maker: int, reader: int
) -> LoweredProgram:
    """The program with one tensor compressed between the instructions that make and read it."""
    assert model.compression is not None
    assert model.compression.store is not None
    raw = program.buffers[buffer]
    size_bytes = (
        max(int(raw.size_bytes / model.compression.store.ratio) // ALIGNMENT_BYTES, 1) * ALIGNMENT_BYTES
    )
    # The tensor is restored into a buffer of its own: its lifetime splits in two, and between them only the
    # compressed bytes live.
    packed, restored = len(program.buffers), len(program.buffers) + 1
    buffers = [*program.buffers, Buffer((), (None,) * len(raw.layout), 0, size_bytes, workspace=True), raw]
    starts = [0, *accumulate(map(len, program.segments))]
    segments: list[list[Instruction]] = [[] for _ in program.segments]
    steps = list(program.steps)
    encode_s, decode_s = model.codec_s(raw.size_bytes)
    for number, item in enumerate(item for segment in program.segments for item in segment):
        segment = segments[bisect(starts, number) - 1]
        if number == reader:
            step = _steps(item)[0]
            steps[step] = replace(steps[step], codec_s=steps[step].codec_s + decode_s)
            segment.append(Decode(packed, restored, step))
            # Read on a later loop level than made on, the compressed tensor is read at every replay and
            # stays.
            if bisect(starts, number) == bisect(starts, maker):
                segment.append(Free(packed))
            segment += [reading_another(item, buffer, restored), Free(restored)]
        elif item == Free(buffer):
            continue
        else:
            segment.append(item)
        if number == maker:
            step = _steps(item)[-1]
            steps[step] = replace(steps[step], codec_s=steps[step].codec_s + encode_s)
            segment += [Encode(buffer, packed, step), Free(buffer)]
    return replace(
        program, buffers=tuple(buffers), segments=tuple(map(tuple, segments)), steps=tuple(steps),
        lifetimes=lifetimes(segments, program.early_sum_levels, buffers, program.result),
    )  # fmt: skip


def _steps(item: Instruction) -> tuple[int, ...]:
    assert isinstance(item, Makers)
    return item.steps if isinstance(item, Fused) else (item.step,)


def reading_another(item: Instruction, old: int, new: int) -> Instruction:
    """The instruction with one of the buffers that it reads exchanged for another."""

    def changed(buffer: int) -> int:
        return new if buffer == old else buffer

    match item:
        case Contract():
            return replace(item, a=changed(item.a), b=changed(item.b))
        case Fused():
            closing = None if item.closing is None else changed(item.closing)
            branches = tuple(map(changed, item.branches))
            return replace(item, operand=changed(item.operand), branches=branches, closing=closing)
        case Redistribute() | ReduceScatter():
            return replace(item, source=changed(item.source))
        case _:
            raise ValueError(f"{item.op} reads no stored tensor")

"""Pass 9, beside: which exchanges in parts really go beside their neighbours, now that all have their places.

Of rising and falling parts, and of the numbers of chains before and after, it takes what hides most without
any rank writing what another still reads. Changes instructions and annotations, never buffers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from tnplan.planner.hardware.chunked_overlap import hazards
from tnplan.planner.passes.fusion.chunk_exchanges import Parts
from tnplan.planner.passes.lowering.buffer_assignment import Arena
from tnplan.planner.passes.lowering.lower import Program
from tnplan.planner.schedule.overlap_rows import Rows, exchange_spans, rows
from tnplan.planner.schedule.schedule import Buffer, Instruction, Redistribute, Step


def beside(program: Program, arena: Arena) -> Program:
    """The program with its exchanges settled, and with what they hide taken off their steps' seconds."""
    buffers = [
        replace(buffer, offset_bytes=offset)
        for buffer, offset in zip(program.buffers, arena.offsets, strict=True)
    ]
    steps = list(program.steps)
    segments = [_settle(segment, buffers, program.parts, steps) for segment in program.segments]
    return replace(program, segments=segments, steps=steps)


def _settle(
    part: Sequence[Instruction], buffers: Sequence[Buffer], planned: Mapping[int, Parts], steps: list[Step]
) -> list[Instruction]:
    """One part of the program, its exchanges settled."""
    settled = list(part)
    for number, item in enumerate(part):
        if not isinstance(item, Redistribute) or item.parts == 1:
            continue
        parts = planned[item.out]
        settled[number] = best = _best(item, rows(part, number), parts, buffers)
        step, exposed_s = steps[best.step], parts.exposed_s(best.before, best.after)
        steps[best.step] = replace(
            step,
            exchange_s=step.exchange_s - parts.whole_s + exposed_s,
            hidden_s=step.hidden_s + max(0.0, parts.whole_s - exposed_s),
        )
    return settled


def _best(exchange: Redistribute, around: Rows, parts: Parts, buffers: Sequence[Buffer]) -> Redistribute:
    """The exchange beside as many planned chains as make it take the least time; whole without any."""
    planned = zip(around, (parts.before, parts.after), strict=True)
    ways = product(*(range(min(len(row), len(chains)) + 1) for row, chains in planned))
    for before, after in sorted(ways, key=lambda counts: parts.exposed_s(*counts)):
        if not (before or after):
            break
        spans = exchange_spans(exchange, around[0][len(around[0]) - before :], around[1][:after], buffers)
        for falling in (False, True):
            if not any(hazards(spans, exchange.parts, falling)):
                return replace(exchange, before=before, after=after, falling=falling)
    return replace(exchange, parts=1)

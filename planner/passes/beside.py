"""Pass 9, beside: which exchanges in parts really go beside their neighbours, now that all have their places.

Of rising and falling parts, and of the chain before and the one after, it takes what hides most without any
rank writing what another still reads. Changes instructions and annotations, never buffers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from planner.hardware.overlap import hazards
from planner.passes.lower import Program
from planner.passes.memory import Arena
from planner.passes.overlap import Parts
from planner.schedule import Buffer, Instruction, Redistribute, Step
from planner.schedule_spans import exchange_spans, neighbours


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
    """One part of the program, its exchanges settled; that a chain goes beside one alone is so planned."""
    settled = list(part)
    for number, item in enumerate(part):
        if not isinstance(item, Redistribute) or item.parts == 1:
            continue
        parts = planned[item.out]
        wanted = zip(neighbours(part, number), (parts.before, parts.after), strict=True)
        chains = [chain if fits else None for chain, fits in wanted]
        settled[number] = best = _best(settled, number, chains, parts, buffers)
        step, exposed_s = steps[best.step], parts.exposed_s(best.before, best.after)
        steps[best.step] = replace(
            step,
            exchange_s=step.exchange_s - parts.whole_s + exposed_s,
            hidden_s=step.hidden_s + max(0.0, parts.whole_s - exposed_s),
        )
    return settled


def _best(
    part: Sequence[Instruction],
    number: int,
    chains: Sequence[int | None],
    parts: Parts,
    buffers: Sequence[Buffer],
) -> Redistribute:
    """The exchange beside those of its neighbours with which it takes the least time; whole without any."""
    exchange = part[number]
    assert isinstance(exchange, Redistribute)
    best_s, best = parts.exposed_s(before=False, after=False), replace(exchange, parts=1)
    sides = [(False,) if chain is None else (True, False) for chain in chains]
    for before, after, falling in product(*sides, (False, True)):
        time_s = parts.exposed_s(before, after)
        if not (before or after) or time_s >= best_s:
            continue
        trial = replace(exchange, before=before, after=after, falling=falling)
        if not any(hazards(exchange_spans(part, number, trial, buffers), trial.parts, falling)):
            best_s, best = time_s, trial
    return best

"""Places of their own for the small tensors of what goes in parts beside an exchange.

Chains in a row take turns in two places where all their tensors are of one size: part by part, each lies
where nothing is needed any more. Of a smaller one there, other parts are overwritten by a larger one.
Changes lifetimes, and nothing else; knows no places.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from tnplan.planner.passes.lowering.buffer_assignment import Lifetime
from tnplan.planner.passes.lowering.lower import Program
from tnplan.planner.schedule.overlap_rows import Row, rows
from tnplan.planner.schedule.schedule import Redistribute


def apart(program: Program) -> list[Lifetime]:
    """The lifetimes of the program's buffers, those of small tensors beside exchanges as long as these take.

    Sizes are taken from the smallest on, while the tensors take no more than the largest one.
    """
    lifetimes = list(program.lifetimes)
    for segment in program.segments:
        for number, item in enumerate(segment):
            if not isinstance(item, Redistribute) or item.parts == 1:
                continue
            parts = program.parts[item.out]
            before, after = rows(segment, number)
            chains = (*before[max(len(before) - len(parts.before), 0) :], *after[: len(parts.after)])
            _extend(lifetimes, item, chains)
    return lifetimes


def _extend(lifetimes: list[Lifetime], exchange: Redistribute, chains: Row) -> None:
    made = {exchange.out, *(chain.out for chain in chains)}
    read = {exchange.source, *(chain.operand for chain in chains)}
    first = min(lifetimes[buffer].first for buffer in made)
    last = max(lifetimes[buffer].last for buffer in read)

    def size(buffer: int) -> int:
        return lifetimes[buffer].size_bytes

    tensors = sorted(made | read, key=size)
    room = size(tensors[-1])
    for size_bytes, group in groupby(tensors, key=size):
        buffers = list(group)
        room -= size_bytes * len(buffers)
        if room < 0:
            return
        for buffer in buffers:
            own = lifetimes[buffer]
            lifetimes[buffer] = replace(own, first=min(own.first, first), last=max(own.last, last))

"""Longer lifetimes for the small tensors of chains that overlap with an exchange in chunks.

Chains in a row take turns in two buffers where all their tensors are of one size: chunk by chunk, each lies
where nothing is needed any more. Of a smaller one there, other chunks are overwritten by a larger one.
Changes lifetimes, and nothing else; knows no offsets.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from tnplan.planner.passes.lowering.buffer_assignment import Lifetime
from tnplan.planner.passes.lowering.lower import LoweredProgram
from tnplan.planner.schedule.data_flow import Row, rows
from tnplan.planner.schedule.schedule import Redistribute


def extend_lifetimes(program: LoweredProgram) -> LoweredProgram:
    """The program in which the small tensors around a chunked exchange live as long as it takes.

    Sizes are taken from the smallest on, while the tensors take no more than the largest one.
    """
    lifetimes = list(program.lifetimes)
    for segment in program.segments:
        for number, item in enumerate(segment):
            if not isinstance(item, Redistribute) or item.parts == 1:
                continue
            chunked = program.chunked[item.out]
            before, after = rows(segment, number)
            chains = (*before[max(len(before) - len(chunked.before), 0) :], *after[: len(chunked.after)])
            _extend(lifetimes, item, chains)
    return replace(program, lifetimes=tuple(lifetimes))


def _extend(lifetimes: list[Lifetime], exchange: Redistribute, chains: Row) -> None:
    made = {exchange.out, *(chain.out for chain in chains)}
    read = {exchange.source, *(chain.operand for chain in chains)}
    # Over the whole span of overlapped chains, so that none of their tensors gets bytes that another of them
    # needs for another chunk. Smallest first, as these are overwritten in other chunks by larger ones.
    first = min(lifetimes[buffer].first for buffer in made)
    last = max(lifetimes[buffer].last for buffer in read)

    def size(buffer: int) -> int:
        return lifetimes[buffer].size_bytes

    tensors = sorted(made | read, key=size)
    free_bytes = size(tensors[-1])
    for size_bytes, group in groupby(tensors, key=size):
        buffers = list(group)
        free_bytes -= size_bytes * len(buffers)
        if free_bytes < 0:
            return
        for buffer in buffers:
            lifetime = lifetimes[buffer]
            lifetimes[buffer] = replace(
                lifetime, first=min(lifetime.first, first), last=max(lifetime.last, last)
            )

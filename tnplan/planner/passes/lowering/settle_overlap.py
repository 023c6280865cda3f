"""Pass 9, settle_overlap: how many chains each chunked exchange overlaps with, when buffers have offsets.

Of rising and falling chunks, and of the numbers of chains before and after, it takes what hides most without
any rank writing what another still reads. Changes instructions and annotations, never buffers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, product

from tnplan.planner.hardware.chunked_overlap import hazards
from tnplan.planner.passes.chunk_exchanges import ChunkedExchange
from tnplan.planner.passes.lowering.buffer_assignment import Arena, Lifetime, at_offsets
from tnplan.planner.passes.lowering.lower import LoweredProgram
from tnplan.planner.schedule.data_flow import Row, Rows, exchange_spans, rows
from tnplan.planner.schedule.schedule import Buffer, Instruction, Redistribute, StepAnnotation


def extend_lifetimes(program: LoweredProgram) -> LoweredProgram:
    """The program in which the small tensors around a chunked exchange live as long as it takes.

    Chains in a row take turns in two buffers where all their tensors are of one size: chunk by chunk, each
    lies where nothing is needed any more. Of a smaller one there, other chunks are overwritten by a larger
    one. Sizes are taken from the smallest on, while the tensors take no more than the largest one.
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
    written = {exchange.out, *(chain.out for chain in chains)}
    read = {exchange.source, *(chain.operand for chain in chains)}
    # Over the whole span of overlapped chains, so that none of their tensors gets bytes that another of them
    # needs for another chunk. Smallest first, as these are overwritten in other chunks by larger ones.
    first = min(lifetimes[buffer].first for buffer in written)
    last = max(lifetimes[buffer].last for buffer in read)

    def size(buffer: int) -> int:
        return lifetimes[buffer].size_bytes

    tensors = sorted(written | read, key=size)
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


def settle_overlap(program: LoweredProgram, arena: Arena) -> LoweredProgram:
    """The program with its exchanges settled, and with what they hide taken off their steps' seconds."""
    if not program.chunked:
        return program
    buffers = at_offsets(program.buffers, arena.offsets)
    steps = list(program.steps)
    segments = tuple(_settle(segment, buffers, program.chunked, steps) for segment in program.segments)
    return replace(program, segments=segments, steps=tuple(steps))


def _settle(
    segment: Sequence[Instruction], buffers: Sequence[Buffer], planned: Mapping[int, ChunkedExchange],
    steps: list[StepAnnotation],
) -> tuple[Instruction, ...]:  # fmt: skip
    """The instructions of one loop level, its exchanges settled, and the seconds of `steps` changed."""
    settled = list(segment)
    for number, item in enumerate(segment):
        if not isinstance(item, Redistribute) or item.parts == 1:
            continue
        chunked = planned[item.out]
        settled[number] = best = _best(item, rows(segment, number), chunked, buffers)
        step, exposed_s = steps[best.step], chunked.exposed_s(best.before, best.after)
        steps[best.step] = replace(
            step,
            exchange_s=step.exchange_s - chunked.whole_s + exposed_s,
            hidden_s=step.hidden_s + max(0.0, chunked.whole_s - exposed_s),
        )
    return tuple(settled)


def _best(
    exchange: Redistribute, around: Rows, chunked: ChunkedExchange, buffers: Sequence[Buffer]
) -> Redistribute:
    """The exchange with as many overlapped chains as make it take the least time; whole without any."""
    planned = zip(around, (chunked.before, chunked.after), strict=True)
    counts_of_chains = product(*(range(min(len(row), len(chains)) + 1) for row, chains in planned))
    # By exposed seconds: the first without a hazard is the best. Offsets are settled, so that the test is
    # exact.
    for before, after in sorted(counts_of_chains, key=lambda counts: chunked.exposed_s(*counts)):
        if not (before or after):
            break
        spans = exchange_spans(exchange, around[0][len(around[0]) - before :], around[1][:after], buffers)
        for falling in (False, True):
            if not any(hazards(spans, exchange.parts, falling)):
                return replace(exchange, before=before, after=after, falling=falling)
    return replace(exchange, parts=1)

"""What stands beside an exchange in parts, and where their tensors lie. Knows the schedule, no passes."""

from __future__ import annotations

from collections.abc import Sequence

from tnplan.planner.hardware.chunked_overlap import Span, Spans
from tnplan.planner.schedule.schedule import Buffer, Free, Fused, Instruction, Redistribute

Row = tuple[Fused, ...]
Rows = tuple[Row, Row]
"""Chains before an exchange and after it, each in order: one takes the result of the one before."""


def others(chain: Fused) -> tuple[int, ...]:
    """What each step of a chain takes besides what the chain holds."""
    return chain.branches if chain.closing is None else (*chain.branches, chain.closing)


def end_of(chain: Fused) -> int:
    """The buffer in whose order a chain's tiles leave the chip: its result, or what closes it."""
    return chain.out if chain.closing is None else chain.closing


def rows(part: Sequence[Instruction], number: int) -> Rows:
    """All chains right before a redistribution that make its source, and all right after that take its `out`
    on, `Free` apart; none that has parts of its own."""
    exchange = part[number]
    assert isinstance(exchange, Redistribute)
    before: list[Fused] = []
    wanted = exchange.source
    for item in reversed(part[:number]):
        if isinstance(item, Fused) and item.out == wanted and item.parts == 1:
            before.insert(0, item)
            wanted = item.operand
        elif not isinstance(item, Free):
            break
    after: list[Fused] = []
    wanted = exchange.out
    for item in part[number + 1 :]:
        if isinstance(item, Fused) and item.operand == wanted and item.parts == 1:
            after.append(item)
            wanted = item.out
        elif not isinstance(item, Free):
            break
    return tuple(before), tuple(after)


def overlapped_rows(part: Sequence[Instruction], number: int) -> Rows:
    """The chains that an exchange goes beside: as many of those around it as it asks for, or all."""
    exchange = part[number]
    assert isinstance(exchange, Redistribute)
    before, after = rows(part, number)
    return before[max(len(before) - exchange.before, 0) :], after[: exchange.after]


def exchange_spans(exchange: Redistribute, before: Row, after: Row, buffers: Sequence[Buffer]) -> Spans:
    """Where the tensors of an exchange lie, and those of the chains that it goes beside."""

    def span(buffer: int) -> Span:
        start = buffers[buffer].offset_bytes
        return Span(start, start + buffers[buffer].size_bytes)

    closed = [chain.out for chain in after if chain.closing is not None]
    return Spans(
        made=tuple(map(span, (*(chain.operand for chain in before), exchange.source))),
        read=tuple(map(span, (exchange.out, *(chain.out for chain in after if chain.closing is None)))),
        branches=tuple(tuple(map(span, others(chain))) for chain in (*before, *after)),
        number=span(closed[0]) if closed else None,
    )

"""What stands beside an exchange in parts, and where their tensors lie. Knows the schedule, no passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.hardware.overlap import Span, Spans
from planner.schedule import Buffer, Free, Fused, Instruction, Redistribute


def neighbours(part: Sequence[Instruction], number: int) -> tuple[int | None, int | None]:
    """Of a redistribution: the number of the chain right before that makes its source, and of the one right
    after that reads its `out` as its operand; `Free` apart."""
    exchange = part[number]
    assert isinstance(exchange, Redistribute)
    before = next((n for n in range(number - 1, -1, -1) if not isinstance(part[n], Free)), None)
    after = next((n for n in range(number + 1, len(part)) if not isinstance(part[n], Free)), None)
    if before is not None:
        chain = part[before]
        before = before if isinstance(chain, Fused) and chain.out == exchange.source else None
    if after is not None:
        chain = part[after]
        after = after if isinstance(chain, Fused) and chain.operand == exchange.out else None
    return before, after


def exchange_spans(
    part: Sequence[Instruction], number: int, exchange: Redistribute, buffers: Sequence[Buffer]
) -> Spans:
    """Where the tensors lie of an exchange that stands at `number`, and of the chains that it goes beside."""

    def span(buffer: int) -> Span:
        start = buffers[buffer].offset_bytes
        return Span(start, start + buffers[buffer].size_bytes)

    spans = Spans(span(exchange.source), span(exchange.out))
    before, after = (None if n is None else part[n] for n in neighbours(part, number))
    if exchange.before and isinstance(before, Fused):
        branches = tuple(map(span, before.branches))
        spans = replace(spans, operand=span(before.operand), branches=branches)
    if exchange.after and isinstance(after, Fused):
        spans = replace(spans, result=span(after.out), others=tuple(map(span, after.branches)))
    return spans

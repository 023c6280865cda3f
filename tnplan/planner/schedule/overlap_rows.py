r"""An exchange in parts and the fused chains that overlap with it: which they are, and where they lie.

A redistribution from `source` to `out` may go in parts (`Redistribute.parts`), each a range of bytes of every
rank. While one part travels, the chains before it still make later parts of `source`, and the chains after it
already read earlier parts of `out`:

    operand -> chain -> ... -> chain -> source => out -> chain -> ... -> chain
               \____ chains before ____/          \____ chains after ____/

Each of these chains takes the result of the one before as its operand. Knows the schedule, no passes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tnplan.planner.hardware.chunked_overlap import Span, Spans
from tnplan.planner.schedule.schedule import Buffer, Free, Fused, Instruction, Redistribute

Row = tuple[Fused, ...]
"""Chains in order, each of which takes the result of the one before."""
Rows = tuple[Row, Row]
"""The chains before an exchange, and those after it."""


def others(chain: Fused) -> tuple[int, ...]:
    """The second operand of each step of a chain: its branches, and last what closes it."""
    return chain.branches if chain.closing is None else (*chain.branches, chain.closing)


def end_of(chain: Fused) -> int:
    """The buffer in whose order of modes a chain's tiles leave the chip.

    Its result, or the tensor that closes it: then the result is a number.
    """
    return chain.out if chain.closing is None else chain.closing


def rows(instructions: Sequence[Instruction], number: int) -> Rows:
    """All chains that could overlap with the redistribution at `number`.

    They stand right before it and lead to its `source`, or right after it and go on from its `out`; only
    `Free` may stand between. A chain that goes in parts by itself ends the row.
    """
    exchange = instructions[number]
    assert isinstance(exchange, Redistribute)
    before: list[Fused] = []
    buffer = exchange.source
    for instruction in reversed(instructions[:number]):
        if isinstance(instruction, Fused) and instruction.out == buffer and instruction.parts == 1:
            before.insert(0, instruction)
            buffer = instruction.operand
        elif not isinstance(instruction, Free):
            break
    after: list[Fused] = []
    buffer = exchange.out
    for instruction in instructions[number + 1 :]:
        if isinstance(instruction, Fused) and instruction.operand == buffer and instruction.parts == 1:
            after.append(instruction)
            buffer = instruction.out
        elif not isinstance(instruction, Free):
            break
    return tuple(before), tuple(after)


def overlapped_rows(instructions: Sequence[Instruction], number: int) -> Rows:
    """The chains that the redistribution at `number` overlaps with.

    Those nearest to it, as many as its `before` and `after` say, or all where there are fewer.
    """
    exchange = instructions[number]
    assert isinstance(exchange, Redistribute)
    before, after = rows(instructions, number)
    return before[max(len(before) - exchange.before, 0) :], after[: exchange.after]


def exchange_spans(exchange: Redistribute, before: Row, after: Row, buffers: Sequence[Buffer]) -> Spans:
    """The bytes in the arena of an exchange's tensors and of those of the chains that overlap with it."""

    def span(buffer: int) -> Span:
        start = buffers[buffer].offset_bytes
        return Span(start, start + buffers[buffer].size_bytes)

    made = (*(chain.operand for chain in before), exchange.source)
    read = (exchange.out, *(chain.out for chain in after if chain.closing is None))
    numbers = [chain.out for chain in after if chain.closing is not None]
    # Invariant: a closed chain leaves no tensor to go on from, so that at most the last one is closed.
    return Spans(
        made=tuple(map(span, made)),
        read=tuple(map(span, read)),
        branches=tuple(tuple(map(span, others(chain))) for chain in (*before, *after)),
        number=span(numbers[0]) if numbers else None,
    )

"""What instructions read and write, and which inputs the buffers of a schedule depend on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tnplan.planner.hardware.chunked_overlap import Span, Spans
from tnplan.planner.schedule.schedule import (
    Accumulate,
    AddSlice,
    Buffer,
    Contract,
    Decode,
    Encode,
    FixSlice,
    Free,
    Fused,
    FusedAdjoint,
    Instruction,
    Load,
    Redistribute,
    ReduceScatter,
    Schedule,
    SumModes,
    Zero,
)

# An exchange in parts and the fused chains that overlap with it: which they are, and where they lie.
#
# A redistribution from `source` to `out` may go in parts (`Redistribute.parts`), each a range of bytes of
# every rank. While one part travels, the chains before it still make later parts of `source`, and the
# chains after it already read earlier parts of `out`:
#
#     operand -> chain -> ... -> chain -> source => out -> chain -> ... -> chain
#                \____ chains before ____/          \____ chains after ____/
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
    # Away from the exchange, each chain must make what the next one reads.
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

    written = (*(chain.operand for chain in before), exchange.source)
    read = (exchange.out, *(chain.out for chain in after if chain.closing is None))
    numbers = [chain.out for chain in after if chain.closing is not None]
    # Invariant: a closed chain leaves no tensor to go on from, so that at most the last one is closed.
    return Spans(
        made=tuple(map(span, written)),
        read=tuple(map(span, read)),
        branches=tuple(tuple(map(span, others(chain))) for chain in (*before, *after)),
        number=span(numbers[0]) if numbers else None,
    )


def reads(instruction: Instruction) -> tuple[int, ...]:
    """The buffers that an instruction reads, its workspace not among them."""
    match instruction:
        case Free() | Load() | Zero():
            return ()
        case Contract():
            return (instruction.a, instruction.b)
        case Fused():
            return (instruction.operand, *others(instruction))
        case FusedAdjoint():
            return (instruction.operand, *instruction.branches, instruction.cotangent)
        case FixSlice() | AddSlice() | SumModes() | Accumulate() | Encode() | Decode():
            return (instruction.source,)
        case Redistribute() | ReduceScatter():
            return (instruction.source,)


def writes(instruction: Instruction) -> tuple[int, ...]:
    """The buffers that an instruction writes, its workspace among them."""
    match instruction:
        case Free():
            return ()
        case Contract():
            return _with(instruction.c, instruction.workspace)
        case Redistribute() | ReduceScatter():
            return _with(instruction.out, instruction.workspace)
        case FusedAdjoint():
            return instruction.made
        case _:
            return (instruction.out,)


def _with(out: int, workspace: int | None) -> tuple[int, ...]:
    return (out,) if workspace is None else (out, workspace)


class DataFlow:
    """The part of a schedule before its first slice as a graph of instructions and buffers.

    - `instructions`: Those of the part, without `Free`.
    - `leaves`: The input tensors that each buffer depends on.
    - `kept`: The buffers of the part that hold their tensors from one run to the next: never freed nor
      written later, and no other buffer shares their bytes.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.instructions = [item for item in schedule.once if not isinstance(item, Free)]
        self.leaves: dict[int, frozenset[int]] = {}
        self._writers: dict[int, list[int]] = {}
        for number, item in enumerate(self.instructions):
            needed = frozenset((item.tensor,)) if isinstance(item, Load) else frozenset()
            needed = needed.union(*(self.leaves[buffer] for buffer in reads(item)))
            for buffer in writes(item):
                self.leaves[buffer] = self.leaves.get(buffer, needed) | needed
                self._writers.setdefault(buffer, []).append(number)
        freed = {item.buffer for item in schedule.once if isinstance(item, Free)}
        later = {
            buffer for level in schedule.parts[1:] for item in level.instructions for buffer in writes(item)
        }
        # Invariant: what is kept has bytes of its own and is written by this part alone: it holds its tensor
        # from run to run.
        self.kept = set(self._writers) - freed - later - _sharing_bytes(schedule)
        self._results = {schedule.result}
        if schedule.body:
            self._results = self._read(item for level in schedule.parts[1:] for item in level.instructions)

    def _read(self, items: Iterable[Instruction]) -> set[int]:
        """The buffers of the part that other instructions read."""
        return {buffer for item in items for buffer in reads(item) if buffer in self._writers}

    def needed(self, changed: Collection[int]) -> list[int]:
        """The numbers of the instructions to repeat where these inputs have changed, in order."""
        numbers: set[int] = set()
        # Backwards from what later parts read: a value that is kept and depends on no changed input ends the
        # walk.
        wanted = list(self._results)
        while wanted:
            buffer = wanted.pop()
            if buffer in self.kept and self.leaves[buffer].isdisjoint(changed):
                continue
            for number in self._writers[buffer]:
                if number not in numbers:
                    numbers.add(number)
                    wanted += reads(self.instructions[number])
        return sorted(numbers)


def _sharing_bytes(schedule: Schedule) -> set[int]:
    """The buffers that overlap another one in the arena."""
    used = {buffer for item in schedule.instructions for buffer in writes(item)} | {schedule.result}
    sharing: set[int] = set()
    last_end, last = 0, schedule.result
    # A sweep by offset: a buffer that begins before the furthest end so far shares bytes with the one that
    # ends there.
    for number in sorted(used, key=lambda buffer: schedule.buffers[buffer].offset_bytes):
        buffer = schedule.buffers[number]
        if buffer.offset_bytes < last_end:
            sharing |= {number, last}
        end = buffer.offset_bytes + buffer.size_bytes
        if end > last_end:
            last_end, last = end, number
    return sharing

"""What instructions read and write, and which inputs the buffers of a schedule depend on."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tnplan.planner.schedule.fused_adjoint import FusedAdjoint
from tnplan.planner.schedule.overlap_rows import others
from tnplan.planner.schedule.schedule import (
    Accumulate,
    AddSlice,
    Contract,
    Decode,
    Encode,
    FixSlice,
    Free,
    Fused,
    Instruction,
    Load,
    Redistribute,
    ReduceScatter,
    Schedule,
    SumModes,
    Zero,
)


def reads(instruction: Instruction) -> tuple[int, ...]:
    """The buffers that an instruction reads, its workspace not among them."""
    match instruction:
        case Load() | Zero() | Free():
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

    Attributes
    ----------
    instructions : list of Instruction
        Those of the part, without `Free`.
    leaves : dict of int to frozenset of int
        The input tensors that each buffer depends on.
    kept : set of int
        The buffers of the part that hold their tensors from one run to the next: never freed nor written
        later, and no other buffer shares their bytes.
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
            buffer for part in schedule.parts[1:] for item in part.instructions for buffer in writes(item)
        }
        self.kept = set(self._writers) - freed - later - _sharing_bytes(schedule)
        self._results = {schedule.result}
        if schedule.body:
            self._results = self._read(item for part in schedule.parts[1:] for item in part.instructions)

    def _read(self, items: Iterable[Instruction]) -> set[int]:
        """The buffers of the part that other instructions read."""
        return {buffer for item in items for buffer in reads(item) if buffer in self._writers}

    def needed(self, changed: Collection[int]) -> list[int]:
        """The numbers of the instructions to repeat where these inputs have changed, in order."""
        numbers: set[int] = set()
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
    for number in sorted(used, key=lambda buffer: schedule.buffers[buffer].offset_bytes):
        buffer = schedule.buffers[number]
        if buffer.offset_bytes < last_end:
            sharing |= {number, last}
        end = buffer.offset_bytes + buffer.size_bytes
        if end > last_end:
            last_end, last = end, number
    return sharing

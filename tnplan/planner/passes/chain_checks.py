"""What is wrong with the modes of a chain, or how they are spread; `verify` refuses the first problem."""

from __future__ import annotations

from collections.abc import Iterator

from tnplan.planner.hardware.chunked_overlap import chunk_order, cut_modes
from tnplan.planner.schedule.data_flow import others
from tnplan.planner.schedule.schedule import Buffer, Fused, FusedAdjoint, Schedule

MOST_CHUNKS = 1024
"""Each is a call of its own."""


def chain_problems(schedule: Schedule, item: Fused) -> Iterator[str]:
    """Whether a chain's result follows from what it reads, on every rank from its own shards."""
    buffers = schedule.buffers
    out = buffers[item.out]
    left, summed = set(buffers[item.operand].modes), set[int]()
    for buffer, number in zip(item.branches, item.steps, strict=False):
        branch = set(buffers[buffer].modes)
        if branch & summed:
            yield f"the branch of step {number} has a mode that was summed before"
        # A mode on both is summed and one on either stays: the symmetric difference. A summed mode that comes
        # again would be another sum than the network's.
        summed |= left & branch
        left ^= branch
    if item.closing is not None:
        if item.adds:
            yield "it closes, and cannot add to an early sum"
        if set(buffers[item.closing].modes) != left:
            yield "what closes it does not have the modes that it leaves"
        left = set()
    if left != set(out.modes):
        yield "the modes of out do not follow from those of its operands"
    if chain_cut(schedule, item) is None:
        yield f"its operand and out do not have {item.parts} parts alike"
    yield from _spread_problems(schedule, item, summed)


def adjoint_problems(schedule: Schedule, item: FusedAdjoint) -> Iterator[str]:
    """Whether the gradients of a chain follow from what it reads, on every rank from its own shards."""
    buffers = schedule.buffers
    cotangent = buffers[item.cotangent]
    # The gradient of a tensor without the mode of a digit is a sum over the ranks of this digit.
    partial = tuple(
        digit for digit, _ in enumerate(schedule.grid) if _spread_mode(schedule, item, digit) is not None
    )
    yield from chain_problems(schedule, Fused(item.operand, item.branches, item.cotangent, item.steps[::2]))
    for gradient, tensor in zip((item.out, *item.gradients), (item.operand, *item.branches), strict=True):
        if gradient is None:
            continue
        result, differentiated = buffers[gradient], buffers[tensor]
        if set(result.modes) != set(differentiated.modes) or result.layout != differentiated.layout:
            yield "a gradient has not the modes or the layout of its tensor"
        if result.partial != tuple(digit for digit in partial if differentiated.layout[digit] is None):
            yield "a gradient is partial where it should not be"
    if cotangent.partial:
        yield "the cotangent is partial"


def _spread_mode(schedule: Schedule, item: FusedAdjoint, digit: int) -> int | None:
    """The mode that a digit spreads in a chain."""
    layouts = (schedule.buffers[buffer].layout for buffer in (item.operand, *item.branches, item.cotangent))
    return next((layout[digit] for layout in layouts if layout[digit] is not None), None)


def chain_cut(schedule: Schedule, item: Fused) -> tuple[int, ...] | None:
    """The first modes of a chain's operand and result, which cut it into its parts; None if they do not."""
    if item.parts == 1:
        return ()
    if item.adds or item.closing is not None or item.parts > MOST_CHUNKS:
        return None
    operand, out = schedule.buffers[item.operand], schedule.buffers[item.out]
    first, same = (
        cut_modes(tensor.modes, tensor.layout, schedule.extents, schedule.grid, item.parts)
        for tensor in (operand, out)
    )
    return first if first == same else None


def keeps_off(operand: tuple[int, int], out: tuple[int, int], parts: int) -> bool:
    """Whether no part of `out` is written over what is yet to be read of `operand`: (start, end) in bytes."""
    read, written = ((end - start) // parts for start, end in (operand, out))
    # Order of the parts as in memmove. Part i is written when parts up to i have been read: everything that
    # is read later must lie elsewhere.
    behind = out[0] > operand[0]
    for number in chunk_order(parts, behind):
        start = out[0] + number * written
        first, end = operand if not behind else (operand[0], operand[0] + (number + 1) * read)
        first += 0 if behind else number * read
        if start < end and first < start + written:
            return False
    return True


def _spread_problems(schedule: Schedule, item: Fused, summed: set[int]) -> Iterator[str]:
    """`summed`: the modes that are summed with the branches."""
    out = schedule.buffers[item.out]
    read = [schedule.buffers[buffer] for buffer in (item.operand, *others(item))]
    tensors: list[Buffer] = [*read, out]
    closing = () if item.closing is None else schedule.buffers[item.closing].modes
    for position, digit in enumerate(schedule.grid):
        # Every rank works on its own shards: all tensors of a chain that have the mode of a digit have it
        # spread by this digit, and none of them sums it.
        mode = next((t.layout[position] for t in tensors if t.layout[position] is not None), None)
        for tensor in tensors:
            if tensor.layout[position] != (mode if mode in tensor.modes else None):
                yield f"digit {position} spreads its tensors differently"
        if any(position in tensor.partial for tensor in read):
            yield f"digit {position}: a tensor is partial"
        closed = mode is not None and mode in closing
        if (position in out.partial) != closed:
            yield f"digit {position}: its result is {'not ' if closed else ''}partial"
        if mode in summed:
            yield f"digit {position} spreads mode {mode}, which is summed"
        if mode is not None and schedule.extents[mode] % digit.radix:
            yield f"digit {position} splits mode {mode} unevenly"

"""The result of a contraction as one of its inputs of the next run: whether it stays on its rank, and how.

The result of a rank stays where each axis of it has the modes of the input's axis, spread over the same
digits of the grid. The bytes of the input in the arena may be those of the result: then nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tnplan.executor.contraction.bind.program import BoundProgram
from tnplan.executor.device.protocols.copy import make_copy, row_major
from tnplan.executor.device.protocols.device import Call, Device, nothing
from tnplan.planner.hardware.process_grid import box, box_shape, rank_digits
from tnplan.planner.schedule.data_flow import writes
from tnplan.planner.schedule.schedule import Buffer, Load, Schedule


class InputLoad(NamedTuple):
    """The instruction of the first part, `Free` not counted, that loads an input, and its buffer."""

    number: int
    out: int


def load_in_place(schedule: Schedule, tensor: int, numbers: Sequence[int]) -> InputLoad | None:
    """What loads an input, where the result of the last run may be put there before a run begins; else None.

    `numbers` are the instructions of the first part that a run carries out.
    """
    items = [item for item in schedule.once if item.op != "free"]
    loads = [item for item in schedule.instructions if isinstance(item, Load) and item.tensor == tensor]
    modes = _modes_of_input(schedule, tensor)
    if len(loads) != 1 or loads[0] not in items or modes is None:
        return None
    result, loaded = schedule.buffers[schedule.result], schedule.buffers[loads[0].out]
    spread = tuple(None if mode is None else modes[mode] for mode in result.layout)
    if spread != loaded.layout or {modes[mode] for mode in result.modes} != set(loaded.modes):
        return None
    is_same = result.offset_bytes == loaded.offset_bytes
    in_order = tuple(modes[mode] for mode in result.modes) == loaded.modes
    if _share_bytes(result, loaded) and not (is_same and in_order):
        return None
    load = items.index(loads[0])
    # Invariant: what is put there before the run begins is not written over until it is read.
    before = {buffer for number in numbers if number < load for buffer in writes(items[number])}
    is_written_over = any(_share_bytes(schedule.buffers[each], loaded) for each in before)
    return None if is_written_over else InputLoad(load, loads[0].out)


def bind_carry(program: BoundProgram, device: Device, rank: int, load: InputLoad, tensor: int) -> Call:
    """The call that puts the result where `load` has input `tensor`, on one rank of the group."""
    schedule = program.schedule
    result, loaded = schedule.buffers[schedule.result], schedule.buffers[load.out]
    modes = _modes_of_input(schedule, tensor)
    assert modes is not None
    if result.offset_bytes == loaded.offset_bytes:
        return nothing
    digits = rank_digits(rank, schedule.grid)
    shape = box_shape(box(result.modes, result.layout, schedule.extents, digits, schedule.grid))
    extents = {modes[mode]: extent for mode, extent in zip(result.modes, shape, strict=True)}
    strides = dict(zip(loaded.modes, row_major([extents[mode] for mode in loaded.modes]), strict=True))
    copy = make_copy(
        [
            (extent, stride, strides[modes[mode]])
            for mode, extent, stride in zip(result.modes, shape, row_major(shape), strict=True)
        ]
    )
    target = device.view(loaded.offset_bytes, len(program.result), schedule.dtype)
    return device.bind_copy(target, program.result, copy)


def _modes_of_input(schedule: Schedule, tensor: int) -> dict[int, int] | None:
    """The mode of an input that stands for each mode of the output, axis by axis; None where axes differ."""
    axes = [
        (schedule.indices[output], schedule.indices[index])
        for output, index in zip(schedule.output, schedule.leaves[tensor], strict=True)
    ]
    extents = schedule.extents
    are_equal = all(
        [extents[mode] for mode in own] == [extents[mode] for mode in other] for own, other in axes
    )
    modes = {mode: other for own, others in axes for mode, other in zip(own, others, strict=False)}
    # On a diagonal two modes of the output would be one of the input.
    return modes if are_equal and len(set(modes.values())) == len(modes) else None


def _share_bytes(a: Buffer, b: Buffer) -> bool:
    """Whether two buffers have bytes of the arena in common."""
    return a.offset_bytes < b.offset_bytes + b.size_bytes and b.offset_bytes < a.offset_bytes + a.size_bytes

"""A schedule bound once to one rank's device and run again and again with new values: the rank's slices, the
sum over the groups, the result on rank 0. Measures nothing; knows no files and no checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tnplan.common.arrays import ALIGNMENT_BYTES, round_up
from tnplan.executor.contraction.bind.binder import bind
from tnplan.executor.contraction.bind.program import BoundProgram, arena_bytes
from tnplan.executor.contraction.run.result import gather_results
from tnplan.executor.contraction.run.scaling import ScaledCalls
from tnplan.executor.contraction.run.slice_partition import (
    active_groups,
    bind_sum_groups,
    share_of,
    slices_of_group,
)
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.device.protocols.copy import make_copy, row_major
from tnplan.executor.device.protocols.device import Call, Device, View, call_in_turn, nothing
from tnplan.planner.hardware.process_grid import box, box_shape, rank_digits
from tnplan.planner.schedule.data_flow import DataFlow, reads, writes
from tnplan.planner.schedule.recorded_run import RECORDED_CALLS, count_calls
from tnplan.planner.schedule.schedule import (
    Buffer,
    Free,
    Fused,
    GradientSchedule,
    Instruction,
    Load,
    Schedule,
)

MOST_CALLS = 4096
"""Of more calls the order is the one of the schedule: that of all pairs would take too long."""
LARGER_ARENA, SMALL_ARENA = 1 / 128, 16 << 20
"""The share of the arena that small buffers may take besides, or so many bytes where that is less."""


def small_buffers_apart(schedule: Schedule) -> Schedule:
    """The schedule with its smallest buffers behind the arena, each in bytes of its own: as many as have
    room in `LARGER_ARENA` of it, and in the memory that the plan may take."""
    end, profile = arena_bytes(schedule), schedule.profile
    limit = profile["memory_bytes"] - profile["reserved_bytes"]
    if schedule.memory_bytes is not None:
        limit = min(limit, schedule.memory_bytes)
    spare_bytes = min(max(int(end * LARGER_ARENA), SMALL_ARENA), limit - end)
    buffers = list(schedule.buffers)
    used = [number for number, buffer in enumerate(buffers) if buffer.size_bytes]
    by_size = sorted(used, key=lambda number: buffers[number].size_bytes)
    ends = accumulate(round_up(buffers[number].size_bytes, ALIGNMENT_BYTES) for number in by_size)
    start = round_up(end, ALIGNMENT_BYTES)
    for number, last in zip(by_size, ends, strict=True):
        if start + last > end + spare_bytes:
            break
        size = round_up(buffers[number].size_bytes, ALIGNMENT_BYTES)
        buffers[number] = replace(buffers[number], offset_bytes=start + last - size)
    return replace(schedule, buffers=tuple(buffers))


def waits(schedule: Schedule, instructions: Sequence[Instruction]) -> list[tuple[int, ...]] | None:
    """For each instruction the earlier ones that must be over before it begins; None for too many of them.

    What follows from others is left out: with 0 before 1 and 1 before 2, instruction 2 waits for 1 alone.
    """
    if len(instructions) > MOST_CALLS:
        return None
    spans = np.array(
        [(buffer.offset_bytes, buffer.offset_bytes + buffer.size_bytes) for buffer in schedule.buffers]
    )
    read = [spans[list(reads(item))].reshape(-1, 2) for item in instructions]
    written = [spans[list(writes(item))].reshape(-1, 2) for item in instructions]
    touched = [np.concatenate(pair) for pair in zip(read, written, strict=True)]
    before: list[int] = []  # for each instruction, the set of those that are over before it ends, as bits
    direct: list[tuple[int, ...]] = []
    for number in range(len(instructions)):
        known, last = 1 << number, list[int]()
        for earlier in range(number - 1, -1, -1):
            if known >> earlier & 1:
                continue
            if (
                _overlap(written[number], touched[earlier]) or _overlap(read[number], written[earlier])
                or (isinstance(instructions[number], Fused) and isinstance(instructions[earlier], Fused))
            ):  # fmt: skip
                last.append(earlier)
                known |= before[earlier]
        before.append(known)
        direct.append(tuple(last))
    return direct


def _overlap(first: NDArray[np.int64], second: NDArray[np.int64]) -> bool:
    """Whether a span of the first shares a byte with one of the second."""
    return bool(((first[:, None, 0] < second[:, 1]) & (second[:, 0] < first[:, None, 1])).any())


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


KEPT_RUNS = 64
"""Kinds of runs, by the inputs that change, whose calls are kept."""


class CompiledProgram:
    """A schedule bound to this rank's device. Every call but `set` and `exponent` is collective.

    - `schedule`: Verified. What its first part never frees is kept from one run to the next. Without slices,
      or with fewer than there are groups, some ranks have no work.
    - `device`: It has no arena yet.
    - `ranks`: All ranks: a multiple of the schedule's group. Each makes the same calls.
    - `scaled`: Keep tensors within the range of the dtype by powers of two; for one rank alone.
    - `give_back`: What gives the device back when the program is closed.
    - `inputs`: The input tensors; `set` gives them values before `run`.
    - `bound`: The schedule bound to this rank.
    """

    def __init__(
        self, schedule: Schedule, device: Device, ranks: Communicator, scaled: bool = False,
        give_back: Call = nothing,
    ) -> None:  # fmt: skip
        # Everything that a run needs is bound here, so that `run` allocates nothing and may be recorded.
        counts = [prod(schedule.size_dict[index] for index in leaf) for leaf in schedule.leaves]
        n_slices = schedule.n_slices
        share = self._share = share_of(schedule, ranks.size, ranks.rank, 0, n_slices)
        group = self._group = ranks.split(share.group, share.rank_in_group)
        self.inputs = device.input_block(counts, schedule.dtype)
        # Which results are still there after a run is known for one rank alone: only then a run is done in
        # part, and calls that do not wait for each other are recorded as such.
        repeats = group.size == 1 and not isinstance(schedule, GradientSchedule)
        self._runs_together = repeats and not scaled and device.runs_calls_together
        if self._runs_together:
            schedule = small_buffers_apart(schedule)
        self.bound = bind(schedule, device, group, self.inputs.views)
        self.device = device
        self._ranks, self._give_back = ranks, give_back
        self._slices = slices_of_group(share.group, share.n_groups, 0, n_slices)
        self._scaling = ScaledCalls(schedule, device, self.inputs.views) if scaled else None
        self._set: set[int] = set()
        of_parts = [[instruction.call for instruction in bound] for bound in self.bound.parts]
        self._once = of_parts[0]
        self._items = [
            [item for item in level.instructions if not isinstance(item, Free)] for level in schedule.parts
        ]
        levels = list(zip(self._items, of_parts, strict=True))[1:]
        calls = [call_in_turn(self._scaled(*level)) for level in levels]
        self._levels = self.bound.loops(calls, partial(_early_sum, self.bound))
        self._after = _levels_after(self.bound)
        self._all = frozenset(range(len(counts)))
        self._flow = DataFlow(schedule) if repeats else None
        # A recording holds every call of a run: with many slices it would be too long to be worth it.
        is_short = count_calls(schedule, len(self._slices)) <= RECORDED_CALLS
        self._is_recorded = is_short and group.size == 1
        self._calls: dict[frozenset[int], list[Call]] = {}
        self._recorded: tuple[frozenset[int], Call] | None = None
        self._is_ready = False
        self._sum_groups: Call = nothing
        if ranks.size > 1:
            # As in `run_rank`: the ranks of all groups that hold the same shard, numbered by group.
            across = ranks.split(share.rank_in_group, share.group)
            active = active_groups(n_slices, share.n_groups)
            self._sum_groups = bind_sum_groups(self.bound, device, across, active)
            ranks.barrier()
            group.connect()
            across.connect()
            device.synchronize()

    @property
    def result(self) -> View:
        """The flat result of the last run: this rank's shard of it."""
        return self.bound.result

    @property
    def results(self) -> list[View]:
        """This rank's shards of the result and of all gradients."""
        return [self.bound.result, *self.bound.gradients]

    @property
    def exponent(self) -> int:
        """The power of two by which the result is to be multiplied; 0 without scaling."""
        return 0 if self._scaling is None else self._scaling.exponent()

    def set(self, number: int, values: Any) -> None:
        """Give an input new values; see `InputBlock.set`."""
        self.inputs.set(number, values)
        self._set.add(number)

    def run_with(self, values: Mapping[int, Any]) -> None:
        """Contract with new values of some inputs, the others as before; the first time, of all.

        A run that fails leaves nothing to be used again. Without new values the last result stays.
        """
        if self._is_ready and not values:
            return
        changed = frozenset(values) if self._is_ready else None
        self._is_ready = False
        for number, array in values.items():
            self.set(number, array)
        self.run(changed)
        self._sum_groups()
        self._is_ready = True

    @property
    def is_first(self) -> bool:
        """Whether this rank has the results of `gathered`."""
        return self._ranks.rank == 0

    def agreed(self, value: Any) -> Any:
        """The value of the first rank, on every rank."""
        return value if self._ranks.size == 1 else self._ranks.broadcast_object(value, 0)

    def repeat(
        self, tensor: int, values: Mapping[int, Any], rows: Sequence[int], after_row: Callable[[int], None]
    ) -> None:
        """Contract `values` of all inputs for the first of some rows; in the others input `tensor` is the
        result of the row before. `after_row` is called with the number of each row."""
        for row in rows[:1]:
            self.run_with(values)
            after_row(row)
        self._is_ready = False
        next_row = self._next_row(tensor)
        for row in rows[1:]:
            next_row()
            after_row(row)
        self._is_ready = True

    def _next_row(self, tensor: int) -> Call:
        """A run with the last result as one input."""
        numbers: Sequence[int] = range(len(self._once))
        if self._flow is not None:
            numbers = self._flow.needed((tensor,))
        load = load_in_place(self.bound.schedule, tensor, numbers) if self._share.n_groups == 1 else None
        if load is None:
            return partial(self._handed_over, tensor)
        # Exchanges in parts are several calls, so that calls are counted by their loads.
        is_load = [bound.op == Load.op for bound in self.bound.once]
        loads = [item.op == Load.op for item in self._items[0]]
        call = [number for number, each in enumerate(is_load) if each][sum(loads[: load.number])]
        carry = bind_carry(self.bound, self.device, self._group.rank, load, tensor)
        calls = [carry, *(self._once[number] for number in numbers if number != call)]
        if self._levels:
            calls.append(self._run_slices)
        return call_in_turn(calls)

    def _handed_over(self, tensor: int) -> None:
        """A run for which the whole result goes to every rank first."""
        results = self.gathered()
        self.set(tensor, self.agreed(None if results is None else results[0]))
        if self._ranks.size > 1:
            # Invariant: threads get the first rank's memory itself, and copy it before that goes on.
            self._ranks.barrier()
        self.run(frozenset((tensor,)))
        self._sum_groups()

    def gathered(self) -> list[NDArray[Any]] | None:
        """The flat result of the last run and the flat gradients, on rank 0; None on the others."""
        return gather_results(self.bound, self._share, self._group, self.device)

    def close(self) -> None:
        """Give the memory back."""
        self.device.synchronize()
        self._ranks.close()
        self._give_back()

    # BLAS may raise the flag of an invalid value where no operand holds one: its vector instructions work on
    # lanes beyond the matrix. A NaN of the values themselves is in the result.
    @np.errstate(invalid="ignore")
    def run(self, changed: frozenset[int] | None = None) -> None:
        """Contract the slices of this rank's group; the work of a GPU may go on when this returns.

        With the numbers of the inputs that have `changed` since the last run, one or more, only what depends
        on them is done again, and what that needs and was not kept. A run that repeats the one before is
        recorded.
        """
        if changed is None or self._flow is None:
            changed = self._all
        self.inputs.send()
        if self._scaling is not None:
            self._scaling.scale_inputs(frozenset(self._set))
        self._set.clear()
        # The first run of a kind runs call by call, the second is recorded, later ones replay it.
        if self._recorded is not None and self._recorded[0] == changed:
            self._recorded[1]()
            return
        again = changed in self._calls
        if not again:
            if len(self._calls) >= KEPT_RUNS:
                self._forget()
            self._calls[changed] = self._calls_after(changed)
        if again and self._is_recorded:
            self._recorded = changed, self.device.recorded(self._calls[changed], self._waits(changed))
            self._recorded[1]()
        else:
            for call in self._calls[changed]:
                call()

    def _forget(self) -> None:
        """Drop the calls of all kinds of runs, and what was recorded of one, once their work is done: they
        hold memory that their kernels read."""
        self.device.synchronize()
        self._recorded = None
        self._calls.clear()

    def _numbers(self, changed: frozenset[int]) -> Sequence[int]:
        """Of the calls before the first slice those that a change of some inputs needs."""
        if self._flow is None or changed == self._all:
            return range(len(self._once))
        return self._flow.needed(changed)

    def _waits(self, changed: frozenset[int]) -> list[tuple[int, ...]] | None:
        """Which of the calls after a change of some inputs wait for which; None: each for the one before."""
        if self._flow is None or not self._runs_together or not self._slices:
            return None
        earlier = waits(self.bound.schedule, [self._items[0][number] for number in self._numbers(changed)])
        if earlier is not None and self._levels:
            earlier.append(tuple(range(len(earlier))))
        return earlier

    def _calls_after(self, changed: frozenset[int]) -> list[Call]:
        """All work after a change of some inputs."""
        if not self._slices:
            return [partial(self.device.zero, view) for view in self.results]
        numbers = self._numbers(changed)
        calls = self._scaled(self._items[0], self._once, numbers)
        if self._levels:
            begin = [] if self._scaling is None else [self._scaling.begin_result()]
            calls = [*calls, *begin, self._run_slices]
        if self._scaling is not None:
            calls.append(self._scaling.end_result())
        return calls

    def _scaled(
        self, items: Sequence[Instruction], calls: Sequence[Call], numbers: Sequence[int] | None = None
    ) -> list[Call]:
        """The calls of instructions, or of those of these numbers, with their scaling where there is some."""
        if numbers is None:
            numbers = range(len(calls))
        chosen = [calls[number] for number in numbers]
        if self._scaling is None:
            return chosen
        return self._scaling.scaled([items[number] for number in numbers], chosen)

    def _run_slices(self) -> None:
        program = self.bound
        self.device.zero(program.result)
        for number in self._slices:
            program.set_slice(number)
            for period, call in self._levels:
                if number == self._slices.start or number % period == 0:
                    call()
            # Parts after the body end the block of slices that theirs before the body began.
            for period, call in self._after:
                if number + 1 == self._slices.stop or (number + 1) % period == 0:
                    call()


def _levels_after(program: BoundProgram) -> list[tuple[int, Call]]:
    """The parts after the body, with the number of slices in a row that each of them ends."""
    schedule = program.schedule
    if not isinstance(schedule, GradientSchedule):
        return []
    calls = [call_in_turn([bound.call for bound in level]) for level in program.after]
    return [(schedule.serves(level.depth), call) for level, call in zip(schedule.after, calls, strict=True)]


def _early_sum(program: BoundProgram, rounds: int, inside: Sequence[tuple[int, Call]]) -> Call:
    """The rounds of the early sum, in each of them the parts that are due."""

    def run() -> None:
        for number in range(rounds):
            program.set_round(number)
            for period, call in inside:
                if number % period == 0:
                    call()

    return run

"""One rank's whole run: its group's slices from the last checkpoint on, then the sum over the groups.

Composes the other files of this folder; reads no options and writes no results. Slices are replayed and every
instruction timed; nothing waits for the device inside a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, pairwise
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.contraction.bind.binder import bind
from tnplan.executor.contraction.bind.program import BoundInstruction, BoundProgram
from tnplan.executor.contraction.run.checkpoint import (
    CheckpointSettings,
    Division,
    RunCheckpoint,
    RunIdentity,
    first_division,
)
from tnplan.executor.contraction.run.slice_partition import Share, active_groups, bind_sum_groups, share_of
from tnplan.executor.device.cpu.algebra import Algebra
from tnplan.executor.device.energy import EnergyMeter
from tnplan.executor.device.protocols.communicator import Communicator, CountedCommunicator
from tnplan.executor.device.protocols.device import Device, Mark
from tnplan.executor.device.protocols.stop_signal import StoppedRunError, keeping
from tnplan.planner.hardware.process_grid import box, box_shape, rank_digits
from tnplan.planner.schedule.schedule import Schedule


@dataclass
class Timings:
    """Measured seconds: of every instruction by part (summed over slices), and of every slice by its number.

    `overlapped_s` is what exchanges that overlap with contractions took, `waited_s` what was waited for them.
    """

    parts_s: list[list[float]]
    slice_s: dict[int, float] = field(default_factory=dict)
    overlapped_s: float = 0.0
    waited_s: float = 0.0

    @property
    def hidden_s(self) -> float:
        """Seconds of exchanges that contractions hid."""
        return max(0.0, self.overlapped_s - self.waited_s)

    def of_calls(self, program: BoundProgram) -> Iterator[tuple[BoundInstruction, float]]:
        """Every instruction of the program with its seconds."""
        for instructions, seconds in zip(program.parts, self.parts_s, strict=True):
            yield from zip(instructions, seconds, strict=True)

    def by_kind(self, program: BoundProgram) -> dict[str, float]:
        """Seconds by opcode."""
        totals: dict[str, float] = {}
        for bound, time_s in self.of_calls(program):
            totals[bound.op] = totals.get(bound.op, 0.0) + time_s
        return totals

    def by_step(self, program: BoundProgram) -> list[float]:
        """Seconds by step of the schedule."""
        totals = [0.0] * len(program.schedule.steps)
        for bound, time_s in self.of_calls(program):
            if bound.step is not None:
                totals[bound.step] += time_s
        return totals


def new_timings(program: BoundProgram) -> Timings:
    """Timings of a program that has not run."""
    return Timings([[0.0] * len(instructions) for instructions in program.parts])


def run_once(program: BoundProgram, device: Device, timings: Timings) -> None:
    """Run what comes before the first slice; the result is zero afterwards where slices add to it."""
    timed = _TimedCalls(program.once, device, timings, timings.parts_s[0])
    timed.run()
    if program.body:
        device.zero(program.result)
    device.synchronize()
    timed.add_times()


def run_slices(
    program: BoundProgram, device: Device, timings: Timings, slices: Iterable[int],
    after_slice: Callable[[], None],
) -> None:  # fmt: skip
    """Run the body for each of `slices`, and before it the outer parts whose results are of other slices.

    `after_slice` is called when one is done.
    """
    loops = zip(program.parts[1:], timings.parts_s[1:], strict=True)
    timed: list[_Replayed] = [_TimedCalls(calls, device, timings, seconds) for calls, seconds in loops]
    levels = program.loops(timed, partial(_EarlySum, program, device))
    before: int | None = None
    for number in slices:
        start = perf_counter()
        program.set_slice(number)
        # A level is replayed where the block of `serves` slices that its results are for begins: number //
        # serves is the number of that block.
        # Invariant: parts are from the outermost level in, so that what a part reads is made before it.
        due = [level for serves, level in levels if before is None or number // serves != before // serves]
        for level in due:
            level.run()
        # Once a slice and not once a call: marks are read when the device has passed all of them.
        device.synchronize()
        timings.slice_s[number] = perf_counter() - start
        for level in due:
            level.add_times()
        before = number
        after_slice()


class _EarlySum:
    """The parts inside the loops of the early sum, each with how many rounds in a row it serves."""

    def __init__(
        self, program: BoundProgram, device: Device, rounds: int, levels: Sequence[tuple[int, _Replayed]]
    ) -> None:
        self._program, self._device = program, device
        self._rounds, self._levels = rounds, levels

    def run(self) -> None:
        """Run all rounds; the times of a part are taken before it runs again."""
        for number in range(self._rounds):
            self._program.set_round(number)
            due = [level for serves, level in self._levels if number % serves == 0]
            for level in due:
                level.run()
            self._device.synchronize()
            for level in due:
                level.add_times()

    def add_times(self) -> None:
        """They are added already."""


class _TimedCalls:
    """Calls with a mark before the first and after each; `seconds` has an entry for each."""

    def __init__(
        self, instructions: Sequence[BoundInstruction], device: Device, timings: Timings, seconds: list[float]
    ) -> None:
        self._device = device
        self._timings, self._seconds = timings, seconds
        self._bound = instructions
        self._calls = [device.named(bound.name, bound.call) for bound in instructions]
        self._marks: Sequence[Mark] = device.marks(len(instructions) + 1)

    def run(self) -> None:
        """Run the calls in order."""
        mark, marks = self._device.mark, self._marks
        mark(marks[0])
        for call, after in zip(self._calls, marks[1:], strict=True):
            call()
            mark(after)

    def add_times(self) -> None:
        """Add the time of each call of the last run, which is done."""
        timings, seconds = self._timings, self._seconds
        for number, (bound, marks) in enumerate(zip(self._bound, pairwise(self._marks), strict=True)):
            time_s = self._device.elapsed_s(*marks)
            seconds[number] += time_s
            if bound.overlaps:
                timings.waited_s += time_s
            if bound.exchange_s is not None:
                timings.overlapped_s += bound.exchange_s()


_Replayed = _TimedCalls | _EarlySum


Bind = Callable[[Schedule, Device, Communicator, Sequence[NDArray[Any]] | None], BoundProgram]
"""Binds a schedule to this rank, as `bind.bind` does."""

Progress = Callable[..., None]
"""Called with the slices that this rank's group has done and has in all, first before any is computed, a line
of text, and `share=`, the work done as a share of all; with 0 and 0 for a line of another kind."""


@dataclass(frozen=True)
class ContractionRun:
    """What to run: slices first .. stop-1, with checkpoints in a folder (None: without).

    `values` is the identity of the tensors' values, which belongs to that of a checkpoint. `engine` names
    what carries out the contractions. With `compress_checkpoints` they are compressed, without loss. An
    `algebra` is what the device adds and multiplies with.
    """

    schedule: Schedule
    slices: tuple[int, int]
    checkpoint_folder: Path | None
    resume: bool
    values: str = ""
    engine: str = "native"
    compress_checkpoints: bool = False
    algebra: Algebra | None = None


@dataclass
class RunOutcome:
    """What one rank did. On the ranks of group 0 the program's result is the sum over all slices."""

    program: BoundProgram
    division: Division
    share: Share
    group: Communicator
    timings: Timings
    resumed_slices: int = 0
    bind_s: float = 0.0
    run_s: float = 0.0
    run_j: float | None = None
    """What the rank's GPU took meanwhile."""
    checkpoint_s: float = 0.0
    sum_groups_s: float = 0.0
    sent_bytes: int = 0
    direct_bytes: int = 0
    checkpoint: RunCheckpoint | None = None


@np.errstate(invalid="ignore")  # As `CompiledProgram.run`: not a word on the values.
def run_rank(
    job: ContractionRun, tensors: Sequence[NDArray[Any]], world: Communicator, device: Device,
    progress: Progress | None = None, bind_program: Bind = bind, meter: EnergyMeter | None = None,
) -> RunOutcome:  # fmt: skip
    """Run this rank's share of a job; collective over the world. `bind_program` is the engine's, and `meter`
    that of the rank's GPU."""
    schedule = job.schedule
    start = perf_counter()
    say = progress or (lambda done, n_slices, text, share=None: None)
    # docs/explanation/architecture.md#from-schedule-to-result
    share = share_of(schedule, world.size, world.rank, *job.slices)
    group = CountedCommunicator(world.split(share.group, share.rank_in_group))
    # Invariant: rank r of `across` is group r, and all its ranks hold the same shard of the result: partial
    # sums are added shard by shard, without an exchange within groups.
    across = world.split(share.rank_in_group, share.group)
    checkpoint, division = _division(job, share, world, group)
    # A checkpoint may have been written with other groups: what is left is then divided anew.
    share = replace(share, slices=division.slices_of(share.group))
    if division.number:
        groups = " to ".join(map(str, division.groups))
        say(
            0,
            0,
            f"partial sums divided again, from {groups} groups: equal up to rounding, but not bit for bit",
        )
    program = bind_program(schedule, device, group, tensors)
    sum_groups = bind_sum_groups(program, device, across, active_groups(division.left.count, share.n_groups))
    # No device waits for a rank while another still loads kernels.
    world.barrier()
    group.connect()
    across.connect()
    device.synchronize()
    outcome = RunOutcome(program, division, share, group, new_timings(program), checkpoint=checkpoint)
    done, partial = 0, None
    if checkpoint is not None:
        done, partial = checkpoint.restore()
        for note in sorted({*chain(*world.gather_objects(checkpoint.notes))}):
            say(0, 0, note)
    outcome.resumed_slices = done
    bound, gpu_j = perf_counter(), None if meter is None else meter.read().gpu_j
    outcome.bind_s = bound - start
    work = _Work(schedule, share.n_slices, done)
    if share.n_slices:
        say(done, share.n_slices, f"slice {done} of {share.n_slices}", share=work.share(done))
    # What is done once is done again after a restart: a checkpoint has the partial sum and no invariants.
    if done < share.n_slices:
        run_once(program, device, outcome.timings)
    elif not share.n_slices:
        device.zero(program.result)
    # Behind `run_once`, which clears the result.
    if partial is not None:
        device.from_host(program.result, partial)
    with keeping() if checkpoint is not None else nullcontext():
        _run_slices(outcome, device, work, say)
    summed = perf_counter()
    outcome.run_s = summed - bound
    if meter is not None and gpu_j is not None and (total_j := meter.read().gpu_j) is not None:
        outcome.run_j = total_j - gpu_j
    sum_groups()
    outcome.sum_groups_s = perf_counter() - summed
    outcome.sent_bytes = group.sent_bytes
    outcome.direct_bytes = group.direct_bytes
    outcome.checkpoint_s = 0.0 if checkpoint is None else checkpoint.total_s
    return outcome


def _division(
    job: ContractionRun, share: Share, world: Communicator, group: Communicator
) -> tuple[RunCheckpoint | None, Division]:
    """The checkpoint of the run, if it keeps one, and the division of the slices that it computes."""
    schedule = job.schedule
    identity = RunIdentity(schedule.identity, job.slices, schedule.dtype, job.values)
    if job.checkpoint_folder is None:
        return None, first_division(identity, share.n_groups)
    result, digits = schedule.buffers[schedule.result], rank_digits(share.rank_in_group, schedule.grid)
    shape = box_shape(box(result.modes, result.layout, schedule.extents, digits, schedule.grid))
    settings = CheckpointSettings(
        job.checkpoint_folder, identity, prod(shape), job.compress_checkpoints, job.algebra
    )
    checkpoint = RunCheckpoint(settings, world, group)
    return checkpoint, checkpoint.open(job.resume)


class _Work:
    """The predicted work of a group's slices, of which `first` were done before this run."""

    def __init__(self, schedule: Schedule, n_slices: int, first: int) -> None:
        self.n_slices, self.first = n_slices, first
        self.once_s, self.parts_s = schedule.predicted.once_s, schedule.seconds_by_serves()
        self.whole_s = self.once_s + self._slices_s(n_slices)

    def share(self, done: int) -> float:
        """The work that is done as a share of all, when `done` slices are."""
        if not self.whole_s:
            return done / self.n_slices
        left_s = self._slices_s(self.n_slices - self.first) - self._slices_s(done - self.first)
        # What is done once comes before the first slice of a run, also of one that was resumed.
        return 1 - (left_s + (self.once_s if done == self.first else 0)) / self.whole_s

    def _slices_s(self, count: int) -> float:
        """Predicted seconds of slices in a row; the first begins every outer part."""
        return sum(part_s * -(-count // serves) for serves, part_s in self.parts_s.items())


def _run_slices(outcome: RunOutcome, device: Device, work: _Work, progress: Progress) -> None:
    share, checkpoint = outcome.share, outcome.checkpoint
    n_slices, alone, done = share.n_slices, share.n_groups == 1, work.first
    if not outcome.program.body:
        if n_slices:
            progress(n_slices, n_slices, f"slice {n_slices} of {n_slices}", share=1.0)
        return

    def after_slice() -> None:
        nonlocal done
        done += 1
        # The result of a lone group is written right after its last slice.
        is_last = alone and done == n_slices
        stop = ""
        if checkpoint is not None and not is_last:
            is_due, stop = checkpoint.due()
            if is_due:
                checkpoint.write(done, device.to_host(outcome.program.result))
        if stop:
            raise StoppedRunError(stop)
        progress(done, n_slices, f"slice {done} of {n_slices}", share=work.share(done))

    run_slices(outcome.program, device, outcome.timings, share.slices.part(done, n_slices), after_slice)

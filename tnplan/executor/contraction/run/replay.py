"""The replay loop: runs a bound program, once and then slice by slice, and times every instruction.

Knows callables and marks; never what an instruction does. Nothing waits for the device inside a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from time import perf_counter

from tnplan.executor.contraction.bind.program import BoundInstruction, BoundProgram
from tnplan.executor.device.protocols.device import Device, Mark


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

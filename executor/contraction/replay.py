"""The replay loop: runs a bound program, once and then slice by slice, and times every instruction.

Knows callables and clocks; never what an instruction does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from executor.contraction.bind import Bound, Program
from executor.device.device import Device


@dataclass
class Timings:
    """Measured seconds: of every instruction (summed over slices), and of every slice by its number."""

    once_s: list[float]
    body_s: list[float]
    slice_s: dict[int, float] = field(default_factory=dict)

    def by_kind(self, program: Program) -> dict[str, float]:
        """Seconds by opcode."""
        totals: dict[str, float] = {}
        for part, seconds in ((program.once, self.once_s), (program.body, self.body_s)):
            for bound, time_s in zip(part, seconds, strict=True):
                totals[bound.op] = totals.get(bound.op, 0.0) + time_s
        return totals

    def by_step(self, program: Program) -> list[float]:
        """Seconds by step of the schedule."""
        totals = [0.0] * len(program.schedule.steps)
        for part, seconds in ((program.once, self.once_s), (program.body, self.body_s)):
            for bound, time_s in zip(part, seconds, strict=True):
                if bound.step is not None:
                    totals[bound.step] += time_s
        return totals


def new_timings(program: Program) -> Timings:
    """Timings of a program that has not run."""
    return Timings([0.0] * len(program.once), [0.0] * len(program.body))


def run_once(program: Program, device: Device, timings: Timings) -> None:
    """Run what comes before the first slice; the result is zero afterwards where slices add to it."""
    run_timed(program.once, timings.once_s)
    if program.body:
        device.zero(program.result)
    device.synchronize()


def run_slices(
    program: Program, device: Device, timings: Timings, slices: Iterable[int], after_slice: Callable[[], None]
) -> None:
    """Run the body for each of `slices`; `after_slice` is called when one is done."""
    for number in slices:
        start = perf_counter()
        program.set_slice(number)
        run_timed(program.body, timings.body_s)
        device.synchronize()
        timings.slice_s[number] = perf_counter() - start
        after_slice()


def run_timed(part: Sequence[Bound], seconds: list[float]) -> None:
    """Run the calls in order, adding the time of each to its entry."""
    last = perf_counter()
    for place, bound in enumerate(part):
        bound.call()
        now = perf_counter()
        seconds[place] += now - last
        last = now

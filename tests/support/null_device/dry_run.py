"""A schedule replayed without arrays, for one rank of a group of any size: what moves and what it costs."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.null_device.device import Counts, NullCommunicator, NullDevice
from tnplan.executor.contraction.bind.binder import bind
from tnplan.executor.contraction.run.rank_run import new_timings, run_once, run_slices
from tnplan.planner.schedule.schedule import Schedule

ENDLESS = ("zuchongzhi_n83_m32_b44_schedule_p4096",)
"""Paths of the project of which a slice repeats so many steps, by early sums, that no dry run ends."""


def dry_run(schedule: Schedule, rank: int, slices: Iterable[int] = (0,)) -> tuple[Counts, int]:
    """What `rank` counts over the slices, and its peak bytes. Raises ValueError on a broken schedule."""
    counts = Counts()
    device = NullDevice(counts)
    program = bind(schedule, device, NullCommunicator(rank, schedule.grid, counts), None)
    timings = new_timings(program)
    run_once(program, device, timings)
    run_slices(program, device, timings, slices, lambda: None)
    return counts, device.peak_bytes

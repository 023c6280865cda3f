"""What a group of ranks may take, as far as one rank tells: an estimate by which `plan` leaves sizes out.

Smaller shards may allow longer chains, so that a group may be faster. Plans nothing itself.
"""

from __future__ import annotations

from tnplan.planner.passes.lowering.lower import LoweredProgram
from tnplan.planner.passes.tree.loop_levels import LoopNest
from tnplan.planner.schedule.schedule import Contract, Fused


def seconds_alone(program: LoweredProgram, loop_nest: LoopNest, launch_s: float) -> tuple[float, float]:
    """Seconds of one rank without launches: of all that is done once, and of one slice in the mean."""
    times_s = {True: 0.0, False: 0.0}
    for step in program.steps:
        times_s[step.once] += step.predicted_s * (1.0 if step.once else step.often)
    often = zip(loop_nest.repeats, (1, *loop_nest.serves[1:]), program.segments, strict=True)
    for level, (repeats, serves, segment) in enumerate(often):
        launches = sum(isinstance(instruction, Contract | Fused) for instruction in segment)
        times_s[level == 0] -= launches * launch_s * repeats / serves
    return times_s[True], times_s[False]


def divided_s(alone_s: tuple[float, float], loop_nest: LoopNest, devices: int, ranks: int) -> float:
    """Seconds of all slices on `devices` devices, were the work of one divided evenly by `ranks`."""
    once_s, slice_s = alone_s
    n_slices, groups = loop_nest.n_slices, devices // ranks
    # Without an early sum there may be more slices, which groups share more evenly.
    rounds = n_slices / groups if loop_nest.summed else -(-n_slices // groups)
    return (once_s + rounds * slice_s) / ranks

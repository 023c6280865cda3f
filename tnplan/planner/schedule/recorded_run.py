"""Runs that one rank records as one graph and replays: which these are, and the seconds that they take.

docs/explanation/cost-model.md#recorded-runs has the formula.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log

from tnplan.common.files import converted
from tnplan.planner.hardware.cost import interpolate
from tnplan.planner.hardware.profile import NUMBERS, RecordedRates, SmallProductTimes
from tnplan.planner.schedule.schedule import (
    Contract,
    Free,
    Fused,
    GradientSchedule,
    Instruction,
    LoopLevel,
    Schedule,
)

RECORDED_CALLS = 20_000
"""The most calls of instructions in a run, those of all slices counted, that are recorded as one."""


def count_calls(schedule: Schedule, n_slices: int) -> int:
    """The calls of instructions of one rank in a run of so many slices from the first."""
    return sum(runs * len(calls) for runs, calls in _runs(schedule, n_slices))


def recorded_s(schedule: Schedule) -> float:
    """Predicted seconds of all slices on one group, in a run that is like the one before it.

    Those of single launches where such a run is not recorded, for gradients, and without measured rates.
    """
    alone_s, n_slices = schedule.projected_s(1), schedule.n_slices
    document, launch_s = schedule.profile.get("recorded"), float(schedule.profile["launch_s"])
    if document is None or schedule.ranks_per_group > 1 or isinstance(schedule, GradientSchedule):
        return alone_s
    if count_calls(schedule, n_slices) > RECORDED_CALLS:
        return alone_s
    times = _CallTimes(schedule, converted(document, RecordedRates))
    changed_s = sum(runs * sum(map(times.change_s, calls)) for runs, calls in _runs(schedule, n_slices))
    # Inputs are copied before the graph, by a launch of its own.
    return alone_s + changed_s + launch_s + times.rates.launch_s


def calls_s(schedule: Schedule, calls: int) -> float:
    """Predicted seconds of so many runs with new values, the first of which is not recorded."""
    return schedule.projected_s(1) + (calls - 1) * recorded_s(schedule)


def _runs(schedule: Schedule, n_slices: int) -> Iterator[tuple[int, list[Instruction]]]:
    """How often each part is done in a run of so many slices, and its calls."""
    once, *others = schedule.parts
    after = schedule.after if isinstance(schedule, GradientSchedule) else ()
    yield 1, _calls(once)
    for level in (*others, *after):
        yield -(-n_slices // schedule.serves(level.depth)) * schedule.repeats(level.inner), _calls(level)


def _calls(level: LoopLevel) -> list[Instruction]:
    return [item for item in level.instructions if not isinstance(item, Free)]


class _CallTimes:
    """What calls of a schedule take in a recorded run beyond what its annotations say."""

    def __init__(self, schedule: Schedule, rates: RecordedRates) -> None:
        self._schedule, self.rates = schedule, rates
        self._launch_s = float(schedule.profile["launch_s"])
        self._products = rates.products.get(schedule.algebra or NUMBERS, {}).get(schedule.dtype)

    def change_s(self, call: Instruction) -> float:
        """Seconds of a call less those of its annotations."""
        copy_s = self.rates.copy_s
        match call:
            case Contract():
                return self._product_s(call)
            case Fused():
                # A closing chain begins with zeros in its result.
                return (call.parts + (call.closing is not None)) * copy_s - self._launch_s
            case _:
                return copy_s

    def _product_s(self, call: Contract) -> float:
        step, copy_s = self._schedule.steps[call.step], self.rates.copy_s
        work_s = step.contract_s + step.permute_s - self._launch_s
        least_s = copy_s
        if self._products is not None:
            least_s = _least_s(self._products, step.k, step.batch * step.m * step.n)
        # Over an algebra, another order than the product's takes a second call.
        ordered_s = copy_s if self._schedule.algebra is not None and call.workspace is not None else 0.0
        return max(copy_s + work_s, least_s) + ordered_s - work_s - self._launch_s


def _least_s(times: SmallProductTimes, k: int, results: int) -> float:
    """What no product with so many terms and results undercuts: one of the nearest side that is measured."""
    nearest = min(range(len(times.sides)), key=lambda i: abs(2 * log(times.sides[i]) - log(results)))
    return interpolate(k, times.k, times.time_s[nearest])

"""A bound schedule goes with its last reference: the next run needs its arena, perhaps most of a GPU."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from tests.support.contraction.compression import EXCHANGE, plan_exchanges
from tests.support.contraction.fused import planned
from tests.support.contraction.overlap import hiding_profile, in_parts, swapping_path
from tests.support.contraction.overlap import planned as planned_hiding
from tests.support.contraction.schedules import closing, early_sums_schedule, meeting_path
from tests.support.null_device.dry_run import dry_run
from tnplan.executor.contraction.bind.program import BoundProgram
from tnplan.planner.schedule.schedule import Schedule


def with_a_chain_that_closes() -> Schedule:
    schedule = planned(meeting_path(0))
    assert closing(schedule)
    return schedule


def with_exchanges_in_parts() -> Schedule:
    schedules = (planned_hiding(swapping_path(seed), 4, hiding_profile(1 << 13)) for seed in range(60))
    return next(schedule for schedule in schedules if list(in_parts(schedule)))


def with_compressed_exchanges() -> Schedule:
    return plan_exchanges(2, EXCHANGE)


@pytest.mark.parametrize(
    "made",
    [early_sums_schedule, with_a_chain_that_closes, with_exchanges_in_parts, with_compressed_exchanges],
)
def test_it_is_freed_with_its_last_reference(made: Callable[[], Schedule]) -> None:
    schedule = made()
    gc.collect()
    gc.disable()
    try:
        of_others = programs()
        dry_run(schedule, 0)
        assert len(programs()) == len(of_others)
    finally:
        gc.enable()


def programs() -> list[BoundProgram]:
    """All that there are.

    The type is asked, not `isinstance`: that one looks through a weak proxy, and a proxy of another library
    whose object is gone raises ReferenceError.
    """
    return [item for item in gc.get_objects() if issubclass(type(item), BoundProgram)]

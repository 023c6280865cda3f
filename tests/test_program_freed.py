"""A bound schedule goes with its last reference: the next run needs its arena, perhaps most of a GPU."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
from compression_case import plan_exchanges
from fused_case import planned
from overlap_case import hiding_profile, in_parts, swapping_path
from overlap_case import planned as planned_hiding
from test_closing_chains import closing, meeting_path
from test_compression_plan import EXCHANGE
from test_early_sums import SCHEDULE

from executor.contraction.null_replay import null_replay
from executor.contraction.program import Program
from planner.schedule import Schedule


def with_early_sums() -> Schedule:
    return SCHEDULE


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
    [with_early_sums, with_a_chain_that_closes, with_exchanges_in_parts, with_compressed_exchanges],
)
def test_it_is_freed_with_its_last_reference(made: Callable[[], Schedule]) -> None:
    schedule = made()
    gc.collect()
    gc.disable()
    try:
        of_others = programs()
        null_replay(schedule, 0)
        assert len(programs()) == len(of_others)
    finally:
        gc.enable()


def programs() -> list[Program]:
    """All that there are."""
    return [item for item in gc.get_objects() if isinstance(item, Program)]

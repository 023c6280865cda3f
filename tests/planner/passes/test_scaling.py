"""Planning stays linear in the number of steps, counted in function calls."""

from __future__ import annotations

import cProfile
import pstats
import time
from math import inf

import pytest

from tests.support.effort import repeats
from tests.support.networks import window
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.passes.pipeline import plan

WIDTH = 30


def calls(steps: int, hardware: str) -> int:
    """Function calls to plan `steps` contractions of a 2^30-element tensor in a row over 8 ranks."""
    path = window(steps, WIDTH)
    profile = cProfile.Profile(time.perf_counter)
    profile.enable()
    plan(path, load_profile(hardware), devices=8, ranks_per_group=8, memory_bytes=inf)
    profile.disable()
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_ten_thousand_steps_cost_ten_times_a_thousand() -> None:
    assert calls(10_000, "gb200-nvl72") <= 11 * calls(1_000, "gb200-nvl72")


@pytest.mark.slow
@pytest.mark.parametrize("steps", (100, 300)[: repeats(1, 2)])
def test_steps_in_chains_too(steps: int) -> None:
    assert calls(10 * steps, "h200-nvlink") <= 11 * calls(steps, "h200-nvlink")


def test_masks_do_not_grow_with_the_network() -> None:
    from tnplan.planner.passes.tree.build import build

    for steps in (100, 10_000):
        assert len(build(window(steps, WIDTH)).slot_extents) == WIDTH + 1

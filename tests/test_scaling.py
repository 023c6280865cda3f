"""Planning stays linear in the number of steps, counted in function calls."""

from __future__ import annotations

import cProfile
import pstats
import time
from math import inf

from test_planner import window

from planner.hardware.profile import load_profile
from planner.passes.pipeline import plan

WIDTH = 30


def calls(steps: int) -> int:
    """Function calls to plan a chain of `steps` contractions of a 2^30-element tensor over 8 ranks."""
    path = window(steps, WIDTH)
    profile = cProfile.Profile(time.perf_counter)
    profile.enable()
    plan(path, load_profile("dgx-h100"), devices=8, ranks_per_group=8, memory_bytes=inf)
    profile.disable()
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def test_ten_thousand_steps_cost_ten_times_a_thousand() -> None:
    assert calls(10_000) <= 11 * calls(1_000)


def test_masks_do_not_grow_with_the_network() -> None:
    from planner.passes.tree import build

    for steps in (100, 10_000):
        assert len(build(window(steps, WIDTH)).slot_extents) == WIDTH + 1

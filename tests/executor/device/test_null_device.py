"""The null device and communicator: bytes by tier, operations, and a replay that no array could hold."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from tests.support.contraction.executor import lattice
from tests.support.null_device.device import Counts, NullCommunicator, NullDevice
from tests.support.null_device.dry_run import dry_run
from tests.support.null_device.view import NullView
from tnplan.planner.hardware.process_grid import Digit
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.passes.pipeline import plan


def test_bytes_go_to_the_slowest_tier_in_which_ranks_differ() -> None:
    counts = Counts()
    grid = (Digit(2, 1), Digit(3, 0))
    world = NullCommunicator(1, grid, counts)
    world.exchange(
        [(2, NullView(10, "complex64")), (4, NullView(5, "float64"))], [(5, NullView(1, "float32"))]
    )
    assert world.size == 6
    assert counts.sent_bytes == [80, 40]
    assert counts.received_bytes == [0, 4]
    assert counts.messages == 2


def test_views_stay_inside_the_arena() -> None:
    device = NullDevice(Counts())
    device.allocate(64)
    assert len(device.view(0, 16, "float32")[4:]) == 12
    with pytest.raises(ValueError, match="outside"):
        device.view(32, 5, "float64")


def test_a_huge_schedule_replays_without_arrays() -> None:
    path = replace(lattice(8, 10, 8, 0, "complex64"), name="huge")
    schedule = plan(path, load_profile("dgx-h100"), devices=1024, ranks_per_group=1024, memory_bytes=inf)
    assert schedule.predicted.peak_bytes > 1e6
    ranks = (0, 1, 511, 1023)
    results = [dry_run(schedule, rank, range(schedule.n_slices)) for rank in ranks]
    for counts, peak in results:
        assert peak <= schedule.predicted.peak_bytes
        assert counts.flops == pytest.approx(results[0][0].flops)
    assert np.isfinite(results[0][0].flops)

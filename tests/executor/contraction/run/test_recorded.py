"""Runs that are recorded as one call: those of few calls, counted over all slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from tests.support.contraction.schedules import early_sums_schedule
from tests.support.networks import eager_profile, random_path
from tests.support.null_device.device import Counts, NullCommunicator, NullDevice
from tnplan.executor.contraction.bind.binder import bind
from tnplan.executor.contraction.bind.program import BoundProgram
from tnplan.executor.contraction.run import compiled_program
from tnplan.executor.contraction.run.compiled_program import CompiledProgram
from tnplan.executor.device.protocols.device import Call, call_in_turn
from tnplan.planner.passes.pipeline import plan
from tnplan.planner.passes.reverse import reverse
from tnplan.planner.schedule.schedule import Schedule


class RecordingDevice(NullDevice):
    """It counts what it is asked to record."""

    recordings = 0

    def recorded(self, calls: Sequence[Call], waits: Sequence[Sequence[int]] | None = None) -> Call:
        self.recordings += 1
        return call_in_turn(calls)


def of_slices(differentiated: bool) -> Schedule:
    """A random network of several slices in a row that share steps."""
    path = random_path(20, 3000)
    found = plan(path, eager_profile(), devices=1, memory_bytes=inf, threshold_bytes=1, goes_back=True)
    assert found.outer
    return reverse(found, range(len(path.network.inputs))) if differentiated else found


@pytest.mark.parametrize("made", [early_sums_schedule, lambda: of_slices(False), lambda: of_slices(True)])
def test_runs_of_as_many_calls_as_are_allowed_are_recorded(
    made: Callable[[], Schedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule, called = made(), 0

    def counted(call: Call) -> Call:
        def run() -> None:
            nonlocal called
            called += 1
            call()

        return run

    def bind_counted(*given: Any) -> BoundProgram:
        program = bind(*given)
        for part in (*program.parts, *program.after):
            part[:] = [replace(one, call=counted(one.call)) for one in part]
        return program

    def recordings(most: int) -> int:
        counts = Counts()
        device = RecordingDevice(counts)
        monkeypatch.setattr(compiled_program, "RECORDED_CALLS", most)
        program = CompiledProgram(schedule, device, NullCommunicator(0, schedule.grid, counts))
        for _ in range(3):
            program.run()
        return device.recordings

    monkeypatch.setattr(compiled_program, "bind", bind_counted)
    assert recordings(0) == 0
    a_run, remainder = divmod(called, 3)
    assert remainder == 0
    assert a_run > len(schedule.instructions) / 2
    assert recordings(a_run) == 1
    assert recordings(a_run - 1) == 0

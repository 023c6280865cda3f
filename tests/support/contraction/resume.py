"""Runs that are interrupted and go on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tnplan.calls.execute import execute
from tnplan.jobs.progress import Progress
from tnplan.jobs.schedules import ExecutionResult
from tnplan.planner.schedule.schedule import Schedule


class InterruptedRunError(Exception):
    """Stands for whatever ends a run."""


def interrupted_and_resumed(
    schedule: Schedule, arrays: list[np.ndarray], output: Path, after: int
) -> ExecutionResult:  # fmt: skip
    """A run that ends after so many slices, and the one that goes on from there."""

    def progress(at: Progress) -> None:
        if at.done == after:
            raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        execute(schedule, arrays, output=output, progress=progress, threads=1)
    return execute(schedule, arrays, output=output, resume=True, threads=1)

"""The time left of slices, by a clock that advances by the predicted seconds of what is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from tests.support.contraction.executor import lattice, no_early_sums, random_arrays
from tests.support.contraction.resume import InterruptedRunError
from tnplan.calls.execute import execute
from tnplan.executor.contraction.bind.program import BoundProgram
from tnplan.executor.contraction.run import checkpoint as checkpoints
from tnplan.executor.contraction.run import rank_run
from tnplan.jobs.progress import Progress, TimeLeft
from tnplan.planner.hardware.profile import load_profile
from tnplan.planner.passes.pipeline import plan


@pytest.mark.parametrize("first", [0, 5])
def test_work_is_that_of_outer_parts_too(first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done once, and what some slices in a row share, comes before slices; after a restart again."""
    now, shown = 0.0, list[tuple[float, float]]()
    path = lattice(4, 5, 2, 5, "complex64", 0)
    with no_early_sums():
        schedule = plan(path, load_profile("cpu"), devices=1, memory_bytes=inf)
    arrays, parts_s = random_arrays(path, 1), schedule.seconds_by_serves()
    assert [*parts_s] == [2, 1]
    once_s = sum(parts_s.values())
    schedule = replace(schedule, predicted=replace(schedule.predicted, once_s=once_s))
    once, slices = rank_run.run_once, rank_run.run_slices

    def counted_once(*values: Any) -> None:
        nonlocal now
        now += once_s
        once(*values)

    def counted_slices(
        program: BoundProgram, device: Any, timings: Any, numbers: Iterable[int], after: Callable[[], None]
    ) -> None:
        own = iter(numbers := [*numbers])

        def counted() -> None:
            nonlocal now
            number = next(own)
            begins = {serves for serves in parts_s if number in (numbers[0], number // serves * serves)}
            now += sum(parts_s[serves] for serves in begins)
            after()

        slices(program, device, timings, numbers, counted)

    def listen(at: Progress) -> None:
        seconds = left.after(at)
        if seconds is not None:
            shown.append((now, seconds))

    def stop(at: Progress) -> None:
        if at.done == first:
            raise InterruptedRunError

    output = tmp_path / "result.npy"
    monkeypatch.setattr(checkpoints, "INTERVAL", 0)
    options: dict[str, Any] = {"device": "cpu", "threads": 1, "output": output}
    if first:
        with pytest.raises(InterruptedRunError):
            execute(schedule, arrays, progress=stop, **options)
    monkeypatch.setattr(rank_run, "run_once", counted_once)
    monkeypatch.setattr(rank_run, "run_slices", counted_slices)
    left = TimeLeft(lambda: now)
    execute(schedule, arrays, progress=listen, resume=bool(first), **options)
    assert len(shown) >= schedule.n_slices - first
    # Slices that go on from a checkpoint begin within a block of those that share a part.
    factor = 2 if first else 1 + 1e-9
    for at, seconds in shown[:-1]:
        assert (now - at) / factor <= seconds <= factor * (now - at)
    assert shown[-1] == (now, pytest.approx(0, abs=1e-9 * now))

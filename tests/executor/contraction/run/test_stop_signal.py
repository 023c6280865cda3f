"""A run that a signal asks to stop keeps what it has, and goes on with the bits of a whole one."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

from tests.support.contraction.schedules import planned, sliced_lattice
from tests.support.networks import random_arrays
from tests.support.stop import ask_to_stop
from tnplan.calls.execute import execute
from tnplan.cli.main import run
from tnplan.executor.device.protocols.stop_signal import StoppedRunError
from tnplan.jobs.progress import Progress
from tnplan.planner.networks.tensors import save_tensors
from tnplan.planner.schedule.file import save_schedule


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_stopped_run_goes_on_equal(tmp_path: Path, number: signal.Signals, ranks: int) -> None:
    path = sliced_lattice(2, n_sliced=7)
    schedule, arrays = planned(path, 2), random_arrays(path, 1)
    whole = execute(schedule, arrays, device="cpu", threads=1, ranks=ranks).array
    output = tmp_path / "r.npy"
    before = signal.getsignal(number)

    def progress(at: Progress) -> None:
        if at.done == 3:
            ask_to_stop(number)

    with pytest.raises(StoppedRunError, match=f"stopped for {number.name}, with a checkpoint"):
        execute(schedule, arrays, device="cpu", threads=1, ranks=ranks, output=output, progress=progress)
    assert signal.getsignal(number) is before
    resumed = execute(schedule, arrays, device="cpu", threads=1, ranks=ranks, output=output, resume=True)
    # Of two groups the one that lags behind has kept fewer slices; a group alone has kept all that it said.
    assert resumed.report["slices"]["resumed"] >= (3 if ranks == schedule.ranks_per_group else 1)
    assert whole is not None
    assert resumed.array is not None
    assert resumed.array.tobytes() == whole.tobytes()


def test_the_command_ends_with_a_status_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sliced_lattice(2, n_sliced=7)
    save_schedule(planned(path), tmp_path / "s.json")
    save_tensors(random_arrays(path, 1), tmp_path / "t.npz")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tnplan.executor.contraction.run.checkpoint.asked", lambda: "SIGUSR1")
    line = "execute s.json --tensors t.npz --device cpu --threads 1 -o r.npy"
    assert run(line.split()) == 143
    assert "tnplan: error: stopped for SIGUSR1" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert run(f"{line} --resume".split()) == 0
    assert np.isfinite(np.load("r.npy")).all()

"""A solve that a signal asks to stop keeps its vectors after the step, and goes on to the same energies."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.engines.sbd import fcidump_text, lines_of, random_integrals, some_strings
from tests.support.slow import slow_unless
from tests.support.stop import ask_to_stop
from tnplan.cli.main import run
from tnplan.executor.device.protocols.stop_signal import StoppedRunError
from tnplan.executor.sbd.solver.davidson import Criteria
from tnplan.jobs.progress import Progress

N = 6
INTEGRALS = random_integrals(N, 3, 3, 5)
STRINGS = some_strings(N, 3, 14, 1)


@pytest.fixture(autouse=True)
def few_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.DETERMINANTS", 8)
    monkeypatch.setattr("tnplan.executor.sbd.solver.initial_guess.WHOLE", 0)


@pytest.mark.parametrize(
    ("number", "ranks", "precision"),
    slow_unless(
        lambda *places: sum(places) % 2 == 0,
        [signal.SIGTERM, signal.SIGUSR1], [1, 3], ["fp64", "mixed"],
    ),
)
def test_a_stopped_solve_goes_on(
    tmp_path: Path, number: signal.Signals, ranks: int, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the signal makes it write.
    monkeypatch.setattr("tnplan.executor.sbd.solver.solve.SolveCheckpoint.is_due", lambda _: False)
    options: dict[str, Any] = {
        "device": "cpu", "threads": 1, "ranks": ranks, "precision": precision, "output": tmp_path / "r.npz",
        "criteria": Criteria(residual=1e-8),
    }  # fmt: skip
    whole = tnplan.diagonalize(INTEGRALS, STRINGS, **{**options, "output": None})
    before, energies = signal.getsignal(number), []

    def progress(at: Progress) -> None:
        if at.detail is not None:
            energies.append(at.detail.energies[0])
            if len(energies) == 3:
                ask_to_stop(number)

    with pytest.raises(StoppedRunError, match=f"stopped for {number.name}, with a checkpoint; continue"):
        tnplan.diagonalize(INTEGRALS, STRINGS, **options, progress=progress)
    assert signal.getsignal(number) is before
    assert [path.name for path in tmp_path.iterdir()] == ["r.npz.ckpt"]
    # A rank that stops first may end rank 0 before it speaks of the last step.
    n_steps = len(energies)
    assert n_steps in (3, 4)
    resumed = tnplan.diagonalize(INTEGRALS, STRINGS, **options, resume=True, progress=progress)
    assert energies[n_steps] < energies[2] + (1e-5 if precision == "mixed" else 1e-10) < energies[0] - 1e-2
    np.testing.assert_allclose(resumed.energies, whole.energies, atol=1e-10)
    assert not (tmp_path / "r.npz.ckpt").exists()


def test_the_command_ends_with_a_status_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("h.fcidump").write_text(fcidump_text(INTEGRALS))
    Path("a.txt").write_text(lines_of(STRINGS, N))
    line = "sbd h.fcidump --alpha a.txt --device cpu --threads 1 -o r.npz"
    with monkeypatch.context() as patch:
        patch.setattr("tnplan.executor.sbd.solver.solve.asked", lambda: "SIGUSR1")
        assert run(line.split()) == 143
    assert "tnplan: error: stopped for SIGUSR1" in capsys.readouterr().err
    assert not Path("r.npz").exists()
    assert run(f"{line} --resume".split()) == 0
    assert Path("r.npz").exists()

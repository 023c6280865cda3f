"""Compressed states that are interrupted between passes, and go on."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.engines.unseen_circuits import unseen_circuit
from tests.support.robustness.checkpoint_files import arrays_of, changed, document_of, parted
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.qsim import save_qsim
from tnplan.cli.main import run
from tnplan.executor.device.protocols.stop_signal import StoppedRunError
from tnplan.executor.statevector.cpu.packed_state import PackedState
from tnplan.jobs import checkpointed_state

CIRCUIT = unseen_circuit("random", 10, 51_000)
ASKED: dict[str, Any] = {
    "fidelity": 0.99, "mode": "gates", "shots": 50, "observable": "Z0 X3", "amplitudes": ["0" * 10],
    "seed": 7, "device": "cpu", "threads": 1,
}  # fmt: skip


class Passes:
    """How many passes are done; the one with the number `last` raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done, self.last = 0, -1
        original = PackedState.apply

        def apply(state: PackedState, prepared: Any) -> None:
            if self.done == self.last:
                raise RuntimeError("interrupted")
            self.done += 1
            original(state, prepared)

        monkeypatch.setattr(PackedState, "apply", apply)
        # A checkpoint after every pass.
        monkeypatch.setattr(checkpointed_state.StateCheckpoint, "LEAST_S", 0.0)
        monkeypatch.setattr(checkpointed_state.StateCheckpoint, "INTERVAL", 0)


def interrupted(
    passes: Passes, output: Path, after: int, circuit: GateSequence = CIRCUIT, **more: Any
) -> Path:  # fmt: skip
    """The checkpoint of a run that ends after so many passes."""
    passes.last = passes.done + after
    with pytest.raises(RuntimeError, match="interrupted"):
        tnplan.simulate(circuit, **{**ASKED, "checkpoint": True, **more}, output=output)
    passes.last = -1
    return Path(f"{output}.ckpt")


@pytest.mark.parametrize(("fidelity", "bits", "precision"), [(0.99, 8, "fp32"), (0.999999, 16, "fp64")])
def test_an_interrupted_run_has_the_result_of_a_whole_one(
    fidelity: float, bits: int, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, output = Passes(monkeypatch), tmp_path / "result.json"
    how = {**ASKED, "fidelity": fidelity, "precision": precision}
    whole = tnplan.simulate(CIRCUIT, **how)
    total = passes.done
    checkpoint = interrupted(passes, output, 5, **{k: how[k] for k in ("fidelity", "precision")})
    assert document_of(checkpoint)["passes"] == 5
    interrupted(passes, output, 9, **{k: how[k] for k in ("fidelity", "precision")}, resume=True)
    assert document_of(checkpoint)["passes"] == 14
    before = passes.done
    again = tnplan.simulate(CIRCUIT, **how, output=output, resume=True)
    assert passes.done - before == total - 14
    assert not checkpoint.exists()
    assert again.report["bits"] == bits
    assert again.answer.counts == whole.answer.counts
    assert again.answer.expectation == whole.answer.expectation
    assert (again.answer.amplitudes == whole.answer.amplitudes).all()
    for name in ("fidelity_bound", "fidelity_estimate", "passes", "norm"):
        assert again.report[name] == whole.report[name]


def test_other_and_damaged_checkpoints_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes, output = Passes(monkeypatch), tmp_path / "result.json"
    checkpoint = interrupted(passes, output, 5)
    content = checkpoint.read_bytes()
    how = {**ASKED, "output": output, "resume": True}
    with pytest.raises(tnplan.InputError, match="is the checkpoint of an interrupted simulation"):
        tnplan.simulate(CIRCUIT, **{**how, "resume": False, "checkpoint": True})
    other = unseen_circuit("random", 10, 51_001)
    for circuit, more in ((other, {}), (CIRCUIT, {"fidelity": 0.9999999}), (CIRCUIT, {"precision": "fp32"})):
        with pytest.raises(tnplan.InputError, match="belongs to another simulation"):
            tnplan.simulate(circuit, **{**how, **more})
    scales = arrays_of(parted(content)[0])[1]
    document = document_of(checkpoint)
    damages: list[dict[str, Any]] = [
        {"arrays": {0: np.zeros(4, np.int8)}}, {"arrays": {1: scales.astype(np.float64)}},
        {"arrays": {1: np.full_like(scales, np.nan)}}, {"document": document | {"passes": 0}},
        {"document": document | {"errors": {"total": 1.0, "wrong": 2.0}}}, {"document": {}},
        {"document": document | {"errors": document["errors"] | {"total": float("inf")}}},
        {"document": document | {"random": {"state": 5}}},
    ]  # fmt: skip
    for damage in damages:
        checkpoint.write_bytes(content)
        changed(checkpoint, **damage)
        with pytest.raises(tnplan.InputError, match="is damaged"):
            tnplan.simulate(CIRCUIT, **how)
    checkpoint.write_bytes(content[:-200] + bytes([content[-200] ^ 1]) + content[-199:])
    with pytest.raises(tnplan.InputError, match="is damaged"):
        tnplan.simulate(CIRCUIT, **how)
    checkpoint.write_bytes(content)
    tnplan.simulate(CIRCUIT, **how)


def test_going_on_takes_no_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of a file are read into those of the state."""
    passes, output = Passes(monkeypatch), tmp_path / "result.json"
    circuit = unseen_circuit("vqe", 20, 51_002)
    how: dict[str, Any] = {"mode": "compiled", "amplitudes": ["0" * 20, "1" * 20], "precision": "fp32"}
    whole = tnplan.simulate(circuit, **{**ASKED, **how})
    interrupted(passes, output, 1, circuit, **how)
    tracemalloc.start()
    done = tnplan.simulate(circuit, **{**ASKED, **how}, output=output, resume=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (done.answer.amplitudes == whole.answer.amplitudes).all()
    assert peak <= done.report["predicted_bytes"] + (5 << 20)  # pieces of the file, and tables of the plan


def test_a_signal_writes_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["", "", "SIGTERM"])
    monkeypatch.setattr(checkpointed_state, "asked", lambda: next(answers, ""))
    output = tmp_path / "result.json"
    with pytest.raises(StoppedRunError, match="stopped for SIGTERM, with a checkpoint"):
        tnplan.simulate(CIRCUIT, **ASKED, output=output, checkpoint=True)
    assert document_of(Path(f"{output}.ckpt"))["passes"] == 3
    done = tnplan.simulate(CIRCUIT, **ASKED, output=output, resume=True)
    assert done.answer.counts == tnplan.simulate(CIRCUIT, **ASKED).answer.counts


def test_what_keeps_no_checkpoint_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_qsim(unseen_circuit("qaoa", 10, 1), tmp_path / "qaoa.qsim")
    line = ["statevector", str(tmp_path / "qaoa.qsim"), "--amplitudes", "0" * 10]
    output = ["-o", str(tmp_path / "result.json")]
    for more, text in (
        ([*output, "--checkpoint"], "--checkpoint: is of a compressed state, and there is no --fidelity"),
        (["--fidelity", "0.9", "--resume"], "--resume: has no checkpoint"),
        ([*output, "--fidelity", "0.9", "--resume", "--device", "gpu"], "run only on a CPU"),
    ):
        assert run([*line, *more]) == 2
        assert text in capsys.readouterr().err
    assert run([*line, *output, "--fidelity", "0.9", "--resume"]) == 0
    assert not (tmp_path / "result.json.ckpt").exists()

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
from tnplan.jobs import compressed_state

CIRCUIT = unseen_circuit("random", 10, 51_000)
ASKED: dict[str, Any] = {
    "fidelity": 0.99, "mode": "gates", "shots": 50, "observable": "Z0 X3", "amplitudes": ["0" * 10],
    "seed": 7, "device": "cpu", "threads": 1,
}  # fmt: skip


class Passes:
    """How many passes rank `rank` has done; the one with the number `last` raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rank: int = 0) -> None:
        self.done, self.last = 0, -1
        original = PackedState.do

        def do(state: PackedState, prepared: Any) -> Any:
            if state.rank == rank:
                if self.done == self.last:
                    raise RuntimeError("interrupted")
                self.done += 1
            return original(state, prepared)

        monkeypatch.setattr(PackedState, "do", do)
        # A checkpoint after every pass.
        monkeypatch.setattr(compressed_state.StateCheckpoint, "LEAST_S", 0.0)
        monkeypatch.setattr(compressed_state.StateCheckpoint, "INTERVAL", 0)


def interrupted(
    passes: Passes, output: Path, after: int, circuit: GateSequence = CIRCUIT, **more: Any
) -> Path:  # fmt: skip
    """The checkpoint of a run that ends after so many passes."""
    passes.last = passes.done + after
    with pytest.raises(RuntimeError, match="interrupted"):
        tnplan.simulate(circuit, **{**ASKED, "checkpoint": True, **more}, output=output)
    passes.last = -1
    return Path(f"{output}.ckpt")


@pytest.mark.parametrize(
    ("fidelity", "bits", "precision", "n_ranks"),
    [(0.99, 8, "fp32", 1), (0.999999, 16, "fp64", 1), (0.99, 8, "fp32", 2), (0.999999, 16, "fp64", 4)],
)
def test_an_interrupted_run_has_the_result_of_a_whole_one(
    fidelity: float, bits: int, precision: str, n_ranks: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    # The last rank fails, while the others wait for it.
    passes, output = Passes(monkeypatch, n_ranks - 1), tmp_path / "result.json"
    monkeypatch.setattr(compressed_state, "PIECE_BYTES", 1000)
    strings = ["0" * 12, "1" * 12]
    more: dict[str, Any] = {
        "fidelity": fidelity, "precision": precision, "ranks": n_ranks, "amplitudes": strings
    }  # fmt: skip
    circuit, how = unseen_circuit("random", 12, 51_003), {**ASKED, **more}
    whole = tnplan.simulate(circuit, **how)
    total = passes.done
    assert (whole.report["exchanges"] > 0) == (n_ranks > 1)
    checkpoint = interrupted(passes, output, 5, circuit, **more)
    assert document_of(checkpoint)["steps"] >= 5  # exchanges count too
    interrupted(passes, output, 9, circuit, **more, resume=True)
    assert document_of(checkpoint)["steps"] >= 14
    before = passes.done
    again = tnplan.simulate(circuit, **how, output=output, resume=True)
    assert passes.done - before == total - 14
    assert not checkpoint.exists()
    assert again.report["bits"] == bits
    assert again.answer.counts == whole.answer.counts
    assert again.answer.expectation == whole.answer.expectation
    assert np.array_equal(again.answer.amplitudes, whole.answer.amplitudes)
    for name in ("fidelity_bound", "fidelity_estimate", "passes", "norm"):
        assert again.report[name] == whole.report[name]


def test_another_number_of_ranks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the file stays, from which the same number goes on."""
    passes, output = Passes(monkeypatch), tmp_path / "result.json"
    circuit = unseen_circuit("qaoa", 12, 51_004)
    asked: dict[str, Any] = {**ASKED, "amplitudes": [], "output": output, "resume": True}
    interrupted(passes, output, 5, circuit, amplitudes=[], ranks=2)
    for n_ranks in (1, 4):
        text = f"is of 2 ranks, and this simulation has {n_ranks}; resume with 2 ranks"
        with pytest.raises(tnplan.InputError, match=text):
            tnplan.simulate(circuit, **asked, ranks=n_ranks)
    done = tnplan.simulate(circuit, **asked, ranks=2)
    whole = tnplan.simulate(circuit, **{**ASKED, "amplitudes": []}, ranks=2)
    assert done.answer.counts == whole.answer.counts


def test_a_part_that_is_damaged_is_refused_on_all_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Scales of the last of two ranks."""
    passes, output = Passes(monkeypatch), tmp_path / "result.json"
    how: dict[str, Any] = {**ASKED, "amplitudes": [], "ranks": 2}
    circuit = unseen_circuit("vqe", 12, 51_005)
    checkpoint = interrupted(passes, output, 3, circuit, amplitudes=[], ranks=2)
    scales = arrays_of(parted(checkpoint.read_bytes())[0])[3]
    changed(checkpoint, arrays={3: np.full_like(scales, np.inf)})
    with pytest.raises(tnplan.InputError, match="is damaged"):
        tnplan.simulate(circuit, **how, output=output, resume=True)


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
    *others, part = document["ranks"]

    def with_last(more: dict[str, Any]) -> dict[str, Any]:
        return document | {"ranks": [*others, part | more]}

    damages: list[dict[str, Any]] = [
        {"arrays": {0: np.zeros(4, np.int8)}}, {"arrays": {1: scales.astype(np.float64)}},
        {"arrays": {1: np.full_like(scales, np.nan)}}, {"document": document | {"steps": 0}},
        {"document": with_last({"errors": {"total": 1.0, "wrong": 2.0}})}, {"document": {}},
        {"document": with_last({"errors": part["errors"] | {"total": float("inf")}})},
        {"document": with_last({"random": {"state": 5}})}, {"document": document | {"ranks": [part] * 5}},
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


@pytest.mark.parametrize("n_ranks", [1, 2])
def test_going_on_takes_no_more_memory(
    n_ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The numbers of a file are read into those of the state, and the other ranks' go there in pieces."""
    passes, output = Passes(monkeypatch), tmp_path / "result.json"
    monkeypatch.setattr(compressed_state, "PIECE_BYTES", 1 << 20)
    circuit = unseen_circuit("vqe", 20, 51_002)
    how: dict[str, Any] = {
        "mode": "compiled", "amplitudes": ["0" * 20, "1" * 20], "precision": "fp32", "ranks": n_ranks,
        "observable": "Z0 Z3",
    }  # fmt: skip
    whole = tnplan.simulate(circuit, **{**ASKED, **how})
    interrupted(passes, output, 1, circuit, **how)
    tracemalloc.start()
    done = tnplan.simulate(circuit, **{**ASKED, **how}, output=output, resume=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.array_equal(done.answer.amplitudes, whole.answer.amplitudes)
    # Pieces of the file, and tables of the plan.
    assert peak <= n_ranks * done.report["predicted_bytes"] + (5 << 20)


def test_a_signal_writes_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["", "", "SIGTERM"])
    monkeypatch.setattr(compressed_state, "asked", lambda: next(answers, ""))
    output = tmp_path / "result.json"
    with pytest.raises(StoppedRunError, match="stopped for SIGTERM, with a checkpoint"):
        tnplan.simulate(CIRCUIT, **ASKED, output=output, checkpoint=True)
    assert document_of(Path(f"{output}.ckpt"))["steps"] == 3
    done = tnplan.simulate(CIRCUIT, **ASKED, output=output, resume=True)
    assert done.answer.counts == tnplan.simulate(CIRCUIT, **ASKED).answer.counts


def test_what_keeps_no_checkpoint_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_qsim(unseen_circuit("qaoa", 10, 1), tmp_path / "qaoa.qsim")
    line = ["statevector", str(tmp_path / "qaoa.qsim"), "--amplitudes", "0" * 10]
    output = ["-o", str(tmp_path / "result.json")]
    for more, text in (
        ([*output, "--checkpoint"], "--checkpoint: is only for compressed states, and --fidelity is"),
        (["--fidelity", "0.9", "--resume"], "--resume: has no checkpoint"),
    ):
        assert run([*line, *more]) == 2
        assert text in capsys.readouterr().err
    assert run([*line, *output, "--fidelity", "0.9", "--resume"]) == 0
    assert not (tmp_path / "result.json.ckpt").exists()

"""Expectation values that are interrupted and resumed: what is done is kept and not done again."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import tnplan
from tests.support.circuits import random_circuit
from tests.support.robustness.checkpoint_files import changed, document_of
from tnplan.common.errors import InputError
from tnplan.executor.device.comm import heartbeat
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.jobs import job as job_driver
from tnplan.questions.engines import task_list

N = 6
WORDS = [f"Z{q}" for q in range(N)] + [f"X{q} Y{(q + 1) % N}" for q in range(N)]


class _InterruptedError(Exception):
    pass


@pytest.fixture(autouse=True)
def _write_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_list, "MEETING_S", 0.0)


def asked(output: Path, method: str, *, seed: int = 3, **options: Any) -> tnplan.CircuitAnswer:
    circuit = tnplan.Circuit(random_circuit(N, 40, seed))
    return circuit.expectation(WORDS, method=method, device="cpu", threads=1, output=output, **options)


def interrupted_after(tasks: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The checkpoint is written so many times, then the job breaks; the function restores it, and says how
    many tasks there are in the file."""
    write, count = task_list.TaskCheckpoint.write, 0

    def written(self: task_list.TaskCheckpoint, done: Any) -> None:
        nonlocal count
        write(self, done)
        count += 1
        if count == tasks:
            raise _InterruptedError

    monkeypatch.setattr(task_list.TaskCheckpoint, "write", written)
    return lambda: monkeypatch.setattr(task_list.TaskCheckpoint, "write", write) or count


@pytest.mark.parametrize("method", ["contraction", "statevector", "pauli"])
def test_a_resumed_question_goes_on_where_it_was(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, kept = tmp_path / "out.json", tmp_path / "out.json.ckpt"
    expected = asked(tmp_path / "whole.json", method).value
    restore = interrupted_after(3, monkeypatch)
    with pytest.raises(_InterruptedError):
        asked(output, method)
    restore()
    document = document_of(kept)
    assert len(document["tasks"]) == 3
    assert not output.exists()

    with pytest.raises(InputError, match="is the checkpoint of an interrupted job; continue it with"):
        asked(output, method)
    with pytest.raises(InputError, match="belongs to another job; resume with the circuit, "):
        asked(output, method, seed=4, resume=True)
    with pytest.raises(InputError, match="belongs to another job"):
        asked(output, method, precision="fp32", resume=True)

    marked = {**document, "tasks": {task: [7.0, *row[1:]] for task, row in document["tasks"].items()}}
    changed(kept, document=marked)  # a value that no propagation gives: it is taken as it is
    found = asked(output, method, resume=True).value
    assert not kept.exists()
    assert json.loads(output.read_text())["value"] == found.tolist()
    marked_values = [k for k in range(len(WORDS)) if abs(found[k] - expected[k]) > 1e-9]
    assert len(marked_values) == 3
    assert asked(output, method, resume=True).value == pytest.approx(expected, abs=1e-12)


def test_damaged_checkpoints_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, kept = tmp_path / "out.json", tmp_path / "out.json.ckpt"
    restore = interrupted_after(2, monkeypatch)
    with pytest.raises(_InterruptedError):
        asked(output, "contraction")
    restore()
    damaged = r"is damaged \(its parts do not fit each other\); delete the file"
    good = kept.read_bytes()
    changes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"document": {"tasks": [1, 2]}}, damaged), ({"document": {"tasks": {"a": [1.0]}}}, damaged),
        ({"document": {"tasks": {"0": "x"}}}, damaged),
        ({"format": "tnplan.answer"}, "is tnplan.answer 2, not tnplan.answer.checkpoint 2"),
        ({"version": 99}, "is tnplan.answer.checkpoint 99, not"),
    )  # fmt: skip
    for change, line in changes:
        kept.write_bytes(good)
        changed(kept, **change)
        with pytest.raises(InputError, match=line):
            asked(output, "contraction", resume=True)


def test_what_keeps_no_checkpoint_is_not_resumed(tmp_path: Path) -> None:
    circuit = tnplan.Circuit(random_circuit(3, 10, 1))
    options: Any = {"output": tmp_path / "o.json", "resume": True, "device": "cpu"}
    with pytest.raises(InputError, match="resume: is for expectation values without gradients"):
        circuit.sample(10, **options)
    with pytest.raises(InputError, match="resume: has no checkpoint; give the output"):
        circuit.expectation("Z0", resume=True)
    circuit.expectation(["Z0", "Z1"], output=tmp_path / "o.json", checkpoint=False, device="cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["o.json"]


SAMPLED = tnplan.MonteCarlo(2, 1)
FEW = tnplan.Truncation(max_terms=4)


@pytest.mark.parametrize(
    ("call", "can_resume"),
    [
        (lambda circuit, **job: circuit.expectation(["Z0", "Z1"], **job), True),
        (lambda circuit, **job: circuit.sample(10, **job), False),
        (lambda circuit, **job: tnplan.simulate(circuit, **job), False),
        (lambda circuit, **job: tnplan.propagate(circuit, "Z0", **job), False),
        (
            lambda circuit, **job: tnplan.propagate(
                circuit, "Z0", truncation=FEW, monte_carlo=SAMPLED, **job
            ), True,
        ),
    ],
)  # fmt: skip
def test_a_lost_rank_offers_to_resume_what_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Any, can_resume: bool
) -> None:
    taken = []

    def watched(world: Any, timeout_s: float, can_resume: bool) -> Any:
        taken.append(can_resume)
        return nullcontext()

    def as_under_mpirun(ranks: Communicator) -> None:
        monkeypatch.setattr(job_driver, "world_communicator", lambda *_: ranks)
        call(tnplan.Circuit(random_circuit(13, 10, 1)), output=tmp_path / "o.json", device="cpu")

    monkeypatch.setattr(heartbeat, "watched", watched)
    run_ranks(1, as_under_mpirun)
    assert taken == [can_resume]

"""Expectation values and traces by Monte Carlo propagation: their errors, and the same of `propagate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support import dense_answers as dense
from tests.support.bad_input import refused
from tests.support.circuits import unitary
from tests.support.input_states import MIXED, PURE, random_state
from tests.support.robustness.checkpoint_files import document_of
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import gate
from tnplan.cli.main import run
from tnplan.questions.engines import task_list

CPU: Any = {"device": "cpu", "threads": 1}
FEW = tnplan.Truncation(max_terms=24)


def turns(n_qubits: int, layers: int, seed: int) -> GateSequence:
    """Rotations by moderate angles between CZs: sums grow, and values stay far from 0."""
    random = np.random.default_rng(seed)
    gates = []
    for _ in range(layers):
        gates += [
            gate(name, (q,), [random.uniform(0.2, 0.6)]) for q in range(n_qubits) for name in ("rx", "rz")
        ]
        gates += [gate("cz", (q, q + 1)) for q in range(n_qubits - 1)]
    return GateSequence(n_qubits, tuple(gates))


@pytest.mark.parametrize("kind", [*PURE, *MIXED])
def test_estimates_are_those_of_propagate_and_near_the_exact_values(kind: str) -> None:
    off = []
    for seed in range(2):
        circuit, (state, start) = turns(4, 3, seed), random_state(kind, 4, seed)
        plan = tnplan.MonteCarlo(repetitions=16, seed=seed)
        sums = [dense.random_sum(4, 2, seed), dense.random_sum(4, 1, seed + 9)]
        found = tnplan.Circuit(circuit).expectation(
            sums, state=state, truncation=FEW, monte_carlo=plan, **CPU
        )
        matrix = unitary(circuit.gates, 4)
        rho = matrix @ start @ matrix.conj().T
        estimates, errors = found.details["estimates"], np.broadcast_to(found.error, 2)
        for value, error, one, told in zip(found.value, errors, sums, estimates, strict=True):
            same = tnplan.propagate(circuit, one, FEW, state=state, monte_carlo=plan, **CPU)
            assert same.estimate is not None
            assert (value, error) == (same.value, same.estimate.standard_error)
            assert told["values"] == same.estimate.values
            difference = value - np.trace(rho @ dense.matrix_of(one)).real
            if told["kind"] == "exact":
                assert abs(difference) < 1e-10
            else:
                off.append(difference / error)
        assert found.method == "pauli"
        assert (found.error_kind == "exact") == (not np.any(errors))
    assert len(off) > 1
    assert np.abs(off).max() < 6, "standard errors"
    assert 0.01 < np.median(np.abs(off)) < 2


def test_what_is_never_resampled_is_exact() -> None:
    asked = tnplan.Circuit(turns(3, 1, 1))
    plan: Any = {"truncation": tnplan.Truncation(max_terms=500), "monte_carlo": tnplan.MonteCarlo(4)}
    found = asked.expectation(["Z0", "X1 Y2"], state="+0r", **plan, **CPU)
    assert (found.error_kind, found.error) == ("exact", 0)
    expected = asked.expectation(["Z0", "X1 Y2"], state="+0r", method="pauli", **CPU).value
    np.testing.assert_allclose(found.value, expected, atol=1e-12)
    assert asked.expectation("Z0", **plan, **CPU).error_kind == "exact"


@pytest.mark.parametrize("by", ["magnitude", "square"])
def test_an_echo_is_the_overlap_of_propagate(by: str) -> None:
    forward = tnplan.Circuit(turns(5, 3, 2))
    kicked = forward.inverse().compose(GateSequence(5, (gate("rx", (2,), [0.4]),))).compose(forward)
    plan, limits = tnplan.MonteCarlo(16, 3, by), tnplan.Truncation(max_terms=40)
    found = kicked.trace("Z1", "Z1", truncation=limits, monte_carlo=plan, **CPU)
    same = tnplan.propagate(
        kicked.gate_sequence(), "Z1", limits, overlap="Z1", monte_carlo=plan, **CPU
    )  # fmt: skip
    assert same.estimate is not None
    assert (found.value, found.error) == (same.value, same.estimate.standard_error)
    assert found.error > 0
    assert found.details["estimates"][0]["kind"] == same.estimate.kind
    assert found.error_kind == ("biased" if by == "square" else "statistical")
    assert ("(biased)" in repr(found)) == (by == "square")


def test_ranks_and_a_resumed_job_give_the_same(tmp_path: Path) -> None:
    asked, sums = tnplan.Circuit(turns(4, 3, 1)), ["Z0", "Z1 Z2", "X3"]
    plan: Any = {"truncation": FEW, "monte_carlo": tnplan.MonteCarlo(8, 1), "device": "cpu"}
    found = asked.expectation(sums, **plan, threads=1)
    shared = asked.expectation(sums, **plan, threads=1, ranks=3)
    np.testing.assert_array_equal(shared.value, found.value)
    np.testing.assert_array_equal(shared.error, found.error)
    output = tmp_path / "values.json"
    asked.expectation(sums, **plan, output=output)
    document = json.loads(output.read_text())
    assert document["error"] == found.error.tolist()
    assert document["monte_carlo"] == {"repetitions": 8, "seed": 1, "by": "magnitude"}


def test_an_interrupted_job_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the sums that are done, and only with the same repetitions."""
    asked, sums = tnplan.Circuit(turns(4, 3, 1)), ["Z0", "Z1 Z2", "X3", "Y1"]
    output = tmp_path / "values.json"
    job: Any = {"truncation": FEW, "monte_carlo": tnplan.MonteCarlo(4, 1), "output": output, **CPU}
    expected = asked.expectation(sums, **{**job, "output": None})
    monkeypatch.setattr(task_list, "MEETING_S", 0.0)
    write = task_list.TaskCheckpoint.write

    def stopping(self: task_list.TaskCheckpoint, done: Any) -> None:
        write(self, done)
        if len(done) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(task_list.TaskCheckpoint, "write", stopping)
    with pytest.raises(KeyboardInterrupt):
        asked.expectation(sums, **job)
    monkeypatch.setattr(task_list.TaskCheckpoint, "write", write)
    assert len(document_of(tmp_path / "values.json.ckpt")["tasks"]) == 2
    for change in ({"monte_carlo": tnplan.MonteCarlo(8, 1)}, {"monte_carlo": None}, {"state": "0001"}):
        with pytest.raises(tnplan.InputError, match="belongs to another job; resume with the circuit, "):
            asked.expectation(sums, **{**job, **change}, method="pauli", resume=True)
    found = asked.expectation(sums, **job, resume=True)
    np.testing.assert_array_equal(found.value, expected.value)
    np.testing.assert_array_equal(found.error, expected.error)
    assert found.details["estimates"] == expected.details["estimates"]
    assert not (tmp_path / "values.json.ckpt").exists()


def test_an_estimate_knows_the_repetitions() -> None:
    asked = tnplan.Circuit(turns(8, 6, 1))

    def row(repetitions: int, most: int) -> Any:
        plan: Any = {
            "truncation": tnplan.Truncation(max_terms=most),
            "monte_carlo": tnplan.MonteCarlo(repetitions),
        }
        plan = asked.estimate(expectation="Z4", threads=1, search_time=0, **plan)
        assert plan.method == "pauli"
        (found,) = (one for one in plan.rows if one.cost is not None)
        assert found.error_kind == "statistical"
        return found.cost

    few, many = row(1000, 200), row(4000, 200)
    assert 2 < many.time_s / few.time_s < 8
    assert row(400, 200).memory_bytes < row(400, 400).memory_bytes


def test_the_command_has_the_words_of_pauli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    circuit = Path("c.qsim")
    circuit.write_text("2\n0 h 0\n1 cz 0 1\n2 rx 0 0.3\n2 rx 1 0.4\n3 cz 0 1\n4 ry 0 0.5\n")
    options = "--state +1 --max-terms 1 --repetitions 8 --seed 2 --device cpu --json"
    assert run(f"pauli {circuit} --observable Z0 --allow-empty {options}".split()) == 0
    first = json.loads(capsys.readouterr().out)
    assert run(f"expectation {circuit} --observable Z0 {options}".split()) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["value"] == [first["expectation"]]
    assert second["error"] == [first["estimate"]["standard_error"]]
    assert second["estimates"] == [first["estimate"]]
    line = f"expectation {circuit} --observable Z0"
    refused(capsys, f"{line} --repetitions 4", "--repetitions: need a limit of terms")
    refused(capsys, f"{line} --resample-by letters", "--resample-by: is given without --repetitions")
    refused(capsys, f"{line} --state 00 --stabilizers X0", "--stabilizers: are given together with --state")
    refused(capsys, f"{line} --stabilizers X0,Z0", "anticommutes with another")
    refused(capsys, f"{line} --state 0a", "'0a' is not a state; give one of 0 1 + - r l for each of 2 qubits")

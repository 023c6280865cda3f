"""Questions about small circuits: what is remembered between them never shows in an answer."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.effort import repeats
from tests.support.varied_circuits import NAMES, random_sums, random_varied_circuit, text_of
from tnplan.questions import compiled
from tnplan.questions.engines import statevector

CPU: Any = {"device": "cpu", "threads": 1}
JOB: Any = {**CPU, "memory": 1 << 30}
"""A limit of the memory makes a job of a question."""


def gradient_rows(answer: tnplan.CircuitAnswer) -> np.ndarray:
    """[observable, parameter]."""
    assert answer.gradient is not None
    return np.array(list(answer.gradient.values())).T


def test_changes_between_questions_show_in_the_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parameters, observables, options, threads, the environment and the circuit, in random order."""
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    random, circuits = np.random.default_rng(0), []
    for seed in range(2):
        path = tmp_path / f"{seed}.qasm"
        path.write_text(random_varied_circuit(4, 28, seed).text)
        circuits.append(tnplan.Circuit(path))
    states, all_names = (None, "+0-1", "rl01"), (NAMES, ("c", "a"), ("b",))
    wanted: np.ndarray | float
    for step in range(repeats(8, 40)):
        monkeypatch.setenv("OMP_NUM_THREADS", str(1 + step % 2))
        bound = circuits[step % 2].bind(dict(zip(NAMES, random.uniform(-3, 3, 3).tolist(), strict=True)))
        sums = [text_of(one) for one in random_sums(4, 2, step)]
        options: dict[str, Any] = {
            "state": states[random.integers(3)], "threads": int(random.integers(1, 3)), "device": "cpu",
            "precision": ("fp64", "fp64", "fp32")[random.integers(3)],
        }  # fmt: skip
        tolerance = 1e-12 if options["precision"] == "fp64" else 2e-5
        value = bound.expectation(sums, **options).value
        wanted = bound.expectation(sums, state=options["state"], method="contraction", **CPU).value
        np.testing.assert_allclose(value, wanted, rtol=0, atol=tolerance)
        names = all_names[random.integers(3)]
        answer = bound.expectation(sums, gradient=names, **options)
        reference = bound.expectation(sums, gradient=names, state=options["state"], method="pauli", **CPU)
        assert answer.gradient is not None
        assert [*answer.gradient] == [*names]
        np.testing.assert_allclose(answer.value, reference.value, rtol=0, atol=tolerance)
        np.testing.assert_allclose(
            gradient_rows(answer), gradient_rows(reference), rtol=0, atol=10 * tolerance
        )
        noisy = bound.expectation(sums, depolarizing=0.1, method="pauli", **CPU).value
        assert not np.allclose(noisy, reference.value, atol=1e-3)


@pytest.mark.parametrize("angle", ["{} * a - b / 3", "sin(b) * {} * a"])
def test_gradients_of_files_agree_with_differences_and_simulate(angle: str, tmp_path: Path) -> None:
    """Angles that are linear in the parameters, and those that are not."""
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    random, path = np.random.default_rng(1), tmp_path / "circuit.qasm"
    lines = ['OPENQASM 3.0;\ninclude "stdgates.inc";\ninput float a;\ninput float b;\nqubit[5] q;\nh q;']
    factors = random.uniform(-2, 2, 30).tolist()
    for k, factor in enumerate(factors):
        word = ("rx({}) q[{}];", "rz({}) q[{}];", "crz({}) q[{}], q[{}];", "rxx({}) q[{}], q[{}];")[k % 4]
        lines.append(word.format(angle.format(factor), *random.permutation(5).tolist()))
    path.write_text("\n".join(lines))
    circuit, sums = tnplan.Circuit(path), "X0 Y1 + 0.5*Z2 - 2*Y3 X4"

    def value(a: float, b: float) -> Any:
        return circuit.bind({"a": a, "b": b}).expectation(sums, **CPU).value

    for a, b in ((0.3, -1.2), (2.0, 0.9)):
        bound = circuit.bind({"a": a, "b": b})
        answer, by_job = (bound.expectation(sums, gradient=True, **options) for options in (CPU, JOB))
        row = [*(answer.gradient or {}).values()]
        assert answer.value == pytest.approx(by_job.value, abs=1e-13)
        assert row == pytest.approx([*(by_job.gradient or {}).values()], abs=1e-12)
        assert answer.details.keys() == by_job.details.keys()
        h = 1e-5
        differences = [
            (value(a + h, b) - value(a - h, b)) / (2 * h),
            (value(a, b + h) - value(a, b - h)) / (2 * h),
        ]
        assert row == pytest.approx(differences, abs=1e-8)
        report = tnplan.simulate(path, parameters={"a": a, "b": b}, observable=sums, gradient=True, **CPU)
        by_angles = np.array([one["derivative"] for one in report.report["gradient"]])
        by_a = np.array(factors) * (np.sin(b) if "sin" in angle else 1)
        assert row[0] == pytest.approx(float(by_a @ by_angles), abs=1e-10)


def test_a_file_is_read_once_for_gradients(tmp_path: Path) -> None:
    """What takes the gates as functions of the parameters goes with the circuit."""
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    path, before = tmp_path / "circuit.qasm", len(compiled.lists)
    path.write_text(random_varied_circuit(3, 20, 1).text)
    circuit = tnplan.Circuit(path)
    values = dict.fromkeys(NAMES, 0.4)
    first = circuit.bind(values).expectation("Z0", gradient=True, **CPU)
    path.write_text(random_varied_circuit(3, 20, 2).text)
    again = circuit.bind(values).expectation("Z0", gradient=True, **CPU)
    other = tnplan.Circuit(path, values)
    assert other.expectation("Z0", gradient=True, **CPU).gradient != first.gradient
    assert (again.value, again.gradient) == (first.value, first.gradient)
    assert len(compiled.lists) == before + 2
    del circuit, other
    gc.collect()
    assert len(compiled.lists) <= before


@pytest.mark.parametrize("value", ["0.1 + 0.2", "pi", np.float32(0.5), np.int64(2), 3])
def test_values_of_all_kinds_have_gradients(value: Any, tmp_path: Path) -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    path = tmp_path / "circuit.qasm"
    path.write_text('OPENQASM 3.0;\ninclude "stdgates.inc";\ninput float a;\nqubit[1] q;\nrx(a) q[0];\n')
    answer = tnplan.Circuit(path, {"a": value}).expectation("Z0", gradient=True, **CPU)
    number = {"0.1 + 0.2": 0.3, "pi": np.pi}.get(value, value) if isinstance(value, str) else float(value)
    assert answer.value == pytest.approx(np.cos(number), abs=1e-15)
    assert answer.gradient == pytest.approx({"a": -np.sin(number)}, abs=1e-15)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, None, 1j, "q"])
def test_values_that_are_no_numbers_are_refused_again(value: Any, tmp_path: Path) -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    path = tmp_path / "circuit.qasm"
    declared = "input float a;\ninput float b;\nqubit q;\n"
    path.write_text(f'OPENQASM 3.0;\ninclude "stdgates.inc";\n{declared}rx(a) q;\nrz(b) q;\n')
    circuit = tnplan.Circuit(path)
    circuit.bind(a=0.1, b=0.2).expectation("Z0", gradient=True, **CPU)
    with pytest.raises(tnplan.InputError):
        circuit.bind(a=0.1, b=value).expectation("Z0", gradient=["a"], **CPU)
    with pytest.raises(tnplan.InputError):
        circuit.bind(a=0.1).expectation("Z0", gradient=["a"], **CPU)


def test_gate_tables_go_with_their_circuits() -> None:
    before = len(statevector.lists)
    hadamard = tnplan.Gate("h", (0,), np.array([[1, 1], [1, -1]]) / 2**0.5)
    circuit = tnplan.Circuit(tnplan.GateSequence(3, (hadamard,)))
    assert circuit.expectation("X0", **CPU).value == pytest.approx(1)
    assert circuit.probabilities([0], **CPU).value == pytest.approx([0.5, 0.5])
    assert len(statevector.lists) == before + 1
    del circuit
    gc.collect()
    assert len(statevector.lists) <= before


WIDE = np.linalg.qr(np.random.default_rng(0).normal(size=(64, 64)))[0]


@pytest.mark.parametrize(("matrix", "place"), [(np.eye(64) / 2, "gate u"), (WIDE, "gate 1 ")])
def test_other_circuits_are_refused_as_by_jobs(matrix: np.ndarray, place: str) -> None:
    circuit = tnplan.Circuit(tnplan.GateSequence(6, (tnplan.Gate("x", (0,), np.array([[0, 1], [1, 0]])),)))
    other = tnplan.GateSequence(6, (tnplan.Gate("u", tuple(range(6)), matrix),))
    texts = []
    for options in (CPU, JOB):
        with pytest.raises(tnplan.InputError, match=place) as refused:
            circuit.overlap(other, method="statevector", **options)
        texts.append(str(refused.value))
    assert texts[0] == texts[1]

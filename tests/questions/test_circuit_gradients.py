"""Derivatives of expectation values by parameters: every method against differences in extended precision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.kernels.gpus import needs_gpus
from tests.support.mpirun import mpirun, needs_mpi
from tests.support.robustness.refusals import Refusal, Row, table
from tests.support.varied_circuits import NAMES, random_sums, random_varied_circuit, text_of
from tnplan.circuits.pauli_sum import pauli_sum
from tnplan.cli.main import run

pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")

METHODS = ("statevector", "contraction", "pauli")
CPU: Any = {"device": "cpu", "threads": 1}
ANSATZ = """OPENQASM 3.0;
include "stdgates.inc";
input float theta;
input angle phi;
qubit[6] q;
rx(2 * theta) q[0];
cx q[0], q[1];
ry(sin(phi) * theta) q[1];
rzz(theta / 2) q[1], q[2];
rx(phi) q[2];
"""


@pytest.fixture
def ansatz(tmp_path: Path) -> Path:
    path = tmp_path / "ansatz.qasm"
    path.write_text(ANSATZ)
    return path


def gradient_rows(answer: tnplan.CircuitAnswer) -> np.ndarray:
    """[observable, parameter]."""
    assert answer.gradient is not None
    return np.array(list(answer.gradient.values())).T


@pytest.mark.parametrize("is_zero", [False, True])
@pytest.mark.parametrize("n", [3, 5])
def test_all_methods_give_the_derivatives(n: int, is_zero: bool, tmp_path: Path) -> None:
    """Where all parameters are 0 and constants are left out, rotations are the identity, and Cliffords."""
    varied, sums = random_varied_circuit(n, 42, n), random_sums(n, 3, n)
    path = tmp_path / "circuit.qasm"
    path.write_text(varied.text)
    values = dict.fromkeys(NAMES, 0.0) if is_zero else {"a": 0.37, "b": -1.1, "c": 2.3}
    wanted, expected = varied.gradients(sums, values), varied.values(sums, values).astype(float)
    assert np.abs(wanted).max() > 0.1
    circuit, texts = tnplan.Circuit(path, values), [text_of(one) for one in sums]
    for method in METHODS:
        found = circuit.expectation(texts, gradient=True, method=method, **CPU)
        assert (found.method, found.error_kind) == (method, "exact")
        assert list(found.gradient or ()) == [*NAMES]
        np.testing.assert_allclose(found.value, expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(gradient_rows(found), wanted, rtol=0, atol=1e-10)
        single = circuit.expectation(texts[1], gradient=["c", "a"], method=method, **CPU)
        assert single.gradient == pytest.approx({"c": wanted[1, 2], "a": wanted[1, 0]}, abs=1e-10)
        assert list(single.gradient or ()) == ["c", "a"]


@pytest.mark.parametrize("seed", range(4))
def test_states_of_many_qubits(seed: int, tmp_path: Path) -> None:
    """Both states go back at once; a test of few qubits takes one after the other."""
    n = 8 + seed % 2
    varied, sums = random_varied_circuit(n, 70, seed), random_sums(n, 2, seed)
    path = tmp_path / "circuit.qasm"
    path.write_text(varied.text)
    values = dict(zip(NAMES, np.random.default_rng(seed).uniform(-3, 3, 3).tolist(), strict=True))
    circuit, texts = tnplan.Circuit(path, values), [text_of(one) for one in sums]
    wanted = varied.gradients(sums, values)
    assert np.abs(wanted).max() > 0.1
    for precision, rounding in (("fp64", 1e-11), ("fp32", 2e-5)):
        found = circuit.expectation(texts, gradient=True, method="statevector", precision=precision, **CPU)
        np.testing.assert_allclose(gradient_rows(found), wanted, rtol=0, atol=rounding)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_circuits(seed: int, tmp_path: Path) -> None:
    n = 3 + seed % 4
    varied, sums = random_varied_circuit(n, 28 + seed, seed), random_sums(n, 2, seed)
    path = tmp_path / "circuit.qasm"
    path.write_text(varied.text)
    values = dict(zip(NAMES, np.random.default_rng(seed).uniform(-3, 3, 3).tolist(), strict=True))
    circuit, texts = tnplan.Circuit(path, values), [text_of(one) for one in sums]
    for method in METHODS:
        found = circuit.expectation(texts, gradient=True, method=method, **CPU)
        np.testing.assert_allclose(gradient_rows(found), varied.gradients(sums, values), rtol=0, atol=1e-10)


def test_gates_of_angle_zero_have_derivatives(tmp_path: Path) -> None:
    """rx(0) is diagonal and in no light cone, and its derivative is not."""
    path = tmp_path / "zero.qasm"
    path.write_text(
        'OPENQASM 3.0;\ninclude "stdgates.inc";\ninput float a;\ninput float b;\nqubit[2] q;\n'
        "h q[0];\ncx q[0], q[1];\nrx(a) q[0];\nry(b) q[1];\ncp(a) q[0], q[1];\n"
    )
    circuit = tnplan.Circuit(path, {"a": 0.0, "b": 0.0})
    for method in METHODS:
        found = circuit.expectation(["X0 Y1", "Y0 Z1", "Z0 X1"], gradient=True, method=method, **CPU)
        np.testing.assert_allclose(gradient_rows(found), [[1, 0], [-1, 0], [0, 1]], rtol=0, atol=1e-14)


def test_noise_is_differentiated(ansatz: Path) -> None:
    values, h = {"theta": 0.4, "phi": 0.9}, 1e-5
    options: Any = {"depolarizing": 0.03, **CPU}
    for method in ("contraction", "pauli"):

        def value(method: str = method, **moved: float) -> float:
            circuit = tnplan.Circuit(ansatz, {**values, **moved})
            return float(circuit.expectation("Z1 + X2 Y1", method=method, **options).value)

        found = tnplan.Circuit(ansatz, values).expectation(
            "Z1 + X2 Y1", gradient=True, method=method, **options
        )
        for name, derivative in (found.gradient or {}).items():
            moved = [value(**{name: values[name] + sign * h}) for sign in (1, -1)]
            assert derivative == pytest.approx((moved[0] - moved[1]) / (2 * h), abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_precision_threads_and_ranks(ansatz: Path, method: str) -> None:
    circuit = tnplan.Circuit(ansatz, {"theta": 0.4, "phi": 0.9})
    exact = circuit.expectation(["Z1", "Y1 X2"], gradient=True, method=method, **CPU)
    for options, close in (
        ({"precision": "fp32", "threads": 1}, 2e-6), ({"threads": 2}, 1e-12),
        ({"ranks": 2, "threads": 1}, 1e-12), ({"memory": "64MiB", "threads": 1}, 1e-12),
    ):  # fmt: skip
        found = circuit.expectation(["Z1", "Y1 X2"], gradient=True, method=method, device="cpu", **options)  # type: ignore[arg-type]
        np.testing.assert_allclose(gradient_rows(found), gradient_rows(exact), rtol=0, atol=close)


def test_a_truncated_gradient_is_that_of_the_truncated_value(ansatz: Path) -> None:
    values, h = {"theta": 0.4, "phi": 0.9}, 1e-5
    options: Any = {"method": "pauli", "truncation": tnplan.Truncation(max_xy=1), **CPU}

    def value(**moved: float) -> float:
        circuit = tnplan.Circuit(ansatz, {**values, **moved})
        return float(circuit.expectation("Y1 X2", **options).value)

    found = tnplan.Circuit(ansatz, values).expectation("Y1 X2", gradient=True, **options)
    assert found.error_kind == "truncation"
    assert found.error > 0
    for name, derivative in (found.gradient or {}).items():
        difference = (value(**{name: values[name] + h}) - value(**{name: values[name] - h})) / (2 * h)
        assert derivative == pytest.approx(difference, abs=1e-8)


def test_qiskit_parameters(ansatz: Path) -> None:
    qiskit = pytest.importorskip("qiskit")
    from qiskit.circuit import Parameter

    theta, phi = Parameter("theta"), Parameter("phi")
    circuit = qiskit.QuantumCircuit(3)
    circuit.rx(2 * theta, 0)
    circuit.cx(0, 1)
    circuit.ry(phi.sin() * theta, 1)
    inner = qiskit.QuantumCircuit(2)
    inner.rzz(theta / 2, 0, 1)
    circuit.append(inner.to_gate(), [1, 2])
    circuit.rx(phi, 2)
    values = {"theta": 0.4, "phi": 0.9}
    expected = tnplan.Circuit(ansatz, values).expectation("Z1 + Y1 X2", gradient=True, **CPU).gradient
    for method in METHODS:
        found = tnplan.Circuit(circuit, values).expectation("Z1 + Y1 X2", gradient=True, method=method, **CPU)
        assert found.gradient == pytest.approx(expected, abs=1e-12)


# fmt: off
REFUSED: list[Row] = [
    (lambda c: c.expectation("Z0", gradient=["psi"], **CPU), "parameter psi",
     "is not a parameter of ansatz.qasm", "choose from theta"),
    (lambda c: c.expectation("Z0", gradient=[], **CPU), "--gradient",
     "is by named parameters", "name some parameters"),
    (lambda c: c.expectation("Z0", gradient="theta", **CPU), "--gradient",
     "is by named parameters, and", "name some parameters"),
    (lambda c: c.expectation("Z0", gradient=True, method="statevector", depolarizing=0.1, trajectories=9),
     "--gradient", "means over trajectories", "leave it out"),
    (lambda c: c.expectation("Z0", gradient=True, method="pauli", depolarizing=0.1, device="gpu"), "--device",
     "gradients through channels", "choose --device cpu"),
    (lambda c: c.expectation(pauli_sum([(0, 1, 1j)], 6), gradient=True, **CPU), "observable 0",
     "complex coefficients", "give real ones"),
    (lambda c: tnplan.Circuit("ansatz.qasm", {"theta": 0.4}).expectation("Z0", gradient=True, **CPU),
     "parameter phi", "has no value", "bind a value first"),
    (lambda c: tnplan.Circuit(tnplan.GateSequence(1, ())).expectation("Z0", gradient=True, **CPU),
     "--gradient", "the circuit has none", "name some parameters"),
    (lambda c: c.estimate(sample=5, gradient=True), "--gradient", "is for expectation values only",
     "ask for expectation"),
]
# fmt: on


@table(REFUSED)
def test_a_gradient_is_refused(refusal: Refusal, ansatz: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ansatz.parent)
    circuit = tnplan.Circuit("ansatz.qasm", {"theta": 0.4, "phi": 0.9})
    refusal.raised_by(lambda: refusal.given(circuit))


def test_pauli_refuses_gates_without_rotations(tmp_path: Path) -> None:
    path = tmp_path / "controlled.qasm"
    path.write_text(
        'OPENQASM 3.0;\ninclude "stdgates.inc";\ninput float a;\nqubit[2] q;\nh q[0];\n'
        "ctrl @ u3(a, 0.1, 0.2) q[0], q[1];\n"
    )
    circuit = tnplan.Circuit(path, {"a": 0.3})
    with pytest.raises(tnplan.InputError, match=r"gate 1 \(cu3\); use statevector or contraction"):
        circuit.expectation("Z1", gradient=True, method="pauli", **CPU)
    found = [
        circuit.expectation("Z1", gradient=True, method=method, **CPU).gradient for method in METHODS[:2]
    ]
    assert found[0] == pytest.approx(found[1], abs=1e-13)


@needs_gpus(1)
@pytest.mark.parametrize("method", ["statevector", "pauli"])
@pytest.mark.parametrize("precision", ["fp64", "fp32"])
def test_a_gpu_gives_what_a_cpu_gives(ansatz: Path, method: str, precision: str) -> None:
    circuit = tnplan.Circuit(ansatz, {"theta": 0.4, "phi": 0.9})
    wanted, found = (
        circuit.expectation(["Z1 + 0.5*Y1 X2", "X0"], gradient=True, method=method, device=device, **more)
        for device, more in (("cpu", {}), ("gpu", {"precision": precision}))
    )
    rounding = 1e-12 if precision == "fp64" else 1e-5
    assert found.value == pytest.approx(wanted.value, abs=rounding)
    for name, one in (wanted.gradient or {}).items():
        assert (found.gradient or {})[name] == pytest.approx(one, abs=rounding)
    assert found.details["device"] == "gpu"


@pytest.mark.parametrize("hardware", ["cpu", "h200-nvlink"])
def test_the_estimate_includes_the_way_back(tmp_path: Path, hardware: str) -> None:
    path, n = tmp_path / "chain.qasm", 24
    layer = "".join(f"ry(theta) q[{k}];\nrzz(theta) q[{k}], q[{k + 1}];\n" for k in range(n - 1))
    path.write_text(f'OPENQASM 3.0;\ninclude "stdgates.inc";\ninput float theta;\nqubit[{n}] q;\n{2 * layer}')
    circuit = tnplan.Circuit(path, {"theta": 0.4})
    alone, both = (
        circuit.estimate(expectation=["Z10", "X12"], gradient=gradient, search_time=0, hardware=hardware)
        for gradient in (False, True)
    )
    assert [row.method for row in both.rows] == [row.method for row in alone.rows]
    for one, other in zip(alone.rows, both.rows, strict=True):
        if one.method in ("mps", "stabilizer"):  # which have no gradients
            assert other.reason.startswith("not possible: ")
            continue
        assert one.cost is not None
        assert other.cost is not None
        assert other.cost.time_s > one.cost.time_s
        assert other.cost.memory_bytes > one.cost.memory_bytes


def test_the_command(ansatz: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "answer.json"
    given = ["--set", "theta=0.4", "--set", "phi=pi/4", "--device", "cpu", "--observable", "Z1"]
    assert run(["expectation", str(ansatz), *given, "--gradient", "-o", str(output)]) == 0
    document = json.loads(output.read_text())
    values = {"theta": 0.4, "phi": np.pi / 4}
    expected = tnplan.Circuit(ansatz, values).expectation(["Z1"], gradient=True, **CPU).gradient or {}
    assert document["version"] == 4
    assert document["gradient"] == {name: pytest.approx(one, abs=1e-14) for name, one in expected.items()}
    assert f"derivative by theta of Z1: {document['gradient']['theta'][0]!r}" in capsys.readouterr().out
    assert run(["expectation", str(ansatz), *given, "--wrt", "phi", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["gradient"]) == ["phi"]


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("method", ["statevector", "pauli"])
def test_ranks_of_mpirun(ansatz: Path, tmp_path: Path, method: str) -> None:
    output = tmp_path / "answer.json"
    done = mpirun(
        2, "-m", "tnplan", "expectation", ansatz, "--set", "theta=0.4", "--set", "phi=0.9", "--gradient",
        "--observable", "Y1 X2", "--method", method, "--device", "cpu", "-o", output,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(output.read_text())
    circuit = tnplan.Circuit(ansatz, {"theta": 0.4, "phi": 0.9})
    expected = circuit.expectation(["Y1 X2"], gradient=True, **CPU).gradient or {}
    assert document["ranks"] == 2
    assert document["gradient"] == {name: pytest.approx(one, abs=1e-12) for name, one in expected.items()}

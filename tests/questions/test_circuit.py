"""The object: what it is made of, its parameters, how it is shown, and that other calls take it."""

from __future__ import annotations

import json
import pickle
from math import cos, pi
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.circuits import random_circuit, state_vector
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.program import CircuitProgram, Measurement
from tnplan.cli.main import run

CPU: Any = {"device": "cpu", "threads": 1}
ANSATZ = 'include "stdgates.inc"; input float a; input float b; qubit[2] q; rx(a) q[0]; rx(b) q[1];'


@pytest.fixture
def ansatz(tmp_path: Path) -> tnplan.Circuit:
    """A circuit of a file that is there no more."""
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    path = tmp_path / "ansatz.qasm"
    path.write_text(ANSATZ)
    circuit = tnplan.Circuit(path)
    path.unlink()
    return circuit


def test_parameters_are_bound_later_some_at_a_time(ansatz: tnplan.Circuit) -> None:
    assert ansatz.parameters == ("a", "b")
    half = ansatz.bind(a=0.3)
    assert (half.parameters, ansatz.parameters) == (("b",), ("a", "b"))
    for value in (0.5, "pi/4"):
        whole = half.bind({"b": value})
        assert whole.parameters == ()
        expected = [cos(0.3), cos(pi / 4 if value == "pi/4" else 0.5)]
        assert whole.expectation(["Z0", "Z1"], **CPU).value == pytest.approx(expected)
    assert half.bind(a=0.1).bind(b=0).expectation("Z0", **CPU).value == pytest.approx(cos(0.1))
    with pytest.raises(tnplan.InputError, match="has no value for 'b'; give a value: parameters b=VALUE"):
        half.expectation("Z0", **CPU)
    with pytest.raises(
        tnplan.InputError, match=r"parameter c: is not a parameter of .*ansatz\.qasm; choose from a, b"
    ):
        ansatz.bind(c=1)


def test_other_calls_take_it(ansatz: tnplan.Circuit) -> None:
    bound = ansatz.bind(a=0.3)
    values = {"b": 0.4}
    assert tnplan.propagate(bound, "Z0 Z1", parameters=values, **CPU).value == pytest.approx(
        cos(0.3) * cos(0.4)
    )
    done = tnplan.simulate(bound, parameters=values, observable="Z0 Z1", **CPU)
    assert done.answer.expectation == pytest.approx(cos(0.3) * cos(0.4))
    assert tnplan.network(bound.bind(b=1), open_qubits=[0]).network.output
    assert tnplan.load_circuit(bound, values).n_qubits == 2
    assert tnplan.load_program(tnplan.Circuit(bound.bind(b=2))).n_qubits == 2


def test_it_is_shown_in_a_line(ansatz: tnplan.Circuit) -> None:
    assert repr(ansatz) == "Circuit(ansatz.qasm: a, b)"
    assert repr(ansatz.bind(a=1)) == "Circuit(ansatz.qasm: b)"
    whole = ansatz.bind(a=1, b=2)
    assert repr(whole) == "Circuit(2 qubits, 2 operations)"
    assert whole.n_qubits == 2
    for one, fact in ((ansatz, "a, b"), (whole, "operations")):
        assert one._repr_html_().startswith("<table>")
        assert fact in one._repr_html_()


def test_it_can_be_sent_to_another_process(ansatz: tnplan.Circuit) -> None:
    copy = pickle.loads(pickle.dumps(ansatz.bind(a=0.3)))
    assert copy.bind(b=0).expectation("Z0", **CPU).value == pytest.approx(cos(0.3))


def test_plain_data_are_circuits() -> None:
    sequence = random_circuit(3, 30, 1)
    program = CircuitProgram(3, 1, (*sequence.gates, Measurement(0, 0)))
    for source in (sequence, program, tnplan.Circuit(sequence)):
        found = tnplan.Circuit(source).amplitudes("010", **CPU).value
        assert found == pytest.approx(state_vector(sequence)[0, 1, 0])
    with pytest.raises(tnplan.InputError, match=r"^circuit: is of type int; give a file, a GateSequence, or"):
        tnplan.Circuit(5)


def test_a_wrong_file_is_refused_when_it_is_read(tmp_path: Path) -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    path = tmp_path / "c.qasm"
    path.write_text('include "stdgates.inc"; qubit q;\nflip q;')
    with pytest.raises(tnplan.InputError, match=r"c\.qasm: line 2"):
        tnplan.Circuit(path)
    with pytest.raises(tnplan.InputError, match=r"absent\.qasm: cannot be read"):
        tnplan.Circuit(tmp_path / "absent.qasm")


def test_inverse_and_compose() -> None:
    first, second = (random_circuit(3, 30, seed) for seed in (1, 2))
    both = tnplan.Circuit(first).compose(second)
    expected = state_vector(GateSequence(3, first.gates + second.gates)).ravel()
    rows = [f"{k:03b}" for k in range(8)]
    np.testing.assert_allclose(both.amplitudes(rows, **CPU).value, expected, rtol=0, atol=1e-12)
    back = both.compose(both.inverse()).amplitudes("000", **CPU).value
    assert back == pytest.approx(1)
    with pytest.raises(tnplan.InputError, match="has 2 qubits; give a circuit of 3"):
        tnplan.Circuit(first).compose(random_circuit(2, 30, 1))
    squeeze = GateSequence(1, (tnplan.Gate("squeeze", (0,), np.diag([1, 0.5]) + 0j),))
    with pytest.raises(tnplan.InputError, match="gate squeeze: is not unitary, and has no inverse"):
        tnplan.Circuit(squeeze).inverse()


def test_observables_of_qiskit_and_of_files(tmp_path: Path) -> None:
    pytest.importorskip("qiskit")
    from qiskit.quantum_info import Pauli, SparsePauliOp

    circuit = tnplan.Circuit(random_circuit(3, 30, 4))
    texts = ["0.5*X0 Z2 - Y1", "Z0"]
    expected = circuit.expectation(texts, **CPU).value
    operators = [SparsePauliOp.from_list([("ZIX", 0.5), ("IYI", -1)]), SparsePauliOp("IIZ")]
    (tmp_path / "o.txt").write_text("# two\n0.5*X0 Z2 - Y1  # first\n\nZ0\n")
    entries = [{"X0 Z2": 0.5, "Y1": [-1, 0]}, "Z0"]
    (tmp_path / "o.json").write_text(json.dumps(entries))
    for given in (operators, tmp_path / "o.txt", tmp_path / "o.json", tuple(texts)):
        assert circuit.expectation(given, **CPU).value == pytest.approx(expected, abs=1e-12)
    assert circuit.expectation(operators[0], **CPU).value == pytest.approx(expected[0], abs=1e-12)
    for label, phase, text in (("-ZIX", -1, "X0 Z2"), ("iIYI", 1j, "Y1"), ("III", 1, "I")):
        right = phase * circuit.expectation(text, **CPU).value
        assert circuit.expectation(Pauli(label), **CPU).value == pytest.approx(right, abs=1e-12)


def test_parameters_of_qiskit_name_themselves() -> None:
    pytest.importorskip("qiskit")
    from qiskit import QuantumCircuit
    from qiskit.circuit import Parameter, ParameterVector

    theta, angles = Parameter("theta"), ParameterVector("t", 2)
    given = QuantumCircuit(2)
    given.rx(theta, 0)
    given.ry(angles[0] + angles[1], 1)
    values = {theta: 0.4, angles[0]: 0.1, angles[1]: 0.2}
    circuits = tnplan.Circuit(given).bind(values), tnplan.Circuit(given, values)
    for circuit in circuits:
        assert circuit.expectation(["Z0", "Z1"], **CPU).value == pytest.approx(np.cos([0.4, 0.3]))
    found = tnplan.simulate(given, parameters=values, observable="Z0", device="cpu").answer.expectation
    assert found == pytest.approx(np.cos(0.4))


def test_observables_of_openfermion() -> None:
    openfermion = pytest.importorskip("openfermion")
    circuit = tnplan.Circuit(random_circuit(3, 30, 4))
    operator = openfermion.QubitOperator("X0 Z2", 0.5) - openfermion.QubitOperator("Y1") + 2
    expected = circuit.expectation("0.5*X0 Z2 - Y1 + 2", **CPU).value
    assert circuit.expectation(operator, **CPU).value == pytest.approx(expected, abs=1e-12)
    assert circuit.expectation([operator, 1j * operator], **CPU).value[1] == pytest.approx(1j * expected)
    with pytest.raises(tnplan.InputError, match="names qubit 5; use qubits 0 to 2"):
        circuit.expectation(openfermion.QubitOperator("X5"))


def test_bit_strings_of_files(tmp_path: Path) -> None:
    circuit = random_circuit(3, 30, 4)
    rows = np.array([[0, 0, 1], [1, 1, 0]])
    (tmp_path / "b.txt").write_text("001\n110\n")
    np.save(tmp_path / "b.npy", rows.astype(bool))
    expected = state_vector(circuit)[rows[:, 0], rows[:, 1], rows[:, 2]]
    for given in (tmp_path / "b.txt", tmp_path / "b.npy", ["001", "110"]):
        found = tnplan.Circuit(circuit).amplitudes(given, **CPU).value
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_an_answer_says_what_it_is(tmp_path: Path) -> None:
    circuit = tnplan.Circuit(random_circuit(3, 30, 4))
    found = circuit.amplitudes(["001"], output=tmp_path / "a.json", **CPU)
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["value"] == [[found.value[0].real, found.value[0].imag]]
    assert (document["question"], document["error_kind"], document["error"]) == ("amplitudes", "exact", 0.0)
    assert found.time_s > 0
    assert repr(found) == "CircuitAnswer(amplitudes 1 value, exact, by statevector)"
    limits = tnplan.Truncation(max_weight=1)
    shown = circuit.expectation("Z0", truncation=limits, **CPU)
    assert "(truncation, vacuous), by pauli" in repr(shown)
    assert "outcomes, statistical, by statevector" in repr(circuit.sample(5, **CPU)).replace("error ", "")


def test_ranks_in_this_process_share_the_state() -> None:
    circuit = random_circuit(8, 60, 4)
    asked, one = tnplan.Circuit(circuit), "X0 Y7 - 0.2 Z3 Z4"
    for ask in (
        lambda more: asked.expectation(one, **more),
        lambda more: asked.reduced_density_matrix([7, 0, 3], **more),
        lambda more: asked.trace("Z0", one, state="01010101", **more),
        lambda more: asked.overlap(circuit, **more),
    ):
        single, two = (ask({"method": "statevector", **CPU, "ranks": ranks}).value for ranks in (1, 2))
        np.testing.assert_allclose(single, two, rtol=0, atol=1e-12)


def test_gates_on_many_qubits_of_a_file(tmp_path: Path) -> None:
    """A program keeps a gate on four qubits whole; Pauli propagation and contraction get it in parts."""
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    path = tmp_path / "c.qasm"
    path.write_text('include "stdgates.inc"; qubit[4] q; h q; ctrl(3) @ ry(0.7) q[0], q[1], q[2], q[3];')
    circuit = tnplan.Circuit(path)
    found = [
        circuit.expectation("Z3", method=method, **CPU).value
        for method in ("statevector", "pauli", "contraction")
    ]
    assert found == pytest.approx([found[0]] * 3, abs=1e-12)


def test_a_flip_is_a_flip() -> None:
    flip = GateSequence(1, (gate("x", (0,)),))
    assert tnplan.Circuit(flip).probabilities(**CPU).value.tolist() == [0, 1]


def test_commands_write_what_they_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.qsim").write_text("2\n0 h 0\n1 cz 0 1\n")
    assert run(["expectation", "c.qsim", "--observable", "X0", "--file", "none"]) == 2
    line = "expectation c.qsim --observable Z0 --json --device cpu -o out.json"
    assert run(line.split()) == 0
    captured = capsys.readouterr()
    printed = json.loads(captured.out)
    assert printed == json.loads(Path("out.json").read_text())
    assert (printed["format"], printed["version"]) == ("tnplan.answer", 4)
    assert printed["value"] == [pytest.approx(0)]

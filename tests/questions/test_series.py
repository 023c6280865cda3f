"""Values after several parts of a circuit: those of its beginnings, asked one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support import dense_answers as dense
from tests.support.circuit_families import dynamic, random_case
from tests.support.circuits import random_circuit
from tests.support.effort import repeats
from tests.support.slow import slow_after
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import KINDS, gate
from tnplan.circuits.program import CircuitProgram, Conditional, Operation, circuit_program, depolarizing
from tnplan.cli.main import run
from tnplan.questions import ask

CPU: Any = {"device": "cpu", "threads": 1}
METHODS = ("auto", "statevector", "contraction", "pauli", "mps")
WORDS = ["Z0", "X0 Y1 - 0.5*Z2"]


def random_program(seed: int) -> CircuitProgram:
    """A circuit of any family, on few qubits."""
    for number in range(seed, seed + 10_000, 500):
        case = random_case(number, most_qubits=6, most_depth=6)
        if isinstance(case.circuit, GateSequence) and case.n_qubits <= 8:
            return circuit_program(case.circuit)
    raise AssertionError


def random_stops(n_operations: int, seed: int) -> list[int]:
    """Some rising numbers of operations."""
    random = np.random.default_rng(seed)
    return sorted(set(random.integers(0, n_operations + 1, 4).tolist()))


def beginning(program: CircuitProgram, number: int) -> tnplan.Circuit:
    """The first operations of a program, as a circuit of its own."""
    return tnplan.Circuit(CircuitProgram(program.n_qubits, program.n_bits, program.operations[:number]))


def expected(program: CircuitProgram, stops: Sequence[int], observables: Any, **options: Any) -> np.ndarray:
    """The values of all beginnings, each asked by itself."""
    answers = [beginning(program, number).expectation(observables, **options) for number in stops]
    return np.array([answer.value for answer in answers])


@pytest.mark.parametrize("seed", range(repeats(8, 300)))
def test_every_method_has_the_values_of_all_beginnings(seed: int) -> None:
    program = random_program(30_000 + seed)
    stops = random_stops(len(program.operations), seed)
    state = [None, "".join("01+r"[(seed + q) % 4] for q in range(program.n_qubits))][seed % 2]
    values = expected(program, stops, WORDS, method="statevector", state=state, **CPU)
    observable = dense.random_sum(program.n_qubits, 3, seed, is_complex=True)
    single = expected(program, stops, observable, method="statevector", state=state, **CPU)
    circuit = tnplan.Circuit(program)
    for method in METHODS:
        answer = circuit.expectation(WORDS, after=stops, method=method, state=state, **CPU)
        assert (answer.error, answer.error_kind, answer.details["after"]) == (0, "exact", stops)
        assert answer.value.shape == (len(stops), len(WORDS))
        np.testing.assert_allclose(answer.value, values, rtol=0, atol=1e-9, err_msg=method)
        answer = circuit.expectation(observable, after=np.array(stops), method=method, state=state, **CPU)
        assert answer.value.shape == (len(stops),)
        np.testing.assert_allclose(answer.value, single, rtol=0, atol=1e-9, err_msg=method)


def layers(n_qubits: int, seed: int) -> tuple[list[Operation], list[Operation]]:
    """What may prepare a state, qubit by qubit, and a layer of gates; some have noise."""
    random = np.random.default_rng(seed)
    names = random.choice(["h", "s", "x", "t", "y", "cnot", "cz"], 8).tolist()
    layer: list[Operation] = [
        gate(name, random.permutation(n_qubits)[: KINDS[name].n_qubits].tolist()) for name in names
    ]
    for qubit in range(n_qubits):
        layer.insert(int(random.integers(9)), gate("rx", [qubit], [random.normal()]))
    layer.append(gate("cp", [0, n_qubits - 1], [random.normal()]))
    if seed % 3 == 0:
        layer.insert(4, depolarizing((0, 1), 0.1))
    names = random.choice(["h", "x", "s"], random.integers(n_qubits + 1)).tolist()
    return [gate(name, [qubit]) for qubit, name in enumerate(names)], layer


@pytest.mark.parametrize("seed", slow_after(4, range(repeats(8, 200))))
def test_equal_layers_are_one_sweep_back(seed: int) -> None:
    """Values between layers take other sweeps; so do all after a first gate on two qubits."""
    n, n_layers = 4, 5
    start, layer = layers(n, seed)
    stops = [len(start) + k * len(layer) for k in range(n_layers + 1)]
    program = CircuitProgram(n, 0, (*start, *(layer * n_layers)))
    state = [None, "01+r", np.full((n, 3), 0.5), ["X0 X1", "-Z0 Z1", "Y3"]][seed % 4]
    options: dict[str, Any] = {"method": "pauli", "state": state, **CPU}
    answer = tnplan.Circuit(program).expectation(WORDS, after=stops, **options)
    np.testing.assert_allclose(answer.value, expected(program, stops, WORDS, **options), rtol=0, atol=1e-12)
    assert answer.details["sweeps"] == 1 or (start and seed % 4 == 3)
    cut = {**options, "truncation": tnplan.Truncation(max_terms=6)}
    cut_answer = tnplan.Circuit(program).expectation(WORDS, after=stops, **cut)
    assert (abs(cut_answer.value - answer.value) <= cut_answer.error + 1e-12).all()
    assert (cut_answer.error[-1] > 0).any()
    between = sorted({*stops, len(start) + 3, len(start) + len(layer) + 3})
    entangled = CircuitProgram(n, 0, (gate("cz", [0, 1]), *program.operations))
    for circuit, numbers in ((program, between), (entangled, [1 + stop for stop in stops[1:]])):
        answer = tnplan.Circuit(circuit).expectation(WORDS, after=numbers, **options)
        np.testing.assert_allclose(answer.value, expected(circuit, numbers, WORDS, **options), atol=1e-12)
        assert answer.details["sweeps"] > 1


@pytest.mark.parametrize("method", ["statevector", "mps"])
def test_a_circuit_of_gates_is_gone_through_once(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, calls = ask.ENGINES[method], []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return engine(*arguments)

    monkeypatch.setitem(ask.ENGINES, method, counted)
    tnplan.Circuit(random_circuit(3, 20, 1)).expectation("Z0", after=[5, 9, 20], method=method, **CPU)
    assert len(calls) == 1


@pytest.mark.parametrize("seed", range(6))
def test_stabilizers_have_the_values_of_all_beginnings(seed: int) -> None:
    pytest.importorskip("stim")
    random = np.random.default_rng(seed)
    names = random.choice(["h", "s", "x", "cnot", "cz"], 30).tolist()
    gates = [gate(name, random.permutation(4)[: KINDS[name].n_qubits].tolist()) for name in names]
    program = circuit_program(GateSequence(4, tuple(gates)))
    stops = random_stops(30, seed)
    values = expected(program, stops, WORDS, method="statevector", state="0+1r", **CPU)
    answer = tnplan.Circuit(program).expectation(WORDS, after=stops, method="stabilizer", state="0+1r", **CPU)
    np.testing.assert_allclose(answer.value, values, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(repeats(6, 100)))
def test_noise_measurements_and_mixed_states(seed: int) -> None:
    """What stands between the gates counts as an operation, and noise that an option adds does not."""
    random = np.random.default_rng(seed)
    program = random_program(40_000 + seed)
    gates = GateSequence(program.n_qubits, tuple(program.operations))  # type: ignore[arg-type]
    operations: list[Operation] = []
    for operation in dynamic(gates, random).operations:
        operations += [] if isinstance(operation, Conditional) else [operation]
        if random.random() < 0.2:
            operations.append(depolarizing((int(random.integers(program.n_qubits)),), 0.3))
    program = CircuitProgram(program.n_qubits, program.n_qubits, tuple(operations))
    stops = random_stops(len(operations), seed)
    options: dict[str, Any] = {"depolarizing": [0.0, 0.05][seed % 2]}
    if seed % 3 == 0:
        options["state"] = np.linspace(-0.5, 0.5, 3 * program.n_qubits).reshape(-1, 3)
    values = expected(program, stops, WORDS, method="pauli", **options, **CPU)
    for method in ("auto", "pauli", "contraction"):
        answer = tnplan.Circuit(program).expectation(WORDS, after=stops, method=method, **options, **CPU)
        np.testing.assert_allclose(answer.value, values, rtol=0, atol=1e-9, err_msg=method)


def test_a_mixed_state_of_gates_with_final_measurements() -> None:
    program = tnplan.Circuit(random_circuit(3, 20, 5)).program()
    measured = CircuitProgram(3, 3, (*program.operations, *(tnplan.Measurement(q, q) for q in range(3))))
    state, stops = np.full((3, 3), 0.4), [0, 7, 20, 22]
    values = expected(measured, stops, WORDS, method="pauli", state=state, **CPU)
    for method in ("contraction", "pauli"):
        answer = tnplan.Circuit(measured).expectation(WORDS, after=stops, state=state, method=method, **CPU)
        np.testing.assert_allclose(answer.value, values, rtol=0, atol=1e-9)


def test_trajectories_are_exact_until_something_is_random() -> None:
    circuit = random_circuit(4, 20, 2)
    program = CircuitProgram(4, 0, (*circuit.gates[:10], depolarizing((0, 1), 0.4), *circuit.gates[10:]))
    exact = tnplan.Circuit(program).expectation(WORDS, after=[5, 15, 21], method="pauli", **CPU).value
    answer = tnplan.Circuit(program).expectation(
        WORDS, after=[5, 15, 21], method="statevector", trajectories=2000, seed=1, **CPU
    )
    assert answer.error_kind == "statistical"
    assert answer.error.shape == answer.value.shape == (3, 2)
    assert (answer.error[0] == 0).all()
    assert (abs(answer.value - exact) <= 5 * answer.error + 1e-12).all()


@pytest.mark.parametrize(
    ("method", "options"),
    [("mps", {"max_bond": 2}), ("pauli", {"truncation": tnplan.Truncation(max_terms=8)})],
)
def test_every_value_has_its_error(method: str, options: dict[str, Any]) -> None:
    """A truncation drops more and more: the errors are those of the beginnings."""
    circuit, stops = random_circuit(6, 60, 8), [0, 20, 60]
    exact = tnplan.Circuit(circuit).expectation(WORDS, after=stops, method="statevector", **CPU).value
    answer = tnplan.Circuit(circuit).expectation(WORDS, after=stops, method=method, **options, **CPU)
    alone = [
        beginning(circuit_program(circuit), n).expectation(WORDS, method=method, **options, **CPU)
        for n in stops
    ]
    assert answer.error.shape == (3, 2)
    assert (answer.error[0] == 0).all()
    assert (answer.error[2] > 0).all()
    assert answer.error_kind == alone[2].error_kind != "exact"
    if method == "pauli":
        np.testing.assert_allclose(answer.value, [each.value for each in alone], atol=1e-12)
        np.testing.assert_allclose(answer.error, [each.error for each in alone], atol=1e-12)
        assert (abs(answer.value - exact) <= answer.error + 1e-12).all()
        vacuous = [each.details["error_bound_is_vacuous"] for each in alone]
        assert answer.details["error_bound_is_vacuous"] == all(vacuous)
    else:  # the order of the chain is that of the whole circuit: the truncated values may differ
        np.testing.assert_allclose(answer.value[0], exact[0], atol=1e-12)
        np.testing.assert_allclose(answer.value[2], alone[2].value, atol=1e-9)


QASM = """OPENQASM 3.0;
include "stdgates.inc";
qubit[2] q; bit[2] c;
h q[0];
barrier q;
for int k in [0:1] { cx q[0], q[1]; rx(0.3) q[0]; barrier q; }
c = measure q;
"""


def test_barriers_of_a_file_and_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    path = tmp_path / "c.qasm"
    path.write_text(QASM)
    circuit = tnplan.Circuit(path)
    answer = circuit.expectation(WORDS[:1], after="barriers", **CPU)
    assert answer.details["after"] == [1, 3, 5, 7]
    values = expected(circuit.program(), [1, 3, 5, 7], WORDS[:1], **CPU)
    np.testing.assert_allclose(answer.value, values, atol=1e-12)
    options = ["--observable", "Z0", "--observable", "X0 X1", "--output", str(tmp_path / "out.json")]
    assert run(["expectation", str(path), "--after", "0,3", *options, "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(": ")[0] for line in lines[:4]] == [
        f"expectation value of {word} after {number}" for number in (0, 3) for word in ("Z0", "X0 X1")
    ]
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["after"] == [0, 3]
    values = circuit.expectation(["Z0", "X0 X1"], after=[0, 3], **CPU).value
    np.testing.assert_allclose(document["value"], values, atol=1e-12)
    assert [float(line.rpartition(": ")[2]) for line in lines[:4]] == values.ravel().tolist()
    assert run(["expectation", str(path), "--after", "barriers", *options, "--device", "cpu"]) == 0
    assert json.loads((tmp_path / "out.json").read_text())["after"] == [1, 3, 5, 7]


def test_barriers_of_qiskit() -> None:
    qiskit = pytest.importorskip("qiskit")
    circuit = qiskit.QuantumCircuit(2)
    circuit.h(0)
    circuit.barrier()
    circuit.cx(0, 1)
    circuit.barrier(0)
    answer = tnplan.Circuit(circuit).expectation("X0", after="barriers", **CPU)
    assert answer.details["after"] == [1, 2]
    np.testing.assert_allclose(answer.value, [1, 0], atol=1e-12)


def test_barriers_of_pennylane() -> None:
    qml = pytest.importorskip("pennylane")
    tape = qml.tape.QuantumScript([qml.Hadamard(0), qml.Barrier([0, 1]), qml.CNOT([0, 1])])
    answer = tnplan.Circuit(tape).expectation("X0", after="barriers", **CPU)
    assert answer.details["after"] == [1, 2]
    np.testing.assert_allclose(answer.value, [1, 0], atol=1e-12)


def test_an_estimate_counts_the_circuits_that_each_method_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """A state vector goes once through all gates; a contraction answers each beginning anew."""
    circuit = tnplan.Circuit(random_circuit(16, 120, 3))
    times: dict[str, list[float]] = {"statevector": [], "contraction": []}
    for after in ([120], [30, 60, 90, 120]):
        found = circuit.estimate(expectation="Z0", after=after, hardware="cpu", search_time=0.0)
        for row in found.rows:
            if row.method in times and row.cost is not None:
                times[row.method].append(row.cost.time_s)
                assert row.cost.shortest_s <= row.cost.time_s <= row.cost.longest_s
    once, again = times["statevector"]
    assert again < 1.5 * once
    once, again = times["contraction"]
    assert again > 2 * once
    with pytest.raises(tnplan.InputError, match="after: is for expectation values only; ask for expectation"):
        circuit.estimate(sample=10, after=[5])

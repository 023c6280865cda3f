"""Circuits of Qiskit, Cirq, PennyLane and quimb, with the library's own state to compare with."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.circuits import state_vector
from tnplan.circuits.program import BitAssignment, Channel, Measurement, Reset
from tnplan.common.errors import InputError

SEEDS = range(5)


def check_state(circuit: Any, expected: np.ndarray) -> None:
    """The state, global phase included, is the library's."""
    read = state_vector(tnplan.load_circuit(circuit)).ravel()
    np.testing.assert_allclose(read, expected, rtol=0, atol=1e-7)
    found = tnplan.simulate(circuit, device="cpu", threads=1).simulator.array()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)


def qiskit_state(circuit: Any) -> np.ndarray:
    """Qiskit's own state, qubit 0 most significant."""
    from qiskit.quantum_info import Statevector

    return np.asarray(Statevector(circuit).reverse_qargs().data)


@pytest.mark.parametrize("seed", SEEDS)
def test_qiskit(seed: int) -> None:
    pytest.importorskip("qiskit")
    from qiskit import QuantumCircuit
    from qiskit.circuit.library import CRYGate, QFTGate, UnitaryGate
    from qiskit.circuit.random import random_circuit
    from qiskit.quantum_info import random_unitary

    circuit = QuantumCircuit(7, global_phase=0.3)
    circuit.h(range(7))
    circuit.compose(random_circuit(7, 5, max_operands=4, seed=seed), range(7), inplace=True)
    circuit.append(QFTGate(7), range(7))
    circuit.append(CRYGate(0.4, ctrl_state=0), [5, 2])
    circuit.append(UnitaryGate(random_unitary(8, seed=seed)), [6, 0, 3])
    circuit.mcx(list(range(6)), 6)
    circuit.barrier()
    check_state(circuit, qiskit_state(circuit))


def test_qiskit_parameters_are_bound_later() -> None:
    pytest.importorskip("qiskit")
    from qiskit import QuantumCircuit
    from qiskit.circuit import Parameter, ParameterVector
    from qiskit.quantum_info import SparsePauliOp

    theta, phi = Parameter("theta"), ParameterVector("phi", 2)
    circuit = QuantumCircuit(2)
    circuit.rx(theta / 2, 0)
    circuit.cx(0, 1)
    circuit.rz(phi[0] + theta, 1)
    circuit.ry(phi[1], 1)
    bound = tnplan.Circuit(circuit)
    assert set(bound.parameters) == {"theta", "phi[0]", "phi[1]"}
    observable = SparsePauliOp.from_list([("XZ", 0.5), ("YI", -1.0), ("II", 2.0)])
    for value in (0.1, 0.7):
        values = {"theta": value, "phi[0]": 0.2, "phi[1]": -value}
        given = circuit.assign_parameters(values)
        check_state(bound.bind(values), qiskit_state(given))
        from qiskit.quantum_info import Statevector

        expected = Statevector(given).expectation_value(observable).real
        for found in (
            tnplan.propagate(bound, observable, parameters=values, device="cpu").value,
            tnplan.propagate(circuit, observable, parameters=values, device="cpu").value,
            tnplan.simulate(given, observable=observable, device="cpu", threads=1).answer.expectation,
        ):
            assert found == pytest.approx(expected, abs=1e-12)
    with pytest.raises(InputError, match=r"^Qiskit circuit: parameter phi\[0\]: has no value"):
        bound.bind(theta=0.1).expectation("Z0")
    with pytest.raises(
        InputError, match=r"^parameter psi: is not a parameter of Qiskit circuit; choose from phi"
    ):
        bound.bind({**values, "psi": 1})
    for wrong in ("pi/4", 1j, np.complex64(1j), math.nan, math.inf, None, [1.0], np.ones(1)):
        with pytest.raises(InputError, match=r"^parameter phi\[0\]: is .*; give a finite real number"):
            bound.bind({**values, "phi[0]": wrong}).gate_sequence()
    with pytest.raises(InputError, match=r"^observable: is a sum on 2 qubits; give a sum on 3"):
        tnplan.propagate(tnplan.GateSequence(3, ()), observable)
    with pytest.raises(
        InputError, match=r"(?m)^observable: is of type int; give a text such as .*, or a PauliSum$"
    ):
        tnplan.propagate(tnplan.GateSequence(3, ()), 5)


def test_qiskit_measures_and_branches() -> None:
    pytest.importorskip("qiskit")
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    from qiskit import QuantumCircuit

    circuit = QuantumCircuit(2, 2)
    circuit.x(0)
    circuit.measure(0, 1)
    circuit.reset(0)
    program = tnplan.load_program(circuit)
    assert [type(item) for item in program.operations][1:] == [Measurement, Reset]
    with pytest.raises(InputError, match="Qiskit circuit: measures, resets, branches"):
        tnplan.load_circuit(circuit)
    with circuit.if_test((circuit.clbits[1], 1)):
        circuit.x(1)
    circuit.measure(1, 0)
    assert tnplan.simulate(circuit, shots=5, device="cpu", threads=1).answer.counts == {"11": 5}


@pytest.mark.parametrize("seed", SEEDS)
def test_quimb(seed: int) -> None:
    quimb = pytest.importorskip("quimb.tensor")
    generator = np.random.default_rng(seed)
    circuit = quimb.Circuit(4)
    for _ in range(25):
        a, b, c = (int(q) for q in generator.permutation(4)[:3])
        angles = generator.normal(size=3)
        for name, arguments in (
            ("H", (a,)), ("RZZ", (angles[0], a, b)), ("U3", (*angles, b)), ("FSIM", (*angles[:2], b, c)),
            ("CNOT", (c, a)), ("T", (c,)), ("SWAP", (a, b)), ("RX", (angles[1], c)),
        ):  # fmt: skip
            if generator.random() < 0.4:
                circuit.apply_gate(name, *arguments)
    check_state(circuit, np.asarray(circuit.to_dense(optimize="greedy")).ravel())


@pytest.mark.parametrize("seed", SEEDS)
def test_cirq(seed: int) -> None:
    cirq = pytest.importorskip("cirq")
    import sympy

    circuit = cirq.testing.random_circuit(5, 12, 0.8, random_state=seed)
    circuit += [cirq.rx(sympy.Symbol("a") * 2)(qubit) for qubit in sorted(circuit.all_qubits())]
    circuit += cirq.QuantumFourierTransformGate(5)(*sorted(circuit.all_qubits()))
    lines = sorted(circuit.all_qubits())
    circuit = circuit.transform_qubits(dict(zip(lines, cirq.LineQubit.range(5)[::-1], strict=True)))
    with pytest.raises(InputError, match=r"Cirq circuit: parameter a: has no value"):
        tnplan.load_circuit(circuit)
    bound = tnplan.Circuit(circuit)
    given = cirq.resolve_parameters(circuit, {"a": 0.3})
    check_state(bound.bind(a=0.3), given.final_state_vector(dtype=np.complex128))


def test_cirq_measures_and_has_noise() -> None:
    cirq = pytest.importorskip("cirq")
    a, b = cirq.LineQubit.range(2)
    circuit = cirq.Circuit(cirq.X(a), cirq.measure(a), cirq.reset(a), cirq.amplitude_damp(0.5)(b))
    kinds = [type(item) for item in tnplan.load_program(circuit).operations]
    assert set(kinds[1:]) == {Measurement, Reset, Channel}
    flipped = tnplan.load_program(cirq.Circuit(cirq.bit_flip(1)(a), cirq.reset(a))).operations
    assert [type(item) for item in flipped][1:] == [Reset]
    inverted = tnplan.load_program(cirq.Circuit(cirq.measure(a, b, key="m", invert_mask=(False, True))))
    assert inverted.operations[-1] == BitAssignment(1, (1,), (True, False))


@pytest.mark.parametrize("seed", SEEDS)
def test_pennylane(seed: int) -> None:
    qml = pytest.importorskip("pennylane")
    generator = np.random.default_rng(seed)
    angles = generator.normal(size=9)
    operations = [
        qml.Hadamard(0), qml.RX(angles[0], 1), qml.CRot(*angles[1:4], wires=[2, 0]), qml.QFT(wires=range(5)),
        qml.MultiControlledX(wires=[0, 1, 2, 3, 4]), qml.adjoint(qml.S(3)), qml.IsingXY(angles[4], [1, 3]),
        qml.ctrl(qml.RY(angles[5], 4), [0, 2], control_values=[0, 1]), qml.GlobalPhase(angles[6]),
        qml.QubitUnitary(np.linalg.qr(generator.normal(size=(4, 4)))[0], [3, 0]), qml.Barrier(wires=[0, 1]),
    ]  # fmt: skip
    tape = qml.tape.QuantumScript(operations, [qml.expval(qml.PauliZ(0))])
    plain = qml.tape.QuantumScript([one for one in operations if one.name != "Barrier"])
    expected = qml.matrix(plain, range(5))
    check_state(tape, np.asarray(expected)[:, 0])


def test_openqasm_is_bound_without_reading_it_again(tmp_path: Path) -> None:
    pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")
    path = tmp_path / "c.qasm"
    path.write_text('include "stdgates.inc"; input float t; qubit q; bit c; rx(t) q; c = measure q;')
    circuit = tnplan.Circuit(path)
    path.unlink()
    assert circuit.parameters == ("t",)
    bound = [circuit.bind(t=value).gate_sequence() for value in (0.1, 0.2)]
    assert [one.gates[0].params for one in bound] == [(0.1,), (0.2,)]
    assert len(circuit.program({"t": 0.1}).operations) == 2
    with pytest.raises(InputError, match=r"c\.qasm: line 1 \(input\): has no value for 't'"):
        circuit.program()

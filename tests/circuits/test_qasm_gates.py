"""Gates of OpenQASM: Qiskit's matrices, its exported circuits, modifiers, and gates that are split."""

from __future__ import annotations

import re
from random import Random

import numpy as np
import pytest

from tests.support.circuits import unitary
from tests.support.effort import repeats
from tests.support.qasm_programs import parse_qasm
from tnplan.circuits.circuit import Gate
from tnplan.circuits.gates import controlled
from tnplan.circuits.qasm.gate_calls import DEFINITIONS, INCLUDED, multi_controlled, power
from tnplan.circuits.qasm.read import parse_qasm_program
from tnplan.common.errors import InputError

pytest.importorskip("openqasm3.parser", reason="needs the extra qasm")

HEAD3 = 'OPENQASM 3.0;\ninclude "stdgates.inc";\n'
EXACT = 1e-12


def called(name: str, angles: np.ndarray) -> str:
    """A gate with its angles."""
    return f"{name}({', '.join(map(repr, angles.tolist()))})" if len(angles) else name


def test_standard_gates_are_those_of_qiskit() -> None:
    qasm2 = pytest.importorskip("qiskit.qasm2")
    from qiskit.quantum_info import Operator

    generator = np.random.default_rng(0)
    compared = 0
    for instruction in qasm2.LEGACY_CUSTOM_INSTRUCTIONS:
        if instruction.name in ("delay", "u0"):
            continue
        angles = generator.normal(size=instruction.num_params)
        expected = Operator(instruction.constructor(*angles)).reverse_qargs().data
        np.testing.assert_allclose(INCLUDED[instruction.name].matrix(*angles), expected, rtol=0, atol=EXACT)
        compared += 1
    assert compared > 35


@pytest.mark.parametrize("name", re.findall(r"gate (\w+)", DEFINITIONS))
def test_definitions_of_standard_gates_have_their_matrices(name: str) -> None:
    """As a file that defines the gate under another name, since that is what expands it."""
    kind = INCLUDED["cx" if name == "CX" else name]
    angles = np.random.default_rng(1).normal(size=kind.n_params)
    text = DEFINITIONS.replace(f"gate {name}", "gate other") + f"qubit[{kind.n_qubits}] q;\n"
    text += f"{called('other', angles)} {', '.join(f'q[{k}]' for k in range(kind.n_qubits))};"
    gates = parse_qasm(text, "c.qasm").gates
    np.testing.assert_allclose(unitary(gates, kind.n_qubits), kind.matrix(*angles), rtol=0, atol=EXACT)


def test_aliases_name_physical_qubits() -> None:
    gates = parse_qasm(HEAD3 + "let a = $2 ++ $0;\ncx a[0], a[1];", "c.qasm").gates
    assert [gate.qubits for gate in gates] == [(2, 0)]


@pytest.mark.parametrize("seed", range(40))
def test_gates_that_are_split_are_those_that_are_not(seed: int) -> None:
    """A program has gates on six qubits, a circuit on three."""
    random = Random(seed)
    name = random.choice(list(INCLUDED))
    kind = INCLUDED[name]
    modifiers, n = "", kind.n_qubits
    for _ in range(random.randrange(4)):
        word, more = random.choice([("ctrl", 1), ("negctrl", 1), ("inv", 0), ("pow(2)", 0), ("ctrl(2)", 2)])
        if n + more <= 6:
            modifiers, n = f"{word} @ {modifiers}", n + more
    angles = np.random.default_rng(seed).normal(size=kind.n_params)
    qubits = ", ".join(f"q[{k}]" for k in random.sample(range(n), n))
    text = HEAD3 + f"qubit[{n}] q; {modifiers}{called(name, angles)} {qubits};"
    whole = [gate for gate in parse_qasm_program(text, "c").operations if isinstance(gate, Gate)]
    split = parse_qasm(text, "c").gates
    assert max(len(gate.qubits) for gate in split) <= 3
    np.testing.assert_allclose(unitary(split, n), unitary(whole, n), rtol=0, atol=1e-10)


@pytest.mark.parametrize("n_controls", range(6))
def test_many_controls(n_controls: int) -> None:
    generator = np.random.default_rng(n_controls)
    random = np.linalg.qr(generator.normal(size=(2, 2)) + 1j * generator.normal(size=(2, 2)))[0]
    for matrix in (random, np.array([[0, 1], [1, 0]], np.complex128), np.diag([1, -1]).astype(np.complex128)):
        gates = list(multi_controlled(range(n_controls), n_controls, matrix))
        np.testing.assert_allclose(
            unitary(gates, n_controls + 1), controlled(matrix, n_controls), rtol=0, atol=EXACT
        )
        assert len(gates) <= 4 * (n_controls + 1) ** 2


@pytest.mark.parametrize("exponent", [0.5, -0.25, 3, -2, 1 / 3])
def test_powers_have_phases_from_minus_pi_to_pi(exponent: float) -> None:
    generator = np.random.default_rng(2)
    for side in (2, 4, 8):
        real, imaginary = generator.normal(size=(2, side, side))
        basis = np.linalg.qr(real + 1j * imaginary)[0]
        phases = generator.uniform(-np.pi, np.pi, size=side)
        phases[0], phases[1:3] = np.pi, phases[1]  # -1, and one phase twice
        expected = (basis * np.exp(1j * exponent * phases)) @ basis.conj().T
        found = power((basis * np.exp(1j * phases)) @ basis.conj().T, exponent)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("seed", range(repeats(2, 6)))
def test_circuits_that_qiskit_writes(seed: int, version: int) -> None:
    """All gates of Qiskit on up to four qubits, and composite ones on eight."""
    pytest.importorskip("qiskit_qasm3_import")
    from qiskit import QuantumCircuit, qasm2, qasm3
    from qiskit.circuit.library import MCPhaseGate, QFTGate, quantum_volume
    from qiskit.circuit.random import random_circuit
    from qiskit.quantum_info import Statevector

    n = 8
    circuit = QuantumCircuit(n)
    circuit.h(range(n))
    circuit.compose(random_circuit(n, 5, max_operands=4, seed=seed), range(n), inplace=True)
    circuit.append(QFTGate(n), range(n))
    circuit.append(quantum_volume(n, 1, seed=seed).to_gate(), range(n))
    circuit.append(MCPhaseGate(0.3, n - 1), range(n))
    circuit.mcx(list(range(n - 1)), n - 1)
    text = (qasm2 if version == 2 else qasm3).dumps(circuit)
    old = {"custom_instructions": qasm2.LEGACY_CUSTOM_INSTRUCTIONS}
    read = qasm2.loads(text, **old) if version == 2 else qasm3.loads(text)
    written, expected = (Statevector(one).reverse_qargs().data for one in (circuit, read))
    for gates in (parse_qasm(text, "c").gates, parse_qasm_program(text, "c").operations):
        found = unitary([gate for gate in gates if isinstance(gate, Gate)], n, columns=1)[:, 0]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
        assert abs(np.vdot(found, written)) == pytest.approx(1, abs=1e-10)  # Qiskit writes not all phases


def test_what_cannot_be_split_is_refused() -> None:
    text = HEAD3 + "gate g a, b, c, d { h a; cx a, b; cx c, d; }\nqubit[4] q;\n"
    text += "pow(0.5) @ g q[0], q[1], q[2], q[3];"
    with pytest.raises(
        InputError, match=r"line 5 \(g\): takes a power that is not an integer of a gate on 4"
    ):
        parse_qasm(text, "c.qasm")
    assert len(parse_qasm_program(text, "c.qasm").operations) == 1
    with pytest.raises(InputError, match=r"line 3 \(x\): takes the power 1e\+30; use at most 1000000"):
        parse_qasm(HEAD3 + "qubit q; pow(1e30) @ x q;", "c.qasm")

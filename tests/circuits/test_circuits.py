"""Circuits: gates, their files, and the networks of their amplitudes against a dense state vector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.circuits import contract, random_circuit, state_vector
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import KINDS, X, fsim, gate
from tnplan.circuits.load import load_circuit
from tnplan.circuits.program import (
    Channel,
    Conditional,
    Reset,
    WhileLoop,
    largest_operator,
)
from tnplan.circuits.qsim import parse_qsim, save_qsim
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network
from tnplan.planner.networks.simplify import simplify


@pytest.mark.parametrize("name", sorted(KINDS))
def test_gates_are_unitary(name: str) -> None:
    kind = KINDS[name]
    matrix = gate(name, range(kind.n_qubits), [0.3, 0.7][: kind.n_params]).matrix
    assert matrix.shape == (2**kind.n_qubits,) * 2
    assert np.allclose(matrix @ matrix.conj().T, np.eye(len(matrix)), atol=1e-15)


def test_gates_are_those_of_qsim() -> None:
    r = np.sqrt(0.5)
    expected = {
        "x_1_2": np.array([[1 + 1j, 1 - 1j], [1 - 1j, 1 + 1j]]) / 2,
        "y_1_2": np.array([[1 + 1j, -1 - 1j], [1 + 1j, 1 + 1j]]) / 2,
        "hz_1_2": np.array([[(1 + 1j) / 2, -1j * r], [r, (1 + 1j) / 2]]),
        "t": np.diag([1, np.exp(0.25j * np.pi)]),
        "is": np.array([[1, 0, 0, 0], [0, 0, 1j, 0], [0, 1j, 0, 0], [0, 0, 0, 1]]),
        "cnot": np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]),
    }
    for name, matrix in expected.items():
        assert np.allclose(gate(name, range(KINDS[name].n_qubits)).matrix, matrix, atol=1e-15), name
    c, s, p = np.cos(0.4), np.sin(0.4), np.exp(-0.9j)
    assert np.allclose(fsim(0.4, 0.9), [[1, 0, 0, 0], [0, c, -1j * s, 0], [0, -1j * s, c, 0], [0, 0, 0, p]])
    assert np.allclose(gate("cp", (0, 1), (0.9,)).matrix, np.diag([1, 1, 1, p]))
    assert np.allclose(gate("rx", (0,), (np.pi,)).matrix, [[0, -1j], [-1j, 0]], atol=1e-15)
    assert np.allclose(
        gate("rxy", (0,), (np.pi / 4, np.pi / 2)).matrix * np.exp(0.25j * np.pi), expected["hz_1_2"]
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("simplified", [False, True])
def test_amplitudes_are_those_of_the_state_vector(seed: int, simplified: bool) -> None:
    circuit = random_circuit(5, 60, seed)
    state = state_vector(circuit)

    def value(**ends: Any) -> np.ndarray:
        network, arrays = circuit_network(circuit, **ends)
        return contract(*(simplify(network, arrays) if simplified else (network, arrays)))

    assert np.allclose(value(amplitude="01101"), state[0, 1, 1, 0, 1], atol=1e-13)
    assert np.allclose(value(), state[0, 0, 0, 0, 0], atol=1e-13)
    assert np.allclose(value(amplitude="0.1.0"), state[0, :, 1, :, 0], atol=1e-13)
    assert np.allclose(value(open_qubits=(3, 0)), state[:, 0, 0, :, 0].T, atol=1e-13)
    assert np.allclose(value(open_qubits=range(5)), state, atol=1e-13)


def test_diagonal_gates_make_hyper_indices() -> None:
    circuit = GateSequence(
        2, (gate("h", (0,)), gate("h", (1,)), gate("cz", (0, 1)), gate("rz", (0,), (0.3,)))
    )
    network, arrays = circuit_network(circuit)
    assert network.inputs[4:6] == (("q0_1", "q1_1"), ("q0_1",))
    assert arrays[4].shape == (2, 2)
    assert sum("q0_1" in term for term in network.inputs) == 4


def test_idle_qubits_may_be_open_or_closed() -> None:
    circuit = GateSequence(2, (gate("x", (0,)),))
    network, arrays = circuit_network(circuit, amplitude="1.")
    assert np.array_equal(contract(network, arrays), [1, 0])
    assert contract(*circuit_network(circuit, amplitude="01")) == 0


def test_what_changes_later_changes_no_circuit() -> None:
    matrix, qubits, gates = np.eye(2, dtype=np.complex128), [0], []
    gates.append(Gate("u", qubits, matrix))  # type: ignore[arg-type]
    circuit = GateSequence(2, gates)  # type: ignore[arg-type]
    channel = Channel(qubits, (matrix,))  # type: ignore[arg-type]
    matrix[:] = X
    qubits[0] = 1
    gates.clear()
    (kept,) = circuit.gates
    assert kept.qubits == channel.qubits == (0,)
    assert np.array_equal(kept.matrix, np.eye(2))
    assert np.array_equal(channel.kraus[0], np.eye(2))
    with pytest.raises(ValueError, match="read-only"):
        kept.matrix[0, 0] = 2


@pytest.mark.parametrize("dtype", [bool, np.int8, np.float32, np.float64, np.complex64, np.complex128])
def test_matrices_of_all_numbers_become_complex128(dtype: Any) -> None:
    made = Gate("x", (0,), np.array([[0, 1], [1, 0]], dtype))
    assert made.matrix.dtype == np.complex128
    assert np.array_equal(made.matrix, [[0, 1], [1, 0]])
    assert np.array_equal(Gate("x", (0,), [[0, 1], [1, 0]]).matrix, made.matrix)  # type: ignore[arg-type]


def test_qsim_round_trip(tmp_path: Path) -> None:
    circuit = random_circuit(4, 40, 7)
    save_qsim(circuit, tmp_path / "c.qsim")
    again = load_circuit(tmp_path / "c.qsim")
    assert again.n_qubits == 4
    for one, other in zip(circuit.gates, again.gates, strict=True):
        assert (one.name, one.qubits, one.params) == (other.name, other.qubits, other.params)
        assert np.array_equal(one.matrix, other.matrix)


def test_qsim_dialects() -> None:
    text = (
        "# made by hand\n3\n\n0 hz_1_2 0 \n0 x_1_2 1\n1 fsim 0 1 0.5 0.25\n2 swap 1 2  \n3 id_1 0\n"
        "4 m 0 1 2\n"
    )
    circuit = parse_qsim(text, "c.qsim")
    assert [item.name for item in circuit.gates] == ["hz_1_2", "x_1_2", "fs", "sw", "id1"]
    assert circuit.gates[2].params == (0.5, 0.25)


@pytest.mark.parametrize(
    ("name", "n_qubits", "n_gates", "n_tensors", "n_indices"),
    [
        ("sycamore_n12_m14", 12, 480, 51, 99),
        ("sycamore_n53_m10", 53, 1658, 164, 319),
        ("sycamore_n53_m20", 53, 3263, 381, 754),
        ("zuchongzhi_n56_m20", 56, 1646, 423, 837),
        ("zuchongzhi_n60_m24", 60, 2094, 539, 1068),
    ],
)
def test_real_circuits(
    shared: Any, name: str, n_qubits: int, n_gates: int, n_tensors: int, n_indices: int
) -> None:
    """The counts of n53 m20 and n60 m24 are those of the reference networks of these circuits."""
    circuit = load_circuit(shared / f"circuits/{name}.qsim")
    assert (circuit.n_qubits, len(circuit.gates)) == (n_qubits, n_gates)
    network, arrays = simplify(*circuit_network(circuit))
    assert (len(network.inputs), len(network.size_dict)) == (n_tensors, n_indices)
    assert all(array.shape == network.shape(i) for i, array in enumerate(arrays))


def test_sycamore_n12_against_the_state_vector(shared: Any) -> None:
    circuit = load_circuit(shared / "circuits/sycamore_n12_m14.qsim")
    state = state_vector(circuit)
    network, arrays = simplify(*circuit_network(circuit, "0110.0100.11"))
    assert np.allclose(contract(network, arrays), state[0, 1, 1, 0, :, 0, 1, 0, 0, :, 1, 1], atol=1e-14)


QASM2 = """OPENQASM 2.0;
include "qelib1.inc";
qreg q[3];
creg c[3];
h q[0];
cx q[0], q[1];
u3(0.1, 0.2, 0.3) q[2];
barrier q;
cu1(0.4) q[1], q[2];
ccx q[0], q[1], q[2];
measure q -> c;
"""
QASM3 = """OPENQASM 3.0;
include "stdgates.inc";
gate mine(a) x, y { rz(a) x; cx x, y; gphase(0.3); }
qubit[2] q;
mine(0.7) q[1], q[0];
sx q[0];
"""


def test_qasm(tmp_path: Path) -> None:
    qiskit = pytest.importorskip("qiskit", reason="needs the extra qasm")
    pytest.importorskip("qiskit_qasm3_import", reason="needs the extra qasm")
    from qiskit.quantum_info import Statevector

    for name, text, n_qubits in (("two.qasm", QASM2, 3), ("three.qasm", QASM3, 2)):
        (tmp_path / name).write_text(text)
        circuit = load_circuit(tmp_path / name)
        assert circuit.n_qubits == n_qubits
        read = qiskit.qasm2.loads(text) if n_qubits == 3 else qiskit.qasm3.loads(text)
        read.remove_final_measurements()
        expected = Statevector(read).data.reshape((2,) * n_qubits).transpose(*reversed(range(n_qubits)))
        assert np.allclose(state_vector(circuit), expected, atol=1e-14)
        assert np.allclose(contract(*circuit_network(circuit, "." * n_qubits)), expected, atol=1e-14)


def test_the_largest_operator_may_be_inside_of_a_condition() -> None:
    wide = Gate("wide", (0, 3, 1), np.eye(8, dtype=np.complex128))
    noise = Channel((1, 2), (np.eye(4, dtype=np.complex128),))
    assert largest_operator([Reset(0), gate("h", (1,))]) == 1
    assert largest_operator([gate("h", (1,)), noise]) == 2
    assert largest_operator([noise, Conditional((0,), 1, (Reset(0),), (wide,))]) == 3
    assert largest_operator([WhileLoop((0,), 1, (Conditional((0,), 0, (wide,)),))]) == 3

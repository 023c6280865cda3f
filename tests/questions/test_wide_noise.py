"""Noise on three qubits: every engine against dense density matrices, and circuits of other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support import dense_answers as dense
from tnplan.circuits.gates import I2, X, Y, Z, kronecker
from tnplan.circuits.program import Channel, CircuitProgram, circuit_program, depolarized, depolarizing
from tnplan.common.errors import InputError

CPU: Any = {"device": "cpu", "threads": 1}
ON = (2, 0, 3)


def random_operators(n_qubits: int, n_operators: int, seed: int) -> tuple[np.ndarray, ...]:
    """Operators K of a random channel: blocks of the first columns of a random unitary."""
    random, side = np.random.default_rng(seed), 2**n_qubits
    values = random.normal(size=(n_operators * side, side, 2)) @ [1, 1j]
    return tuple(np.linalg.qr(values)[0].reshape(n_operators, side, side))


def pauli_operators() -> tuple[np.ndarray, ...]:
    """Three words strike with chances of their own."""
    words = [(I2, I2, I2), (X, Z, Y), (Z, I2, X), (Y, Y, Y)]
    return tuple(np.sqrt(p) * kronecker(word) for p, word in zip((0.6, 0.2, 0.15, 0.05), words, strict=True))


CHANNELS = {
    "kraus": Channel(ON, random_operators(3, 3, 1)), "pauli": Channel(ON, pauli_operators()),
    "depolarizing": depolarizing(ON, 0.3),
}  # fmt: skip


def noisy_program(kind: str) -> CircuitProgram:
    """Gates before and after a channel."""
    first, second = (dense.circuit_of(4, 25, seed).gates for seed in (3, 4))
    return CircuitProgram(4, 0, (*first, CHANNELS[kind], *second))


@pytest.mark.parametrize("method", ["contraction", "pauli"])
@pytest.mark.parametrize("kind", CHANNELS)
def test_values_are_those_of_the_density_matrix(kind: str, method: str) -> None:
    program = noisy_program(kind)
    rho = dense.density(program.operations, 4)
    asked, sums = tnplan.Circuit(program), [dense.random_sum(4, 3, seed) for seed in range(2)]
    expected = [np.trace(rho @ dense.matrix_of(one)).real for one in sums]
    found = asked.expectation(sums, method=method, **CPU)
    np.testing.assert_allclose(found.value, expected, rtol=0, atol=1e-10)
    reduced = asked.reduced_density_matrix([3, 1], method=method, **CPU)
    np.testing.assert_allclose(reduced.value, dense.reduced(rho, [3, 1]), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", CHANNELS)
def test_trajectories_agree_within_their_error(kind: str) -> None:
    program = noisy_program(kind)
    rho = dense.density(program.operations, 4)
    one = dense.random_sum(4, 2, 5)
    found = tnplan.Circuit(program).expectation(one, method="statevector", trajectories=400, seed=2, **CPU)
    assert found.error > 0
    assert abs(found.value - np.trace(rho @ dense.matrix_of(one)).real) < 4.5 * found.error


@pytest.mark.parametrize("method", ["contraction", "pauli", "statevector"])
def test_noise_after_gates_on_three_qubits(method: str) -> None:
    ccx = tnplan.Gate("ccx", (1, 3, 0), np.eye(8)[[0, 1, 2, 3, 4, 5, 7, 6]])
    first, second = (dense.circuit_of(4, 10, seed).gates for seed in (1, 2))
    circuit = tnplan.GateSequence(4, (*first, ccx, *second))
    rho = dense.density(depolarized(circuit_program(circuit), 0.03).operations, 4)
    one = dense.random_sum(4, 3, 1)
    runs = {"trajectories": 300, "seed": 1} if method == "statevector" else {}
    found = tnplan.Circuit(circuit).expectation(one, depolarizing=0.03, method=method, **runs, **CPU)
    exact = np.trace(rho @ dense.matrix_of(one)).real
    assert abs(found.value - exact) < (4.5 * found.error if method == "statevector" else 1e-10)


def test_a_channel_too_large_for_pauli_propagation_is_left_to_contraction() -> None:
    program = CircuitProgram(5, 0, (Channel((0, 2, 1, 4), random_operators(4, 2, 3)),))
    rho = dense.density(program.operations, 5)
    asked, one = tnplan.Circuit(program), dense.random_sum(5, 2, 1)
    found = asked.expectation(one, **CPU)
    assert found.method == "contraction"
    np.testing.assert_allclose(found.value, np.trace(rho @ dense.matrix_of(one)).real, rtol=0, atol=1e-10)
    message = r"^operation 0 \(channel\): acts on 4 qubits, but 'pauli' takes at most 3; use contraction"
    with pytest.raises(InputError, match=message) as refused:
        asked.expectation(one, method="pauli", **CPU)
    assert "\n" not in str(refused.value)


def check_read(circuit: Any, expected: np.ndarray) -> None:
    """The density matrix of a circuit of another library."""
    program = tnplan.load_program(circuit)
    np.testing.assert_allclose(dense.density(program.operations, 3), expected, rtol=0, atol=1e-7)
    found = tnplan.Circuit(circuit).reduced_density_matrix([0, 1, 2], method="contraction", **CPU)
    np.testing.assert_allclose(found.value, expected, rtol=0, atol=1e-7)


def test_cirq() -> None:
    cirq = pytest.importorskip("cirq")
    a, b, c = cirq.LineQubit.range(3)
    channel = cirq.KrausChannel(list(random_operators(3, 2, 5)))
    circuit = cirq.Circuit(
        cirq.H(a), cirq.CNOT(a, c), cirq.ry(0.4)(b), channel(c, a, b), cirq.depolarize(0.1, 3)(b, c, a)
    )
    found = cirq.DensityMatrixSimulator(dtype=np.complex128).simulate(circuit)
    check_read(circuit, found.final_density_matrix)


def test_pennylane() -> None:
    qml = pytest.importorskip("pennylane")
    operations = [
        qml.Hadamard(0), qml.CNOT([0, 2]), qml.RY(0.4, 1),
        qml.QubitChannel(list(random_operators(3, 2, 6)), wires=[2, 0, 1]),
    ]  # fmt: skip
    tape = qml.tape.QuantumScript(operations, [qml.density_matrix([0, 1, 2])])
    expected = qml.device("default.mixed", wires=3).execute(tape)
    check_read(tape, np.asarray(expected))


def test_qiskit() -> None:
    pytest.importorskip("qiskit")
    from qiskit import QuantumCircuit
    from qiskit.quantum_info import DensityMatrix, Kraus

    circuit = QuantumCircuit(3)
    circuit.h(0)
    circuit.cx(0, 2)
    circuit.ry(0.4, 1)
    circuit.append(Kraus(list(random_operators(3, 2, 7))), [2, 0, 1])
    check_read(circuit, DensityMatrix(circuit).reverse_qargs().data)

"""Gates as they act on |0...0> have the same state, with fewer and smaller gates."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.circuit_families import random_case
from tests.support.circuits import random_circuit, state_vector
from tests.support.effort import repeats
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.known_qubits import acting_gates


def check(circuit: GateSequence) -> GateSequence:
    acting = acting_gates(circuit)
    np.testing.assert_allclose(state_vector(acting), state_vector(circuit), rtol=0, atol=1e-12)
    return acting


def of_bits(n_qubits: int, n_gates: int, seed: int) -> GateSequence:
    """Mostly gates that take bits to bits, with phases; and a few others, some of which are no unitaries."""
    draw = np.random.default_rng(seed)
    gates = []
    for _ in range(n_gates):
        width = int(draw.integers(1, min(3, n_qubits) + 1))
        qubits = tuple(map(int, draw.choice(n_qubits, width, replace=False)))
        kind = draw.random()
        if kind < 0.7:
            matrix = np.eye(2**width)[draw.permutation(2**width)] * np.exp(1j * draw.uniform(0, 6, 2**width))
        elif kind < 0.8:
            matrix = np.kron(np.eye(2 ** (width - 1)), [[1, 1], [1, -1]]) / np.sqrt(2)
        elif kind < 0.9:  # a control on the value 0 or 1 of the first qubit
            matrix = np.eye(2**width, dtype=complex)
            half = slice(0, 2 ** (width - 1)) if draw.random() < 0.5 else slice(2 ** (width - 1), None)
            side = len(matrix[half])
            matrix[half, half] = np.linalg.qr(draw.standard_normal((side, side)))[0]
        else:
            matrix = draw.standard_normal((2**width, 2**width)) * (draw.random((2**width, 2**width)) < 0.5)
        gates.append(Gate("gate", qubits, matrix))
    return GateSequence(n_qubits, tuple(gates))


@pytest.mark.parametrize("seed", range(repeats(60, 2000)))
def test_the_state_is_the_same(seed: int) -> None:
    draw = np.random.default_rng(seed)
    check(of_bits(int(draw.integers(1, 7)), int(draw.integers(0, 40)), seed))
    check(random_circuit(5, 30, seed))


@pytest.mark.parametrize("seed", range(repeats(20, 300)))
def test_circuits_of_every_family_keep_their_state(seed: int) -> None:
    case = random_case(50_000 + seed, most_qubits=10, most_depth=10)
    if isinstance(case.circuit, GateSequence) and case.n_qubits <= 12:
        check(case.circuit)


def test_an_adder_of_bits_comes_to_flips() -> None:
    """The carry and the sum of 1 + 1, and of 1 + |+>: one gate on two qubits is left of the second."""
    toffoli = Gate("ccx", (0, 1, 2), np.eye(8)[[0, 1, 2, 3, 4, 5, 7, 6]])
    carry = (toffoli, gate("cnot", (0, 1)))
    bits = check(GateSequence(3, (gate("x", (0,)), gate("x", (1,)), *carry)))
    assert all(len(acting.qubits) == 1 for acting in bits.gates)
    other = check(GateSequence(3, (gate("x", (0,)), gate("h", (1,)), *carry)))
    assert sum(len(acting.qubits) == 2 for acting in other.gates) == 1
    assert max(len(acting.qubits) for acting in other.gates) == 2

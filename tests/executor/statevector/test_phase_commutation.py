"""Phases that move on to later gates: the same product, with fewer multiply-adds for every gate."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.circuits import random_circuit
from tests.support.engines.statevector import dense_matrix, hadamards, many_kinds, qft, random_unitary
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, from_gate
from tnplan.executor.statevector.gates.phase_polynomial import commute_phases, cost, is_rotation

N = 5


def unitaries(depth: int) -> GateSequence:
    """Random unitaries on all qubits, and phases of neighbours between."""
    generator = np.random.default_rng(2)
    gates = []
    for layer in range(depth):
        gates += [Gate("u", (q,), random_unitary(1, generator)) for q in range(N)]
        gates += [gate("fs", (q, q + 1), (0.0, 0.7 + q)) for q in range(layer % 2, N - 1, 2)]
    return GateSequence(N, tuple(gates))


@pytest.mark.parametrize("rotations", [False, True])
@pytest.mark.parametrize(
    "circuit",
    [unitaries(4), qft(N), hadamards(N), random_circuit(N, 80, 1), many_kinds(N, 9, 4)],
    ids=["unitaries", "qft", "h", "every", "kinds"],
)
def test_the_product_is_the_same(circuit: GateSequence, rotations: bool) -> None:
    gates = [from_gate(item) for item in circuit.gates]
    made = commute_phases(gates, N, rotations)
    np.testing.assert_allclose(dense_matrix(made, N), dense_matrix(gates, N), rtol=0, atol=1e-12)
    assert not any(gate.is_identity for gate in made)


def test_gates_on_one_qubit_have_two_equal_elements() -> None:
    gates = [from_gate(item) for item in unitaries(4).gates]
    singles = [gate for gate in commute_phases(gates, N) if gate.targets]
    assert len(singles) == 4 * N - 3  # a qubit without a neighbour in a layer has two gates in a row
    assert {cost(gate.matrices[0].ravel().tolist()) for gate in gates if len(gate.targets) == 1} == {12}
    assert {cost(gate.matrices[0].ravel().tolist()) for gate in gates if len(gate.targets) == 1} == {12}
    assert {cost(gate.matrices[0].ravel().tolist()) for gate in singles} == {8}


def test_gates_on_one_qubit_are_rotations_between_phases() -> None:
    gates = [from_gate(item) for item in unitaries(4).gates]
    singles = [gate for gate in commute_phases(gates, N, rotations=True) if gate.targets]
    assert len(singles) == 4 * N - 3
    assert all(is_rotation(gate.matrices[0]) for gate in singles)
    flat = MultiplexedGate((0,), (), np.array([[[1, -1], [1, 1]]]) + 0j)
    made = commute_phases([flat], N, rotations=True)
    assert made[0].targets == (0,)  # a matrix of units alone is not taken apart


def test_neighbours_on_a_qubit_are_one() -> None:
    generator = np.random.default_rng(3)
    first, second = (random_unitary(1, generator) for _ in range(2))
    chosen = MultiplexedGate((1,), (0,), np.array([np.eye(2), first]))
    singles = [MultiplexedGate((q,), (), matrix[None]) for q, matrix in ((0, first), (2, first), (0, second))]
    made = commute_phases([*singles, chosen, singles[0]], N)
    assert [gate.targets for gate in made if gate.targets] == [(2,), (0,), (1,), (0,)]

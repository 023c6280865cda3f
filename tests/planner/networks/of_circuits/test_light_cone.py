"""What cancels in the Heisenberg picture, against dense matrices: no more and, for these gates, no less."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.circuits import random_circuit, unitary
from tnplan.circuits.circuit import Gate
from tnplan.circuits.gates import X, Y, Z, gate
from tnplan.circuits.program import depolarizing
from tnplan.planner.networks.of_circuits.amplitude_network import without_common_end
from tnplan.planner.networks.of_circuits.steps import diagonal_qubits
from tnplan.planner.networks.of_circuits.wires import forward_cone, light_cone


def heisenberg(gates: list[Gate], operator: Gate, n_qubits: int) -> np.ndarray:
    matrix = unitary(gates, n_qubits)
    return np.asarray(matrix.conj().T @ unitary([operator], n_qubits) @ matrix)


@pytest.mark.parametrize("letter", ["X", "Y", "Z"])
@pytest.mark.parametrize("seed", range(12))
def test_what_is_left_out_cancels(letter: str, seed: int) -> None:
    n_qubits = 4
    gates = list(random_circuit(n_qubits, 14, seed).gates)
    operator = Gate(letter, (seed % n_qubits,), {"X": X, "Y": Y, "Z": Z}[letter])
    diagonal = operator.qubits if letter == "Z" else ()
    kept = [gates[number] for number in light_cone(gates, operator.qubits, diagonal)]
    wanted = heisenberg(gates, operator, n_qubits)
    np.testing.assert_allclose(heisenberg(kept, operator, n_qubits), wanted, rtol=0, atol=1e-12)
    inverse = [Gate(one.name, one.qubits, one.matrix.conj().T) for one in reversed(gates)]
    forward = [gates[number] for number in forward_cone(gates, operator.qubits, diagonal)]
    undone = [Gate(one.name, one.qubits, one.matrix.conj().T) for one in reversed(forward)]
    np.testing.assert_allclose(
        heisenberg(undone, operator, n_qubits), heisenberg(inverse, operator, n_qubits), rtol=0, atol=1e-12
    )


def test_controls_and_diagonal_gates_keep_their_qubits() -> None:
    assert diagonal_qubits(gate("cnot", (0, 1))) == (True, False)
    assert diagonal_qubits(gate("cz", (0, 1))) == (True, True)
    assert diagonal_qubits(gate("sw", (0, 1))) == (False, False)
    assert diagonal_qubits(depolarizing((0,), 0.1)) == (False,)
    steps = [gate("h", (0,)), gate("cnot", (0, 1)), gate("cz", (1, 2)), depolarizing((2,), 0.1)]
    assert light_cone(steps, [0], [0]) == [0]
    assert light_cone(steps, [1], [1]) == [0, 1]
    assert light_cone(steps, [0]) == [0, 1]
    assert light_cone(steps, [2], [2]) == [3]
    steps = [gate("cz", (0, 1)), gate("sw", (1, 2)), gate("x", (2,)), gate("h", (0,))]
    assert light_cone(steps, [2], [2]) == [1, 2]
    assert light_cone(steps, [2]) == [0, 1, 2]


def test_gates_at_both_ends_cancel_in_any_order() -> None:
    shared = list(random_circuit(5, 20, 3).gates)
    first, second = [gate("h", (0,)), *shared], [gate("t", (1,)), *shared]
    left, right = without_common_end(first, second)
    assert [one.name for one in left] == ["h"]
    assert [one.name for one in right] == ["t"]
    swapped = [gate("x", (0,)), gate("y", (1,))]
    assert without_common_end(swapped, swapped[::-1]) == ([], [])

"""Clifford circuits answered by Stim, against dense matrices and against other engines."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support import dense_answers as dense
from tests.support.chi_square import check_counts
from tests.support.circuits import state_vector
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import KINDS, gate
from tnplan.circuits.program import (
    BitAssignment,
    CircuitProgram,
    Conditional,
    Measurement,
    Operation,
    Reset,
    circuit_program,
    depolarizing,
)

pytest.importorskip("stim")

CPU: Any = {"device": "cpu", "threads": 1}
GATES = {1: ("h", "s", "x", "y", "z"), 2: ("cnot", "cz", "sw", "is")}
SHOTS = 4000


def clifford_circuit(n_qubits: int, n_gates: int, seed: int) -> GateSequence:
    """Random Clifford gates, quarter turns with other global phases among them."""
    random = np.random.default_rng(seed)
    gates = []
    for _ in range(n_gates):
        m = int(random.integers(1, min(n_qubits, 2) + 1))
        qubits = tuple(random.permutation(n_qubits)[:m].tolist())
        if m == 1 and random.random() < 0.3:
            angle = float(random.integers(-3, 4)) * np.pi / 2
            gates.append(gate(str(random.choice(["rx", "ry", "rz"])), qubits, [angle]))
        else:
            gates.append(gate(str(random.choice(GATES[m])), qubits))
    return GateSequence(n_qubits, tuple(gates))


# Stim's first array imports a module of NumPy; here this import lets other threads run for 0.2 s.
THREADS = """
import sys, threading, time
from importlib.abc import MetaPathFinder
from tnplan.circuits.gates import gate
from tnplan.questions.engines.stabilizer import clifford_lines

class Slow(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.startswith("numpy"):
            time.sleep(0.2)

sys.meta_path.insert(0, Slow())
matrices = [gate(name, [0]).matrix.astype("complex128").tobytes() for name in ("h", "s", "x", "y")]
threads = [threading.Thread(target=clifford_lines, args=(matrix,)) for matrix in matrices]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*(clifford_lines(matrix)[0][0] for matrix in matrices))
"""


def test_first_calls_of_threads_do_not_wait_for_each_other() -> None:
    run = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=60)
    assert run.stdout.split() == ["H", "S", "X", "Y"], run.stderr


@pytest.mark.parametrize("seed", range(12))
def test_values(seed: int) -> None:
    n = 1 + seed % 6
    circuit = clifford_circuit(n, 30, seed)
    asked, state = tnplan.Circuit(circuit), state_vector(circuit).ravel()
    sums = [dense.random_sum(n, 4, 50 + k, is_complex=k == 1) for k in range(2)]
    found = asked.expectation(sums, method="stabilizer", **CPU)
    assert (found.error_kind, found.error) == ("exact", 0)
    np.testing.assert_allclose(found.value, [dense.expectation(circuit, one) for one in sums], atol=1e-12)
    rho = np.outer(state, state.conj())
    order = np.random.default_rng(seed).permutation(n).tolist()
    for m in range(1, min(n, 4) + 1):
        expected = dense.reduced(rho, order[:m])
        density = asked.reduced_density_matrix(order[:m], method="stabilizer", **CPU).value
        np.testing.assert_allclose(density, expected, atol=1e-12)
        table = asked.probabilities(order[:m], method="stabilizer", **CPU).value
        np.testing.assert_allclose(table, np.diag(expected).real.reshape((2,) * m), atol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_samples(seed: int) -> None:
    n = 2 + seed % 4
    circuit = clifford_circuit(n, 30, 100 + seed)
    asked = tnplan.Circuit(circuit)
    counts = asked.sample(SHOTS, method="stabilizer", seed=seed, **CPU).value
    assert counts == asked.sample(SHOTS, method="stabilizer", seed=seed, **CPU).value
    check_counts(counts, abs(state_vector(circuit)) ** 2)


@pytest.mark.parametrize("seed", range(6))
def test_samples_with_noise_resets_and_measurements(seed: int) -> None:
    """Operations between the gates, against the exact density matrix."""
    n, random = 3, np.random.default_rng(seed)
    operations: list[Operation] = []
    for one in clifford_circuit(n, 25, 200 + seed).gates:
        operations.append(one)
        if random.random() < 0.2:
            operations.append(depolarizing(one.qubits, float(random.uniform(0.05, 0.5))))
        if random.random() < 0.1:
            operations.append(Reset(int(random.integers(n))))
    expected = np.diag(dense.density(operations, n)).real
    program = CircuitProgram(n, n, (*operations, *(Measurement(q, q) for q in range(n))))
    counts = tnplan.Circuit(program).sample(SHOTS, method="stabilizer", seed=seed, **CPU).value
    check_counts(counts, expected.reshape((2,) * n))


@pytest.mark.parametrize("seed", range(4))
def test_classical_control_equals_the_state_vector(seed: int) -> None:
    """The same distribution as trajectories, by a chi-square of both counts."""
    n, random = 3, np.random.default_rng(seed)
    operations: list[Operation] = []
    for k, one in enumerate(clifford_circuit(n, 16, 300 + seed).gates):
        operations.append(one)
        if k % 4 == 3:
            qubit, bit = (int(random.integers(n)) for _ in range(2))
            operations.append(Measurement(qubit, bit))
            body = (gate(str(random.choice(["x", "h"])), (int(random.integers(n)),)),)
            operations.append(Conditional((bit,), 1, body, (Reset(int(random.integers(n))),)))
    operations.append(BitAssignment(n, (0, 1), (False, True, True, False)))
    program = CircuitProgram(n, n + 1, (*operations, *(Measurement(q, q) for q in range(n))))
    asked = tnplan.Circuit(program)
    counts = [asked.sample(SHOTS, method=m, seed=7, **CPU).value for m in ("stabilizer", "statevector")]
    keys = sorted(counts[0].keys() | counts[1].keys())
    first, second = (np.array([one.get(key, 0) for key in keys], float) for one in counts)
    statistic = ((first - second) ** 2 / (first + second)).sum()
    freedom = max(1, len(keys) - 1)
    assert statistic < freedom + 5 * np.sqrt(2 * freedom) + 5


def test_a_large_state() -> None:
    n = 300
    ghz = GateSequence(n, (gate("h", (0,)), *(gate("cnot", (q, q + 1)) for q in range(n - 1))))
    asked = tnplan.Circuit(ghz)
    values = asked.expectation(["Z0", f"Z0 Z{n - 1}"], **CPU)
    assert values.method == "stabilizer"
    np.testing.assert_array_equal(values.value, [0, 1])
    counts = asked.sample(1000, seed=1, **CPU)
    assert counts.method == "stabilizer"
    assert set(counts.value) == {"0" * n, "1" * n}


def test_input_states() -> None:
    asked = tnplan.Circuit(clifford_circuit(4, 20, 9))
    for state in ("01+-", "rl01"):
        values = [
            asked.expectation(["Z0", "X1 Z2", "Y3"], state=state, method=m, **CPU).value
            for m in ("stabilizer", "statevector")
        ]
        np.testing.assert_allclose(*values, atol=1e-12)


def test_what_is_no_clifford_gate_is_named() -> None:
    circuit = tnplan.Circuit(GateSequence(2, (gate("h", (0,)), gate("t", (1,)))))
    with pytest.raises(tnplan.InputError, match=r"gate 1 \(t\): is not a Clifford gate; use statevector"):
        circuit.sample(10, method="stabilizer", **CPU)
    program = circuit_program(GateSequence(1, ()))
    damped = tnplan.Channel((0,), (np.diag([1, 0.6]), np.array([[0, 0.8], [0, 0]])))
    noisy = CircuitProgram(1, 1, (*program.operations, damped, Measurement(0, 0)))
    with pytest.raises(tnplan.InputError, match="is not a mixture of Pauli words"):
        tnplan.Circuit(noisy).sample(10, method="stabilizer", **CPU)


@pytest.mark.parametrize("name", ["rx", "ry", "rz", "cp", "t"])
def test_rotations_near_clifford_gates_are_none(name: str) -> None:
    """Stim's own reading of matrices rounds: a rotation by 0.3 becomes the unit matrix there."""
    kind = KINDS[name]
    for angle in (1e-6, 0.01, 0.3, np.pi / 2 - 0.1, np.pi - 1e-5):
        rotation = gate(name, range(kind.n_qubits), [angle] * kind.n_params)
        circuit = tnplan.Circuit(GateSequence(2, (rotation,)))
        with pytest.raises(tnplan.InputError, match="is not a Clifford gate"):
            circuit.sample(10, method="stabilizer", **CPU)

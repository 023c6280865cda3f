"""Probabilities, samples, expectation values and noise against dense states and other engines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
import pytest

from tests.support.circuits import contract, random_circuit, state_vector
from tests.support.engines.statevector import NO_BITS, hadamards, many_kinds, simulator_of
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import I2, X, Y, Z, gate
from tnplan.circuits.pauli_sum import parse, pauli_sum
from tnplan.circuits.program import (
    Channel,
    CircuitProgram,
    Conditional,
    Measurement,
    Operation,
    Reset,
    circuit_program,
    depolarized,
    depolarizing,
    without_final_measurements,
)
from tnplan.executor.pauli.algebra.expectation import value_in
from tnplan.executor.pauli.algebra.gates import circuit_steps
from tnplan.executor.pauli.propagate import propagate
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.cpu.vector_tables import VectorPass
from tnplan.executor.statevector.measurement import Question, answer
from tnplan.executor.statevector.prepared_program import Mixture, prepare_program
from tnplan.executor.statevector.scheduling.qubit_cover import QubitExchange
from tnplan.executor.statevector.scheduling.tiled_passes import Pass
from tnplan.executor.statevector.simulator import Simulator
from tnplan.planner.networks.of_circuits.amplitude_network import circuit_network

DAMPING = (
    np.array([[1, 0], [0, math.sqrt(0.6)]], np.complex128),
    np.array([[0, math.sqrt(0.4)], [0, 0]], np.complex128),
)


def chi_square(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """(chi^2 - degrees of freedom) / its standard deviation, over outcomes expected 5 times or more."""
    expected = counts.sum() * probabilities
    assert not np.any(counts[probabilities == 0])
    large = expected >= 5
    free = np.count_nonzero(large) - 1
    square = float((((counts - expected) ** 2)[large] / expected[large]).sum())
    return (square - free) / math.sqrt(2 * free)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_probabilities_of_some_qubits(dtype: str) -> None:
    circuit = random_circuit(8, 200, 3)
    simulator = simulator_of(circuit, dtype, threads=2)
    weights = np.abs(state_vector(circuit)) ** 2
    for qubits in ((3,), (5, 0), (0, 1, 2, 3, 4, 5, 6, 7), (7, 2, 4)):
        expected = weights.sum(axis=tuple(q for q in range(8) if q not in qubits))
        expected = expected.transpose(np.argsort(np.argsort(qubits))).reshape(-1)
        np.testing.assert_allclose(simulator.probabilities(qubits), expected, rtol=0, atol=1e-6)
    assert simulator.norm() == pytest.approx(1, abs=1e-6 if dtype == "complex64" else 1e-13)


@pytest.mark.parametrize("threads", [1, 2])
def test_samples_follow_the_probabilities(threads: int) -> None:
    circuit = GateSequence(14, (*random_circuit(14, 150, 4).gates, *hadamards(3).gates))
    simulator = simulator_of(circuit, threads=threads)
    found = simulator.sample(400_000)
    counts = np.bincount(found, minlength=2**14)
    assert abs(chi_square(counts, np.abs(state_vector(circuit).reshape(-1)) ** 2)) < 4.5
    assert np.corrcoef(found[1:], found[:-1])[0, 1] == pytest.approx(0, abs=0.01)
    assert np.array_equal(simulator_of(circuit, threads=3 - threads).sample(1000),
                          simulator_of(circuit, threads=threads).sample(1000))  # fmt: skip


def test_a_million_samples_of_one_outcome() -> None:
    simulator = simulator_of(GateSequence(15, (gate("x", (3,)),)), "complex64")
    assert set(simulator.sample(1_000_000).tolist()) == {1 << 11}


def test_expectation_values_equal_those_of_pauli_propagation() -> None:
    generator = np.random.default_rng(2)
    for n in (3, 6, 9):
        circuit = random_circuit(n, 45, n)
        masks = [[int(v) for v in generator.integers(2**n, size=2)] for _ in range(6)]
        terms = pauli_sum([(x, z, float(generator.normal())) for x, z in masks], n)
        expected = value_in(propagate(circuit_steps(circuit), terms).result)
        assert simulator_of(circuit).expectation(terms) == pytest.approx(expected, abs=1e-12)
    assert simulator_of(hadamards(2)).expectation(pauli_sum([(1, 0, 2j)], 2)) == pytest.approx(2j)


def test_amplitudes_equal_the_contraction_of_the_network() -> None:
    circuit = random_circuit(7, 80, 11)
    bits = ["0110100", "1111111", "0000000"]
    expected = [contract(*circuit_network(circuit, amplitude=text)) for text in bits]
    np.testing.assert_allclose(simulator_of(circuit).amplitudes(bits), expected, rtol=0, atol=1e-12)


def test_density_matrices_of_some_qubits() -> None:
    circuit = many_kinds(6, 20, 2)
    state = state_vector(circuit)
    expected = np.einsum("abcdef,axcdyf->ebyx", state, state.conj()).reshape(4, 4)
    np.testing.assert_allclose(simulator_of(circuit).reduced((4, 1)), expected, rtol=0, atol=1e-13)


def test_measurements_collapse_and_follow_the_probabilities() -> None:
    circuit = random_circuit(5, 60, 21)
    weights = np.abs(state_vector(circuit)) ** 2
    ones = 0
    for seed in range(200):
        simulator = simulator_of(circuit, seed=seed)
        value = simulator.measure(2)
        ones += value
        after = simulator.probabilities([2])
        assert after[value] == pytest.approx(1, abs=1e-12)
        if seed == 0:
            kept = state_vector(circuit)
            kept[:, :, 1 - value] = 0
            kept /= np.linalg.norm(kept)
            np.testing.assert_allclose(simulator.array(), kept.reshape(-1), rtol=0, atol=1e-12)
    p = weights.sum(axis=(0, 1, 3, 4))[1]
    assert abs(ones - 200 * p) < 4.5 * math.sqrt(200 * p * (1 - p))


def density_after(program: CircuitProgram) -> np.ndarray:
    """The density matrix after gates, channels and resets, by dense matrices; qubit 0 most significant."""
    side = 2**program.n_qubits
    density = np.zeros((side, side), np.complex128)
    density[0, 0] = 1
    for operation in program.operations:
        kraus, qubits = _dense(operation)
        wide = [_embed(k, qubits, program.n_qubits) for k in kraus]
        density = np.sum([k @ density @ k.conj().T for k in wide], axis=0)
    return density


def _dense(operation: Operation) -> tuple[list[np.ndarray], tuple[int, ...]]:
    if isinstance(operation, Channel):
        return list(operation.kraus), operation.qubits
    if isinstance(operation, Reset):
        return [np.array([[1, 0], [0, 0]]), np.array([[0, 1], [0, 0]])], (operation.qubit,)
    return [operation.matrix], operation.qubits  # type: ignore[union-attr]


def _embed(matrix: np.ndarray, qubits: tuple[int, ...], n: int) -> np.ndarray:
    q = len(qubits)
    wide = np.eye(2**n, dtype=np.complex128).reshape((2,) * n + (2**n,))
    wide = np.tensordot(matrix.reshape((2,) * (2 * q)), wide, (range(q, 2 * q), qubits))
    return np.moveaxis(wide, range(q), qubits).reshape(2**n, 2**n)


def test_trajectories_have_the_mean_of_the_density_matrix() -> None:
    isometry = np.linalg.qr(np.random.default_rng(5).normal(size=(12, 4)))[0].astype(np.complex128)
    operations = (
        gate("h", (0,)), gate("cnot", (0, 1)), Channel((1,), DAMPING), gate("fs", (1, 2), (0.4, 0.2)),
        Reset(0), gate("rx", (0,), (0.7,)), Channel((2, 0), tuple(isometry.reshape(3, 4, 4))),
        depolarizing((0, 1), 0.3),
    )  # fmt: skip
    program = CircuitProgram(3, 0, operations)
    density = density_after(program)
    word = reduce(np.kron, (Z, I2, I2)), reduce(np.kron, (X, Y, Z))
    exact = np.trace(density @ (word[0] + 0.5 * word[1])).real
    simulator = Simulator(HostState(3, "complex128"), 3, seed=3)
    found = answer(simulator, program, Question(shots=1500, observable=parse("Z0 + 0.5 X0 Y1 Z2", 3)))
    assert found.deviation is not None
    assert found.counts is not None
    assert 0.005 < found.deviation < 0.05
    assert abs(found.expectation - exact) < 4.5 * found.deviation  # type: ignore[operator]
    counts = np.array([found.counts.get(f"{k:03b}", 0) for k in range(8)])
    assert abs(chi_square(counts, np.diag(density).real)) < 4.5
    assert found.norm == pytest.approx(1, abs=1e-12)


NOISY = (
    gate("h", (0,)), gate("cnot", (0, 1)), depolarizing((0, 1), 0.2), gate("rx", (2,), (0.7,)),
    Channel((2,), DAMPING), gate("cnot", (1, 2)), Channel((1,), DAMPING),
)  # fmt: skip
READ = (Measurement(2, 0), Measurement(0, 1), Measurement(0, 2), Measurement(1, 0), Measurement(2, 3))
"""The first is overwritten by the fourth; two bits are of qubit 0."""


@pytest.mark.parametrize("seed", range(4))
def test_final_measurements_of_noisy_runs_have_the_joint_distribution(seed: int) -> None:
    """chi^2 of 7 degrees of freedom is 9 standard deviations above its mean for one seed of 1e6."""
    exact = np.diag(density_after(CircuitProgram(3, 0, NOISY))).real
    simulator = Simulator(HostState(3, "complex128"), 3, seed=seed)
    found = answer(simulator, CircuitProgram(3, 4, (*NOISY, *READ)), Question(shots=3000))
    assert found.counts is not None
    texts = [f"{k >> 1 & 1}{k >> 2}{k >> 2}{k & 1}" for k in range(8)]
    assert set(found.counts) <= set(texts)
    counts = np.array([found.counts.get(text, 0) for text in texts])
    assert np.all(3000 * exact >= 5)
    assert chi_square(counts, exact) < 9


def test_final_measurements_take_no_pass_and_leave_the_state() -> None:
    """The same passes with and without them, and the observable's value before them."""
    taken = []
    for read in ((), READ):
        simulator = Simulator(HostState(3, "complex128"), 3, seed=1)
        answer(simulator, CircuitProgram(3, 4, (*NOISY, *read)), Question(shots=20))
        taken.append(simulator.passes)
    assert taken[0] == taken[1]
    plus = (gate("h", (0,)), Channel((1,), DAMPING), Measurement(0, 0))
    simulator = Simulator(HostState(2, "complex128"), 2, seed=1)
    found = answer(simulator, CircuitProgram(2, 1, plus), Question(shots=3, observable=parse("X0", 2)))
    assert found.expectation == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    "after",
    [
        gate("h", (0,)), Reset(0), Channel((0,), DAMPING),
        Conditional((0,), 1, (gate("x", (1,)),)), Conditional((1,), 0, (gate("h", (0,)),)),
        Conditional((1,), 0, (), (Measurement(1, 0), gate("x", (1,)))),
    ],
)  # fmt: skip
def test_a_measurement_is_not_final_where_something_follows_it(after: Operation) -> None:
    """An operation on its qubit, or one that reads or writes its bit."""
    operations = (gate("h", (0,)), Measurement(0, 0), after, Measurement(1, 1))
    kept, source = without_final_measurements(operations)
    assert kept == operations[:-1]
    assert source == {1: 1}
    beside = gate("h", (1,))
    assert without_final_measurements((*operations[:2], beside)) == ((operations[0], beside), {0: 0})


def test_noise_of_unitaries_is_drawn_ahead() -> None:
    program = depolarized(circuit_program(hadamards(3)), 0.2)
    script = prepare_program(program.operations)
    assert sum(isinstance(item, Mixture) for item in script) == 3
    asked = []

    class Recording(HostState):
        def prepare(self, steps: Sequence[Pass | QubitExchange], again: bool = True) -> list[VectorPass]:
            asked.append(again)
            return super().prepare(steps, again)

    simulator = Simulator(Recording(3, "complex128"), 3, seed=1)
    simulator.run(script, NO_BITS)
    assert simulator.passes == 1
    simulator.run(prepare_program(circuit_program(hadamards(3)).operations), NO_BITS)
    assert asked == [False, True]  # what is drawn is not done again
    assert not any(isinstance(item, Mixture) for item in prepare_program((Channel((0,), DAMPING),)))


def test_conditions_read_what_measurements_wrote() -> None:
    flip = Conditional((0, 1), 0b10, (gate("x", (2,)), Measurement(2, 2)), (Reset(2),))
    for first, second, expected in ((0, 1, "011"), (1, 1, "110"), (0, 0, "000")):
        prepare = [gate("x", (q,)) for q, value in enumerate((first, second)) if value]
        program = CircuitProgram(3, 3, (*prepare, Measurement(0, 0), Measurement(1, 1), flip))
        found = answer(Simulator(HostState(3, "complex64"), 3, seed=1), program, Question(shots=5))
        assert found.counts == {expected: 5}


def test_teleportation() -> None:
    angle = 1.1
    program = CircuitProgram(3, 2, (
        gate("ry", (0,), (angle,)), gate("t", (0,)), gate("h", (1,)), gate("cnot", (1, 2)),
        gate("cnot", (0, 1)), gate("h", (0,)), Measurement(0, 0), Measurement(1, 1),
        Conditional((1,), 1, (gate("x", (2,)),)), Conditional((0,), 1, (gate("z", (2,)),)),
    ))  # fmt: skip
    for seed in range(6):
        simulator = Simulator(HostState(3, "complex128"), 3, seed=seed)
        found = answer(simulator, program, Question(shots=1, observable=parse("X2", 3)))
        assert found.expectation == pytest.approx(math.sin(angle) * math.sqrt(0.5), abs=1e-12)
        assert found.deviation is None

"""Expectation values, density matrices, overlaps and traces by contraction against dense matrices."""

from __future__ import annotations

import threading
from functools import reduce
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import tnplan
from tests.support.circuits import random_circuit, state_vector, unitary
from tests.support.contraction.light_cones import expectations
from tests.support.robustness.refusals import Refusal, Row, table
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import I2, X, Y, Z, gate
from tnplan.circuits.pauli_sum import PauliSum, parse
from tnplan.circuits.program import (
    Channel,
    CircuitProgram,
    Conditional,
    Measurement,
    Reset,
    depolarizing,
)
from tnplan.common.errors import InputError
from tnplan.executor.device.cpu.host_memory import UNKNOWN_BYTES
from tnplan.jobs.arrays import planning
from tnplan.jobs.arrays.options import ContractionOptions
from tnplan.planner.passes import pipeline
from tnplan.questions.tensor_networks import networks
from tnplan.questions.tensor_networks.amplitudes import overlap, probabilities, reduced_density_matrix, trace
from tnplan.questions.tensor_networks.expectation import LightCones, PlannedAhead
from tnplan.questions.tensor_networks.networks import Run

LETTERS = {"I": I2, "X": X, "Y": Y, "Z": Z}
PRECISIONS = {"fp64": 1e-10, "fp32": 1e-5}
SIZES = (1, 2, 3, 4, 6, 8, 10)


def options(precision: str) -> ContractionOptions:
    return ContractionOptions(precision=precision, device="cpu", threads=1)


def words(n_qubits: int, seed: int, count: int) -> list[str]:
    """Dense words of random letters, many of them I."""
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list("IIXYZ"), n_qubits)) for _ in range(count)]


def random_sum(n_qubits: int, seed: int, count: int = 4) -> PauliSum:
    """A sum of random words with random coefficients."""
    rng = np.random.default_rng(seed)
    terms = [f"{rng.uniform(0.1, 2):.6f}*{word}" for word in words(n_qubits, seed, count)]
    return parse(" + ".join(terms), n_qubits)


def dense(operator: PauliSum) -> np.ndarray:
    """The matrix of a sum."""
    n = operator.n_qubits
    total = np.zeros((2**n, 2**n), np.complex128)
    for x, z, value in operator.masks():
        letters = ["IXZY"[(x >> q & 1) + 2 * (z >> q & 1)] for q in range(n)]
        total += value * reduce(np.kron, [LETTERS[letter] for letter in letters])
    return total


def gates_for(n_qubits: int, seed: int, count: int = 30) -> GateSequence:
    """A random circuit with every gate that fits its number of qubits."""
    if n_qubits > 1:
        return random_circuit(n_qubits, count, seed)
    names = ("h", "t", "x", "y_1_2", "hz_1_2", "s")
    rng = np.random.default_rng(seed)
    return GateSequence(1, tuple(gate(str(rng.choice(names)), (0,)) for _ in range(count)))


def density(program: CircuitProgram) -> np.ndarray:
    """The final density matrix of gates and channels, by dense matrices."""
    n = program.n_qubits
    rho = np.zeros((2**n, 2**n), np.complex128)
    rho[0, 0] = 1
    for operation in program.operations:
        if isinstance(operation, Reset):
            operation = Channel((operation.qubit,), (np.diag([1, 0]), np.array([[0, 1], [0, 0]])))
        if isinstance(operation, Measurement):
            operation = Channel((operation.qubit,), (np.diag([1, 0]), np.diag([0, 1])))
        assert isinstance(operation, Gate | Channel)
        operators = operation.kraus if isinstance(operation, Channel) else (operation.matrix,)
        full = [unitary([Gate("k", operation.qubits, np.asarray(k, np.complex128))], n) for k in operators]
        rho = sum((k @ rho @ k.conj().T for k in full), np.zeros_like(rho))
    return rho


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("n_qubits", SIZES)
def test_expectations_equal_dense_ones(n_qubits: int, precision: str) -> None:
    circuit = gates_for(n_qubits, n_qubits)
    state = state_vector(circuit).reshape(-1)
    sums = [random_sum(n_qubits, seed) for seed in range(3)]
    sums.append(parse("2*I - " + "Z" * n_qubits, n_qubits))
    found = expectations(circuit, sums, options(precision))
    wanted = [state.conj() @ dense(one) @ state for one in sums]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=PRECISIONS[precision])


@pytest.mark.parametrize("n_qubits", SIZES)
def test_density_matrices_and_probabilities_equal_dense_ones(n_qubits: int) -> None:
    circuit = gates_for(n_qubits, 10 + n_qubits)
    state = state_vector(circuit)
    rng = np.random.default_rng(n_qubits)
    qubits = rng.permutation(n_qubits)[: rng.integers(1, min(n_qubits, 4) + 1)].tolist()
    front = np.moveaxis(state, qubits, range(len(qubits))).reshape(2 ** len(qubits), -1)
    found = reduced_density_matrix(circuit, qubits, options("fp64"))
    np.testing.assert_allclose(found, front @ front.conj().T, rtol=0, atol=1e-10)
    chances = probabilities(circuit, qubits, options("fp64"))
    assert chances.shape == (2,) * len(qubits)
    wanted = (abs(front) ** 2).sum(axis=1)
    np.testing.assert_allclose(chances.reshape(-1), wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n_qubits", SIZES)
def test_overlaps_equal_dense_ones(n_qubits: int) -> None:
    first, second = gates_for(n_qubits, 3), gates_for(n_qubits, 4)
    shared = gates_for(n_qubits, 5).gates
    circuit = GateSequence(n_qubits, first.gates + shared)
    other = GateSequence(n_qubits, second.gates + shared)
    wanted = np.vdot(state_vector(other), state_vector(circuit))
    assert abs(overlap(circuit, other, options("fp64")) - wanted) < 1e-10
    assert abs(overlap(circuit, circuit, options("fp64")) - 1) < 1e-10


@pytest.mark.parametrize("n_qubits", SIZES[:-1])
def test_traces_equal_dense_ones(n_qubits: int) -> None:
    circuit = gates_for(n_qubits, 20 + n_qubits)
    matrix = unitary(circuit.gates, n_qubits)
    for seed in range(3):
        a, b = random_sum(n_qubits, seed, 3), random_sum(n_qubits, seed + 9, 3)
        wanted = np.trace(dense(a) @ matrix.conj().T @ dense(b) @ matrix) / 2**n_qubits
        assert abs(trace(circuit, a, b, options("fp64")) - wanted) < 1e-10
    shallow = GateSequence(n_qubits, circuit.gates[:2])
    matrix = unitary(shallow.gates, n_qubits)
    wanted = np.trace(dense(a) @ matrix.conj().T @ dense(a) @ matrix) / 2**n_qubits
    assert abs(trace(shallow, a, a, options("fp64")) - wanted) < 1e-10


@pytest.mark.parametrize("n_qubits", SIZES[:4])
def test_noise_is_that_of_the_density_matrix(n_qubits: int) -> None:
    rng = np.random.default_rng(n_qubits)
    operations: list[Gate | Channel | Reset | Measurement] = []
    for number, item in enumerate(gates_for(n_qubits, n_qubits, 24).gates):
        operations += [item, depolarizing(item.qubits, 0.05)]
        if number % 9 == 4:
            operations.append(Reset(int(rng.integers(n_qubits))))
        if number % 9 == 7:
            operations.append(Measurement(int(rng.integers(n_qubits)), 0))
    operations.append(gate("h", (0,)))
    program = CircuitProgram(n_qubits, 1, tuple(operations))
    rho = density(program)
    sums = [random_sum(n_qubits, seed) for seed in range(2)]
    found = expectations(program, sums, options("fp64"))
    wanted = [np.trace(rho @ dense(one)) for one in sums]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)
    everything = list(range(n_qubits))
    np.testing.assert_allclose(
        reduced_density_matrix(program, everything, options("fp64")), rho, rtol=0, atol=1e-10
    )
    chances = probabilities(program, everything, options("fp64"))
    np.testing.assert_allclose(chances.reshape(-1), rho.diagonal().real, rtol=0, atol=1e-10)


def test_gates_that_are_not_unitary_never_cancel() -> None:
    squeeze = Gate("squeeze", (1,), np.diag([1, 0.5]).astype(np.complex128))
    circuit = GateSequence(2, (gate("h", (1,)), squeeze))
    found = expectations(circuit, [parse("Z0", 2), parse("I", 2)], options("fp64"))
    np.testing.assert_allclose(found, [0.625, 0.625], rtol=0, atol=1e-12)
    with pytest.raises(InputError, match=r"gate 1 .squeeze.: is not unitary"):
        trace(circuit, parse("Z0", 2), parse("Z0", 2))


@pytest.mark.parametrize(("n_ahead", "step"), [(-1, 1), (1, 1), (3, 1), (2, 3), (100, 2)])
def test_values_are_the_same_however_many_cones_are_planned_ahead(n_ahead: int, step: int) -> None:
    cones = LightCones(gates_for(6, 6), [random_sum(6, seed) for seed in range(4)])
    planned_by: set[int] = set()

    class Watched(LightCones):
        def plan(self, number: int, options: ContractionOptions) -> Run:
            planned_by.add(threading.get_ident())
            return super().plan(number, options)

    watched = Watched(gates_for(6, 6), [random_sum(6, seed) for seed in range(4)])
    with PlannedAhead(watched, options("fp64"), n_ahead, step) as planned:
        for number in [*range(0, len(cones), step), 1]:  # and one that comes as a surprise
            assert np.array_equal(planned.values(number), cones.plan(number, options("fp64"))())
    assert (threading.get_ident() in planned_by) == (n_ahead < 1)


@pytest.mark.parametrize("free", [(30.1e9, 29.9e9), (UNKNOWN_BYTES, UNKNOWN_BYTES)])
def test_a_second_run_plans_nothing_though_free_memory_has_changed(
    free: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = Mock(side_effect=pipeline.plan)
    monkeypatch.setattr(planning, "pipeline", SimpleNamespace(plan=plans))
    monkeypatch.setattr(networks, "PLANNED_ELEMENTS", -1)  # no cone goes to NumPy alone
    cones = LightCones(gates_for(6, 6), [random_sum(6, seed) for seed in range(4)])
    planning.forget_contractions()
    counts = []
    for free_bytes in free:
        monkeypatch.setattr(planning, "host_memory", Mock(return_value=(64e9, free_bytes)))
        with PlannedAhead(cones, options("fp64"), 2) as planned:
            for number in range(len(cones)):
                planned.values(number)
        counts.append(plans.call_count)
    assert counts[0] == counts[1] > 0


def test_an_error_of_a_plan_ends_the_job_where_its_cone_is_due() -> None:
    class Failing(LightCones):
        def plan(self, number: int, options: ContractionOptions) -> Run:
            if number == 2:
                raise InputError("memory", "is too small", "give more")
            return super().plan(number, options)

    cones = Failing(gates_for(5, 5), [random_sum(5, seed) for seed in range(3)])
    with PlannedAhead(cones, options("fp64"), 3) as planned:
        planned.values(0)
        planned.values(1)
        with pytest.raises(InputError, match="is too small"):
            planned.values(2)


THREE = gates_for(3, 0)
FLIPPED = CircuitProgram(2, 1, (gate("h", (0,)), Measurement(0, 0), Conditional((0,), 1, (gate("x", (1,)),))))
# fmt: off
REFUSED: list[Row] = [
    (lambda: expectations(THREE, [parse("Z0", 3), parse("Z0", 2)], options("fp64")), "observable 1",
     "is on 2 qubits", "give an observable on the 3"),
    (lambda: probabilities(THREE, [0, 3]), "probabilities", "names qubit 3", "use qubits 0 to 2"),
    (lambda: reduced_density_matrix(THREE, [1, 1]), "density matrix",
     "names qubit 1 twice", "name each qubit once"),
    (lambda: overlap(THREE, gates_for(2, 0)), "other circuit", "has 2 qubits", "give a circuit on 3 qubits"),
    (lambda: trace(THREE, parse("Z0", 3), parse("Z0", 2)), "operator b",
     "is on 2 qubits", "give an operator on the 3"),
    (lambda: expectations(FLIPPED, [parse("Z1", 2)], options("fp64")), "circuit, operation 2",
     "depends on measured bits", "use the state-vector"),
]
# fmt: on


@table(REFUSED)
def test_other_sizes_and_bits_that_decide_are_refused(refusal: Refusal) -> None:
    refusal.raised_by(refusal.given)


@pytest.mark.parametrize("seed", range(12))
def test_networks_contracted_once_have_the_same_values_with_and_without_schedules(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words, of which some share a light cone, and samples, whose networks have a batch of strings."""
    random = np.random.default_rng(seed)
    circuit = tnplan.Circuit(gates_for(7, int(random.integers(2, 30))))
    words = [f"{random.choice([*'XYZ'])}{q}" for q in range(7) for _ in range(2)]
    job: dict[str, Any] = {"method": "contraction", "device": "cpu", "threads": 1}
    values, counts = [], []
    for elements in (networks.PLANNED_ELEMENTS, -1):
        monkeypatch.setattr(networks, "PLANNED_ELEMENTS", elements)
        values.append(circuit.expectation(words, **job).value)
        counts.append(circuit.sample(50, seed=3, **job).value)
    np.testing.assert_allclose(*values, rtol=0, atol=1e-12)
    assert counts[0] == counts[1]

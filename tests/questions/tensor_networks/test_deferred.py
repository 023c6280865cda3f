"""Samples by contraction of programs that measure, reset and branch, against all of their branches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.chi_square import check_counts
from tests.support.circuit_families import dynamic, random_case
from tests.support.circuits import unitary
from tests.support.effort import repeats
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.program import (
    BitAssignment,
    Channel,
    CircuitProgram,
    Conditional,
    Measurement,
    Operation,
    Reset,
    WhileLoop,
    depolarizing,
    final_measurements,
)
from tnplan.planner.networks.of_circuits.deferred import deferred

CPU: Any = {"device": "cpu", "threads": 1}
SHOTS = 3000
ZERO, ONE, LOWER = np.diag([1, 0]), np.diag([0, 1]), np.array([[0, 1], [0, 0]])
Branches = dict[tuple[int, ...], np.ndarray]
"""A density matrix for each value of the bits; its trace is the probability."""


def run(operations: Sequence[Operation], branches: Branches, n: int) -> Branches:
    """All branches after some operations: slow and obvious."""
    for operation in operations:
        after: Branches = defaultdict(lambda: np.zeros((2**n, 2**n), complex))
        for bits, rho in branches.items():
            for new_bits, new_rho in step(operation, bits, rho, n):
                after[new_bits] = after[new_bits] + new_rho
        branches = dict(after)
    return branches


def step(
    operation: Operation, bits: tuple[int, ...], rho: np.ndarray, n: int
) -> list[tuple[tuple[int, ...], np.ndarray]]:
    def through(qubits: tuple[int, ...], *operators: np.ndarray) -> np.ndarray:
        full = [unitary([Gate("k", qubits, matrix)], n) for matrix in operators]
        return np.asarray(sum(matrix @ rho @ matrix.conj().T for matrix in full))

    def with_bit(bit: int, value: int) -> tuple[int, ...]:
        return (*bits[:bit], value, *bits[bit + 1 :])

    if isinstance(operation, Gate):
        return [(bits, through(operation.qubits, operation.matrix))]
    if isinstance(operation, Channel):
        return [(bits, through(operation.qubits, *operation.kraus))]
    if isinstance(operation, Reset):
        return [(bits, through((operation.qubit,), ZERO, LOWER))]
    if isinstance(operation, Measurement):
        on = (operation.qubit,)
        return [(with_bit(operation.bit, k), through(on, (ZERO, ONE)[k])) for k in (0, 1)]
    assert isinstance(operation, BitAssignment | Conditional)
    value = sum(bits[bit] << k for k, bit in enumerate(operation.bits))
    if isinstance(operation, BitAssignment):
        return [(with_bit(operation.bit, int(operation.table[value])), rho)]
    taken = operation.body if value == operation.value else operation.otherwise
    return [*run(taken, {bits: rho}, n).items()]


def expected(program: CircuitProgram) -> np.ndarray:
    """The probability of each value of the bits, or of the qubits where no bit is measured, [2] * m."""
    start = (*program.start, *[0] * (program.n_bits - len(program.start)))
    rho = np.zeros((2**program.n_qubits,) * 2, complex)
    rho[0, 0] = 1
    branches = run(program.operations, {start: rho}, program.n_qubits)
    n_shown = program.n_bits - program.n_scratch
    if not any(isinstance(operation, Measurement) for operation in program.operations) or not n_shown:
        total = sum(branches.values())
        return np.asarray(np.diag(total).real.reshape((2,) * program.n_qubits))
    table = np.zeros((2,) * n_shown)
    for bits, rho in branches.items():
        table[bits[:n_shown]] += np.trace(rho).real
    return table


def random_program(seed: int) -> CircuitProgram:
    """Three qubits and five bits, two of them scratch, with operations of every kind."""
    random, n, n_bits = np.random.default_rng(seed), 3, 5

    def random_gate() -> Gate:
        if random.random() < 0.4:
            return gate(str(random.choice(["cz", "cnot", "is"])), some(2))
        return gate("rxy", some(1), random.uniform(0, 6, 2).tolist())

    def some(count: int) -> tuple[int, ...]:
        return tuple(random.permutation(n)[:count].tolist())

    def some_bits() -> tuple[int, ...]:
        return tuple(random.integers(0, n_bits, int(random.integers(1, 4))).tolist())

    operations: list[Operation] = []
    for _ in range(22):
        kind = random.choice(
            ["gate", "measure", "reset", "if", "assign", "noise"], p=[0.5, 0.2, 0.06, 0.1, 0.06, 0.08]
        )
        if kind == "gate":
            operations.append(random_gate())
        elif kind == "measure":
            operations.append(Measurement(*some(1), int(random.integers(n_bits))))
        elif kind == "reset":
            operations.append(Reset(*some(1)))
        elif kind == "noise":
            operations.append(depolarizing(some(1), 0.4))
        elif kind == "if":
            bits = some_bits()
            inner: tuple[Operation, ...] = (gate("h", some(1)), Reset(*some(1)), depolarizing(some(1), 0.3))
            body = tuple(inner[k] for k in random.permutation(3)[:2])
            operations.append(
                Conditional(bits, int(random.integers(2 ** len(bits) + 1)), body, (gate("x", some(1)),))
            )
        else:
            bits = some_bits()
            table = tuple((random.random(2 ** len(bits)) < 0.5).tolist())
            operations.append(BitAssignment(int(random.integers(n_bits)), bits, table))
    return CircuitProgram(n, n_bits, tuple(operations), start=(0, 1, 0, 1), n_scratch=2)


@pytest.mark.parametrize("seed", range(repeats(25, 500)))
def test_the_wider_program_has_the_distribution_of_all_branches(seed: int) -> None:
    """Exactly: its measured qubits come first, and their probabilities are those of the outcomes."""
    program = random_program(seed)
    wide = deferred(program)
    operations = [operation for operation in wide.operations if not isinstance(operation, Channel)]
    measured = final_measurements(CircuitProgram(wide.n_qubits, wide.n_bits, tuple(operations)))
    assert measured is not None
    qubits = sorted(set(measured.values()))
    assert qubits == [*range(len(qubits))]
    probabilities = tnplan.Circuit(wide).probabilities(qubits, method="contraction", **CPU).value
    n_shown = wide.n_bits - wide.n_scratch
    table = np.zeros((2,) * n_shown)
    for values, probability in np.ndenumerate(probabilities):
        start = [*wide.start, *[0] * wide.n_bits]
        table[tuple(values[measured[bit]] if bit in measured else start[bit] for bit in range(n_shown))] += (
            probability
        )
    np.testing.assert_allclose(table, expected(program), rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", range(repeats(10, 200)))
def test_samples_have_the_distribution_of_all_branches(seed: int) -> None:
    program = random_program(1000 + seed)
    counts = tnplan.Circuit(program).sample(SHOTS, method="contraction", seed=seed, **CPU).value
    check_counts(counts, expected(program))


def of_a_family(seed: int) -> CircuitProgram:
    """A circuit of any family with measurements on the way, whose results stay in bits of their own."""
    for number in range(seed, seed + 10_000, 500):
        case = random_case(number, most_qubits=4, most_depth=6)
        if isinstance(case.circuit, GateSequence) and case.n_qubits <= 5:
            program, n = dynamic(case.circuit, np.random.default_rng(seed)), case.n_qubits
            operations, bit = [], n
            for operation in program.operations:
                operations.append(operation)
                if isinstance(operation, Measurement) and bit < n + 3:
                    operations.append(Measurement(operation.qubit, bit))
                    bit += 1
            return CircuitProgram(n, n + 3, tuple(operations))
    raise AssertionError


@pytest.mark.parametrize("seed", range(repeats(10, 200)))
def test_circuits_of_every_family(seed: int) -> None:
    """Both ways to draw, and the state vector, have the exact distribution."""
    program = of_a_family(50_000 + seed)
    circuit, table = tnplan.Circuit(program), expected(program)
    for options in ({"sampling": "chain"}, {"sampling": "gates"}):
        answer = circuit.sample(SHOTS, method="contraction", seed=seed, **options, **CPU)
        assert answer.details["sampling"] == options["sampling"]
        check_counts(answer.value, table)
    check_counts(circuit.sample(SHOTS, method="statevector", seed=seed, **CPU).value, table)


def test_input_states_and_noise() -> None:
    """A mixed state makes the first qubit random, so that its measurement decides on the other one."""
    flip = Conditional((0,), 1, (gate("x", (1,)),))
    program = CircuitProgram(2, 2, (Measurement(0, 0), gate("h", (0,)), flip, Measurement(1, 1)))
    state = np.array([[0, 0, -0.5], [0, 0, 1.0]])
    for options in ({"state": state}, {"state": "10", "depolarizing": 0.1}):
        answers = [
            tnplan.Circuit(program).sample(SHOTS, method=method, seed=2, **options, **CPU).value
            for method in ("contraction", "statevector")
        ]
        shares = [
            np.array([counts.get(key, 0) for key in ("00", "01", "10", "11")]) / SHOTS for counts in answers
        ]
        np.testing.assert_allclose(*shares, atol=5 / np.sqrt(SHOTS))
        assert shares[0][3] > 0.7


def repeated_code(n_data: int, rounds: int) -> CircuitProgram:
    """A repetition code: ancillas beside the data are measured and reset in every round."""
    operations: list[Operation] = [
        gate("h", (0,)),
        *(gate("cnot", (2 * q, 2 * q + 2)) for q in range(n_data - 1)),
    ]
    ancillas, bit = range(1, 2 * n_data - 1, 2), 0
    for _ in range(rounds):
        for q in ancillas:
            operations += [gate("cnot", (q - 1, q)), gate("cnot", (q + 1, q)), Measurement(q, bit), Reset(q)]
            bit += 1
        operations += [gate("rx", (2 * q,), [0.3]) for q in range(n_data)]
    operations += [Measurement(2 * q, bit + q) for q in range(n_data)]
    return CircuitProgram(2 * n_data - 1, bit + n_data, tuple(operations))


def test_more_qubits_than_a_state_vector_holds() -> None:
    """In the first round every parity is even; auto takes the contraction, which its estimate allows."""
    program = repeated_code(22, 2)
    assert program.n_qubits == 43
    answer = tnplan.Circuit(program).sample(6, seed=1, **CPU)
    assert answer.method == "contraction"
    assert sum(answer.value.values()) == 6
    assert {text[:21] for text in answer.value} == {"0" * 21}
    assert len({text[21:42] for text in answer.value}) > 1
    plan = tnplan.Circuit(program).estimate(sample=6, method="contraction")
    assert plan.rows[0].cost is not None


def test_only_measured_qubits_are_drawn() -> None:
    """No qubit that decides on no outcome is drawn: a wide circuit whose first qubits alone are measured."""
    gates = tuple(gate("h", (q,)) for q in range(60)) + tuple(gate("cz", (q, q + 1)) for q in range(59))
    program = CircuitProgram(60, 2, (*gates, gate("h", (1,)), Measurement(1, 0), Measurement(0, 1)))
    answer = tnplan.Circuit(program).sample(SHOTS, method="contraction", seed=1, **CPU)
    assert "linear_xeb" not in answer.details
    check_counts(answer.value, np.full((2, 2), 0.25))


H = gate("h", (0,))
REFUSED: dict[str, tuple[tuple[Operation, ...], str]] = {
    "loop": ((WhileLoop((0,), 1, (H, Measurement(0, 0))),), "operation 2: is a loop over measured bits"),
    "measurement": ((Conditional((0,), 1, (Measurement(0, 0),)),), "has a Measurement under a condition"),
    "nested": ((Conditional((0,), 1, (Conditional((0,), 1, (H,)),)),), "has a Conditional under a condition"),
    "bits": (
        (*(Measurement(q, q) for q in range(9)), Conditional(tuple(range(9)), 3, (H,))),
        "operation 11: acts on 1 qubits under a condition on 9 measured bits",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_deferred_is_refused(name: str) -> None:
    operations, line = REFUSED[name]
    program = CircuitProgram(9, 9, (H, Measurement(0, 0), *operations))
    with pytest.raises(tnplan.InputError, match=line):
        tnplan.Circuit(program).sample(5, method="contraction", **CPU)
    assert sum(tnplan.Circuit(program).sample(5, seed=1, **CPU).value.values()) == 5

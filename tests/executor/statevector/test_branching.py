"""Runs that share their states, against runs one by one and density matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.statevector import apply_block
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import parse
from tnplan.circuits.program import (
    Channel,
    CircuitProgram,
    Conditional,
    Measurement,
    Operation,
    Reset,
    WhileLoop,
)
from tnplan.common.errors import InputError
from tnplan.executor.statevector import trajectories as branching
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, from_gate, from_matrix
from tnplan.executor.statevector.measurement import Question, answer
from tnplan.executor.statevector.simulator import Simulator
from tnplan.executor.statevector.trajectories import Batch, apply_gate

DAMPING = (
    np.array([[1, 0], [0, np.sqrt(0.7)]], np.complex128),
    np.array([[0, np.sqrt(0.3)], [0, 0]], complex),
)
FLIPS = (np.sqrt(0.8) * np.eye(2, dtype=complex), np.sqrt(0.2) * np.array([[0, 1], [1, 0]], complex))
DYNAMIC: tuple[Operation, ...] = (
    gate("ry", (0,), (0.7,)), gate("ry", (1,), (1.9,)), gate("cnot", (0, 2)), Measurement(0, 0),
    Conditional((0,), 1, (gate("ry", (1,), (0.4,)),), (gate("h", (2,)),)),
    Channel((1,), FLIPS), Channel((2,), DAMPING), Measurement(2, 1), Reset(2),
    gate("cnot", (1, 2)), gate("h", (1,)),
    Conditional((0, 1), 2, (Measurement(1, 2), gate("x", (0,)))), Measurement(2, 3), Measurement(0, 4),
)  # fmt: skip


def counts_of(
    mode: str, shots: int, seed: int, operations: tuple[Operation, ...] = DYNAMIC
) -> dict[str, int]:
    simulator = Simulator(HostState(3, "complex128"), 3, mode, seed)
    counts = answer(simulator, CircuitProgram(3, 5, operations), Question(shots=shots)).counts
    assert counts is not None
    assert sum(counts.values()) == shots
    return counts


def test_runs_have_the_distribution_of_runs_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for all rows, and for three at a time; mode `stages` runs every shot."""
    many, one_by_one = counts_of("compiled", 100_000, 1), counts_of("stages", 300, 2)
    monkeypatch.setattr(branching, "BATCH_BYTES", 3 * 128)
    for sample in (one_by_one, counts_of("compiled", 1000, 3)):
        shots = sum(sample.values())
        assert set(sample) <= set(many)
        common = [text for text, number in many.items() if number * shots >= 500_000]
        assert len(common) >= 6
        expected = np.array([many[text] for text in common]) * shots / 100_000
        found = np.array([sample.get(text, 0) for text in common])
        distance = ((found - expected) ** 2 / expected).sum()
        assert distance < len(common) + 4 * np.sqrt(2 * len(common))


def test_values_are_means_over_all_shots() -> None:
    program = CircuitProgram(1, 1, (gate("ry", (0,), (1.0,)), Measurement(0, 0), gate("h", (0,)), Reset(0)))
    half = CircuitProgram(1, 1, (*program.operations[:2], gate("x", (0,))))
    found = answer(
        Simulator(HostState(1, "complex128"), 1, seed=4),
        half,
        Question(shots=20_000, observable=parse("Z0", 1)),
    )
    assert found.counts is not None
    ones = found.counts["1"] / 20_000
    assert found.expectation == pytest.approx(2 * ones - 1, abs=1e-12)
    assert ones == pytest.approx(np.sin(0.5) ** 2, abs=0.012)
    spread = 4 * ones * (1 - ones) / (20_000 - 1)
    assert found.deviation == pytest.approx(np.sqrt(spread), rel=1e-9)


def test_the_same_seed_gives_the_same_counts() -> None:
    assert counts_of("compiled", 500, 7) == counts_of("compiled", 500, 7)
    assert counts_of("compiled", 500, 7) != counts_of("compiled", 500, 8)


def test_loops_end_for_every_shot() -> None:
    """A qubit is prepared until it is measured as 1; a loop that never ends is refused."""
    again = WhileLoop((0,), 0, (Reset(0), gate("h", (0,)), Measurement(0, 0)))
    assert counts_of("compiled", 2000, 1, (again, Measurement(0, 1))) == {"11000": 2000}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(branching, "MOST_ROUNDS", 5)
        with pytest.raises(InputError, match="while: is still true after 5 rounds"):
            counts_of("compiled", 10, 1, (WhileLoop((0,), 0, (gate("x", (1,)),)), gate("x", (0,))))


def test_branches_share_their_states() -> None:
    """A million shots of four outcomes are four rows."""
    program = (
        gate("h", (0,)),
        Measurement(0, 0),
        gate("h", (1,)),
        Measurement(1, 1),
        gate("x", (0,)),
        Reset(1),
    )
    made: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        measure = Batch.measure

        def counted(batch: Batch, qubit: int, random: np.random.Generator) -> np.ndarray:
            values = measure(batch, qubit, random)
            made.append(batch.rows)
            return values

        patch.setattr(Batch, "measure", counted)
        counts = counts_of("compiled", 1_000_000, 1, program)
    assert made == [2, 4, 4]
    assert all(abs(number - 250_000) < 2500 for number in counts.values())


def test_impossible_outcomes_are_never_taken() -> None:
    turned = (
        gate("x", (0,)),
        Measurement(0, 0),
        Reset(0),
        Measurement(0, 1),
        gate("h", (1,)),
        gate("h", (1,)),
    )
    assert counts_of("compiled", 1000, 1, (*turned, Measurement(1, 2), gate("x", (1,)))) == {"10000": 1000}


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(0, 2))
def test_gates_on_rows_equal_their_twin(seed: int, n_targets: int, n_selectors: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(3, 32)) + 1j * random.normal(size=(3, 32))
    qubits = tuple(int(q) for q in random.permutation(5)[: n_targets + n_selectors])
    side = 2**n_targets
    matrices = random.normal(size=(2**n_selectors, side, side)) + 0j
    one = MultiplexedGate(qubits[:n_targets], qubits[n_targets:], matrices)
    diagonal = MultiplexedGate((), qubits, random.normal(size=(2 ** len(qubits), 1, 1)) + 0j)
    for wanted in (one, diagonal, from_gate(gate("h", (2,))), from_matrix((4, 1), np.eye(4)[::-1] + 0j)):
        expected = rows.copy()
        for row in expected:
            apply_block(row, wanted.on(range(4, -1, -1)))
        np.testing.assert_allclose(apply_gate(rows.copy(), wanted), expected, atol=1e-12)


def test_long_segments_use_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same outcomes with gates one by one and with passes over all rows, exchanges of qubits too."""
    swap = np.eye(4, dtype=np.complex128)[[0, 2, 1, 3]]
    middle = (
        from_swap(swap, (0, 2)),
        gate("ry", (0,), (0.3,)),
        from_swap(swap, (1, 2)),
        gate("ry", (1,), (1.1,)),
    )
    program = (
        gate("ry", (0,), (0.9,)),
        Measurement(0, 0),
        *middle,
        Measurement(1, 1),
        gate("h", (1,)),
        Reset(0),
    )
    found = []
    for few in (1 << 16, 0):
        monkeypatch.setattr(branching, "FEW", few)
        simulator = Simulator(HostState(3, "complex128"), 3, seed=5)
        given_ = answer(simulator, CircuitProgram(3, 2, program), Question(shots=1000))
        found.append((given_.counts, simulator.passes > 0))
    assert found[0][0] == found[1][0]
    assert (found[0][1], found[1][1]) == (False, True)


def from_swap(matrix: np.ndarray, qubits: tuple[int, int]) -> Operation:
    from tnplan.circuits.circuit import Gate

    return Gate("swap", qubits, matrix)

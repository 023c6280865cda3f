"""Compressed states: their bound holds, their estimate is near, and they answer as what they decode to."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.circuits import random_circuit, state_vector
from tests.support.engines import compressed_states
from tests.support.engines.compressed_states import infidelity, whole
from tests.support.engines.statevector import many_kinds, random_unitary
from tests.support.engines.unseen_circuits import KINDS, unseen_circuit
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import given_sum
from tnplan.common.errors import InputError
from tnplan.executor.statevector import packed_error
from tnplan.executor.statevector.cpu import packed_state
from tnplan.executor.statevector.cpu.packed_state import PackedState, packed_bytes
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.cpu.vector_tables import vector_pass
from tnplan.executor.statevector.gates.multiplexed_gate import from_matrix
from tnplan.executor.statevector.packed_error import (
    EncodingErrors,
    arithmetic_bound,
    departure,
    fewest_bits,
    predicted_fidelity,
)
from tnplan.executor.statevector.prepared_program import Segment, prepare_program
from tnplan.executor.statevector.scheduling.tiled_passes import Pass, compile_gates
from tnplan.executor.statevector.simulator import Simulator

NO_BITS = np.zeros(0, np.uint8)
UNIT = {"complex64": 2.0**-24, "complex128": 2.0**-53}


def simulated(
    circuit: GateSequence, dtype: str, bits: int, seed: int = 0, threads: int = 1, tile_bits: int = 16,
    mode: str = "compiled",
) -> Simulator:  # fmt: skip
    """A compressed state after a circuit, in passes over tiles of so many bits."""
    state = PackedState(circuit.n_qubits, dtype, bits, threads, seed)
    state.tile = replace(state.tile, bits=min(tile_bits, state.tile.bits))
    simulator = Simulator(state, circuit.n_qubits, mode, seed)
    simulator.run(prepare_program(circuit.gates), NO_BITS)
    return simulator


def check_coverage(seeds: range, qubits: range, tile_bits: range) -> None:
    """The same by two threads and tiles of any of these sizes."""

    def run(circuit: GateSequence, dtype: str, bits: int, seed: int, random: Any) -> Simulator:
        return simulated(circuit, dtype, bits, seed, 2, int(random.choice(tile_bits)))

    compressed_states.check_coverage(seeds, qubits, run)


def test_the_bound_and_the_estimate_hold() -> None:
    check_coverage(range(7_000, 7_020), range(8, 13), range(9, 11))


@pytest.mark.slow
def test_the_bound_and_the_estimate_hold_in_larger_states() -> None:
    check_coverage(range(9_000, 9_060), range(8, 17), range(9, 13))
    check_coverage(range(9_100, 9_105), range(17, 21), range(12, 17))


@pytest.mark.parametrize("n", [1, 3, 5, 6, 9])
@pytest.mark.parametrize("mode", ["compiled", "gates"])
def test_every_gate_and_every_size(n: int, mode: str) -> None:
    circuits = [many_kinds(n, 12, n)] if n < 3 else [many_kinds(n, 12, n), random_circuit(n, 40, n)]
    for circuit in circuits:
        exact = state_vector(circuit).reshape(-1)
        for dtype in UNIT:
            simulator = simulated(circuit, dtype, 16, 3, 1, 9, mode)
            errors: Any = simulator.state.errors  # type: ignore[attr-defined]
            assert infidelity(whole(simulator), exact) <= 1 - errors.fidelity_bound + 1e-15
            assert errors.fidelity_bound > 1 - 1e-5


def test_the_bound_is_the_error_of_one_pass() -> None:
    """So that a bound which left out part of an error would be found."""
    circuit = unseen_circuit("vqe", 9, 31)
    simulator = simulated(circuit, "complex128", 8, 5)
    errors: Any = simulator.state.errors  # type: ignore[attr-defined]
    assert simulator.passes == 1
    error = infidelity(whole(simulator), state_vector(circuit).reshape(-1))
    assert 0.9 * (1 - errors.fidelity_bound) < error <= 1 - errors.fidelity_bound


def test_arithmetic_stays_within_its_bound() -> None:
    """Passes in single precision beside the same in double: what rounding does is at most what is said."""
    dtype = "complex64"
    for seed in range(6):
        n = 10
        circuit = [*many_kinds(n, 12, seed).gates, *unseen_circuit(KINDS[seed % 5], n, seed).gates]
        (segment,) = prepare_program(circuit)
        state, twin = HostState(n, dtype), HostState(n, "complex128")
        tile = replace(state.tile, bits=9)
        real = np.empty(0, dtype).real.dtype
        for item in compile_gates(segment.gates, range(n)[::-1], tile).passes:  # type: ignore[union-attr]
            twin.load(state.shard().astype(np.complex128))
            tables = vector_pass(item, n, real, 4)
            state.apply(tables)
            twin.apply(*twin.prepare([item]))
            distance = np.linalg.norm(state.shard() - twin.shard())
            bound = arithmetic_bound(tables, UNIT[dtype])
            assert distance <= bound
            assert bound < 1e4 * UNIT[dtype] * len(item.steps) + 1e-11


def test_threads_and_seeds() -> None:
    """Threads change nothing, seeds do, and the same seed gives the same numbers after a restart."""
    circuit = unseen_circuit("random", 12, 3)
    states = [whole(simulated(circuit, "complex64", 8, seed, threads, 9)) for seed, threads in
              [(1, 1), (1, 3), (2, 1)]]  # fmt: skip
    assert np.array_equal(states[0], states[1])
    assert not np.array_equal(states[0], states[2])


@pytest.mark.parametrize("chunk_bits", [7, 14])
def test_answers_are_those_of_the_decoded_state(monkeypatch: pytest.MonkeyPatch, chunk_bits: int) -> None:
    monkeypatch.setattr(packed_state, "CHUNK_BITS", chunk_bits)
    monkeypatch.setattr("tnplan.executor.statevector.simulator.CHUNK_BITS", 6)
    for n in (4, 10):
        simulator = simulated(unseen_circuit("random", n, n), "complex64", 8, 2, 2, 9)
        plain = Simulator(HostState(n, "complex128"), n, seed=1)
        plain.load(whole(simulator), tuple(range(n))[::-1])
        for text in ("Z0 - 0.5*X1 + Y0 X3 + 2*Z1 Z2", f"X0 X{n - 1} + Y0 Y{n - 1} + Z0 Z{n - 1}"):
            observable = given_sum(text, n)
            assert simulator.expectation(observable) == pytest.approx(
                plain.expectation(observable), abs=1e-12
            )
        for qubits in ([0], [2, 0], [1, n - 1, 2]):
            assert np.allclose(simulator.probabilities(qubits), plain.probabilities(qubits), atol=1e-12)
        assert simulator.norm() == pytest.approx(1, abs=1e-6)
        assert np.allclose(simulator.array(), whole(simulator), atol=1e-7)
        simulator.random, plain.random = np.random.default_rng(4), np.random.default_rng(4)  # type: ignore[misc]
        drawn, others = simulator.sample(500), plain.sample(500)
        assert np.mean(np.sort(drawn) == np.sort(others)) > 0.99


def test_memory_falls() -> None:
    """Amplitudes of 8 and 16 bits take 2.125 and 4.125 bytes."""
    for bits, most in ((8, 2.2), (16, 4.2)):
        do_circuit(bits, 10)  # memory of the compiler does not count
        tracemalloc.start()
        do_circuit(bits, 20)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert packed_bytes(20, bits, "complex64") <= most * 2**20
        assert peak <= most * 2**20 + 4 * 2**20  # a tile and its tables


def do_circuit(bits: int, n_qubits: int) -> None:
    state = PackedState(n_qubits, "complex64", bits)
    (segment,) = prepare_program(unseen_circuit("vqe", n_qubits, 1).gates)
    for item in state.prepare(compile_gates(
        segment.gates, range(n_qubits)[::-1], state.tile,  # type: ignore[union-attr]
    ).passes):  # fmt: skip
        state.apply(item)
    state.sums(12 - 20 + n_qubits)


def test_bits_and_predictions() -> None:
    assert [fewest_bits(fidelity, 10) for fidelity in (0.5, 0.99, 0.9999999)] == [8, 8, 16]
    assert predicted_fidelity(8, 100) == pytest.approx(0.9929, abs=2e-4)
    with pytest.raises(InputError, match="16 bits reach about"):
        fewest_bits(1 - 1e-12, 10)
    errors = EncodingErrors()
    errors.add(0.6, 0.0, 0.0)
    errors.add(0.8, 0.0, 0.0)
    assert errors.fidelity_estimate == pytest.approx(0.5)
    assert errors.fidelity_bound == 0.0


def test_the_bound_holds_for_gates_that_are_not_unitary() -> None:
    """A gate that shrinks the state and not all of its error, far more than any that is accepted: what the
    bound
    says of unitary gates is then wrong."""
    n, shrink = 10, np.diag([1, 0.6]).astype(np.complex128)
    turns = [gate("ry", (q,), (1.1 + 0.1 * q if q < n - 1 else np.pi - 0.01,)) for q in range(n)]
    exact = state_vector(GateSequence(n, tuple(turns))).reshape(-1)
    exact = exact * np.tile([1, 0.6], 1 << n - 1)
    for seed in range(5):
        state = PackedState(n, "complex128", 8, seed=seed, departure=departure([shrink]))
        simulator = Simulator(state, n)
        simulator.run(prepare_program(turns), NO_BITS)
        simulator.apply(Segment((from_matrix((n - 1,), shrink),)))
        error = infidelity(whole(simulator), exact / np.linalg.norm(exact))
        assert state.errors.total**2 < error <= 1 - state.errors.fidelity_bound


def test_how_far_gates_are_from_unitary_ones() -> None:
    random = np.random.default_rng(8)
    unitary = [random_unitary(q, random) for q in (1, 2, 3) for _ in range(20)]
    assert departure(unitary) < 1e-12
    for matrix in unitary[::7]:
        off = np.eye(len(matrix)) + 3e-10 * random_unitary(1, random)[0, 0].real * np.diag([1] * len(matrix))
        exact = np.linalg.svd(matrix @ off, compute_uv=False)
        said = departure([matrix @ off] * 50)
        assert 50 * np.max(np.abs(exact**2 - 1)) <= said * (1 + 1e-6)


def test_a_job_counts_what_is_accepted() -> None:
    """A thousand gates of a basis state, which is stored exactly, each as far from unitary as it may be."""
    flip = np.array([[0, 1], [1, 0]], np.complex128) * (1 + 4e-10)
    gates = tuple(Gate("u", (k % 6,), flip) for k in range(1000))
    asked = {"fidelity": 0.9, "device": "cpu", "precision": "fp64", "seed": 1}
    report = tnplan.simulate(GateSequence(6, gates), amplitudes=["0" * 6], **asked).report
    said = (1000 * 8e-10 * np.sqrt(2)) ** 2
    assert 1 - report["fidelity_bound"] == pytest.approx(said, rel=0.1)


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    state = PackedState(6, "complex64", 8)
    with pytest.raises(InputError, match="leave out the fidelity"):
        state.load(np.zeros(64))
    monkeypatch.setattr(packed_error, "host_memory", lambda: (64, 64))
    with pytest.raises(InputError, match="ask for single amplitudes"):
        state.to_host()


def test_passes_of_nothing() -> None:
    """A state of zeros but one amplitude is exact: 1 is stored without an error."""
    state = PackedState(7, "complex64", 8)
    (tables,) = state.prepare([Pass((0, 1, 2, 3, 4), ())])
    state.apply(tables)
    assert state.errors.squares < 1e-12
    assert state.take(np.arange(3)).tolist() == [1, 0, 0]

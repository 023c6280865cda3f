"""Compressed states over ranks: bound, estimate and answers of the whole state; exchanges round nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tnplan
from tests.support.circuits import state_vector
from tests.support.engines import compressed_states
from tests.support.engines.compressed_states import infidelity, whole
from tests.support.engines.statevector import many_kinds, take_contiguous_messages_alone
from tests.support.engines.unseen_circuits import KINDS, unseen_circuit
from tests.support.kernels.emulator import has_compiler
from tests.support.kernels.gpus import count_gpus
from tests.support.mpirun import mpirun, needs_mpi
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.pauli_sum import given_sum
from tnplan.circuits.qsim import save_qsim
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.statevector import distributed_state, packed_error
from tnplan.executor.statevector.cpu import packed_state
from tnplan.executor.statevector.cpu.packed_state import PackedState, packed_tile
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.cuda.kernel_defines import CODED_PROGRAM_TILES, CODED_TILES, coded_tile
from tnplan.executor.statevector.distributed_state import DistributedPackedState
from tnplan.executor.statevector.gates.multiplexed_gate import from_gate, from_matrix
from tnplan.executor.statevector.packed_error import BLOCK_BITS, ONE
from tnplan.executor.statevector.prepared_program import prepare_program
from tnplan.executor.statevector.scheduling.qubit_cover import QubitExchange
from tnplan.executor.statevector.scheduling.tiled_passes import MODES, Pass, Tile, compile_gates
from tnplan.executor.statevector.simulator import Simulator
from tnplan.jobs.compressed_state import planned_passes

NO_BITS = np.zeros(0, np.uint8)
needs_kernels = pytest.mark.skipif(
    find_spec("cupy") is None or not (has_compiler() or count_gpus()), reason="needs CuPy, and g++ or a GPU"
)


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=needs_kernels)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """That of every rank: a CPU, or a GPU that all ranks share, or what stands for one."""
    if request.param == "gpu" and not count_gpus():
        from tests.support.kernels.emulated_gpu import put_in_place

        put_in_place(monkeypatch)
    return str(request.param)


def part_of(device: str, n_bits: int, dtype: str, bits: int, seed: int, rank: int, tile_bits: int) -> Any:
    """The part of a rank, in |0...0>."""
    if device == "cpu":
        local = PackedState(n_bits, dtype, bits, 1, seed, rank=rank)
        local.tile = replace(local.tile, bits=tile_bits)
        return local
    from tnplan.executor.statevector.cuda.packed_state import CodedState

    return CodedState(n_bits, dtype, bits, seed, tile=replace(CODED_TILES[dtype], bits=tile_bits), rank=rank)


def simulated(
    ranks: Communicator, circuit: GateSequence, dtype: str, bits: int, seed: int = 0, tile_bits: int = 9,
    mode: str = "compiled", device: str = "cpu",
) -> Simulator:  # fmt: skip
    """A compressed state after a circuit, of which this rank has its part."""
    n = circuit.n_qubits
    local = part_of(device, n - ranks.size.bit_length() + 1, dtype, bits, seed, ranks.rank, tile_bits)
    simulator = Simulator(DistributedPackedState(local, ranks), n, mode, seed)
    simulator.run(prepare_program(circuit.gates), NO_BITS)
    return simulator


def errors_of(simulator: Simulator) -> Any:
    """Those of a compressed state."""
    return simulator.state.errors  # type: ignore[attr-defined]


def check_coverage(n_ranks: int, seeds: range, qubits: range, device: str) -> None:
    """The bound and the estimate hold, on every rank."""

    def work(ranks: Communicator) -> None:
        def run(circuit: GateSequence, dtype: str, bits: int, seed: int, random: Any) -> Simulator:
            tile_bits = int(random.integers(9, 11))
            return simulated(ranks, circuit, dtype, bits, seed, tile_bits, device=device)

        compressed_states.check_coverage(seeds, qubits, run)

    run_ranks(n_ranks, work)


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_the_bound_and_the_estimate_hold(n_ranks: int, device: str) -> None:
    check_coverage(n_ranks, range(31_000, 31_002), range(11, 12), device)


@needs_kernels
@pytest.mark.slow
@pytest.mark.parametrize("device", ["gpu"], indirect=True)
def test_the_bound_and_the_estimate_hold_of_compiled_passes(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Kernels of their own know the rank too."""
    monkeypatch.setattr("tnplan.executor.statevector.cuda.packed_state.rounding_of_tables", pytest.fail)
    for name, value in (("PROGRAMS_FROM", 0), ("PROGRAM_S", 0.0), ("COMPILING_S", 0.0), ("LEAST_STEPS", 0)):
        monkeypatch.setattr(f"tnplan.executor.statevector.cuda.state.{name}", value)
    monkeypatch.setitem(CODED_TILES, "complex64", replace(CODED_PROGRAM_TILES["complex64"], register_bits=4))
    circuit = unseen_circuit("qft", 11, 33_000)
    exact = state_vector(circuit).reshape(-1)

    def work(ranks: Communicator) -> None:
        simulator = simulated(ranks, circuit, "complex64", 8, 3, device=device)
        error = infidelity(whole(simulator), exact)
        assert error <= 1 - errors_of(simulator).fidelity_bound
        assert 0.5 <= error / (1 - errors_of(simulator).fidelity_estimate) <= 2

    run_ranks(2, work)


@pytest.mark.slow
@pytest.mark.parametrize(("n_ranks", "n_circuits"), [(2, 15), (4, 15), (8, 5)])
def test_the_bound_and_the_estimate_hold_in_many_circuits(
    n_ranks: int, n_circuits: int, device: str
) -> None:  # fmt: skip
    n_circuits //= 1 if device == "cpu" else 3  # a GPU's kernels take longer on a CPU
    check_coverage(n_ranks, range(32_000, 32_000 + n_circuits), range(13, 15), device)


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_errors_of_all_ranks_are_counted(n_ranks: int, device: str) -> None:
    """The estimate is near where each pass has the same error: what left out a rank would be far off."""
    circuit = unseen_circuit("qft", 13, 41)
    exact = state_vector(circuit).reshape(-1)

    def work(ranks: Communicator) -> tuple[float, float, float]:
        simulator = simulated(ranks, circuit, "complex128", 8, 2, device=device)
        assert simulator.exchanges > 0
        error = infidelity(whole(simulator), exact)
        assert error == pytest.approx(1 - errors_of(simulator).fidelity_estimate, rel=0.1)
        return error, errors_of(simulator).fidelity_bound, errors_of(simulator).norm

    assert len(set(run_ranks(n_ranks, work))) == 1


@pytest.mark.parametrize("mode", MODES)
def test_every_gate(mode: str, device: str) -> None:
    """Gates on five qubits too, on ranks of as few qubits as there may be."""
    for n_ranks in (2, 4):
        n = 9 + n_ranks.bit_length()
        circuit = many_kinds(n, 30, n)
        exact = state_vector(circuit).reshape(-1)

        def work(ranks: Communicator, circuit: GateSequence = circuit, exact: np.ndarray = exact) -> None:
            simulator = simulated(ranks, circuit, "complex128", 16, 3, 9, mode, device)
            assert simulator.exchanges > 0
            assert infidelity(whole(simulator), exact) <= 1 - errors_of(simulator).fidelity_bound + 1e-15
            assert errors_of(simulator).fidelity_bound > 1 - 1e-4

        run_ranks(n_ranks, work)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("pairs", [((5, 11),), ((9, 10),), ((5, 11), (8, 10))])
def test_an_exchange_changes_no_amplitude(
    bits: int, pairs: tuple[tuple[int, int], ...], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_contiguous_messages_alone(monkeypatch)
    circuit = unseen_circuit("random", 12, bits)

    def work(ranks: Communicator) -> None:
        state: Any = simulated(ranks, circuit, "complex64", bits, device=device).state
        indices = np.arange(1 << 12)
        before, errors = state.take(indices), replace(state.errors)
        for step in state.prepare([QubitExchange(pairs)]):
            state.apply(step)
        moved = indices
        for inside, outside in pairs:
            differ = (moved >> inside ^ moved >> outside) & 1
            moved = moved ^ differ << inside ^ differ << outside
        assert np.array_equal(state.take(moved), before)
        assert len(np.unique(before)) > 1000
        assert state.errors == errors
        assert state.sent_bytes > 0

    run_ranks(4, work)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tile", [packed_tile("complex64"), *(coded_tile("complex64", n) for n in (12, 26))])
def test_bits_of_blocks_are_never_exchanged(mode: str, tile: Tile) -> None:
    for kind in KINDS:
        circuit = unseen_circuit(kind, 14, 9)
        gates = [from_gate(item) for item in circuit.gates]
        plan = compile_gates(gates, range(14)[::-1], tile, mode, 12)
        pairs = [pair for step in plan.steps if isinstance(step, QubitExchange) for pair in step.pairs]
        assert pairs
        assert min(inside for inside, _ in pairs) >= BLOCK_BITS


def test_tiles_are_not_taken_as_zero_after_an_exchange(device: str) -> None:
    """Bit 10 varies by exchanges alone, and no pass had it in its tiles."""
    turn = np.array([[1, 1], [1, -1]], np.complex128) / np.sqrt(2)
    low = tuple(range(5))
    steps = [
        Pass((*low, 9), (from_matrix((9,), turn),)), QubitExchange(((9, 11),)), QubitExchange(((10, 11),)),
        Pass(low, (from_matrix((0,), turn),)),
    ]  # fmt: skip

    def work(ranks: Communicator) -> None:
        state: Any = simulated(ranks, GateSequence(12, ()), "complex128", 16, device=device).state
        for step in state.prepare(steps):
            state.apply(step)
        amplitudes = state.take(np.arange(1 << 12))
        assert np.flatnonzero(amplitudes).tolist() == [0, 1, 1 << 10, 1 + (1 << 10)]
        assert amplitudes[amplitudes != 0] == pytest.approx(0.5, abs=1e-4)

    run_ranks(2, work)


def test_ranks_round_by_other_random_numbers(device: str) -> None:
    """The same part becomes another on each rank by the same pass."""
    circuit = unseen_circuit("random", 9, 3)
    gates = [from_gate(item) for item in circuit.gates]
    found = set()
    for rank in range(4):
        part = part_of(device, 9, "complex64", 8, 4, rank, 9)
        for array, first in zip(part.numbers, ONE, strict=True):
            array[:1] = first
        for step in part.prepare(compile_gates(gates, range(9)[::-1], part.tile).passes):
            part.apply(step)
        found.add(part.take(np.arange(1 << 9)).tobytes())
    assert len(found) == 4


def test_answers_are_those_of_the_decoded_state(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_state, "CHUNK_BITS", 6)
    monkeypatch.setattr(distributed_state, "PIECE_BITS", 8)
    monkeypatch.setattr("tnplan.executor.statevector.simulator.CHUNK_BITS", 6)
    monkeypatch.setattr("tnplan.executor.statevector.distributed_state.PIECE_BITS", 7)
    n = 12
    circuit = unseen_circuit("random", n, n)

    def work(ranks: Communicator) -> list[float]:
        simulator = simulated(ranks, circuit, "complex128", 8, 2, device=device)
        plain = Simulator(HostState(n, "complex128"), n, seed=1)
        plain.load(simulator.state.take(np.arange(1 << n)), simulator.where)
        values: list[Any] = []
        random = np.random.default_rng(17)
        for _ in range(20):
            letters = random.choice(list("IXYZ"), (4, n))
            words = [" ".join(f"{letter}{q}" for q, letter in enumerate(row)) for row in letters]
            observable = given_sum(" + 0.5*".join(words), n)
            values.append(simulator.expectation(observable))
            assert values[-1] == pytest.approx(plain.expectation(observable), abs=1e-12)
        for qubits in ([0], [2, 0], [1, n - 1, 2], list(range(n))):
            table = simulator.probabilities(qubits)
            assert np.allclose(table, plain.probabilities(qubits), atol=1e-12)
            values += table.tolist()
        assert np.allclose(whole(simulator), plain.array(), atol=1e-15)
        assert simulator.norm() == pytest.approx(1, abs=1e-6)
        assert np.allclose(simulator.array(), whole(simulator), atol=1e-7)
        simulator.random, plain.random = np.random.default_rng(4), np.random.default_rng(4)  # type: ignore[misc]
        drawn = simulator.sample(500)
        assert np.mean(np.sort(drawn) == np.sort(plain.sample(500))) > 0.99
        return [*values, *drawn.tolist()]

    first, *others = run_ranks(4, work)
    assert all(other == first for other in others)


ASKED: dict[str, Any] = {
    "shots": 500, "observable": "Z0 X3 - Z9", "amplitudes": ["0" * 12, "1" * 12], "marginal": [0, 7],
    "seed": 5, "device": "cpu",
}  # fmt: skip


@pytest.mark.parametrize("fidelity", [0.99, 0.999999])
def test_values_are_those_of_one_rank_within_the_bounds(fidelity: float) -> None:
    circuit = unseen_circuit("trotter", 12, 78)
    asked = {**ASKED, "fidelity": fidelity, "precision": "fp32"}
    one, *others = (tnplan.simulate(circuit, **asked, ranks=ranks) for ranks in (1, 2, 4))
    for done in others:
        assert done.report["exchanges"] > 0
        assert done.report["predicted_bytes"] < one.report["predicted_bytes"]
        assert fidelity <= done.report["fidelity_estimate"] < 1
        assert done.report["bits"] == one.report["bits"]
        # The trace distance from the exact state is sqrt(1 - F) at most.
        most = sum(np.sqrt(1 - report["fidelity_bound"]) for report in (one.report, done.report))
        assert done.answer.expectation == pytest.approx(one.answer.expectation, abs=4 * most)
        assert done.answer.probabilities == pytest.approx(one.answer.probabilities, abs=most)
        assert done.answer.amplitudes == pytest.approx(one.answer.amplitudes, abs=2 * most)
        assert done.answer.norm == pytest.approx(1, abs=1e-6)
        assert sum(done.answer.counts.values()) == 500


def test_passes_are_predicted_for_the_ranks() -> None:
    circuit = unseen_circuit("random", 12, 6)
    for n_ranks, mode in ((2, "compiled"), (4, "compiled"), (4, "stages")):
        done = tnplan.simulate(circuit, fidelity=0.9, precision="fp64", ranks=n_ranks, mode=mode)
        planned = planned_passes(circuit.gates, 12, "complex128", False, mode, n_ranks)
        assert done.report["passes"] == planned


def test_a_run_is_done_again_with_more_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    circuit = unseen_circuit("random", 12, 8)
    monkeypatch.setattr("tnplan.executor.statevector.packed_error.PEAK", 1e-6)
    asked: dict[str, Any] = {"ranks": 2, "precision": "fp32", "threads": 1}
    needed = tnplan.simulate(circuit, fidelity=0.99, **asked).report["predicted_bytes"]
    report = tnplan.simulate(circuit, fidelity=0.99999, **asked).report
    assert (report["bits"], report["fidelity_estimate"] >= 0.99999) == (16, True)
    with pytest.raises(InputError, match="for 16 bits"):
        tnplan.simulate(circuit, fidelity=0.99999, memory=needed + 1000, **asked)


def test_room_is_looked_for_on_all_ranks(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a copy of all amplitudes on each rank of the host."""

    def work(ranks: Communicator) -> None:
        state: Any = simulated(ranks, GateSequence(11, ()), "complex64", 8, device=device).state
        monkeypatch.setattr(packed_error, "host_memory", lambda: (0, 2 * 8 << 11))
        with pytest.raises(InputError, match="ask for single amplitudes"):
            state.to_host()

    run_ranks(2, work)


@needs_mpi
def test_mpirun_gives_what_threads_give(tmp_path: Path) -> None:
    path = tmp_path / "vqe.qsim"
    save_qsim(unseen_circuit("vqe", 12, 79), path)
    observable = " + ".join(f"X{q} Y{(q + 1) % 12}" for q in range(12))
    options = ["--fidelity", "0.99", "--shots", 50, "--observable", observable, "--seed", 1, "--json"]
    done = mpirun(2, "-m", "tnplan", "statevector", path, *options, "--precision", "fp32")
    assert done.returncode == 0, done.stderr
    threads = tnplan.simulate(
        path, fidelity=0.99, shots=50, observable=observable, seed=1, precision="fp32", ranks=2
    ).report
    report = json.loads(done.stdout)
    for name in ("ranks", "bits", "counts", "expectation", "norm", "fidelity_estimate", "fidelity_bound"):
        assert report[name] == threads[name]
    assert report["exchanges"] > 0

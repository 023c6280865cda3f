"""The engine over several ranks: the same states and answers as one, with few exchanges of index bits."""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path

import numpy as np
import pytest

import tnplan
from tests.support.circuits import random_circuit, state_vector
from tests.support.engines.statevector import (
    hadamards,
    many_kinds,
    on_ranks,
    plan_of,
    qft,
    simulator_of,
    take_contiguous_messages_alone,
)
from tests.support.kernels.gpus import needs_gpus
from tests.support.mpirun import mpirun, needs_mpi
from tests.support.slow import slow_after
from tnplan.circuits.circuit import GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import parse
from tnplan.circuits.program import CircuitProgram, Measurement, Reset
from tnplan.circuits.qsim import save_qsim
from tnplan.common.errors import InputError
from tnplan.executor.device.comm.threads import run_ranks
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.distributed_state import DistributedState
from tnplan.executor.statevector.gates.multiplexed_gate import from_gate
from tnplan.executor.statevector.prepared_program import prepare_program
from tnplan.executor.statevector.scheduling.qubit_cover import QubitExchange, first_places
from tnplan.executor.statevector.scheduling.tiled_passes import MODES, SHORT_BITS, Tile, compile_gates
from tnplan.executor.statevector.simulator import Simulator

N = 9


TILE = Tile(6, 1, 5)
PROGRAM_TILE = Tile(6, 1, 1, 3, True)


@pytest.mark.parametrize("n_ranks", slow_after(2, [2, 4, 8]))
@pytest.mark.parametrize(("mode", "tile"), [*((mode, TILE) for mode in MODES), ("compiled", PROGRAM_TILE)])
def test_states_equal_dense_ones(n_ranks: int, mode: str, tile: Tile) -> None:
    for circuit in (random_circuit(N, 120, 1), many_kinds(N, 20, 2) if n_ranks < 8 else hadamards(N), qft(N)):
        simulators = on_ranks(circuit, n_ranks, mode, tile)
        parts = np.concatenate([simulator.state.shard() for simulator in simulators])
        axes = [N - 1 - simulators[0].where[q] for q in range(N)]
        found = parts.reshape((2,) * N).transpose(axes)
        np.testing.assert_allclose(found, state_vector(circuit), rtol=0, atol=1e-12)
        assert len({simulator.where for simulator in simulators}) == 1


@pytest.mark.parametrize("n_ranks", [1, 2, 4, 8])
def test_answers_are_the_same_on_every_rank(n_ranks: int) -> None:
    circuit = random_circuit(N, 150, 5)
    state = state_vector(circuit)
    weights = np.abs(state) ** 2
    word = parse("X0 Y3 Z8 + 0.5 Z1 - X7 X8 + 2 Y0 Y1 Y2", N)
    expected = simulator_of(circuit).expectation(word)

    def work(ranks: Communicator) -> None:
        own = HostState(N - n_ranks.bit_length() + 1, "complex128", 1, ranks.rank)
        simulator = Simulator(DistributedState(own, ranks) if n_ranks > 1 else own, N, "compiled", 3)
        simulator.run(prepare_program(circuit.gates), np.zeros(0, np.uint8))
        assert simulator.norm() == pytest.approx(1, abs=1e-12)
        np.testing.assert_allclose(simulator.array(), state.reshape(-1), rtol=0, atol=1e-12)
        found = simulator.probabilities((8, 0, 4))
        table = weights.sum(axis=(1, 2, 3, 5, 6, 7)).transpose(2, 0, 1).reshape(-1)
        np.testing.assert_allclose(found, table, rtol=0, atol=1e-12)
        assert simulator.expectation(word) == pytest.approx(expected, abs=1e-12)
        bits = "010110111"
        assert simulator.amplitudes([bits])[0] == pytest.approx(state[tuple(map(int, bits))], abs=1e-12)
        counts = np.bincount(simulator.sample(200_000), minlength=2**N)
        p = weights.reshape(-1)
        large = 200_000 * p >= 5
        square = (((counts - 200_000 * p) ** 2)[large] / (200_000 * p)[large]).sum()
        assert abs(square - large.sum() + 1) < 4.5 * np.sqrt(2 * large.sum())
        value = simulator.measure(0)
        assert simulator.probabilities([0])[value] == pytest.approx(1, abs=1e-12)

    run_ranks(n_ranks, work)


def exchanges(circuit: GateSequence, n_inside: int) -> list[QubitExchange]:
    n = circuit.n_qubits
    gates = [from_gate(item) for item in circuit.gates]
    before = first_places(gates, n, n_inside)
    plan = compile_gates(gates, before, Tile(14, 2, 2), "compiled", n_inside)
    return [step for step in plan.steps if isinstance(step, QubitExchange)]


@pytest.mark.parametrize("rank_bits", [1, 2, 3])
def test_one_exchange_is_enough_for_transforms(rank_bits: int) -> None:
    for circuit in (hadamards(33), GateSequence(33, qft(33).gates[:-16])):
        (only,) = exchanges(circuit, 33 - rank_bits)
        assert len(only.pairs) == rank_bits


@pytest.mark.parametrize(("n", "rank_bits"), [(31, 1), (32, 1), (33, 2)])
def test_an_exchange_takes_no_more_passes(n: int, rank_bits: int) -> None:
    """Passes before it that fill no tile with what comes after it do so after it."""
    tile = Tile(13, 3, 1, 5, True, 14)
    for circuit in (hadamards(n), GateSequence(n, qft(n).gates[: -(n // 2)])):
        gates = [from_gate(item) for item in circuit.gates]
        n_inside = n - rank_bits
        plan = compile_gates(gates, first_places(gates, n, n_inside), tile, "compiled", n_inside)
        assert len(plan.passes) == 1 + ceil((n - tile.bits) / (tile.bits - tile.run_bits))
        assert len(plan.steps) == len(plan.passes) + 1


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_exchanges_move_long_runs(seed: int) -> None:
    """Bits that leave a rank are none that every tile holds, where programs exchange these with high ones."""
    generator = np.random.default_rng(seed)
    gates = []
    for _ in range(12):
        gates += [gate("h", (q,)) for q in range(14)]
        gates += [gate("cz", tuple(map(int, pair))) for pair in generator.permutation(14).reshape(-1, 2)]
    gates = [from_gate(item) for item in gates]
    moved = []
    for programs in (False, True):
        tile = Tile(9, SHORT_BITS, 1, 4, programs)
        plan = compile_gates(gates, range(13, -1, -1), tile, "compiled", 11)
        moved.append([a for step in plan.steps if isinstance(step, QubitExchange) for a, _ in step.pairs])
    assert len(moved[0]) == len(moved[1])
    assert min(moved[0]) < SHORT_BITS <= min(moved[1])


def test_diagonals_and_names_need_no_exchange() -> None:
    circuit = random_circuit(12, 40, 3)
    kept = [item for item in circuit.gates if item.is_diagonal or item.name in ("sw", "is")]
    diagonal = GateSequence(12, tuple(kept))
    assert len(diagonal.gates) > 5
    assert exchanges(diagonal, 8) == []


def test_an_exchange_is_the_swap_of_its_bits() -> None:
    plan = plan_of(hadamards(5), Tile(3, 0, 1), n_inside=3)
    moved = [step for step in plan.steps if isinstance(step, QubitExchange)]
    assert len(moved) == 1
    assert {bit < 3 for pair in moved[0].pairs for bit in pair[:1]} == {True}
    assert sorted(plan.after) == list(range(5))
    for inside, outside in moved[0].pairs:
        assert plan.after[4 - inside] == outside
        assert plan.after[4 - outside] == inside


@pytest.mark.parametrize("pairs", [((0, 7),), ((3, 8),), ((0, 7), (1, 8))])
def test_any_bit_can_be_exchanged(
    pairs: tuple[tuple[int, int], ...], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Amplitudes of the lowest bit lie apart, and messages do not."""
    take_contiguous_messages_alone(monkeypatch)
    whole = np.random.default_rng(8).normal(size=1 << 9).astype(np.complex128)
    moved = np.arange(1 << 9)
    for inside, outside in pairs:
        differ = (moved >> inside ^ moved >> outside) & 1
        moved = moved ^ differ << inside ^ differ << outside

    def work(ranks: Communicator) -> np.ndarray:
        state = DistributedState(HostState(7, "complex128", 1, ranks.rank), ranks)
        state.load(whole[ranks.rank << 7 :][: 1 << 7])
        for step in state.prepare([QubitExchange(pairs)]):
            state.apply(step)
        return state.shard()

    assert np.array_equal(np.concatenate(run_ranks(4, work)), whole[moved])


def test_a_state_saved_by_ranks_goes_on_with_others(tmp_path: Path) -> None:
    whole = random_circuit(7, 90, 5)
    first, second = GateSequence(7, whole.gates[:45]), GateSequence(7, whole.gates[45:])
    saved = tmp_path / "half.json"
    tnplan.simulate(first, precision="fp64", save=saved, ranks=4)
    assert len(json.loads(saved.read_text())["parts"]) == 4
    for ranks in (1, 2):
        done = tnplan.simulate(second, precision="fp64", start=saved, ranks=ranks, amplitudes=["0110101"])
        expected = state_vector(whole)[0, 1, 1, 0, 1, 0, 1]
        assert done.answer.amplitudes[0] == pytest.approx(expected, abs=1e-12)  # type: ignore[index]


def test_trajectories_agree_between_ranks() -> None:
    operations = (*hadamards(7).gates, Measurement(0, 0), *qft(7).gates, Reset(3), Measurement(3, 1))
    program = CircuitProgram(7, 2, operations)
    reports = [tnplan.simulate(program, shots=30, seed=4, ranks=ranks, mode=mode, precision="fp64").report
               for ranks, mode in ((1, "stages"), (2, "compiled"), (4, "compiled"))]  # fmt: skip
    assert reports[0]["counts"] == reports[1]["counts"] == reports[2]["counts"]
    assert set(reports[0]["counts"]) == {"00", "10"}


@pytest.mark.parametrize(
    ("ranks", "message"),
    [(3, "ranks: is 3; give a power of two"), (0, "ranks: is 0"), (8, "a state of 7 qubits, 4 per rank")],
)
def test_ranks_that_cannot_be(ranks: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tnplan.simulate(qft(7), ranks=ranks)


@needs_mpi
@pytest.mark.mpi
@pytest.mark.timeout(120)  # three starts of ranks, which compile kernels on GPUs
@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=needs_gpus(2))])
def test_mpirun_gives_what_threads_give(tmp_path: Path, device: str) -> None:
    save_qsim(random_circuit(8, 60, 2), tmp_path / "c.qsim")
    options = ("--shots", 50, "--observable", "X0 Z7", "--seed", 1, "--precision", "fp64", "--json")
    done = mpirun(2, "-m", "tnplan", "statevector", tmp_path / "c.qsim", *options, "--device", device)
    assert done.returncode == 0, done.stderr
    threads = tnplan.simulate(
        tmp_path / "c.qsim", shots=50, observable="X0 Z7", seed=1, precision="fp64", ranks=2
    ).report
    found = json.loads(done.stdout)
    assert (found["ranks"], found["counts"]) == (2, threads["counts"])
    assert found["expectation"] == pytest.approx(threads["expectation"], abs=1e-12)
    refused = mpirun(3, "-m", "tnplan", "statevector", tmp_path / "c.qsim")
    assert refused.returncode == 2
    assert "give a power of two" in refused.stderr

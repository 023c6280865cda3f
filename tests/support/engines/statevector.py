"""Circuits, and ways to run them, for the tests of the state-vector engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.executor.device.comm.threads import ThreadCommunicator, run_ranks
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.statevector.cpu.state import HostState
from tnplan.executor.statevector.distributed_state import DistributedState
from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate, from_gate
from tnplan.executor.statevector.prepared_program import prepare_program
from tnplan.executor.statevector.scheduling.overlap import LEAST_TILE_BITS
from tnplan.executor.statevector.scheduling.tiled_passes import PassPlan, Tile, compile_gates
from tnplan.executor.statevector.simulator import Simulator

TOLERANCE = {"complex64": 1e-5, "complex128": 1e-12}
NO_BITS = np.zeros(0, np.uint8)


def qft(n_qubits: int) -> GateSequence:
    """The Fourier transform exp(2 pi i j k / 2^n) / sqrt(2^n), its exchanges of qubits at the end."""
    gates = []
    for i in range(n_qubits):
        gates.append(gate("h", (i,)))
        gates += [gate("cp", (i, j), (-2 * math.pi / 2 ** (j - i + 1),)) for j in range(i + 1, n_qubits)]
    gates += [gate("sw", (i, n_qubits - 1 - i)) for i in range(n_qubits // 2)]
    return GateSequence(n_qubits, tuple(gates))


def hadamards(n_qubits: int) -> GateSequence:
    """H on every qubit."""
    return GateSequence(n_qubits, tuple(gate("h", (q,)) for q in range(n_qubits)))


def random_unitary(n_qubits: int, generator: np.random.Generator) -> np.ndarray:
    """A random unitary matrix on some qubits."""
    side = 2**n_qubits
    matrix = generator.normal(size=(side, side)) + 1j * generator.normal(size=(side, side))
    return np.asarray(np.linalg.qr(matrix)[0], np.complex128)


def many_kinds(n_qubits: int, n_gates: int, seed: int) -> GateSequence:
    """Random unitaries on 1 to 5 qubits, some controlled, some diagonal, on random qubits."""
    generator = np.random.default_rng(seed)
    gates = []
    for _ in range(n_gates):
        q = int(generator.integers(1, min(5, n_qubits) + 1))
        qubits = tuple(int(k) for k in generator.choice(n_qubits, size=q, replace=False))
        kind = generator.integers(3) if q > 1 else 0
        matrix = random_unitary(q, generator)
        if kind == 1:
            matrix = np.diag(np.exp(1j * generator.uniform(-3, 3, size=2**q)))
        elif kind == 2:
            half = matrix[: 2 ** (q - 1), : 2 ** (q - 1)]
            matrix = np.eye(2**q, dtype=np.complex128)
            matrix[len(half) :, len(half) :] = np.linalg.qr(half)[0]
        gates.append(Gate("random", qubits, matrix.astype(np.complex128)))
    return GateSequence(n_qubits, tuple(gates))


def dense_matrix(gates: Sequence[MultiplexedGate], n_bits: int) -> np.ndarray:
    """The matrix of gates on bits, element by element from what a gate means."""
    total = np.eye(2**n_bits, dtype=np.complex128)
    for one in gates:
        matrix = np.zeros_like(total)
        for column in range(2**n_bits):
            value = sum((column >> bit & 1) << k for k, bit in enumerate(reversed(one.selectors)))
            own = sum((column >> bit & 1) << k for k, bit in enumerate(reversed(one.targets)))
            for row in range(2 ** len(one.targets)):
                index = column
                for k, bit in enumerate(reversed(one.targets)):
                    index = index & ~(1 << bit) | (row >> k & 1) << bit
                matrix[index, column] += one.matrices[value, row, own]
        total = matrix @ total
    return total


def plan_of(
    circuit: GateSequence, tile: Tile, mode: str = "compiled", n_inside: int | None = None
) -> PassPlan:
    """The plan of a circuit whose first qubit is the highest bit."""
    n = circuit.n_qubits
    gates = [from_gate(item) for item in circuit.gates]
    return compile_gates(gates, [n - 1 - q for q in range(n)], tile, mode, n_inside)


def simulator_of(
    circuit: GateSequence, dtype: str = "complex128", mode: str = "compiled", tile: Tile | None = None,
    threads: int = 1, seed: int = 7,
) -> Simulator:  # fmt: skip
    """A simulator after a circuit."""
    state = HostState(circuit.n_qubits, dtype, threads)
    state.tile = tile or state.tile
    simulator = Simulator(state, circuit.n_qubits, mode, seed)
    simulator.run(prepare_program(circuit.gates), NO_BITS)
    return simulator


def take_contiguous_messages_alone(patch: pytest.MonkeyPatch) -> None:
    """Ranks in threads take any array for a message; other communicators send bytes from its address on."""
    exchange = ThreadCommunicator.exchange

    def checked(ranks: ThreadCommunicator, sends: Any, receives: Any) -> None:
        assert all(view.ndim == 1 and view.flags.c_contiguous for _, view in (*sends, *receives))
        exchange(ranks, sends, receives)

    patch.setattr(ThreadCommunicator, "exchange", checked)


def on_ranks(
    circuit: GateSequence, n_ranks: int, mode: str, tile: Tile, least_tile_bits: int = LEAST_TILE_BITS
) -> list[Simulator]:  # fmt: skip
    """The simulators of all ranks after a circuit."""

    def work(ranks: Communicator) -> Simulator:
        own = HostState(circuit.n_qubits - n_ranks.bit_length() + 1, "complex128", 1, ranks.rank)
        own.tile = tile
        state = DistributedState(own, ranks, least_tile_bits=least_tile_bits)
        simulator = Simulator(state, circuit.n_qubits, mode, 3)
        simulator.run(prepare_program(circuit.gates), NO_BITS)
        return simulator

    return run_ranks(n_ranks, work)

"""Random circuits and their states by dense contraction."""

from __future__ import annotations

from collections.abc import Sequence

import cotengra
import numpy as np

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import KINDS, gate
from tnplan.planner.networks.network import Network


def state_vector(circuit: GateSequence) -> np.ndarray:
    """The final state with one axis a qubit, by dense contraction of each gate."""
    state = np.zeros((2,) * circuit.n_qubits, dtype=np.complex128)
    state[(0,) * circuit.n_qubits] = 1
    for item in circuit.gates:
        q = len(item.qubits)
        state = np.tensordot(item.matrix.reshape((2,) * (2 * q)), state, (range(q, 2 * q), item.qubits))
        state = np.moveaxis(state, range(q), item.qubits)
    return state


def unitary(gates: Sequence[Gate], n_qubits: int, columns: int | None = None) -> np.ndarray:
    """The matrix of gates one after another, or its first columns."""
    kept = 2**n_qubits if columns is None else columns
    result: np.ndarray = np.eye(2**n_qubits, kept, dtype=np.complex128).reshape((2,) * n_qubits + (kept,))
    for item in gates:
        q = len(item.qubits)
        result = np.tensordot(item.matrix.reshape((2,) * (2 * q)), result, (range(q, 2 * q), item.qubits))
        result = np.moveaxis(result, range(q), item.qubits)
    return result.reshape(2**n_qubits, kept)


def contract(network: Network, arrays: list[np.ndarray]) -> np.ndarray:
    """The whole network, by cotengra."""
    return np.asarray(cotengra.array_contract(arrays, network.inputs, network.output, optimize="greedy"))


def random_circuit(n_qubits: int, n_gates: int, seed: int) -> GateSequence:
    """Every kind of gate, with random angles on random qubits, which are NumPy's integers."""
    generator = np.random.default_rng(seed)
    names = sorted(KINDS)
    gates = []
    for number in range(n_gates):
        name = names[number % len(names)] if number < len(names) else str(generator.choice(names))
        kind = KINDS[name]
        qubits = generator.choice(n_qubits, size=kind.n_qubits, replace=False)
        gates.append(gate(name, list(qubits), generator.uniform(-3, 3, size=kind.n_params).tolist()))
    return GateSequence(np.int64(n_qubits), tuple(gates))  # type: ignore[arg-type]

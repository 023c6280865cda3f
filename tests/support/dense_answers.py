"""The questions to a circuit answered by dense matrices: slow and obvious."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from tests.support.circuits import random_circuit, state_vector, unitary
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import I2, KINDS, X, Y, Z, gate
from tnplan.circuits.pauli_sum import PauliSum, parse
from tnplan.circuits.program import Channel, Measurement, Operation, Reset

LETTERS = {"I": I2, "X": X, "Y": Y, "Z": Z}


def circuit_of(n_qubits: int, n_gates: int, seed: int) -> GateSequence:
    """A random circuit of every gate that has room."""
    if n_qubits > 1:
        return random_circuit(n_qubits, n_gates, seed)
    random = np.random.default_rng(seed)
    names = sorted(name for name, kind in KINDS.items() if kind.n_qubits == 1)
    return GateSequence(1, tuple(
        gate(name, (0,), random.uniform(-3, 3, KINDS[name].n_params).tolist())
        for name in random.choice(names, n_gates).tolist()
    ))  # fmt: skip


def random_sum(n_qubits: int, n_terms: int, seed: int, *, is_complex: bool = False) -> PauliSum:
    """Random words, about half of whose letters are I, with random coefficients."""
    random = np.random.default_rng(seed)
    words = ["".join(random.choice([*"IIIXYZ"], n_qubits)) for _ in range(n_terms)]
    found = parse(" + ".join(f"{random.uniform(0.1, 2):.6f}*{word}" for word in words), n_qubits)
    if not is_complex:
        return found
    phases = np.exp(1j * random.uniform(0, 6, found.n_terms))
    return PauliSum(n_qubits, found.keys, found.coefficients * phases)


def matrix_of(operator: PauliSum) -> np.ndarray:
    """The matrix of a sum; qubit 0 is the most significant bit."""
    n = operator.n_qubits
    total = np.zeros((2**n, 2**n), np.complex128)
    for x, z, value in operator.masks():
        letters = ["IXZY"[(x >> q & 1) + 2 * (z >> q & 1)] for q in range(n)]
        total += value * reduce(np.kron, [LETTERS[letter] for letter in letters])
    return total


def expectation(circuit: GateSequence, operator: PauliSum) -> complex:
    """<psi|O|psi>, word by word."""
    n, state = circuit.n_qubits, state_vector(circuit)
    total = 0j
    for x, z, value in operator.masks():
        moved = state
        for q in range(n):
            letter = LETTERS["IXZY"[(x >> q & 1) + 2 * (z >> q & 1)]]
            moved = np.moveaxis(np.tensordot(letter, moved, (1, q)), 0, q)
        total += value * np.vdot(state, moved)
    return complex(total)


def density(
    operations: Sequence[Operation], n_qubits: int, start: np.ndarray | None = None
) -> np.ndarray:  # fmt: skip
    """The final density matrix of gates, channels, measurements and resets, from |0...0> or `start`."""
    rho = np.zeros((2**n_qubits,) * 2, np.complex128)
    rho[0, 0] = 1
    if start is not None:
        rho = start
    for one in operations:
        operators: Any
        if isinstance(one, Gate | Channel):
            qubits, operators = one.qubits, one.kraus if isinstance(one, Channel) else (one.matrix,)
        else:
            assert isinstance(one, Measurement | Reset)
            second = np.array([[0, 1], [0, 0]]) if isinstance(one, Reset) else np.diag([0, 1])
            qubits, operators = (one.qubit,), (np.diag([1, 0]), second)
        full = [unitary([Gate("k", qubits, np.asarray(k, np.complex128))], n_qubits) for k in operators]
        rho = sum(k @ rho @ k.conj().T for k in full)
    return rho


def reduced(rho: np.ndarray, qubits: Sequence[int]) -> np.ndarray:
    """The density matrix of some qubits, the first most significant."""
    n = int(np.log2(len(rho)))
    others = [q for q in range(n) if q not in qubits]
    order = [*qubits, *others]
    tensor = rho.reshape((2,) * (2 * n)).transpose([*order, *(n + q for q in order)])
    m = len(qubits)
    return np.einsum("aibi->ab", tensor.reshape(2**m, 2 ** (n - m), 2**m, 2 ** (n - m)))


def trace(circuit: GateSequence, a: PauliSum, b: PauliSum) -> np.ndarray:
    """A U^dagger B U as a matrix."""
    u = unitary(circuit.gates, circuit.n_qubits)
    return np.asarray(matrix_of(a) @ u.conj().T @ matrix_of(b) @ u)

"""Circuits made of others: one after another, backwards, on more qubits, and Pauli words as gates."""

from __future__ import annotations

import numpy as np

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.program import UNITARY
from tnplan.common.errors import InputError


def inverse(circuit: GateSequence) -> GateSequence:
    """The gates backwards, each conjugated and transposed; raises InputError for one that is not unitary."""
    return GateSequence(circuit.n_qubits, tuple(_inverse(gate) for gate in reversed(circuit.gates)))


def composed(first: GateSequence, second: GateSequence) -> GateSequence:
    """The gates of `first`, then those of `second`."""
    if first.n_qubits != second.n_qubits:
        raise InputError(
            "circuit",
            f"has {second.n_qubits} qubits",
            f"give a circuit of {first.n_qubits} qubits, as the first one",
        )
    return GateSequence(first.n_qubits, first.gates + second.gates)


def widened(circuit: GateSequence, n_qubits: int) -> GateSequence:
    """The same gates on the first of more qubits."""
    return GateSequence(n_qubits, circuit.gates)


def pauli_word_gates(x: int, z: int) -> tuple[Gate, ...]:
    """A Pauli word of two masks as gates."""
    both = x | z
    letters = {q: "IXZY"[(x >> q & 1) + 2 * (z >> q & 1)] for q in range(both.bit_length())}
    return tuple(gate(letter.lower(), (q,)) for q, letter in letters.items() if letter != "I")


def _inverse(unitary: Gate) -> Gate:
    matrix = np.ascontiguousarray(unitary.matrix.conj().T)
    if np.abs(matrix @ unitary.matrix - np.eye(len(matrix))).max() > UNITARY:
        raise InputError(f"gate {unitary.name}", "is not unitary, and has no inverse", "leave it out")
    return type(unitary)(f"{unitary.name}_inverse", unitary.qubits, matrix)

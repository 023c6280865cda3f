"""The circuits of benchmarks/pauli/pauli.py, as rotations (letters, qubits, angle) or as steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.circuits.pauli_sum import PauliSum, masks, merge, pauli_sum
from tnplan.executor.pauli.algebra.gates import (
    Clifford,
    PauliStep,
    circuit_steps,
    local_words,
    rotation,
    rotation_matrix,
)

Turn = tuple[str, tuple[int, ...], float]


def eagle(theta: float, layers: int) -> list[Turn]:
    """RX(theta) on 127 qubits and RZZ(-pi/2) on the 144 edges of the heavy-hexagon lattice, repeated."""
    rows = [range(14), *(range(18 + 19 * r, 33 + 19 * r) for r in range(5)), range(113, 127)]
    edges = [(q, q + 1) for row in rows for q in row[:-1]]
    for gap in range(6):
        for k in range(4):
            column, bridge = 4 * k + 2 * (gap % 2), 14 + 19 * gap + k
            below = rows[gap + 1][column - (1 if gap == 5 else 0)]
            edges += [(rows[gap][column], bridge), (bridge, below)]
    layer: list[Turn] = [("X", (q,), theta) for q in range(127)]
    layer += [("ZZ", edge, -math.pi / 2) for edge in edges]
    return layer * layers


def ising_2d(side: int, layers: int, angle: float) -> list[Turn]:
    """RX(angle) on all sites of a square lattice and RZZ(angle) on its bonds, repeated."""
    sites = [(side * r + c, r, c) for r in range(side) for c in range(side)]
    bonds = [(q, q + 1) for q, _, c in sites if c < side - 1] + [
        (q, q + side) for q, r, _ in sites if r < side - 1
    ]
    layer: list[Turn] = [("X", (q,), angle) for q, _, _ in sites]
    return (layer + [("ZZ", bond, angle) for bond in bonds]) * layers


def tfim(side: int, steps: int, spread: float = 0.0) -> list[Turn]:
    """The tilted-field Ising model of monoprop's own benchmark on a square lattice: RZZ(0.075) on bonds, then
    RZ(0.05) and RX(0.05) on sites, repeated; angles larger by up to `spread`, all different."""
    rng, bonds = np.random.default_rng(0), []
    for q in range(side * side):
        bonds += [(q, q + 1)] * (q % side < side - 1) + [(q, q + side)] * (q < side * (side - 1))
    layer: list[Turn] = [("ZZ", bond, 0.075) for bond in bonds]
    layer += [(letter, (q,), 0.05) for letter in "ZX" for q in range(side * side)]
    return [(*turn[:2], turn[2] + spread * float(rng.random())) for turn in layer * steps]


def ring(kind: str, n_qubits: int, steps: int) -> tuple[GateSequence, int]:
    """Steps of a tilted-field Ising model or of XXZ on a ring, and by how many sites translations go."""
    bonds = [(q, (q + 1) % n_qubits) for q in range(n_qubits)]
    if kind == "ising":
        layer: list[Turn] = [("ZZ", bond, 0.2) for bond in bonds]
        layer += [(w, (q,), angle) for w, angle in (("Z", 0.1), ("X", 0.2)) for q in range(n_qubits)]
    else:
        words = (("XX", 0.2), ("YY", 0.2), ("ZZ", 0.1))
        layer = [(w, bond, angle) for s in (0, 1) for bond in bonds[s::2] for w, angle in words]
    numbers = {"X": 1, "Z": 2, "XX": 5, "YY": 15, "ZZ": 10}
    gates = [
        Gate(w, qubits, rotation_matrix(local_words(len(w))[numbers[w]], angle)) for w, qubits, angle in layer
    ]
    return GateSequence(n_qubits, tuple(gates * steps)), 1 if kind == "ising" else 2


def qiskit_circuit(n_qubits: int, turns: list[Turn]) -> Any:
    """The rotations as a circuit of Qiskit."""
    from qiskit import QuantumCircuit

    circuit = QuantumCircuit(n_qubits)
    for letters, qubits, angle in turns:
        getattr(circuit, f"r{letters.lower()}")(angle, *qubits)
    return circuit


def steps_of(turns: list[Turn]) -> list[PauliStep]:
    """The rotations as steps."""
    return [rotation(*turn) for turn in turns]


def clifford_layer(n_qubits: int, first: str) -> list[Clifford]:
    """The seed's layer: H or S on all qubits, then CNOT on neighbours."""
    gates = [gate(first, (q,)) for q in range(n_qubits)]
    gates += [gate("cnot", (q, q + 1)) for q in range(n_qubits - 1)]
    return circuit_steps(GateSequence(n_qubits, tuple(gates)))  # type: ignore[return-value]


def mixed(n_qubits: int, n_gates: int, rotations: float, seed: int = 0) -> list[PauliStep]:
    """Random gates: this share of rotations RX, RY, RZ, the rest H, S and CNOT alike."""
    rng, gates = np.random.default_rng(seed), []
    for _ in range(n_gates):
        q, other = (int(v) for v in rng.choice(n_qubits, 2, replace=False))
        if rng.random() < rotations:
            gates.append(
                gate(str(rng.choice(["rx", "ry", "rz"])), (q,), (float(rng.uniform(0, 2 * math.pi)),))
            )
        else:
            name = str(rng.choice(["h", "s", "cnot"]))
            gates.append(gate(name, (q, other) if name == "cnot" else (q,)))
    return list(circuit_steps(GateSequence(n_qubits, tuple(gates))))


def random_words(n_qubits: int, n_words: int, seed: int = 0) -> PauliSum:
    """Words drawn uniformly, their coefficients 1, equal ones added."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(2**64, size=(n_words, 2 * -(-n_qubits // 64)), dtype=np.uint64)
    if n_qubits % 64:
        keys[:, [keys.shape[1] // 2 - 1, -1]] &= np.uint64(2 ** (n_qubits % 64) - 1)
    return PauliSum(n_qubits, *merge(keys, np.ones(n_words)))


def light_words(n_qubits: int, n_words: int, max_weight: int, seed: int = 0) -> PauliSum:
    """Words of random weights 1 to `max_weight`, their letters and qubits drawn uniformly, coefficients 1."""
    rng, terms = np.random.default_rng(seed), []
    for _ in range(n_words):
        weight = int(rng.integers(1, min(max_weight, n_qubits) + 1))
        qubits = rng.choice(n_qubits, weight, replace=False).tolist()
        letters = rng.choice(list("XYZ"), weight).tolist()
        terms.append((*masks(list(zip(letters, qubits, strict=True)), n_qubits, "words"), 1.0))
    return pauli_sum(terms, n_qubits)

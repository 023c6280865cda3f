"""Circuits for a PEPS by a seed: pairs of a graph with loops, few enough qubits for a state vector."""

from __future__ import annotations

import numpy as np

from tests.support.circuit_families import brickwork, graph, qaoa, trotter
from tnplan.circuits.circuit import GateSequence

GRAPHS = ("ring", "lattice", "heavy hexagons", "random regular")


def peps_case(seed: int) -> tuple[str, GateSequence, list[str], int]:
    """The kind of a circuit, the circuit, three words of one to three letters, and a bond limit."""
    random = np.random.default_rng(seed)
    kind, family = str(random.choice(GRAPHS)), random.choice([brickwork, trotter, qaoa])
    n, edges = graph(kind, int(random.integers(8, 17)), random)
    gates = family(n, edges, int(random.integers(2, 10)), random)
    words = []
    for weight in random.integers(1, 4, 3):
        first = edges[int(random.integers(len(edges)))]
        others = [qubit for qubit in random.permutation(n).tolist() if qubit not in first]
        qubits = [*first, *others][:weight]
        words.append(" ".join(f"{random.choice([*'XYZZ'])}{qubit}" for qubit in sorted(qubits)))
    bond = int(random.choice([4, 6, 8, 12, 16]))
    return f"{family.__name__} on {kind}", GateSequence(n, tuple(gates)), words, bond

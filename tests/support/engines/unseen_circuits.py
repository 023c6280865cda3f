"""Circuits of five kinds from a seed: random, QFT, QAOA, Trotter and VQE."""

from __future__ import annotations

from math import pi

import numpy as np

from tests.support.engines.statevector import qft, random_unitary
from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate

KINDS = ("random", "qft", "qaoa", "trotter", "vqe")


def unseen_circuit(kind: str, n: int, seed: int) -> GateSequence:
    """A circuit of a kind on n qubits."""
    random = np.random.default_rng([KINDS.index(kind), n, seed])
    return GateSequence(n, tuple(MAKERS[kind](n, random)))


def _rotations(name: str, n: int, random: np.random.Generator) -> list[Gate]:
    return [gate(name, (q,), (float(random.uniform(0, 2 * pi)),)) for q in range(n)]


def _random(n: int, random: np.random.Generator) -> list[Gate]:
    """Unitaries of the Haar measure on random pairs of qubits."""
    pairs = [random.choice(n, 2, replace=False).tolist() for _ in range(4 * n)]
    return [Gate("u", tuple(pair), random_unitary(2, random)) for pair in pairs]


def _qft(n: int, random: np.random.Generator) -> list[Gate]:
    """The Fourier transform of a product state."""
    return [*_rotations("ry", n, random), *_rotations("rz", n, random), *qft(n).gates]


def _qaoa(n: int, random: np.random.Generator) -> list[Gate]:
    """Three layers for a graph with 3 n / 2 random edges."""
    edges = [random.choice(n, 2, replace=False).tolist() for _ in range(3 * n // 2)]
    gates = [gate("h", (q,)) for q in range(n)]
    for gamma, beta in random.uniform(0.1, 1.2, (3, 2)).tolist():
        gates += [gate("cp", (a, b), (gamma,)) for a, b in edges]
        gates += [gate("rx", (q,), (2 * beta,)) for q in range(n)]
    return gates


def _trotter(n: int, random: np.random.Generator) -> list[Gate]:
    """Twelve steps of an Ising chain in a field, from a state of one bit string."""
    step = float(random.uniform(0.02, 0.2))
    gates = [gate("x", (q,)) for q in range(n) if random.integers(2)]
    for _ in range(12):
        gates += [gate("cp", (q, q + 1), (4 * step,)) for q in range(n - 1)]
        gates += [gate("rz", (q,), (-2 * step,)) for q in range(n)]
        gates += [gate("rx", (q,), (2.2 * step,)) for q in range(n)]
    return gates


def _vqe(n: int, random: np.random.Generator) -> list[Gate]:
    """Four layers of rotations and a ring of controlled Z."""
    gates = []
    for _ in range(4):
        gates += [*_rotations("ry", n, random), *_rotations("rz", n, random)]
        gates += [gate("cz", (q, (q + 1) % n)) for q in range(n)]
    return gates


MAKERS = {"random": _random, "qft": _qft, "qaoa": _qaoa, "trotter": _trotter, "vqe": _vqe}

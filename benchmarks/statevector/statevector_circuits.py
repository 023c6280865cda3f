"""Circuits of the state-vector benchmarks on GPUs, as gates on qubits."""

from __future__ import annotations

import math

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.gates import gate

SINGLES = ("x_1_2", "y_1_2", "hz_1_2")
CYCLE = "ABCDCDAB"


def hadamards(n: int) -> list[Gate]:
    """H on all qubits."""
    return [gate("h", (q,)) for q in range(n)]


def fourier(n: int) -> list[Gate]:
    """The Fourier transform without its exchanges of qubits."""
    gates = []
    for i in range(n):
        gates.append(gate("h", (i,)))
        gates += [gate("cp", (i, j), (-math.pi / 2 ** (j - i),)) for j in range(i + 1, n)]
    return gates


def random_layers(n: int, depth: int, seed: int = 1) -> list[Gate]:
    """Layers of a random unitary on every qubit, then CZ on random pairs of all qubits."""
    generator = np.random.default_rng(seed)
    gates = []
    for _ in range(depth):
        for q in range(n):
            square = generator.normal(size=(2, 2)) + 1j * generator.normal(size=(2, 2))
            gates.append(Gate("u", (q,), np.asarray(np.linalg.qr(square)[0], np.complex128)))
        order = [int(q) for q in generator.permutation(n)]
        gates += [gate("cz", (a, b)) for a, b in zip(order[::2], order[1::2], strict=False)]
    return gates


def sycamore(n: int, depth: int, seed: int = 1) -> list[Gate]:
    """Layers of sqrt X, Y or W, never one twice in turn, and fSim(pi/2, pi/6) on a grid of six columns."""
    generator = np.random.default_rng(seed)
    last = np.full(n, -1)
    gates = []
    for layer in range(depth):
        for q in range(n):
            last[q] = generator.choice([k for k in range(3) if k != last[q]])
            gates.append(gate(SINGLES[last[q]], (q,)))
        gates += [gate("fs", pair, (math.pi / 2, math.pi / 6)) for pair in _pairs(n, CYCLE[layer % 8])]
    return gates


def _pairs(n: int, pattern: str) -> list[tuple[int, int]]:
    """Neighbours in a column (A, B) or in a row (C, D), every other one."""
    found = []
    for q in range(n):
        row, column = divmod(q, 6)
        other = q + 6 if pattern in "AB" else q + 1
        inside = other < n and (pattern in "AB" or column < 5)
        parity = (row if pattern in "AB" else column) + column * (pattern in "AB") + row * (pattern in "CD")
        if inside and parity % 2 == (pattern in "BD"):
            found.append((q, other))
    return found


CIRCUITS = {
    "H": hadamards, "QFT": fourier, "random": lambda n: random_layers(n, 20),
    "sycamore": lambda n: sycamore(n, 20),
}  # fmt: skip

"""Circuits with known values for the tests of the Pauli engine."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from tests.oracles.pauli import propagate_sorted
from tests.support.kernels.gpus import needs_gpus
from tnplan.circuits.pauli_sum import PauliSum
from tnplan.executor.pauli.algebra.gates import (
    PauliStep,
    TransferMatrix,
    kraus_channel,
    local_words,
    rotation,
    word_masks,
)
from tnplan.executor.pauli.propagate import Propagation, propagate
from tnplan.executor.pauli.resources import Resources

Propagate = Callable[..., Propagation]
ON_CPU, ON_GPU = (partial(propagate, resources=Resources(device=device)) for device in ("cpu", "gpu"))
ENGINES = (
    pytest.param(ON_CPU, id="hash"),
    pytest.param(propagate_sorted, id="sort"),
    pytest.param(ON_GPU, id="gpu", marks=needs_gpus(1)),
)
"""`propagate` on what one test body runs on."""


def pauli_channel(qubit: int, x: float, y: float, z: float) -> TransferMatrix:
    """X, Y or Z strikes with the probabilities `x`, `y` and `z`."""
    return TransferMatrix((qubit,), np.diag([1, 1 - 2 * (y + z), 1 - 2 * (x + y), 1 - 2 * (x + z)]))


def amplitude_damping(qubit: int, probability: float) -> TransferMatrix:
    """|1> falls to |0> with `probability`: Z becomes (1 - p) Z + p I."""
    keep, fall = math.sqrt(1 - probability), math.sqrt(probability)
    return kraus_channel([qubit], [np.diag([1, keep]), np.array([[0, fall], [0, 0]])])


def eagle_edges() -> list[tuple[int, int]]:
    """The 144 edges of the heavy-hexagon lattice of 127 qubits: seven rows joined by 24 bridges."""
    rows = [range(14), *(range(18 + 19 * r, 33 + 19 * r) for r in range(5)), range(113, 127)]
    edges = [(q, q + 1) for row in rows for q in row[:-1]]
    for gap in range(6):
        upper, lower = rows[gap], rows[gap + 1]
        for k in range(4):
            column = 4 * k + 2 * (gap % 2)
            bridge = 14 + 19 * gap + k
            above = upper[column]
            below = lower[column - (1 if gap == 5 else 0)]
            edges += [(above, bridge), (bridge, below)]
    return edges


def kicked_ising(n_qubits: int, edges: list[tuple[int, int]], theta: float, steps: int) -> list[PauliStep]:
    """`steps` times RX(theta) on every qubit and RZZ(-pi/2) on every edge."""
    layer: list[PauliStep] = [rotation("X", (q,), theta) for q in range(n_qubits)]
    layer += [rotation("ZZ", edge, -math.pi / 2) for edge in edges]
    return layer * steps


def chain_edges(n_qubits: int) -> list[tuple[int, int]]:
    """Neighbours on an open chain."""
    return [(q, q + 1) for q in range(n_qubits - 1)]


def ising_trotter(n_qubits: int, angle: float, layers: int) -> list[PauliStep]:
    """`layers` times RZZ on the even and odd bonds of a ring and RX on every qubit, all by `angle`."""
    bonds = [(q, (q + 1) % n_qubits) for start in (0, 1) for q in range(start, n_qubits, 2)]
    layer: list[PauliStep] = [rotation("ZZ", bond, angle) for bond in bonds]
    layer += [rotation("X", (q,), angle) for q in range(n_qubits)]
    return layer * layers


def dense(terms: PauliSum) -> np.ndarray:
    """The matrix of a sum on a few qubits; qubit 0 is the most significant bit."""
    words = local_words(terms.n_qubits)
    numbers = {word_masks(range(terms.n_qubits), word): word for word in range(len(words))}
    return np.asarray(sum(c * words[numbers[x, z]] for x, z, c in terms.masks()))

"""Noise channels as maps of Pauli words in the Heisenberg picture. Knows no sum of words and no device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.pauli.steps import LARGEST_STEP, Transfer, heisenberg_matrix
from planner.errors import InputError

Array = NDArray[Any]

COMPLETE = 1e-10


def pauli_channel(qubit: int, x: float, y: float, z: float) -> Transfer:
    """X, Y or Z strikes with the probabilities `x`, `y` and `z`."""
    for name, value in (("x", x), ("y", y), ("z", z)):
        _probability(value, f"probability of {name}")
    _probability(x + y + z, "sum of probabilities")
    return Transfer((qubit,), np.diag([1, 1 - 2 * (y + z), 1 - 2 * (x + y), 1 - 2 * (x + z)]))


def depolarizing(qubits: Sequence[int], probability: float) -> Transfer:
    """With `probability` one of the 4^k - 1 words other than I strikes, each alike; k is 1 to 3."""
    _probability(probability, "probability")
    k = len(qubits)
    if not 1 <= k <= LARGEST_STEP:
        raise InputError("depolarizing", f"acts on {k} qubits", f"give 1 to {LARGEST_STEP}")
    scale = 1 - probability * 4**k / (4**k - 1)
    return Transfer(tuple(qubits), np.diag([1.0] + [scale] * (4**k - 1)))


def dephasing(qubit: int, probability: float) -> Transfer:
    """Z strikes with `probability`."""
    return pauli_channel(qubit, 0, 0, probability)


def amplitude_damping(qubit: int, probability: float) -> Transfer:
    """|1> falls to |0> with `probability`: Z becomes (1 - p) Z + p I."""
    _probability(probability, "probability")
    keep = math.sqrt(1 - probability)
    return kraus_channel([qubit], [np.diag([1, keep]), np.array([[0, math.sqrt(probability)], [0, 0]])])


def kraus_channel(qubits: Sequence[int], kraus: Sequence[Array]) -> Transfer:
    """The channel of Kraus operators, [2^k, 2^k] each, the first qubit being the most significant bit."""
    side = 2 ** len(qubits)
    if not 1 <= len(qubits) <= LARGEST_STEP or not kraus or any(k.shape != (side, side) for k in kraus):
        raise InputError(
            "channel",
            f"has no operators for {len(qubits)} qubits",
            f"give {side} x {side} matrices for 1 to {LARGEST_STEP} qubits",
        )
    operators = [np.asarray(k, dtype=np.complex128) for k in kraus]
    total = sum(k.conj().T @ k for k in operators)
    if not np.allclose(total, np.eye(side), rtol=0, atol=COMPLETE):
        raise InputError("channel", "does not keep the trace", "give K with sum of K^dagger K = 1")
    return Transfer(tuple(qubits), heisenberg_matrix(operators))


def _probability(value: float, name: str) -> None:
    if not -1e-15 <= value <= 1 + 1e-12:
        raise InputError("channel", f"{name} is {value:g}", "give 0 to 1")

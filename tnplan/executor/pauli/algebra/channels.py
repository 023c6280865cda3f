"""Noise channels as maps of Pauli words in the Heisenberg picture. Knows no sum of words and no device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.checks import check_count, is_number
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra.gates import MOST_QUBITS, TransferMatrix, heisenberg_matrix

TRACE_ROUNDING = 1e-10
"""How far the sum of K^dagger K of a channel may be from 1."""


def depolarizing(qubits: Sequence[int], probability: float) -> TransferMatrix:
    """With `probability` one of the 4^k - 1 words other than I strikes, each alike; k is 1 to 3."""
    probability, acted = _probability(probability), _qubits(qubits)
    k = len(acted)
    if not 1 <= k <= MOST_QUBITS:
        raise InputError("depolarizing", f"acts on {k} qubits", f"give 1 to {MOST_QUBITS}")
    scale = 1 - probability * 4**k / (4**k - 1)
    return TransferMatrix(acted, np.diag([1.0] + [scale] * (4**k - 1)))


def kraus_channel(qubits: Sequence[int], kraus: Sequence[Array]) -> TransferMatrix:
    """The channel of Kraus operators, [2^k, 2^k] each, the first qubit being the most significant bit."""
    acted = _qubits(qubits)
    side = 2 ** len(acted)
    try:
        operators = [np.asarray(k, dtype=np.complex128) for k in kraus]
    except (TypeError, ValueError):
        operators = []
    if not 1 <= len(acted) <= MOST_QUBITS or not operators or any(k.shape != (side, side) for k in operators):
        raise InputError(
            "channel",
            f"has no operators for {len(acted)} qubits",
            f"give {side} x {side} matrices for 1 to {MOST_QUBITS} qubits",
        )
    total = sum(k.conj().T @ k for k in operators)
    if not np.allclose(total, np.eye(side), rtol=0, atol=TRACE_ROUNDING):
        raise InputError("channel", "does not keep the trace", "give K with sum of K^dagger K = 1")
    return TransferMatrix(acted, heisenberg_matrix(operators))


def _qubits(qubits: Sequence[int]) -> tuple[int, ...]:
    if not isinstance(qubits, Iterable):
        raise InputError("channel", f"acts on {qubits!r}", "give a list of qubits")
    acted = tuple(check_count("channel: qubit", qubit, 0) for qubit in qubits)
    if len(set(acted)) < len(acted):
        raise InputError("channel", f"acts on qubits {acted}", "name each qubit once")
    return acted


def _probability(value: float) -> float:
    """The value, what is rounding cut off."""
    if not is_number(value) or not -1e-15 <= value <= 1 + 1e-12:
        raise InputError("channel", f"probability is {value!r}", "give a number from 0 to 1")
    return min(1.0, max(0.0, float(value)))

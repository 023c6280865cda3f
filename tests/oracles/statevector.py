"""The NumPy twin of a pass: every step on the whole state, without tiles. Slow and short, to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.statevector.gates.multiplexed_gate import MultiplexedGate
from tnplan.executor.statevector.gates.phase_polynomial import PhasePolynomial
from tnplan.executor.statevector.scheduling.tiled_passes import Pass

Array = NDArray[Any]


def apply_pass(state: Array, item: Pass) -> None:
    """Apply a pass in place to a state, complex [2^n]."""
    n = len(state).bit_length() - 1
    for step in item.steps:
        if isinstance(step, PhasePolynomial):
            state *= np.exp(1j * phases(step, n))
        else:
            apply_block(state, step)


def phases(step: PhasePolynomial, n_bits: int) -> Array:
    """The phase of every index, float64 [2^n_bits], term by term."""
    numbers = np.arange(1 << n_bits)
    ones = [numbers >> bit & 1 for bit in range(n_bits)]
    found = np.full(1 << n_bits, step.constant)
    for j in range(n_bits):
        found += step.linear[j] * ones[j]
        for k in range(j):
            found += step.pairs[j, k] * (ones[j] & ones[k])
    return found


def apply_block(state: Array, gate: MultiplexedGate) -> None:
    """Apply a gate in place to a state, complex [2^n]."""
    n = len(state).bit_length() - 1
    view = state.reshape((2,) * n)
    axes = _axes(gate.targets, n)
    side = 2 ** len(axes)
    for value, matrix in enumerate(gate.matrices):
        chosen: list[Any] = [slice(None)] * n
        for place, axis in enumerate(_axes(gate.selectors, n)):
            number = value >> (len(gate.selectors) - 1 - place) & 1
            chosen[axis] = slice(number, number + 1)
        part = np.moveaxis(view[tuple(chosen)], axes, range(len(axes)))
        part[...] = (matrix @ part.reshape(side, -1)).reshape(part.shape)


def _axes(bits: Sequence[int], n: int) -> list[int]:
    return [n - 1 - bit for bit in bits]

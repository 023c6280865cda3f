"""First steps of a circuit that act on one qubit each, taken into the product state they act on. Exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.pauli.algebra.expectation import bits_bloch
from tnplan.executor.pauli.algebra.gates import (
    Clifford,
    PauliStep,
    Rotation,
    heisenberg_matrix,
    local_words,
    rotation_matrix,
)
from tnplan.executor.pauli.algebra.states import ProductState, State

BLOCH_WORDS = [1, 3, 2]
"""The local words X, Y and Z, in the order of a Bloch vector."""


def after_first_steps(
    steps: Sequence[PauliStep], state: str | State | None, n_qubits: int
) -> tuple[tuple[PauliStep, ...], str | State | None]:
    """The steps that are left, and the state that they act on.

    A step goes into the state where it acts on one qubit and none before it acts on that qubit and others.
    States that are no products stay as they are, with all steps; so do bits that no step acts on alone.
    """
    if not isinstance(state, str | ProductState | None):
        return tuple(steps), state
    bloch = state.bloch if isinstance(state, ProductState) else bits_bloch(state or "0" * n_qubits)
    turned, left, met = np.array(bloch, np.float64), [], 0
    for step in steps:
        both = _mask(step)
        if both.bit_count() != 1 or both & met:
            met |= both
            left.append(step)
            continue
        qubit = both.bit_length() - 1
        values = np.zeros(4)
        values[0], values[BLOCH_WORDS] = 1.0, turned[qubit]
        turned[qubit] = (values @ _local_matrix(step))[BLOCH_WORDS]
    if len(left) == len(steps):
        return tuple(steps), state
    lengths = np.linalg.norm(turned, axis=1, keepdims=True)
    return tuple(left), ProductState(turned / np.maximum(lengths, 1.0))


def _mask(step: PauliStep) -> int:
    """The qubits that a step acts on, as bits."""
    return step.x | step.z if isinstance(step, Rotation) else sum(1 << qubit for qubit in step.qubits)


def _local_matrix(step: PauliStep) -> Array:
    """[b, a]: the coefficient of local word b in what the step on one qubit makes of word a."""
    if isinstance(step, Rotation):
        word = int(step.x != 0) + 2 * int(step.z != 0)
        return heisenberg_matrix([rotation_matrix(local_words(1)[word], step.angle)])
    if isinstance(step, Clifford):
        matrix = np.zeros((4, 4))
        matrix[step.images, np.arange(4)] = step.signs
        return matrix
    return step.matrix

"""The Schroedinger picture as the Heisenberg picture of other steps. Knows no sum of words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tnplan.executor.pauli.algebra.gates import Clifford, PauliStep, Rotation, TransferMatrix


def forward(steps: Sequence[PauliStep]) -> tuple[PauliStep, ...]:
    """Steps through which `propagate` takes a sum A to U A U^dagger, or a state through its channels.

    A density matrix evolves as the sum of its words; see `expectation.product_state`. Nothing is divided by
    2^n on the way: the value of O in the state A / 2^n is `expectation.overlap(A, O)`.
    """
    return tuple(adjoint(step) for step in reversed(steps))


def adjoint(step: PauliStep) -> PauliStep:
    """The step whose map of words is the transpose of this one's."""
    if isinstance(step, Rotation):
        return Rotation(step.x, step.z, -step.angle)
    if isinstance(step, Clifford):
        sources = np.argsort(step.images)
        return Clifford(step.qubits, sources, step.signs[sources])
    return TransferMatrix(step.qubits, np.ascontiguousarray(step.matrix.T))

"""Echoes: circuits whose last steps undo the first. Knows steps, not terms.

With U the first steps, V the middle, and A = U O U^dagger, tr(O C^dagger O C) / 2^n of C = U^dagger V U is
tr(A V^dagger A V) / 2^n. It is quadratic in A. With two sums B and C that are drawn independently, each with
the mean A, the mean of tr(B V^dagger C V) / 2^n is the echo. With one sum B in both places it is not: the
mean of b_P b_Q is a_P a_Q only where P and Q were not resampled, or for equal words by squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tnplan.executor.pauli.algebra.gates import Clifford, PauliStep, Rotation


class EchoParts(NamedTuple):
    """The middle of an echo, and the steps that undo the first; in the order in which they act."""

    middle: Sequence[PauliStep]
    back: Sequence[PauliStep]


def echo_parts(steps: Sequence[PauliStep]) -> EchoParts | None:
    """The parts of an echo; None of a circuit whose last step does not undo the first."""
    n, k = len(steps), 0
    while 2 * (k + 1) <= n and undoes(steps[n - 1 - k], steps[k]):
        k += 1
    return None if n and not k else EchoParts(steps[k : n - k], steps[n - k :])


def undoes(second: PauliStep, first: PauliStep) -> bool:
    """Whether the second step is the inverse of the first; never of channels and transfers."""
    if isinstance(first, Rotation) and isinstance(second, Rotation):
        return (first.x, first.z) == (second.x, second.z) and first.angle == -second.angle
    if isinstance(first, Clifford) and isinstance(second, Clifford) and first.qubits == second.qubits:
        images, signs = second.images[first.images], first.signs * second.signs[first.images]
        return bool(np.all(images == np.arange(len(images))) and np.all(signs == 1))
    return False

"""Echoes: circuits whose last steps undo the first. Knows steps, not terms.

With U the first steps, V the middle, and A = U O U^dagger, tr(O C^dagger O C) / 2^n of C = U^dagger V U is
tr(A V^dagger A V) / 2^n. It is quadratic in A, so that A may be resampled by squares, which keeps its norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tnplan.executor.pauli.algebra.gates import Clifford, PauliStep, Rotation
from tnplan.planner.common.errors import InputError


class EchoParts(NamedTuple):
    """The middle of an echo, and the steps that undo the first; in the order in which they act."""

    middle: Sequence[PauliStep]
    back: Sequence[PauliStep]


def echo_parts(steps: Sequence[PauliStep]) -> EchoParts:
    """Split an echo; refuses a circuit whose last step does not undo the first."""
    n, k = len(steps), 0
    while 2 * (k + 1) <= n and undoes(steps[n - 1 - k], steps[k]):
        k += 1
    if n and not k:
        raise InputError(
            "--resample-by square", "is for echoes, and the circuit's last step does not undo its first",
            "resample by magnitude, or give U, the perturbation, and U^dagger, its gates in reverse order",
        )  # fmt: skip
    return EchoParts(steps[k : n - k], steps[n - k :])


def undoes(second: PauliStep, first: PauliStep) -> bool:
    """Whether the second step is the inverse of the first; never of channels and transfers."""
    if isinstance(first, Rotation) and isinstance(second, Rotation):
        return (first.x, first.z) == (second.x, second.z) and first.angle == -second.angle
    if isinstance(first, Clifford) and isinstance(second, Clifford) and first.qubits == second.qubits:
        images, signs = second.images[first.images], first.signs * second.signs[first.images]
        return bool(np.all(images == np.arange(len(images))) and np.all(signs == 1))
    return False

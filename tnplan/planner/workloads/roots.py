"""Layers of random single-qubit roots, as circuits of random sampling have them between two-qubit gates.

Knows no chip and no two-qubit gate.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.gates import gate

ROOTS = ("x_1_2", "y_1_2", "hz_1_2")
"""The square roots of X, Y and W = (X + Y) / sqrt 2."""


def root_layers(n_qubits: int, generator: np.random.Generator) -> Iterator[list[Gate]]:
    """Layers without end: on every qubit one of `ROOTS`, never the one that it had in the layer before.

    Each layer is drawn from `generator` when it is asked for.
    """
    last = generator.integers(3, size=n_qubits)
    while True:
        yield [gate(ROOTS[choice], (qubit,)) for qubit, choice in enumerate(last)]
        last = (last + generator.integers(1, 3, size=n_qubits)) % 3

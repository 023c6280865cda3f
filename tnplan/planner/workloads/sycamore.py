"""Random circuits on the Sycamore chip: 53 qubits or a patch, two-qubit patterns in the order ABCDCDAB.

Geometry and order as in Arute et al., Nature 574, 505 (2019), Fig. 3; angles are drawn near that chip's
(theta = pi/2, phi = pi/6), not measured. Knows no tensor network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import pi

import numpy as np

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.common.checks import check_count

ROOTS = ("x_1_2", "y_1_2", "hz_1_2")
"""The square roots of X, Y and W = (X + Y) / sqrt 2."""
# The chip by rows: first column and number of qubits of each; qubits are numbered row by row.
ROWS = ((5, 2), (4, 4), (4, 5), (2, 8), (1, 9), (0, 9), (1, 7), (2, 5), (3, 3), (4, 1))
ORDER = "ABCDCDAB"
N_QUBITS = sum(length for _, length in ROWS)
THETA_SCATTER = 0.05
PHI_SCATTER = 0.06


def root_layers(n_qubits: int, generator: np.random.Generator) -> Iterator[list[Gate]]:
    """Layers without end: on every qubit one of `ROOTS`, never the one that it had in the layer before.

    Each layer is drawn from `generator` when the iterator reaches it.
    """
    last = generator.integers(3, size=n_qubits)
    while True:
        yield [gate(ROOTS[choice], (qubit,)) for qubit, choice in enumerate(last)]
        last = (last + generator.integers(1, 3, size=n_qubits)) % 3


def patch(n_qubits: int) -> list[int]:
    """The qubits of the chip that are nearest to its middle, ascending; of equally near ones the first."""
    check_count("--qubits", n_qubits, 2, N_QUBITS)
    sites = np.array([(row, first + i) for row, (first, length) in enumerate(ROWS) for i in range(length)])
    distances = ((sites * N_QUBITS - sites.sum(axis=0)) ** 2).sum(axis=1)
    return sorted(np.argsort(distances, kind="stable")[:n_qubits].tolist())


def couplers(pattern: str, qubits: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """The pairs of qubits that pattern A, B, C or D couples, in ascending order.

    Of the chip, or of a patch of it, whose qubits are numbered anew in their order. A and B couple neighbours
    in a column, C and D in a row; the parity of row plus column of the first qubit says which of the two.
    """
    sites = [(row, first + i) for row, (first, length) in enumerate(ROWS) for i in range(length)]
    number = {site: qubit for qubit, site in enumerate(sites)}
    down, right, parity = {"A": (1, 0, 0), "B": (1, 0, 1), "C": (0, 1, 1), "D": (0, 1, 0)}[pattern]
    pairs = [
        (qubit, number[row + down, column + right])
        for qubit, (row, column) in enumerate(sites)
        if (row + column) % 2 == parity and (row + down, column + right) in number
    ]
    if qubits is None:
        return pairs
    anew = {qubit: site for site, qubit in enumerate(qubits)}
    return [(anew[a], anew[b]) for a, b in pairs if a in anew and b in anew]


def sycamore_circuit(cycles: int, seed: int, n_qubits: int = N_QUBITS) -> GateSequence:
    """A random circuit of `cycles` cycles and a last layer of single-qubit gates.

    A cycle is: on every qubit one of sqrt X, sqrt Y, sqrt W, never the one it had in the cycle before; then,
    for every coupler of the cycle's pattern, rz on both qubits, fs, and rz again. With fewer qubits it is one
    on the patch in the middle of the chip.
    """
    check_count("--cycles", cycles)
    check_count("--seed", seed, 0)
    generator = np.random.default_rng(seed)
    qubits = patch(n_qubits)
    gates: list[Gate] = []
    roots = root_layers(n_qubits, generator)
    for cycle, layer in enumerate(islice(roots, cycles)):
        gates += layer
        pairs = couplers(ORDER[cycle % len(ORDER)], qubits)
        before, after = generator.uniform(-pi, pi, size=(2, len(pairs), 2))
        theta = generator.normal(pi / 2, THETA_SCATTER, size=len(pairs))
        phi = generator.normal(pi / 6, PHI_SCATTER, size=len(pairs))
        gates += _frame(pairs, before)
        gates += [gate("fs", pair, (float(theta[i]), float(phi[i]))) for i, pair in enumerate(pairs)]
        gates += _frame(pairs, after)
    return GateSequence(n_qubits, (*gates, *next(roots)))


def _frame(pairs: list[tuple[int, int]], angles: np.ndarray) -> list[Gate]:
    """An rz of its own angle on both qubits of each pair; `angles` has shape (pairs, 2)."""
    return [
        gate("rz", (qubit,), (float(angle),))
        for pair, two in zip(pairs, angles, strict=True)
        for qubit, angle in zip(pair, two, strict=True)
    ]

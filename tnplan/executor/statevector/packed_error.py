"""What quantised amplitudes cost: errors of all encodings, summed to a bound and an estimate of the fidelity.

Let psi be the exact state and phi_t what is stored after pass t. A pass computes phi' = U phi_(t-1) + a,
where a is the rounding of its arithmetic, and stores phi_t = phi' + e. U is unitary, so that

    ||phi_t - psi_t|| <= ||phi_(t-1) - psi_(t-1)|| + ||a_t|| + ||e_t||

and the sum d of these norms bounds the error of the last state. Its fidelity F is |<psi|phi>|^2 / <phi|phi>.
Of all multiples of phi the projection c phi is nearest to psi, and ||psi - c phi||^2 = 1 - F. So
1 - F <= d^2, also for phi divided by its norm.

||e_t|| is measured. Stochastic rounding gives e_t the mean 0 for any state before it (to 1/8192 of a step).
So errors of different passes are uncorrelated, as increments of a martingale are: the mean of
||phi_T - psi_T||^2 is the sum S of the means of ||e_t||^2. Little of the error points along psi. With
<psi|phi> = 1 and <phi|phi> = 1 + S the fidelity is estimated to be 1 / (1 + S).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from tnplan.common.errors import InputError
from tnplan.common.units import count_text
from tnplan.executor.statevector.cpu.vector_tables import LANE_EXCHANGE, MULTIPLY, VectorPass
from tnplan.executor.statevector.scheduling.pass_tables import DIAGONAL, FIELDS, GATE

BITS = (8, 16)
"""Of the whole numbers that parts of amplitudes are stored as."""
PEAK = 6.9
"""The mean of the largest square of 64 normal numbers of variance 1. A scale has that square over the largest
number's; rounding to a neighbour at random has a variance of 1/6 on average."""
PREPARED = 1e-13
"""An allowance for the numbers of a step, which are made in double precision from the gates."""


@dataclass
class EncodingErrors:
    """The errors so far: the sum of their norms, and that of their squares."""

    total: float = 0.0
    squares: float = 0.0

    def add(self, encoding: float, arithmetic: float, unit: float) -> None:
        """A pass: the norm of its encoding's error, a bound of its arithmetic's, and the unit roundoff."""
        self.total += encoding + arithmetic
        self.squares += encoding**2 + arithmetic * unit

    @property
    def fidelity_bound(self) -> float:
        """The fidelity is at least so much."""
        return max(0.0, 1 - self.total**2)

    @property
    def fidelity_estimate(self) -> float:
        """What it is expected to be."""
        return 1 / (1 + self.squares)


def arithmetic_bound(tables: VectorPass, n_bits: int, unit: float) -> float:
    """The norm of the error that a pass's arithmetic makes in a state of norm 1 is at most this.

    `unit` is the unit roundoff: 2^-24 or 2^-53. Each step multiplies by a unitary matrix A whose elements are
    rounded. A sum of k products of real numbers has an error of at most (k + 1) unit times the sum of their
    magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, 2002, eq. 3.5), and the matrix of
    magnitudes of a real orthogonal matrix of side k has a norm of at most sqrt(k). A product of two complex
    numbers has an error of at most 3 units (lemma 3.5 there), a rounded factor one.
    """
    kinds, counts = np.unique(tables.flat.actions[:, 0], return_counts=True)
    units = 8.0  # a tile's factor 4, decoding 1, division by the scale 3
    for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
        units += count * _units_of_action(kind, n_bits)
    for row in tables.flat.steps.reshape(-1, FIELDS).tolist():
        if row[0] == GATE:
            units += _of_matrix(2 << row[1])
        elif row[0] == DIAGONAL:
            units += 4
    n_steps = len(tables.flat.actions) + len(tables.flat.steps)
    # The errors e_k of steps in a row make at most prod(1 + e_k) - 1 <= exp(sum e_k) - 1.
    return float(np.expm1(1.001 * units * unit + n_steps * PREPARED))


def _of_matrix(side: int) -> float:
    """Units of a real matrix of this side."""
    return (side + 1) * sqrt(side)


def _units_of_action(kind: int, n_bits: int) -> float:
    """Units of an action: a phase, which is a product of at most n_bits + 3 rounded factors, and a matrix."""
    if kind == LANE_EXCHANGE:
        return 0.0
    return _of_matrix(8) if kind == MULTIPLY else 4 * (n_bits + 3) + 3 + _of_matrix(2)


def predicted_fidelity(bits: int, n_passes: int) -> float:
    """The fidelity to be expected after so many passes over a state whose amplitudes are normal numbers."""
    errors = EncodingErrors(squares=n_passes * PEAK / (6 * largest_number(bits) ** 2))
    return errors.fidelity_estimate


def largest_number(bits: int) -> int:
    """The largest of the whole numbers of so many bits."""
    return (1 << bits - 1) - 1


def fewest_bits(fidelity: float, n_passes: int) -> int:
    """The fewest bits that a fidelity needs, as predicted; InputError where none has enough."""
    for bits in BITS:
        if predicted_fidelity(bits, n_passes) >= fidelity:
            return bits
    raise InputError(
        "--fidelity",
        f"is {fidelity!r}, and {BITS[-1]} bits reach about {predicted_fidelity(BITS[-1], n_passes):.10g} in "
        f"{count_text(n_passes, 'pass', 'passes')}",
        "ask for less, or leave it out for a state that is not compressed",
    )

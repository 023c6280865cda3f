"""The mean of repetitions, its standard error, and its interval where one is earned. Knows numbers alone.

Student's interval of a mean of n values holds the true mean in 95 % of all cases where values are normal.
Where they are skewed it holds it less often: by 0.25 skewness^2 / n to leading order (Hall, The Bootstrap and
Edgeworth Expansion, 1992). What it holds for repetitions is measured: tests/executor/pauli/test_coverage.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from tnplan.common.shown_text import Printed
from tnplan.executor.pauli.algebra.gates import Clifford, PauliStep, Rotation

# Echoes: circuits whose last steps undo the first. Knows steps, not terms.
#
# With U the first steps, V the middle, and A = U O U^dagger, tr(O C^dagger O C) / 2^n of C = U^dagger V U is
# tr(A V^dagger A V) / 2^n. It is quadratic in A. With two sums B and C that are drawn independently, each
# with the mean A, the mean of tr(B V^dagger C V) / 2^n is the echo. With one sum B in both places it is not:
# the mean of b_P b_Q is a_P a_Q only where P and Q were not resampled, or for equal words by squares.


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


CONFIDENCE = 0.95
FEWEST = 3
"""Repetitions below which there is no interval."""
FEWEST_APART = 10
"""Where fewer repetitions than this differ from the commonest value, no two may be the same."""
EQUAL = 1e-12
"""Values that differ by this part of the largest magnitude, or of what is possible, differ by rounding."""
UNBIASED, BIASED, NOTHING_MET = "unbiased", "biased", "unknown: every repetition gave 0"
"""Kinds of estimates. The mean of the first alone is the true value, and no other has an interval."""


@dataclass(frozen=True, repr=False)
class Estimate(Printed):
    """A mean of independent values, the standard error of the mean, and its 95 % interval where it has one.

    Parameters
    ----------
    kind : str
        "exact" where nothing was resampled, "unbiased", "biased", or "unknown: every repetition gave 0".
    value, standard_error : float
        The mean, and its standard error: an estimate from the values alone.
    low, high : float or None
        The ends of the interval, by Student's distribution. None where there is none: the mean of a biased
        estimate is not the true value, and an unbiased one may say too little of its own error.
    values : tuple of float
        That of each repetition.
    doubt : str
        Why there is no interval, or why it says nothing; else empty.

    Examples
    --------
    >>> tnplan.Estimate("unbiased", 0.5, 0.1, 0.25, 0.75, (0.4, 0.6)).half_width
    0.25
    """

    kind: str
    value: float
    standard_error: float
    low: float | None
    high: float | None
    values: tuple[float, ...]
    doubt: str = ""

    def __repr__(self) -> str:
        half = self.half_width
        error = f", standard error {self.standard_error:.2g}" if half is None else f" +- {half:.2g}"
        return f"Estimate({self.value:.6g}{error}, {self.text}, {len(self.values)} values)"

    @property
    def text(self) -> str:
        """What may be said of it: the kind, whether there is an interval, and the doubt."""
        if self.kind in (UNBIASED, BIASED) and self.low is None:
            return ": ".join(filter(None, (f"{self.kind}, no interval", self.doubt)))
        return "; ".join(filter(None, (self.kind, self.doubt)))

    def __str__(self) -> str:
        if self.kind == "exact":
            return f"{self.value!r}, exact: no term was resampled"
        error, digits = self.standard_error, 6
        if error and math.isfinite(error):
            # So many digits that the standard error shows in the value: log10(|value| / error), and
            # three more.
            digits = max(6, min(17, 3 + math.ceil(math.log10(max(abs(self.value) / error, 1)))))
        ends = "" if self.low is None else f", 95 % interval {self.low:.{digits}g} to {self.high:.{digits}g}"
        return f"{self.value:.{digits}g}, standard error {error:.2g}{ends} ({self.text})"

    @property
    def half_width(self) -> float | None:
        """Half the length of the 95 % interval; None where there is none."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


def estimate_of(
    values: Sequence[float], kind: str = UNBIASED, farthest: float = math.inf, doubt: str = ""
) -> Estimate:  # fmt: skip
    """The estimate from independent values; of one value, if that is exact.

    `farthest` is the largest magnitude that is possible. `doubt` says why there is no interval whatever the
    values are.
    """
    mean, n = float(np.mean(values)), len(values)
    if n == 1:
        return Estimate(kind, mean, 0.0, mean, mean, tuple(values))
    error = float(np.std(values, ddof=1)) / math.sqrt(n)
    doubt = doubt or doubt_of(values, farthest)
    if doubt or kind != UNBIASED:  # Invariant: what has an interval has the true value as its mean
        return Estimate(kind, mean, error, None, None, tuple(values), doubt)
    half = student_quantile(n - 1) * error
    vacuous = "vacuous: no possible value is farther away" if half >= farthest else ""
    return Estimate(kind, mean, error, mean - half, mean + half, tuple(values), vacuous)


def doubt_of(values: Sequence[float], farthest: float) -> str:
    """Why values say too little of their spread: they are few, or few values come again and again."""
    n, same = len(values), commonest(values, farthest)
    if n - same < min(n - 1, FEWEST_APART):
        return f"{same} of {n} repetitions gave the same value"
    return f"{n} repetitions are fewer than {FEWEST}" if n < FEWEST else ""


def commonest(values: Sequence[float], farthest: float) -> int:
    """How many values are the same but for rounding, at most."""
    rising = np.sort(values)
    size = max(float(np.abs(rising).max()), farthest if math.isfinite(farthest) else 0.0)
    steps = np.diff(rising) > EQUAL * size
    return int(np.bincount(np.concatenate([[0], np.cumsum(steps)])).max())


def nothing_met(repetitions: int, farthest: float) -> Estimate:
    """The estimate where every repetition gave 0: they say nothing, and any possible value may be true."""
    return Estimate(NOTHING_MET, 0.0, farthest, None, None, (0.0,) * repetitions)


def student_quantile(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's distribution.

    Solved by halving; the distribution function is the finite sum of Abramowitz and Stegun, 26.7.3 and
    26.7.4.
    """
    low, high = NormalDist().inv_cdf((1 + CONFIDENCE) / 2), 13.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student_within(middle, freedom) < CONFIDENCE else (low, middle)
    return (low + high) / 2


def student_within(t: float, freedom: int) -> float:
    """The probability that Student's t with so many degrees of freedom is at most `t` in magnitude."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    total = summand = cosine if freedom % 2 else 1.0
    for k in range(2 if freedom % 2 else 1, freedom - 1, 2):
        summand *= k / (k + 1) * cosine**2
        total += summand
    if freedom % 2 == 0:
        return sine * total
    return 2 / math.pi * (angle + (sine * total if freedom > 1 else 0.0))

"""The mean of repetitions, its standard error and its interval. Knows numbers alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True, repr=False)
class Estimate:
    """A mean of independent values, the standard error of the mean, and its 95 % interval.

    Parameters
    ----------
    kind : str
        "exact" where nothing was resampled, "unbiased", "without interference of words resampled apart", or
        "unknown: every repetition gave 0".
    value, standard_error, low, high : float
        The mean, its standard error, and the ends of the interval, by Student's distribution.
    values : tuple of float
        That of each repetition.

    Examples
    --------
    >>> tnplan.Estimate("unbiased", 0.5, 0.1, 0.25, 0.75, (0.4, 0.6)).half_width
    0.25
    """

    kind: str
    value: float
    standard_error: float
    low: float
    high: float
    values: tuple[float, ...]

    def __repr__(self) -> str:
        return f"Estimate({self.value:.6g} +- {self.half_width:.2g}, {self.kind}, {len(self.values)} values)"

    @property
    def half_width(self) -> float:
        """Half the length of the 95 % interval."""
        return (self.high - self.low) / 2


def estimate_of(values: Sequence[float], kind: str) -> Estimate:
    """The estimate from independent values; of one value, if that is exact."""
    mean, n = float(np.mean(values)), len(values)
    error = 0.0 if n == 1 else float(np.std(values, ddof=1)) / math.sqrt(n)
    half = 0.0 if n == 1 else student_quantile(n - 1) * error
    return Estimate(kind, mean, error, mean - half, mean + half, tuple(values))


def nothing_met(repetitions: int, farthest: float) -> Estimate:
    """The estimate where every repetition gave 0: they say nothing, and any possible value may be true."""
    kind = "unknown: every repetition gave 0"
    return Estimate(kind, 0.0, farthest, -farthest, farthest, (0.0,) * repetitions)


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
    total = part = cosine if freedom % 2 else 1.0
    for k in range(2 if freedom % 2 else 1, freedom - 1, 2):
        part *= k / (k + 1) * cosine**2
        total += part
    if freedom % 2 == 0:
        return sine * total
    return 2 / math.pi * (angle + (sine * total if freedom > 1 else 0.0))

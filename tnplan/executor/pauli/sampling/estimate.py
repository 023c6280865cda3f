"""The mean of repetitions, its standard error and its interval. Knows numbers alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

CONFIDENCE = 0.95
FEWEST_MET = 10
"""Repetitions that are not 0, below which those that are 0 make the error a guess."""
LONE_SHARE = 0.95
"""From this part of the most that one squared deviation can have of their sum, it makes the error alone."""


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
    doubt : str
        Why the standard error is not to be trusted, or the interval says nothing; else empty.

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
    doubt: str = ""

    def __repr__(self) -> str:
        return f"Estimate({self.value:.6g} +- {self.half_width:.2g}, {self.text}, {len(self.values)} values)"

    @property
    def text(self) -> str:
        """The kind, and the doubt if there is one."""
        return f"{self.kind}; {self.doubt}" if self.doubt else self.kind

    @property
    def half_width(self) -> float:
        """Half the length of the 95 % interval."""
        return (self.high - self.low) / 2


def estimate_of(values: Sequence[float], kind: str, farthest: float = math.inf) -> Estimate:
    """The estimate from independent values; of one value, if that is exact.

    `farthest` is the largest magnitude that is possible.
    """
    mean, n = float(np.mean(values)), len(values)
    error = 0.0 if n == 1 else float(np.std(values, ddof=1)) / math.sqrt(n)
    half = 0.0 if n == 1 else student_quantile(n - 1) * error
    doubt = doubt_of(values, half, farthest)
    return Estimate(kind, mean, error, mean - half, mean + half, tuple(values), doubt)


def doubt_of(values: Sequence[float], half_width: float, farthest: float) -> str:
    """What speaks against an interval of this half width: its size, or few repetitions that make it."""
    n, met = len(values), int(np.count_nonzero(values))
    if half_width >= farthest:
        return "vacuous: no possible value is farther away"
    if met < min(n, FEWEST_MET):
        return f"the standard error is not to be trusted: {n - met} of {n} repetitions gave 0"
    squares = (np.asarray(values) - np.mean(values)) ** 2
    if n > 4 and squares.max() > LONE_SHARE * (n - 1) / n * squares.sum() > 0:
        return "the standard error is not to be trusted: one repetition makes nearly all of it"
    return ""


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

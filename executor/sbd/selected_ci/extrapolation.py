"""The energy of all determinants from those of growing lists: E against the second-order correction, to zero.

Knows numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

LEAST_POINTS = 2
QUADRATIC_POINTS = 4
"""Points that a parabola needs: one more than it has numbers."""
MOST_POINTS = 5
"""So many points of smallest corrections are used."""
SHARE = 0.2
"""The share of what is extrapolated beyond E + E2 that counts as uncertain at least."""


@dataclass(frozen=True)
class Extrapolation:
    """Energies at no correction, in Hartree.

    Parameters
    ----------
    energy
        By a straight line of variational energies over corrections.
    uncertainty
        The largest of the standard error of that energy, its distance from `quadratic`, and a fifth of its
        distance from the variational energy of the smallest correction with it.
    quadratic
        By a parabola with weights 1 / E2^2; None with fewer than four points.
    slope
        Of the line; -1 where the correction is exact.
    points
        How many points were used.
    """

    energy: float
    uncertainty: float
    quadratic: float | None
    slope: float
    points: int

    def report(self) -> dict[str, Any]:
        """The same as JSON holds it."""
        names = {"energy": "energy_hartree", "uncertainty": "uncertainty_hartree"}
        names["quadratic"] = "quadratic_hartree"
        return {names.get(name, name): value for name, value in asdict(self).items()}


def extrapolate(energies: Sequence[float], corrections: Sequence[float]) -> Extrapolation | None:
    """The fit of the points of smallest corrections; None with fewer than two corrections that differ.

    A correction of zero says that nothing is missing.
    """
    if len(corrections) and corrections[-1] == 0:
        return Extrapolation(float(energies[-1]), 0.0, None, -1.0, 1)
    order = np.argsort(-np.abs(corrections), kind="stable")[-MOST_POINTS:]
    x, y = (np.array(values, float)[order] for values in (corrections, energies))
    if len(set(x.tolist())) < LEAST_POINTS:
        return None
    # Differences keep their digits; the sums of large energies do not.
    origin = y[-1]
    line, residuals = _fit(x, y - origin, np.ones(len(x)), 1)
    error = 0.0
    if len(x) > LEAST_POINTS:
        spread = np.sum((x - x.mean()) ** 2)
        error = float(np.sqrt(residuals / (len(x) - 2) * (1 / len(x) + x.mean() ** 2 / spread)))
    quadratic = None
    if len(set(x.tolist())) >= QUADRATIC_POINTS and (x != 0).all():
        quadratic = float(_fit(x, y - origin, 1 / x**2, 2)[0][0])
    beyond = SHARE * abs(line[0] - x[-1])
    away = 0.0 if quadratic is None else abs(line[0] - quadratic)
    return Extrapolation(
        float(origin + line[0]), float(max(error, beyond, away)),
        None if quadratic is None else float(origin + quadratic), float(line[1]), len(x),
    )  # fmt: skip


def _fit(x: Any, y: Any, weights: Any, degree: int) -> tuple[Any, float]:
    """Coefficients, the constant first, that make the weighted sum of squares least, and that sum."""
    scale = np.abs(x).max()
    roots = np.sqrt(weights / weights.max())
    matrix = np.vander(x / scale, degree + 1, increasing=True)
    found = np.linalg.lstsq(matrix * roots[:, None], y * roots, rcond=None)[0]
    left = float(np.sum((roots * (matrix @ found - y)) ** 2))
    return found / scale ** np.arange(degree + 1), left

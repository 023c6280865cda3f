"""The energy of all determinants from those of growing lists: E against the second-order correction, to zero.

Knows numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

LEAST_POINTS = 2
LINE_POINTS = 3
"""Points of smallest corrections that the line is laid through: over more of them curves bend."""
PARABOLA_POINTS = 5
"""The same for the parabola."""
QUADRATIC_POINTS = 4
"""Points that a parabola needs: one more than it has numbers."""


@dataclass(frozen=True)
class Extrapolation:
    """Energies at no correction, in Hartree.

    Parameters
    ----------
    energy
        By a straight line of variational energies over the three smallest corrections, with weights 1 / E2^2.
    uncertainty
        The distance from that energy to the variational one of the last list, which is a bound; or where one
        of these is larger: the standard error of the line, the distance to `quadratic`, and that to E + E2
        of the smallest correction. No constant is fitted; benchmarks/notes/sbd.md counts how often it holds
        the exact energy. None with two points, which tell nothing of it.
    quadratic
        By a parabola over the five smallest corrections with the same weights; None with fewer than four.
    slope
        Of the line; -1 where the correction is exact.
    points
        How many points the line has.
    """

    energy: float
    uncertainty: float | None
    quadratic: float | None
    slope: float
    points: int

    def report(self) -> dict[str, Any]:
        """The same as JSON holds it."""
        names = {"energy": "energy_hartree", "uncertainty": "uncertainty_hartree"}
        names["quadratic"] = "quadratic_hartree"
        return {names.get(name, name): value for name, value in asdict(self).items()}


def extrapolate(energies: Sequence[float], corrections: Sequence[float]) -> Extrapolation | None:
    """The fits of the points of smallest corrections; None with fewer than two corrections that differ.

    None also where the line ends above the last energy, which is a bound. A correction of zero says that
    nothing is missing.
    """
    whole = [energy for energy, correction in zip(energies, corrections, strict=True) if correction == 0]
    if whole:
        return Extrapolation(float(min(whole)), float(energies[-1] - min(whole)), None, -1.0, 1)
    # As the list grows, E2 -> 0 and E -> the full energy, nearly on a line (Holmes, Umrigar and
    # Sharma, J. Chem. Phys. 147, 164111 (2017)). Points of small E2 count most.
    order = np.argsort(-np.abs(corrections), kind="stable")
    x, y = (np.array(values, float)[order] for values in (corrections, energies))
    if len(set(x.tolist())) < LEAST_POINTS:
        return None
    # Differences keep their digits; the sums of large energies do not.
    origin = y[-1]
    line, error = _fit(x[-LINE_POINTS:], y[-LINE_POINTS:] - origin, 1)
    added = line[0] - (energies[-1] - origin)
    if added > 0:
        return None
    distances = [abs(added), error, abs(line[0] - x[-1])]
    quadratic = None
    if len(set(x[-PARABOLA_POINTS:].tolist())) >= QUADRATIC_POINTS:
        quadratic = float(_fit(x[-PARABOLA_POINTS:], y[-PARABOLA_POINTS:] - origin, 2)[0][0])
        distances.append(abs(line[0] - quadratic))
    return Extrapolation(
        float(origin + line[0]), float(max(distances)) if len(x) >= LINE_POINTS else None,
        None if quadratic is None else float(origin + quadratic), float(line[1]), min(len(x), LINE_POINTS),
    )  # fmt: skip


def _fit(x: Any, y: Any, degree: int) -> tuple[Any, float]:
    """Coefficients of a polynomial with weights 1 / x^2, the constant first, and its standard error."""
    # Weighted least squares: rows times sqrt(weight) = 1 / |x|, scaled so that the matrix has
    # elements near 1.
    scale = np.abs(x).max()
    roots = np.abs(x).min() / np.abs(x)
    matrix = np.vander(x / scale, degree + 1, increasing=True) * roots[:, None]
    coefficients = np.linalg.lstsq(matrix, y * roots, rcond=None)[0]
    error, free = 0.0, len(x) - degree - 1
    if free > 0:
        variance = np.sum((matrix @ coefficients - y * roots) ** 2) / free
        error = float(np.sqrt(variance * np.linalg.pinv(matrix.T @ matrix)[0, 0]))
    return coefficients / scale ** np.arange(degree + 1), error

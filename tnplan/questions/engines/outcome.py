"""What an engine gives back for a question, before it becomes an answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tnplan.common.arrays import Array

EXACT, STATISTICAL, TRUNCATION = "exact", "statistical", "truncation"
"""Where an error comes from."""
BIASED = "biased"
"""The kind of a standard error about a mean that is not the value itself."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """A value, its error with its kind, and what the engine says of its work.

    `gradient` has the derivatives that were asked for, float64 [observable, parameter].
    """

    value: Any
    error: Any
    error_kind: str
    details: dict[str, Any] = field(default_factory=dict)
    gradient: Array | None = None


def linear_xeb(probabilities: Array, n_qubits: int) -> tuple[float, float]:
    """The linear cross-entropy 2^n <p> - 1 of samples, and its standard error.

    Parameters
    ----------
    probabilities
        The exact probability of each sampled string, two or more.
    n_qubits
        n, the length of the strings.

    Returns
    -------
    tuple of float
        About 1 for exact samples of a random circuit, 0 for uniform ones (Arute et al., Nature 574, 505).
    """
    scaled = np.asarray(probabilities, np.float64) * 2.0**n_qubits
    return float(scaled.mean() - 1), float(scaled.std(ddof=1) / np.sqrt(len(scaled)))


def cross_entropy(probabilities: Array, n_qubits: int, is_independent: bool) -> dict[str, Any]:
    """What an answer says of the linear cross-entropy of samples, from the exact probability of each.

    The standard error is left out where samples are correlated.
    """
    if len(probabilities) < 2:
        return {}
    value, error = linear_xeb(probabilities, n_qubits)
    return {"linear_xeb": value, "linear_xeb_error": error if is_independent else None}

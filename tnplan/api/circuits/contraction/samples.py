"""What sampling by contraction gives: bit strings, how they depend on each other, and their cross-entropy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tnplan.planner.common.arrays import Array

INDEPENDENT, CORRELATED = "independent", "correlated"


@dataclass(frozen=True, eq=False, repr=False)
class ContractionSamples:
    """Bit strings drawn from a circuit's final state.

    Parameters
    ----------
    bitstrings : array
        uint8, shape (shots, n); column q is qubit q.
    kind : {"independent", "correlated"}
        Whether each string was drawn by itself; of correlated ones, several share the values of most qubits.
    exact : bool
        Whether the strings follow the circuit's distribution without approximation.
    fidelity : float
        Of the state that was sampled: the share of the slices that were summed.
    clipped : float
        By rejection, the share of the candidates that were likelier than the bound, and are too rare.
    """

    bitstrings: Array
    kind: str
    exact: bool
    fidelity: float = 1.0
    clipped: float = 0.0

    def __repr__(self) -> str:
        shots, n_qubits = self.bitstrings.shape
        return f"ContractionSamples({shots} {self.kind} strings of {n_qubits} qubits)"


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

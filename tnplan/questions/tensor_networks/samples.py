"""What sampling by contraction gives: bit strings, how they depend on each other, and their probabilities."""

from __future__ import annotations

from dataclasses import dataclass

from tnplan.common.arrays import Array

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
        By rejection, the share of the probability that is left out, of strings likelier than the bound.
    probabilities : array or None
        The exact probability of each string, float64 [shots]; None where some of the slices were summed.
    candidates : int
        By rejection, how many strings were drawn and taken or not.
    """

    bitstrings: Array
    kind: str
    exact: bool
    fidelity: float = 1.0
    clipped: float = 0.0
    probabilities: Array | None = None
    candidates: int = 0

    def __repr__(self) -> str:
        shots, n_qubits = self.bitstrings.shape
        return f"ContractionSamples({shots} {self.kind} strings of {n_qubits} qubits)"

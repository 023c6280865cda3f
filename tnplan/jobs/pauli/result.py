"""What `propagate` gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tnplan.executor.pauli.propagate import Propagation
from tnplan.executor.pauli.sampling.estimate import Estimate


@dataclass(frozen=True, eq=False, repr=False)
class Expectation:
    """What `propagate` gives.

    Parameters
    ----------
    value : float or complex
        The expectation value, or the overlap; of a list of observables that of their sum.
    propagation : Propagation or None
        The propagated sum and how it came about: `result`, `n_terms`, `dropped`, `record`. In the
        Schroedinger picture the sum is 2^n times the density matrix, and what was dropped includes the words
        that were left out of the initial state. None for repetitions.
    report : dict
        What the JSON file says (docs/explanation/pauli.md).
    estimate : Estimate or None
        Of repetitions: the mean, its standard error, its interval if it has one, and every value.

    Examples
    --------
    >>> expectation = tnplan.propagate(tnplan.GateSequence(2, ()), "Z0 Z1", device="cpu")
    >>> expectation.value
    1.0
    """

    value: complex
    propagation: Propagation | None
    report: dict[str, Any]
    estimate: Estimate | None = None

    def __repr__(self) -> str:
        if self.estimate is not None:
            error = f"standard error {self.estimate.standard_error:.3g}, {self.estimate.text}"
            return f"Expectation({self.value}, {error}, {self.report['repetitions']} repetitions)"
        bound = self.report["error_bound"]
        error = "error not bounded" if bound is None else f"error at most {bound:.3g}"
        if self.report["error_bound_is_vacuous"]:
            error += " (vacuous)"
        if self.report["empty"]:
            error = "everything was cut"
        return f"Expectation({self.value}, {error}, {self.report['terms']} terms)"

"""What `simulate` gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tnplan.executor.statevector.measurement import Answer
from tnplan.executor.statevector.simulator import Simulator


@dataclass(frozen=True, eq=False, repr=False)
class Simulation:
    """What `simulate` gives.

    Parameters
    ----------
    answer : Answer
        What was asked for: `counts`, `expectation`, `deviation`, `amplitudes`, `probabilities`, and `norm`.
    simulator : Simulator
        The final state (of the last run). With several ranks in this process it has no more answers to give.
    report : dict
        What the JSON file says (docs/explanation/statevector.md).

    Examples
    --------
    >>> tnplan.simulate(tnplan.GateSequence(2, ()), observable="Z0", precision="fp32", device="cpu")
    Simulation(2 qubits, complex64: expectation)
    """

    answer: Answer
    simulator: Simulator
    report: dict[str, Any]

    def __repr__(self) -> str:
        names = ("counts", "expectation", "amplitudes", "probabilities", "gradient")
        given = [name for name in names if getattr(self.answer, name) is not None]
        size = f"{self.report['n_qubits']} qubits, {self.report['dtype']}"
        return f"Simulation({size}: {', '.join(given) or 'no question'})"

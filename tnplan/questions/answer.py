"""What a question gives, and its JSON.

Changelog of `tnplan.answer`, the JSON of an answer:
1 (2026-11-26): first version.
2 (2026-11-26): `gradient`.
3 (2026-11-30): `after`, the numbers of operations that axis 0 of values and errors counts.
4 (2026-12-01): `error_kind` "rounding", with `bits`, `fidelity_estimate` and `fidelity_bound`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tnplan.common.shown_text import SHOWN, html_table, number_text
from tnplan.common.units import time_text
from tnplan.jobs.compressed_state import fidelity_text

FORMAT = "tnplan.answer"
VERSION = 4


@dataclass(frozen=True, eq=False, repr=False)
class CircuitAnswer:
    """What a question to a `Circuit` gives.

    Parameters
    ----------
    question : str
        The name of the question, such as "expectation".
    value : number, array or dict
        The value or values. Of samples: how often each outcome came. With `after` axis 0 counts the numbers
        of operations, which `details["after"]` has.
    error : float, array or None
        How far values may be from the exact ones, beyond rounding: a bound, or a standard deviation. 0 for
        exact values, None where it is not known.
    error_kind : {"exact", "statistical", "truncation", "rounding", "estimate", "biased"}
        What the error comes from. "rounding": a bound, of a state vector whose amplitudes have few bits.
        "estimate": what truncation was measured to drop, which is no bound. Of a biased mean the error is the
        spread alone: the value may be farther off.
    method : {"contraction", "statevector", "pauli", "mps", "stabilizer", "peps", "mpo"}
        The engine that answered.
    time_s : float
        Seconds from the question to the answer.
    details : dict
        What the engine says of its work, such as the device.
    gradient : dict or None
        The derivatives that were asked for, by the name of the parameter: a number, or for a list of
        observables an array with one of each.

    Examples
    --------
    >>> tnplan.Circuit(tnplan.GateSequence(2, ())).expectation("Z0", device="cpu")
    CircuitAnswer(expectation 1.0, exact, by statevector)
    """

    question: str
    value: Any
    error: Any
    error_kind: str
    method: str
    time_s: float
    details: dict[str, Any] = field(default_factory=dict)
    gradient: dict[str, Any] | None = None

    def __repr__(self) -> str:
        shown = f"error {self._error_text}" if self.error_kind != "exact" else "exact"
        rounded = f"; {fidelity_text(self.details)}" if "bits" in self.details else ""
        why = self.details.get("approximate")
        rounded += f"; {why}; ended by: {self.details['ended_by']}" if why else ""
        return f"CircuitAnswer({self.question} {self._value_text}, {shown}, by {self.method}{rounded})"

    def _repr_html_(self) -> str:
        facts = [
            ("error", "exact" if self.error_kind == "exact" else self._error_text),
            ("method", self.method),
        ]
        if "bits" in self.details:
            facts.append(("state", fidelity_text(self.details)))
        if "approximate" in self.details:
            facts.append(("approximate", f"{self.details['approximate']}; {self.details['ended_by']}"))
        facts.append(("time", time_text(self.time_s)))
        if isinstance(self.value, dict):
            rows = [(str(key), str(value)) for key, value in self.value.items()]
        else:
            form, values = ".9g", np.asarray(self.value)
            rows = [
                (", ".join(map(str, at)) or "value", number_text(values[at].item(), form))
                for at in np.ndindex(*values.shape)
            ]
        if len(rows) > SHOWN:
            rows = [*rows[:SHOWN], ("...", f"{len(rows) - SHOWN} more")]
        return html_table(self.question, [*rows, *facts])

    @property
    def document(self) -> dict[str, Any]:
        """The answer as plain JSON; complex numbers are pairs."""
        gradient = self.gradient
        more = {} if gradient is None else {"gradient": {k: plain(v) for k, v in gradient.items()}}
        return {
            "format": FORMAT, "version": VERSION, "question": self.question, "value": plain(self.value),
            **more, "error": plain(self.error), "error_kind": self.error_kind, "method": self.method,
            "time_s": self.time_s, **self.details,
        }  # fmt: skip

    @property
    def _value_text(self) -> str:
        if isinstance(self.value, dict):
            return f"{len(self.value)} outcomes"
        if np.ndim(self.value):
            shape = np.shape(self.value)
            return "1 value" if shape == (1,) else f"{'x'.join(map(str, shape))} values"
        return f"{self.value:.12g}" if np.iscomplexobj(self.value) else repr(float(self.value))

    @property
    def _error_text(self) -> str:
        if self.error is None:
            return self.error_kind
        vacuous = ", vacuous" if self.details.get("error_bound_is_vacuous") else ""
        return f"{float(np.max(self.error, initial=0.0)):.3g} ({self.error_kind}{vacuous})"


def plain(value: Any) -> Any:
    """Numbers and arrays as JSON; complex numbers are pairs."""
    if isinstance(value, np.ndarray | np.generic | complex):
        array = np.asarray(value)
        return (np.stack([array.real, array.imag], axis=-1) if np.iscomplexobj(array) else array).tolist()
    return value

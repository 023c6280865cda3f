"""A gate with its derivatives by named parameters, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tnplan.circuits.circuit import Gate


@dataclass(frozen=True, eq=False, repr=False)
class VariedGate(Gate):
    """A gate that parameters change. Its `params` are angles, of which some carry slopes (`DualNumber`).

    Parameters
    ----------
    generators : tuple of array
        For each angle the matrix G with dU/dangle = G U, up to a phase of the whole gate.
    tangents : mapping of str to array
        By each parameter that the gate depends on: the derivative of its matrix, up to such a phase.
    """

    generators: tuple[np.ndarray, ...] = ()
    tangents: Mapping[str, np.ndarray] = field(default_factory=dict)

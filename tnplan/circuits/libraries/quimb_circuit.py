"""quimb's `Circuit` as a program. Its matrices have our order of qubits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tnplan.circuits.gates import controlled
from tnplan.circuits.libraries import check_parameters
from tnplan.circuits.libraries.builder import Builder
from tnplan.circuits.program import CircuitProgram

PLACE = "quimb circuit"


def parameter_names(circuit: Any) -> list[str]:
    """None: the parameters of quimb's gates have values."""
    return []


def read(circuit: Any, parameters: Mapping[str, Any]) -> CircuitProgram:
    """The program of a circuit: its gates."""
    check_parameters((), parameters, PLACE)
    builder = Builder(PLACE)
    for gate in circuit.gates:
        controls = tuple(gate.controls or ())
        on = [int(qubit) for qubit in (*controls, *gate.qubits)]
        side = 2 ** len(gate.qubits)
        matrix = controlled(np.asarray(gate.array, np.complex128).reshape(side, side), len(controls))
        params = () if gate.params is None else np.atleast_1d(gate.params).tolist()
        builder.gate(str(gate.label).lower(), on, matrix, params)
    return builder.program(int(circuit.N), 0)

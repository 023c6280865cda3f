"""PennyLane's tapes as programs: their operations; what a tape measures at its end is not read.

Wires 0 to n - 1 are these qubits; wires with other labels are numbered in the tape's order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tnplan.planner.networks.circuits.libraries import check_parameters
from tnplan.planner.networks.circuits.libraries.builder import LARGEST_MATRIX, Builder
from tnplan.planner.networks.circuits.program import Channel, CircuitProgram

PLACE = "PennyLane tape"
IDLE = ("Barrier", "WireCut", "Snapshot")


def parameter_names(tape: Any) -> list[str]:
    """None: the parameters of a tape have values."""
    return []


def read(tape: Any, parameters: Mapping[str, Any]) -> CircuitProgram:
    """The program of a tape."""
    check_parameters((), parameters, PLACE)
    labels = list(tape.wires)
    if all(isinstance(label, int) and label >= 0 for label in labels):
        where = {label: label for label in labels}
    else:
        where = {label: number for number, label in enumerate(labels)}
    builder = Builder(PLACE)
    for operation in tape.operations:
        _add(builder, operation, where)
    return builder.program(max(where.values(), default=-1) + 1, 0)


def _add(builder: Builder, operation: Any, where: Mapping[Any, int]) -> None:
    """Add an operation, taken apart where it is large."""
    import pennylane

    name = operation.name
    if name in IDLE:
        return
    if not isinstance(operation, pennylane.operation.Operation):
        raise builder.refuse(f"({name}) is no gate", "measure at the end alone")
    on = [where[wire] for wire in operation.wires]
    if not on:
        builder.phase(float(np.angle(np.asarray(pennylane.matrix(operation)).flat[0])))
        return
    if isinstance(operation, pennylane.operation.Channel):
        builder.operations.append(
            Channel(tuple(on), tuple(np.asarray(one, np.complex128) for one in operation.kraus_matrices()))
        )
    elif operation.has_decomposition and (len(on) > LARGEST_MATRIX or not operation.has_matrix):
        for part in operation.decomposition():
            _add(builder, part, where)
    elif operation.has_matrix:
        matrix = pennylane.matrix(operation, wire_order=operation.wires)
        builder.gate(name.lower(), on, matrix, [np.asarray(one).item() for one in operation.parameters
                                                if np.ndim(one) == 0])  # fmt: skip
    else:
        raise builder.refuse(f"({name}) has no matrix", "define it by gates with matrices")

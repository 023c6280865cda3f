"""PennyLane's tapes as programs: their operations; what a tape measures at its end is not read.

Wires 0 to n - 1 are these qubits; wires with other labels are numbered in the tape's order. Trainable real
numbers of a tape are parameters that have values: "p0", "p1", ..., by their numbers in the tape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tnplan.circuits.derivatives.dual_number import Varied, has_slopes
from tnplan.circuits.libraries import check_parameters
from tnplan.circuits.libraries.builder import LARGEST_MATRIX, Builder
from tnplan.circuits.program import CircuitProgram
from tnplan.circuits.qasm.gate_calls import LARGEST_GATE

PLACE = "PennyLane tape"
IDLE = ("Barrier", "WireCut", "Snapshot")
NAMES = {
    "PhaseShift": "p", "ControlledPhaseShift": "cp", "IsingXX": "rxx", "IsingYY": "ryy", "IsingZZ": "rzz",
}  # fmt: skip
"""Our names of gates that PennyLane names otherwise."""


def parameter_names(tape: Any) -> list[str]:
    """The names of the trainable real numbers of the operations."""
    return list(_places(tape))


def parameter_values(tape: Any) -> dict[str, float]:
    """The values that the tape has for them."""
    return {name: float(tape.operations[k].data[at]) for name, (k, at) in _places(tape).items()}


def read(tape: Any, parameters: Mapping[str, Any]) -> CircuitProgram:
    """The program of a tape, with other values for some of its parameters."""
    places = _places(tape)
    values = parameter_values(tape)
    check_parameters(tuple(values), {**values, **parameters}, PLACE)
    labels = list(tape.wires)
    if all(isinstance(label, int) and label >= 0 for label in labels):
        # Wires that are numbers stay these qubits, also where some are not used; other labels take
        # the tape's order.
        where = {label: label for label in labels}
    else:
        where = {label: number for number, label in enumerate(labels)}
    changed: dict[int, dict[int, Any]] = {}
    for name, value in parameters.items():
        number, at = places[name]
        angle = value.number(name, float(value.value)) if isinstance(value, Varied) else float(value)
        if angle != values[name] or has_slopes([angle]):
            changed.setdefault(number, {})[at] = angle
    builder = Builder(PLACE)
    for number, operation in enumerate(tape.operations):
        if number in changed:
            data = [changed[number].get(at, original) for at, original in enumerate(operation.data)]
            _add_changed(builder, operation, data, where)
        else:
            _add(builder, operation, where)
    return builder.program(max(where.values(), default=-1) + 1, 0)


def _places(tape: Any) -> dict[str, tuple[int, int]]:
    """The operation of each parameter, and its place there."""
    return {
        f"p{number}": (entry["op_idx"], entry["p_idx"])
        for number, entry in enumerate(tape.par_info)
        if number in tape.trainable_params and entry["op_idx"] < len(tape.operations)
        and np.ndim(entry["op"].data[entry["p_idx"]]) == 0
        and not np.iscomplexobj(entry["op"].data[entry["p_idx"]])
    }  # fmt: skip


def _add_changed(builder: Builder, operation: Any, data: Sequence[Any], where: Mapping[Any, int]) -> None:
    """Add an operation with other numbers, of which some may carry derivatives."""
    import pennylane

    plain = [float(value) if isinstance(value, float) else value for value in data]  # without derivatives
    changed = pennylane.ops.functions.bind_new_parameters(operation, plain)
    on = [where[wire] for wire in operation.wires]
    if not has_slopes(data) or not on:
        _add(builder, changed, where)
        return
    if len(data) != 1 or not operation.has_generator or len(on) > LARGEST_GATE:
        raise builder.refuse(
            f"({operation.name}) has parameters by which derivatives are not known",
            "take it apart into rotations",
        )  # fmt: skip
    hermitian = pennylane.matrix(pennylane.generator(changed, format="observable"), wire_order=changed.wires)
    # PennyLane's generator H is defined by U = exp(i t H): dU/dt = i H U.
    matrix = pennylane.matrix(changed, wire_order=changed.wires)
    builder.gate(_name(operation), on, matrix, data, (1j * np.asarray(hermitian, np.complex128),))


def _name(operation: Any) -> str:
    return NAMES.get(operation.name, operation.name.lower())


def _add(builder: Builder, operation: Any, where: Mapping[Any, int]) -> None:
    """Add an operation, decomposed where it is large."""
    import pennylane

    name = operation.name
    if name == "Barrier":
        builder.barrier()
    if name in IDLE:
        return
    if not isinstance(operation, pennylane.operation.Operation):
        raise builder.refuse(f"({name}) is not a gate", "measure only at the end")
    on = [where[wire] for wire in operation.wires]
    if not on:
        builder.phase(float(np.angle(np.asarray(pennylane.matrix(operation)).flat[0])))
        return
    if isinstance(operation, pennylane.operation.Channel):
        builder.channel(on, operation.kraus_matrices())
    elif operation.has_decomposition and (len(on) > LARGEST_MATRIX or not operation.has_matrix):
        for smaller in operation.decomposition():
            _add(builder, smaller, where)
    elif operation.has_matrix:
        matrix = pennylane.matrix(operation, wire_order=operation.wires)
        params = [np.asarray(value).item() for value in operation.parameters if np.ndim(value) == 0]
        builder.gate(_name(operation), on, matrix, params)
    else:
        raise builder.refuse(f"({name}) has no matrix", "define it by gates with matrices")

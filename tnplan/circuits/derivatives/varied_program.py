"""A circuit with the derivatives of its gates by named parameters.

The angles of gates carry them from the parameters (`DualNumber`). What was lost on the way, and a gate that
depends on a parameter by anything but its angles, is found by a comparison with differences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tnplan.circuits.circuit import Gate, GlobalPhase
from tnplan.circuits.derivatives.dual_number import Varied, VariedGate, has_slopes, slopes_of
from tnplan.circuits.derivatives.generators import generators
from tnplan.circuits.program import Channel, CircuitProgram, Measurement, Operation, Reset
from tnplan.common.errors import InputError

STEP = 1e-5
"""The largest change of a parameter in differences."""
CLOSE = 1e-6
"""How far a difference may be from a derivative of size 1: both are right to about 1e-9."""


Read = Callable[[Mapping[str, Any]], CircuitProgram]


def varied_program(read: Read, values: Mapping[str, Any], names: Sequence[str]) -> CircuitProgram:
    """The program that `read` gives for values of all parameters, with derivatives by those named.

    Gates that depend on them are `VariedGate`s; the others have no `params`, so that none differentiates by
    theirs.

    Raises InputError for a gate whose derivative by an angle is not known, or an operation that depends on a
      parameter in another way than by angles of gates.
    """
    parameters = {name: Varied(value) if name in names else value for name, value in values.items()}
    program = read(parameters)
    generators_of: dict[Any, tuple[np.ndarray, ...]] = {}
    operations = tuple(
        _varied(operation, number, generators_of) for number, operation in enumerate(program.operations)
    )
    varied = replace(program, operations=operations)
    _check(varied, read, values, names)
    return varied


def _varied(operation: Operation, number: int, generators_of: dict[Any, tuple[np.ndarray, ...]]) -> Operation:
    """An operation with its derivatives; those of equal gates are found once."""
    if not isinstance(operation, Gate) or isinstance(operation, GlobalPhase):
        return operation
    gate = operation
    # Gates without slopes lose their angles, so that no caller differentiates by them.
    if not has_slopes(gate.params):
        return replace(gate, params=()) if gate.params else gate
    key = gate.name, gate.params, gate.matrix.tobytes()
    if key not in generators_of:
        generators_of[key] = generators(gate, f"gate {number} ({gate.name})", of_qsim=False)
    tangents: dict[str, np.ndarray] = {}
    for generator, angle in zip(generators_of[key], gate.params, strict=True):
        # Chain rule: dU/dp = sum_angles (dangle/dp) G_angle U.
        change = generator @ gate.matrix
        for name, slope in slopes_of(angle).items():
            tangents[name] = tangents.get(name, 0) + slope * change
    return VariedGate(gate.name, gate.qubits, gate.matrix, gate.params, generators_of[key], tangents)


def _check(varied: CircuitProgram, read: Read, values: Mapping[str, Any], names: Sequence[str]) -> None:
    """Compare with differences along a direction in which every parameter changes."""
    # Central differences (U(p + h d) - U(p - h d)) / 2 h along one direction d with a different
    # weight for each parameter: an error in one derivative is not hidden by another's. Two more
    # programs are read, whatever the number of parameters.
    direction = {name: 0.5 + ((7 * k + 3) % 11) / 22 for k, name in enumerate(names)}
    up, down = (
        read({**values, **{name: Varied(values[name], sign * STEP * direction[name]) for name in names}})
        for sign in (1, -1)
    )
    remedy = "ask only for other parameters, or use these only in angles of standard gates"
    if not len(varied.operations) == len(up.operations) == len(down.operations):
        raise InputError(
            "gradient", "is not defined for a parameter that changes which gates the circuit has", remedy
        )
    for number, (operation, high, low) in enumerate(
        zip(varied.operations, up.operations, down.operations, strict=True)
    ):
        if not _agrees(operation, high, low, direction):
            raise InputError(
                f"operation {number} ({getattr(operation, 'name', type(operation).__name__)})",
                "depends on a parameter in a way whose derivative is not known", remedy,
            )  # fmt: skip


def _agrees(operation: Operation, high: Operation, low: Operation, direction: Mapping[str, float]) -> bool:
    """Whether an operation changes as its derivatives say, phases of a whole gate apart."""
    if not isinstance(operation, Gate):
        return all(_is_same(operation, other) for other in (high, low))
    if not (isinstance(high, Gate) and isinstance(low, Gate)) or operation.qubits != high.qubits:
        return False
    tangents = operation.tangents if isinstance(operation, VariedGate) else {}
    change = sum((direction[n] * tangent for n, tangent in tangents.items()), np.zeros_like(operation.matrix))
    inverse = operation.matrix.conj().T
    difference = _traceless((high.matrix - low.matrix) / (2 * STEP) @ inverse)
    expected = _traceless(change @ inverse)
    return bool(np.allclose(difference, expected, rtol=CLOSE, atol=CLOSE))


def _traceless(matrix: np.ndarray) -> np.ndarray:
    return matrix - np.trace(matrix) / len(matrix) * np.eye(len(matrix))


def _is_same(first: Operation, other: Operation) -> bool:
    """Whether two operations that are no gates are equal. What depends on bits is not looked into: nothing
    differentiates it."""
    if isinstance(first, Channel) and isinstance(other, Channel):
        return first.qubits == other.qubits and np.array_equal(first.kraus, other.kraus)
    return type(first) is type(other) and (first == other or not isinstance(first, Measurement | Reset))

"""Cirq's `Circuit` as a program: qubits in Cirq's order, the bits of measurements as they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tnplan.circuits.libraries import check_not_varied, check_parameters
from tnplan.circuits.libraries.builder import LARGEST_MATRIX, Builder
from tnplan.circuits.program import Channel, CircuitProgram
from tnplan.circuits.qasm.gate_calls import LARGEST_GATE
from tnplan.common.errors import InputError

PLACE = "Cirq circuit"


def parameter_names(circuit: Any) -> list[str]:
    """The names of the symbols."""
    import cirq

    return sorted(cirq.parameter_names(circuit))


def read(
    circuit: Any, parameters: Mapping[str, Any], order: Sequence[Any] | None = None
) -> CircuitProgram:  # fmt: skip
    """The program of a circuit, with values for its symbols.

    `order` has all qubits, idle ones too, in the order of ours. Default: Cirq's own order, which its state
    vectors have too.
    """
    import cirq

    check_parameters(tuple(parameter_names(circuit)), parameters, PLACE)
    check_not_varied(parameters, PLACE)
    if parameters:
        circuit = cirq.resolve_parameters(circuit, dict(parameters))
    circuit = unrolled(circuit)
    ordered = sorted(circuit.all_qubits()) if order is None else order
    qubits = {qubit: number for number, qubit in enumerate(ordered)}
    builder, n_bits = Builder(PLACE), 0
    for operation in circuit.all_operations():
        on = [qubits[qubit] for qubit in operation.qubits]
        if operation.classical_controls:
            raise builder.refuse("depends on a measurement", "write the circuit as OpenQASM 3")
        if cirq.is_measurement(operation):
            if not isinstance(operation.gate, cirq.MeasurementGate):
                raise builder.refuse(f"({operation}) measures more than bits", "use cirq.measure")
            if any(operation.gate.full_invert_mask()) or operation.gate.confusion_map:
                raise builder.refuse(
                    "inverts or confuses what it measures", "measure without invert_mask and confusion_map"
                )
            for qubit in on:
                builder.measure(qubit, n_bits)
                n_bits += 1
        elif isinstance(operation.gate, cirq.ResetChannel):
            builder.reset(on[0])
        else:
            _add(builder, operation, qubits)
    return builder.program(len(qubits), n_bits)


def unrolled(circuit: Any) -> Any:
    """The circuit with the operations of its subcircuits in their places."""
    import cirq

    try:
        return cirq.unroll_circuit_op(circuit, deep=True, tags_to_check=None)
    except ValueError as error:
        raise InputError(PLACE, str(error), "write the circuit as OpenQASM 3") from None


def _add(builder: Builder, operation: Any, qubits: Mapping[Any, int]) -> None:
    """Add a gate or a channel, taken apart where it is large."""
    import cirq

    on = [qubits[qubit] for qubit in operation.qubits]
    # One level at a time: a gate that is defined by smaller ones with matrices keeps these.
    parts = cirq.decompose_once(operation, default=None) if len(on) > LARGEST_MATRIX else None
    if parts is not None:
        for part in parts:
            _add(builder, part, qubits)
        return
    # A matrix before Kraus operators: `has_kraus` is true of unitary gates as well.
    matrix = cirq.unitary(operation, default=None) if len(on) <= LARGEST_GATE else None
    if matrix is None and cirq.has_kraus(operation) and len(on) <= LARGEST_MATRIX:
        kraus = tuple(np.asarray(one, np.complex128) for one in cirq.kraus(operation))
        builder.operations.append(Channel(tuple(on), kraus))
    elif matrix is None:
        raise builder.refuse(f"({operation}) has no matrix", "define it by gates with matrices")
    elif not on:
        builder.phase(float(np.angle(matrix[0, 0])))
    else:
        builder.gate(type(operation.gate).__name__.lower(), on, matrix)

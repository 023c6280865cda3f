"""Cirq's `Circuit` as a program: qubits in Cirq's order, the bits of measurements as they come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tnplan.circuits.libraries import check_not_varied, check_parameters
from tnplan.circuits.libraries.builder import LARGEST_MATRIX, Builder
from tnplan.circuits.program import Channel, CircuitProgram
from tnplan.circuits.qasm.gate_calls import LARGEST_GATE

PLACE = "Cirq circuit"


def parameter_names(circuit: Any) -> list[str]:
    """The names of the symbols."""
    import cirq

    return sorted(cirq.parameter_names(circuit))


def read(circuit: Any, parameters: Mapping[str, Any]) -> CircuitProgram:
    """The program of a circuit, with values for its symbols."""
    import cirq

    check_parameters(tuple(parameter_names(circuit)), parameters, PLACE)
    check_not_varied(parameters, PLACE)
    if parameters:
        circuit = cirq.resolve_parameters(circuit, dict(parameters))
    # Cirq's own order of qubits, which its state vectors have too.
    qubits = {qubit: number for number, qubit in enumerate(sorted(circuit.all_qubits()))}
    builder, n_bits = Builder(PLACE), 0
    for operation in circuit.all_operations():
        on = [qubits[qubit] for qubit in operation.qubits]
        if operation.classical_controls:
            raise builder.refuse("depends on a measurement", "write the circuit as OpenQASM 3")
        if cirq.is_measurement(operation):
            if any(getattr(operation.gate, "full_invert_mask", tuple)()):
                raise builder.refuse("inverts what it measures", "measure without invert_mask")
            for qubit in on:
                builder.measure(qubit, n_bits)
                n_bits += 1
        elif isinstance(operation.gate, cirq.ResetChannel):
            builder.reset(on[0])
        else:
            _add(builder, operation, qubits)
    return builder.program(len(qubits), n_bits)


def _add(builder: Builder, operation: Any, qubits: Mapping[Any, int]) -> None:
    """Add a gate or a channel, decomposed where it is large."""
    import cirq

    on = [qubits[qubit] for qubit in operation.qubits]
    # One level at a time: a gate that is defined by smaller ones with matrices keeps these.
    parts = cirq.decompose_once(operation, default=None) if len(on) > LARGEST_MATRIX else None
    if parts is not None:
        for smaller in parts:
            _add(builder, smaller, qubits)
        return
    # A matrix before Kraus operators: `has_kraus` is true of unitary gates as well.
    matrix = cirq.unitary(operation, default=None) if len(on) <= LARGEST_GATE else None
    if matrix is None and cirq.has_kraus(operation) and len(on) <= LARGEST_MATRIX:
        kraus = tuple(np.asarray(operator, np.complex128) for operator in cirq.kraus(operation))
        builder.operations.append(Channel(tuple(on), kraus))
    elif matrix is None:
        raise builder.refuse(f"({operation}) has no matrix", "define it by gates with matrices")
    elif not on:
        builder.phase(float(np.angle(matrix[0, 0])))
    else:
        builder.gate(type(operation.gate).__name__.lower(), on, matrix)

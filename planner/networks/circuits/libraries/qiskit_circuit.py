"""Qiskit's `QuantumCircuit` as a program. Qiskit's first qubit is the least significant bit of a matrix.

Gates keep Qiskit's matrices and phases; a gate on more than three qubits is what its definition says. A
circuit with control flow is read through the OpenQASM 3 that Qiskit writes of it (extra `qasm`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tnplan.planner.networks.circuits.libraries import check_parameters
from tnplan.planner.networks.circuits.libraries.builder import LARGEST_MATRIX, Builder
from tnplan.planner.networks.circuits.program import CircuitProgram
from tnplan.planner.networks.circuits.qasm.gate_calls import LARGEST_GATE
from tnplan.planner.networks.circuits.qasm.read import parse_qasm_program
from tnplan.planner.networks.circuits.qasm.standard_gates import INCLUDED

PLACE = "Qiskit circuit"
STANDARD = "qiskit.circuit.library.standard_gates"
IDLE = ("barrier", "delay")


def parameter_names(circuit: Any) -> list[str]:
    """The names of the parameters without a value."""
    return [parameter.name for parameter in circuit.parameters]


def read(circuit: Any, parameters: Mapping[str, Any]) -> CircuitProgram:
    """The program of a circuit, with values for its parameters."""
    from qiskit.circuit import ControlFlowOp

    check_parameters(tuple(parameter_names(circuit)), parameters, PLACE)
    if parameters:
        circuit = circuit.assign_parameters(dict(parameters))
    if any(isinstance(item.operation, ControlFlowOp) for item in circuit.data):
        from qiskit import qasm3

        return parse_qasm_program(qasm3.dumps(circuit), PLACE)
    builder = Builder(PLACE)
    qubits = {qubit: number for number, qubit in enumerate(circuit.qubits)}
    bits = {bit: number for number, bit in enumerate(circuit.clbits)}
    _add(builder, circuit, qubits, bits)
    return builder.program(circuit.num_qubits, circuit.num_clbits)


def _add(builder: Builder, circuit: Any, qubits: Mapping[Any, int], bits: Mapping[Any, int]) -> None:
    """Add what is in a circuit, or in a definition."""
    builder.phase(float(circuit.global_phase))
    for item in circuit.data:
        operation, on = item.operation, [qubits[qubit] for qubit in item.qubits]
        name = operation.name
        if name in IDLE:
            continue
        if name == "measure" and len(item.clbits) == 1:
            builder.measure(on[0], bits[item.clbits[0]])
        elif name == "reset":
            builder.reset(on[0])
        else:
            _add_gate(builder, operation, on, [bits[bit] for bit in item.clbits])


def _add_gate(builder: Builder, operation: Any, on: list[int], bits: list[int]) -> None:
    from qiskit.circuit import Gate
    from qiskit.quantum_info import Operator

    name, n, definition = operation.name, len(on), operation.definition
    matrix = _standard(operation)
    if matrix is not None and n <= LARGEST_MATRIX:
        builder.gate(name, on, matrix, operation.params)
    elif isinstance(operation, Gate) and (
        n <= LARGEST_MATRIX or (n <= LARGEST_GATE and (definition is None or name == "unitary"))
    ):
        builder.gate(name, on[::-1], Operator(operation).data, operation.params)
    elif definition is not None:
        inner_qubits = dict(zip(definition.qubits, on, strict=True))
        _add(builder, definition, inner_qubits, dict(zip(definition.clbits, bits, strict=True)))
    else:
        raise builder.refuse(f"({name}) has no definition", "define it by gates")


def _standard(operation: Any) -> np.ndarray | None:
    """The matrix of one of Qiskit's standard gates that we have too, first qubit most significant."""
    kind = INCLUDED.get(operation.name)
    if kind is None or kind.n_params != len(operation.params):
        return None
    if not operation.base_class.__module__.startswith(STANDARD):
        return None
    controls = getattr(operation, "num_ctrl_qubits", 0)
    if controls and operation.ctrl_state != 2**controls - 1:
        return None
    return np.asarray(kind.matrix(*map(float, operation.params)), np.complex128)

"""Qiskit's `QuantumCircuit` as a program. Qiskit's first qubit is the least significant bit of a matrix.

Gates keep Qiskit's matrices and phases; a gate on more than three qubits is what its definition says. A
circuit with control flow is read through the OpenQASM 3 that Qiskit writes of it (extra `qasm`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from tnplan.circuits.derivatives.dual_number import DualNumber, Varied, has_slopes
from tnplan.circuits.libraries import check_parameters
from tnplan.circuits.libraries.builder import LARGEST_MATRIX, Builder
from tnplan.circuits.program import CircuitProgram
from tnplan.circuits.qasm.gate_calls import INCLUDED, LARGEST_GATE
from tnplan.circuits.qasm.read import parse_qasm_program

PLACE = "Qiskit circuit"
STANDARD = "qiskit.circuit.library.standard_gates"
IDLE = ("barrier", "delay")

_Places = tuple[Mapping[Any, int], Mapping[Any, int]]
"""The numbers of qubits and of bits."""


def parameter_names(circuit: Any) -> list[str]:
    """The names of the parameters without a value."""
    return [parameter.name for parameter in circuit.parameters]


def read(circuit: Any, parameters: Mapping[str, Any]) -> CircuitProgram:
    """The program of a circuit, with values for its parameters."""
    check_parameters(tuple(parameter_names(circuit)), parameters, PLACE)
    values = {name: _number(value) for name, value in parameters.items()}
    free = circuit
    if parameters:
        circuit = circuit.assign_parameters(values)
    # Control flow goes through Qiskit's own OpenQASM 3, whose rules of scope and of bits the reader has.
    if any(item.is_control_flow() for item in circuit.data):
        from qiskit import qasm3

        return parse_qasm_program(qasm3.dumps(circuit), PLACE)
    builder = Builder(PLACE)
    varied = {name for name, value in parameters.items() if isinstance(value, Varied)}
    angles = _Angles(values, varied)
    qubits = {qubit: number for number, qubit in enumerate(circuit.qubits)}
    bits = {bit: number for number, bit in enumerate(circuit.clbits)}
    _add(builder, angles, (circuit, free), (qubits, bits))
    return builder.program(circuit.num_qubits, circuit.num_clbits)


@dataclass(frozen=True)
class _Angles:
    """The values of all parameters, and the names of those by which derivatives are wanted."""

    values: Mapping[str, float]
    varied: Set[str]

    def of(self, bound: Sequence[Any], free: Sequence[Any]) -> list[Any]:
        """The parameters of an operation, with their slopes: `free` has those without values."""
        return [self._angle(value, other) for value, other in zip(bound, free, strict=True)]

    def _angle(self, bound: Any, free: Any) -> Any:
        names = {parameter.name for parameter in getattr(free, "parameters", ())} & self.varied
        if not names:
            return bound
        varied = [parameter for parameter in free.parameters if parameter.name in names]
        slopes = {parameter.name: self._value(free.gradient(parameter)) for parameter in varied}
        return DualNumber(float(bound), slopes)

    def _value(self, slope: Any) -> float:
        """The value of a derivative, which is an expression or a number."""
        if not hasattr(slope, "parameters"):
            return float(slope)
        return float(slope.bind({parameter: self.values[parameter.name] for parameter in slope.parameters}))


def _number(value: Any) -> Any:
    """The value of a parameter for Qiskit."""
    return value.number("", float(value.value)).real if isinstance(value, Varied) else value


def _add(builder: Builder, angles: _Angles, circuits: tuple[Any, Any], places: _Places) -> None:
    """Add what is in a circuit, or in a definition: with values for its parameters, and without."""
    (circuit, free), (qubits, bits) = circuits, places
    # Phases of definitions count: under a control of an outer gate they are relative.
    builder.phase(float(circuit.global_phase))
    for item, unbound in zip(circuit.data, free.data, strict=True):
        name, on = item.name, [qubits[qubit] for qubit in item.qubits]
        # `item.operation` makes an object, which takes longer than all else.
        kind = INCLUDED.get(name) if item.is_standard_gate() and not angles.varied else None
        if kind is not None and kind.n_params == len(item.params) and kind.n_qubits <= LARGEST_MATRIX:
            builder.standard(name, kind, on, tuple(map(float, item.params)))
            continue
        operation = item.operation
        if name == "barrier":
            builder.barrier()
        if name in IDLE:
            continue
        if name == "measure" and len(item.clbits) == 1:
            builder.measure(on[0], bits[item.clbits[0]])
        elif name == "reset":
            builder.reset(on[0])
        elif name == "kraus":
            # Qiskit's first qubit is the least significant bit of a matrix.
            builder.channel(on[::-1], operation.params)
        else:
            on_bits = [bits[bit] for bit in item.clbits]
            _add_gate(builder, angles, (operation, unbound.operation), (on, on_bits))


def _add_gate(
    builder: Builder, angles: _Angles, operations: tuple[Any, Any], operands: tuple[list[int], list[int]]
) -> None:
    """Add an operation on qubits and bits: with values for its parameters, and without."""
    from qiskit.circuit import Gate
    from qiskit.quantum_info import Operator

    (operation, free), (on, bits) = operations, operands
    name, n = operation.name, len(on)
    matrix, params = _standard(operation), operation.params
    if angles.varied:
        params = angles.of(params, free.params)
    # `_standard` has our order of qubits, the first most significant; Qiskit's `Operator` has the
    # opposite one, so that qubits are reversed there.
    if matrix is not None and n <= LARGEST_MATRIX:
        builder.gate(name, on, matrix, params)
        return
    definition = operation.definition  # Qiskit makes it anew each time
    is_differentiable = matrix is not None or definition is None or not has_slopes(params)
    if isinstance(operation, Gate) and is_differentiable and (
        n <= LARGEST_MATRIX or (n <= LARGEST_GATE and (definition is None or name == "unitary"))
    ):  # fmt: skip
        builder.gate(name, on[::-1], Operator(operation).data, params)
    elif definition is not None:
        # Wires of a definition are named by it: they stand for the qubits and bits of the operation
        # in their order.
        inner_qubits = dict(zip(definition.qubits, on, strict=True))
        inner_bits = dict(zip(definition.clbits, bits, strict=True))
        _add(builder, angles, (definition, free.definition), (inner_qubits, inner_bits))
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

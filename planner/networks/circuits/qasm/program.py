"""OpenQASM 2 and 3 files with measurements, resets and conditions anywhere, as programs (extra `qasm`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tnplan.planner.common.errors import InputError
from tnplan.planner.networks.circuits.circuit import global_phase
from tnplan.planner.networks.circuits.program import (
    CircuitProgram,
    Conditional,
    Measurement,
    Operation,
    Reset,
)
from tnplan.planner.networks.circuits.qasm.circuit import IDLE, check_parameters, gate_or_name, qiskit_gate
from tnplan.planner.networks.circuits.qasm.reader import instruction_place, read_qiskit
from tnplan.planner.networks.path_file import placed

if TYPE_CHECKING:
    from qiskit import QuantumCircuit


def parse_qasm_program(text: str, place: str) -> CircuitProgram:
    """Parse an OpenQASM program; `place` names it in errors.

    A condition is that a bit or a register has a value. Loops, `switch`, other conditions and parameters
    without a value are refused with their line.
    """
    circuit, lines = read_qiskit(text, place)
    return placed(place, lambda: _program(circuit, lines))


def _program(circuit: QuantumCircuit, lines: Iterator[int | None]) -> CircuitProgram:
    check_parameters(circuit)
    qubits = {qubit: number for number, qubit in enumerate(circuit.qubits)}
    bits = {bit: number for number, bit in enumerate(circuit.clbits)}
    return CircuitProgram(circuit.num_qubits, circuit.num_clbits, _operations(circuit, qubits, bits, lines))


def _operations(
    circuit: QuantumCircuit, qubits: dict[Any, int], bits: dict[Any, int], lines: Iterator[int | None]
) -> tuple[Operation, ...]:
    phase = float(circuit.global_phase)
    operations: list[Operation] = [global_phase(phase)] if phase else []
    for number, instruction in enumerate(circuit.data):
        operation = instruction.operation
        where = instruction_place(operation.name, number, next(lines))
        on = tuple(qubits[qubit] for qubit in instruction.qubits)
        role = gate_or_name(operation)
        if role in IDLE:
            continue
        if role == "measure":
            operations.append(Measurement(on[0], bits[instruction.clbits[0]]))
        elif role == "reset":
            operations.append(Reset(on[0]))
        elif role == "if_else":
            operations.append(_conditional(instruction, qubits, bits, lines, where))
        else:
            operations.append(qiskit_gate(operation, on, where))
    return tuple(operations)


def _conditional(
    instruction: Any, qubits: dict[Any, int], bits: dict[Any, int], lines: Iterator[int | None], where: str
) -> Conditional:
    operation = instruction.operation
    condition = operation.condition
    if not isinstance(condition, tuple):
        raise InputError(
            where, "has a condition other than that bits have a value",
            "compare a bit or a register with a number",
        )  # fmt: skip
    what, value = condition
    chosen = tuple(bits[bit] for bit in (what if hasattr(what, "__len__") else (what,)))
    bodies = []
    for body in operation.blocks:
        inner_qubits = {q: qubits[o] for q, o in zip(body.qubits, instruction.qubits, strict=True)}
        inner_bits = bits | {b: bits[o] for b, o in zip(body.clbits, instruction.clbits, strict=True)}
        bodies.append(_operations(body, inner_qubits, inner_bits, lines))
    return Conditional(chosen, int(value), bodies[0], bodies[1] if len(bodies) > 1 else ())

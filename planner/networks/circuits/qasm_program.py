"""OpenQASM 2 and 3 files with measurements, resets and conditions anywhere, as programs (extra `qasm`)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.errors import InputError
from planner.files import read_text
from planner.networks.circuits.circuit import Gate
from planner.networks.circuits.program import Conditional, Measurement, Operation, Program, Reset
from planner.networks.circuits.qasm import check_parameters, qiskit_circuit, qiskit_gate
from planner.networks.path_file import placed

if TYPE_CHECKING:
    from qiskit import QuantumCircuit

IDLE = ("barrier", "delay")
KEYWORDS = {"while_loop": "while", "for_loop": "for", "switch_case": "switch", "if_else": "if"}
"""The words of OpenQASM for operations that qiskit names otherwise."""


def load_qasm_program(path: str | Path) -> Program:
    """Read an OpenQASM file; errors name the file and the line."""
    return parse_qasm_program(read_text(path, "an OpenQASM file"), str(path))


def parse_qasm_program(text: str, place: str) -> Program:
    """Parse an OpenQASM program; `place` names it in errors.

    A condition is that a bit or a register has a value. Loops, `switch`, other conditions and parameters
    without a value are refused with their line.
    """
    circuit = qiskit_circuit(text, place)
    return placed(place, lambda: _program(circuit, text))


def _program(circuit: QuantumCircuit, text: str) -> Program:
    check_parameters(circuit)
    qubits = {qubit: number for number, qubit in enumerate(circuit.qubits)}
    bits = {bit: number for number, bit in enumerate(circuit.clbits)}
    return Program(circuit.num_qubits, circuit.num_clbits, _operations(circuit, qubits, bits, text))


def _operations(
    circuit: QuantumCircuit, qubits: dict[Any, int], bits: dict[Any, int], text: str
) -> tuple[Operation, ...]:
    operations: list[Operation] = []
    phase = complex(np.exp(1j * float(circuit.global_phase)))
    if phase != 1:
        operations.append(Gate("phase", (0,), phase * np.eye(2, dtype=np.complex128)))
    for number, instruction in enumerate(circuit.data):
        operation = instruction.operation
        on = tuple(qubits[qubit] for qubit in instruction.qubits)
        if operation.name in IDLE:
            continue
        if operation.name == "measure":
            operations.append(Measurement(on[0], bits[instruction.clbits[0]]))
        elif operation.name == "reset":
            operations.append(Reset(on[0]))
        elif operation.name == "if_else":
            operations.append(_conditional(instruction, qubits, bits, text))
        else:
            operations.append(qiskit_gate(operation, on, _where(operation.name, number, text)))
    return tuple(operations)


def _conditional(instruction: Any, qubits: dict[Any, int], bits: dict[Any, int], text: str) -> Conditional:
    operation = instruction.operation
    condition = operation.condition
    if not isinstance(condition, tuple):
        raise InputError(
            _where("if_else", 0, text), "has a condition other than that bits have a value",
            "compare a bit or a register with a number",
        )  # fmt: skip
    what, value = condition
    chosen = tuple(bits[bit] for bit in (what if hasattr(what, "__len__") else (what,)))
    bodies = []
    for body in operation.blocks:
        inner_qubits = {q: qubits[o] for q, o in zip(body.qubits, instruction.qubits, strict=True)}
        inner_bits = bits | {b: bits[o] for b, o in zip(body.clbits, instruction.clbits, strict=True)}
        bodies.append(_operations(body, inner_qubits, inner_bits, text))
    return Conditional(chosen, int(value), bodies[0], bodies[1] if len(bodies) > 1 else ())


def _where(name: str, number: int, text: str) -> str:
    """The line of the first statement with this name, or the number of the instruction."""
    word = re.compile(rf"\b{re.escape(KEYWORDS.get(name, name))}\b")
    for line, content in enumerate(text.splitlines(), start=1):
        if word.search(content.split("//")[0]):
            return f"line {line} ({name})"
    return f"instruction {number} ({name})"

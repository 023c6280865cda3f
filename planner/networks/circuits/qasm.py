"""OpenQASM 2 and 3 circuits, read with qiskit (extra `qasm`). Turns its circuits into ours, nothing more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from planner.errors import InputError
from planner.files import read_text
from planner.networks.circuits.circuit import Circuit, Gate
from planner.networks.path_file import placed

if TYPE_CHECKING:
    from qiskit import QuantumCircuit

LARGEST_GATE = 6


def load_qasm(path: str | Path) -> Circuit:
    """Read an OpenQASM file; its own first statement says which version it is (none: 2)."""
    return parse_qasm(read_text(path, "an OpenQASM file"), str(path))


def parse_qasm(text: str, place: str) -> Circuit:
    """Parse an OpenQASM circuit; `place` names it in errors.

    Gates keep the name, the angles and the matrix that qiskit gives them; barriers are skipped, and so are
    measurements that nothing follows on their qubit. Parameters without a value, resets and classical
    control are refused by name; `qasm_program` reads those.
    """
    circuit = qiskit_circuit(text, place)
    return placed(place, lambda: _circuit(circuit))


def qiskit_circuit(text: str, place: str) -> QuantumCircuit:
    """What qiskit reads from a text of OpenQASM; raises InputError where it is none."""
    try:
        import qiskit.qasm2
        import qiskit.qasm3
    except ImportError:
        raise InputError(
            place, "OpenQASM needs qiskit", "install it with: pip install 'tnplan[qasm]'"
        ) from None
    version = re.search(r"^\s*OPENQASM\s+(\d)", text, re.MULTILINE)
    try:
        if version is not None and version[1] == "3":
            return qiskit.qasm3.loads(text)
        return qiskit.qasm2.loads(text, custom_instructions=qiskit.qasm2.LEGACY_CUSTOM_INSTRUCTIONS)
    except ImportError:
        raise InputError(
            place, "OpenQASM 3 needs qiskit-qasm3-import", "install it with: pip install 'tnplan[qasm]'"
        ) from None
    except Exception as error:
        raise InputError(place, f"is no OpenQASM that qiskit reads ({error})", "mend the file") from None


def check_parameters(circuit: QuantumCircuit) -> None:
    """Refuse parameters without a value."""
    if circuit.parameters:
        names = ", ".join(sorted(parameter.name for parameter in circuit.parameters))
        raise InputError(f"parameters {names}", "have no value", "write numbers")


def _circuit(circuit: QuantumCircuit) -> Circuit:
    check_parameters(circuit)
    gates: list[Gate] = []
    measured: set[int] = set()
    phase = complex(np.exp(1j * float(circuit.global_phase)))
    for number, instruction in enumerate(circuit.data):
        operation = instruction.operation
        where = f"instruction {number} ({operation.name})"
        qubits = tuple(circuit.find_bit(qubit).index for qubit in instruction.qubits)
        if operation.name == "barrier":
            continue
        again = sorted(measured & set(qubits))
        if again:
            raise InputError(
                where,
                f"acts on qubit {again[0]} after its measurement",
                "measure only at the end of a circuit",
            )
        if operation.name == "measure":
            measured |= set(qubits)
            continue
        gates.append(qiskit_gate(operation, qubits, where))
    if phase != 1:
        gates.insert(0, Gate("phase", (0,), phase * np.eye(2, dtype=np.complex128)))
    return Circuit(circuit.num_qubits, tuple(gates))


def qiskit_gate(operation: object, qubits: tuple[int, ...], where: str) -> Gate:
    """The gate of one qiskit operation. qiskit's first qubit is the least significant bit."""
    from qiskit.circuit import Gate as QiskitGate
    from qiskit.quantum_info import Operator

    if not isinstance(operation, QiskitGate):
        raise InputError(
            where, "is no gate (a reset, or classical control)", "use gates alone, measure at the end"
        )
    if len(qubits) > LARGEST_GATE:
        raise InputError(
            where, f"acts on {len(qubits)} qubits", f"split it into gates on {LARGEST_GATE} or fewer"
        )
    matrix = np.asarray(Operator(operation).data, dtype=np.complex128)
    params = tuple(float(value) for value in operation.params if isinstance(value, int | float))
    return Gate(operation.name, qubits[::-1], matrix, params)

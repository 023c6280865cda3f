"""OpenQASM 2 and 3 circuits, read with qiskit (extra `qasm`). Turns its circuits into ours, nothing more."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tnplan.planner.common.errors import InputError
from tnplan.planner.networks.circuits.circuit import Circuit, Gate, global_phase
from tnplan.planner.networks.circuits.qasm.reader import instruction_place, read_qiskit
from tnplan.planner.networks.path_file import placed

if TYPE_CHECKING:
    from qiskit import QuantumCircuit

LARGEST_GATE = 6
IDLE = ("barrier", "delay")
PROGRAMS_HAVE = ("reset", "if_else")
"""What programs have and circuits do not."""
REMEDIES = {
    "while_loop": "write its rounds out, each inside an if",
    "for_loop": "write its rounds out",
    "box": "leave the box out and keep what is in it",
}
FINITE = "let all angles inside it be finite"


def parse_qasm(text: str, place: str) -> Circuit:
    """Parse an OpenQASM circuit; `place` names it in errors. Its first statement says its version (none: 2).

    Gates keep the name, the angles and the matrix that qiskit gives them; barriers and delays are skipped,
    and so are measurements that nothing follows on their qubit. Resets and conditions, which `qasm_program`
    reads, and what it does not read either are refused with their line.
    """
    circuit, lines = read_qiskit(text, place)
    return placed(place, lambda: _circuit(circuit, lines))


def check_parameters(circuit: QuantumCircuit) -> None:
    """Refuse parameters without a value."""
    if circuit.parameters:
        names = ", ".join(sorted(parameter.name for parameter in circuit.parameters))
        raise InputError(f"parameters {names}", "have no value", "write numbers")


def _circuit(circuit: QuantumCircuit, lines: Iterator[int | None]) -> Circuit:
    check_parameters(circuit)
    phase = float(circuit.global_phase)
    gates: list[Gate] = [global_phase(phase)] if phase else []
    measured: set[int] = set()
    for number, instruction in enumerate(circuit.data):
        operation = instruction.operation
        where = instruction_place(operation.name, number, next(lines))
        qubits = tuple(circuit.find_bit(qubit).index for qubit in instruction.qubits)
        role = gate_or_name(operation)
        if role in IDLE:
            continue
        again = sorted(measured & set(qubits))
        if again:
            raise InputError(
                where,
                f"acts on qubit {again[0]} after its measurement",
                "measure only at the end of a circuit",
            )
        if role == "measure":
            measured |= set(qubits)
            continue
        gates.append(qiskit_gate(operation, qubits, where))
    return Circuit(circuit.num_qubits, tuple(gates))


def gate_or_name(operation: Any) -> str:
    """`gate` for a gate, which files may give any name, or the name that qiskit has for what is none."""
    from qiskit.circuit import Gate as QiskitGate

    return "gate" if isinstance(operation, QiskitGate) else str(operation.name)


def qiskit_gate(operation: Any, qubits: tuple[int, ...], where: str) -> Gate:
    """The gate of one qiskit operation. qiskit's first qubit is the least significant bit."""
    from qiskit.exceptions import QiskitError
    from qiskit.quantum_info import Operator

    role = gate_or_name(operation)
    if role in PROGRAMS_HAVE:
        raise InputError(
            where, "is no gate", "use gates alone and measure at the end, or simulate it: tnplan statevector"
        )
    if role != "gate":
        raise InputError(where, "is not supported", REMEDIES.get(role, "write it with gates"))
    if len(qubits) > LARGEST_GATE:
        raise InputError(
            where, f"acts on {len(qubits)} qubits", f"split it into gates on {LARGEST_GATE} or fewer"
        )
    params = _params(operation, where)
    try:
        matrix = np.asarray(Operator(operation).data, dtype=np.complex128)
    except QiskitError as error:
        raise InputError(where, f"has no matrix ({error.message})", "define it by other gates") from None
    except (ValueError, ArithmeticError) as error:
        raise InputError(where, f"has no matrix ({error})", FINITE) from None
    if not np.isfinite(matrix).all():
        raise InputError(where, "has a matrix that is not finite", FINITE)
    return Gate(operation.name, qubits[::-1], matrix, params)


def _params(operation: Any, where: str) -> tuple[float, ...]:
    try:
        params = tuple(float(value) for value in operation.params if isinstance(value, int | float))
    except OverflowError:
        params = (math.inf,)
    wrong = [value for value in params if not math.isfinite(value)]
    if wrong:
        raise InputError(where, f"has the angle {wrong[0]}", "give finite radians")
    return params

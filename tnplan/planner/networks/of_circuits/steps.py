"""What a circuit does before anything is measured, as gates and channels: all that its networks hold."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.derivatives.dual_number import VariedGate
from tnplan.circuits.program import Channel, CircuitProgram, Measurement, Reset, without_final_measurements
from tnplan.common.errors import InputError

Step = Gate | Channel

ZERO_ROW, ONE_ROW = np.array([[1, 0], [0, 0]], np.complex128), np.array([[0, 0], [0, 1]], np.complex128)
RAISED = np.array([[0, 1], [0, 0]], np.complex128)
"""|0><1|: what a reset does to a qubit that is 1."""
UNITARY = 1e-9
"""How far from 1 an element of U^dagger U may be, or from 0."""


def steps_of(circuit: GateSequence | CircuitProgram, place: str) -> tuple[Step, ...]:
    """The gates and channels of a circuit, in order; `place` names it in errors.

    Final measurements are left out. A measurement on the way whose bit nothing depends on is a channel, and
    so is a reset. What depends on bits is refused.
    """
    if isinstance(circuit, GateSequence):
        return circuit.gates
    steps: list[Step] = []
    for number, operation in enumerate(without_final_measurements(circuit.operations)[0]):
        if isinstance(operation, Measurement):
            steps.append(Channel((operation.qubit,), (ZERO_ROW, ONE_ROW)))
        elif isinstance(operation, Reset):
            steps.append(Channel((operation.qubit,), (ZERO_ROW, RAISED)))
        elif isinstance(operation, Gate | Channel):
            steps.append(operation)
        else:
            raise InputError(
                f"{place}, operation {number}", "depends on measured bits",
                "use the state-vector method, which runs every shot on its own",
            )  # fmt: skip
    return tuple(steps)


def operators_of(step: Step) -> tuple[np.ndarray, ...]:
    """The Kraus operators of a channel; the matrix of a gate, with its derivatives where it has some."""
    if isinstance(step, Channel):
        return step.kraus
    return (step.matrix, *step.tangents.values()) if isinstance(step, VariedGate) else (step.matrix,)


def keeps_trace(step: Step) -> bool:
    """Whether a step maps the identity to itself in the Heisenberg picture: channels and unitary gates do."""
    return isinstance(step, Channel) or is_unitary(step)


def is_unitary(gate: Gate) -> bool:
    """Whether a gate's matrix is unitary."""
    return _is_unitary(gate.matrix.tobytes(), len(gate.matrix))


def diagonal_qubits(step: Step) -> tuple[bool, ...]:
    """For each qubit of a step, whether its value in the Z basis is never changed.

    A controlled gate does not change its control, a diagonal gate none of its qubits.
    """
    return _diagonal_qubits(_data(step), len(step.qubits))


def keeps_diagonals(step: Step) -> bool:
    """Whether K^dagger D K is diagonal for every diagonal D: of Pauli gates and channels, CNOT, swaps.

    A gate that parameters change does so for all of their values, or does not.
    """
    if isinstance(step, VariedGate):
        return all(diagonal_qubits(step))
    return _keeps_diagonals(_data(step))


def _data(step: Step) -> tuple[bytes, ...]:
    return tuple(np.asarray(operator, np.complex128).tobytes() for operator in operators_of(step))


@lru_cache(4096)
def _keeps_diagonals(data: tuple[bytes, ...]) -> bool:
    for raw in data:
        operator = np.frombuffer(raw, np.complex128)
        side = int(len(operator) ** 0.5)
        if (np.count_nonzero(operator.reshape(side, side), axis=1) > 1).any():
            return False
    return True


@lru_cache(4096)
def _is_unitary(data: bytes, side: int) -> bool:
    matrix = np.frombuffer(data, np.complex128).reshape(side, side)
    return bool(np.allclose(matrix.conj().T @ matrix, np.eye(side), rtol=0, atol=UNITARY))


@lru_cache(4096)
def _diagonal_qubits(data: tuple[bytes, ...], n_qubits: int) -> tuple[bool, ...]:
    operators = [np.frombuffer(raw, np.complex128) for raw in data]
    return tuple(
        all(_keeps(operator, qubit, n_qubits) for operator in operators) for qubit in range(n_qubits)
    )


def _keeps(operator: np.ndarray, qubit: int, n_qubits: int) -> bool:
    split = operator.reshape((2**qubit, 2, 2 ** (n_qubits - qubit - 1)) * 2)
    return not np.any(split[:, 0, :, :, 1]) and not np.any(split[:, 1, :, :, 0])

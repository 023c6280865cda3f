"""Gates as they act on |0...0>: a qubit whose value is known takes no part in a gate that leaves it known.

An adder of bits, and the rotations of a Fourier transform that are controlled by bits, come to gates on one
qubit or none. What is left has smaller bonds.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tnplan.circuits.circuit import Gate, GateSequence
from tnplan.circuits.gates import gate
from tnplan.common.arrays import Array

UNKNOWN = -1


def acting_gates(gates: GateSequence) -> GateSequence:
    """Fewer and smaller gates with the same state from |0...0>, its phase included.

    Examples
    --------
    >>> from tnplan.circuits.gates import gate
    >>> circuit = GateSequence(2, (gate("h", (0,)), gate("cz", (0, 1)), gate("cnot", (0, 1))))
    >>> [acting.qubits for acting in acting_gates(circuit).gates]
    [(0,), (0,), (0, 1)]
    """
    # Invariant: the state of the gates so far is that of `acting`, times `factor`, with each qubit of a known
    # value in |value> in place of |written>.
    values, written = [0] * gates.n_qubits, [0] * gates.n_qubits
    acting: list[Gate] = []
    factor = 1.0 + 0.0j

    def write(qubit: int) -> None:
        if values[qubit] not in (written[qubit], UNKNOWN):
            acting.append(gate("x", (qubit,)))
            written[qubit] = values[qubit]

    for operation in gates.gates:
        pattern = tuple([values[qubit] for qubit in operation.qubits])
        if max(pattern) == UNKNOWN == min(pattern):
            acting.append(operation)
            continue
        after, matrix = _restricted(operation.matrix.tobytes(), pattern)
        changed = operation.qubits
        if matrix is not None:
            changed = tuple([qubit for qubit, value in zip(changed, after, strict=True) if value == UNKNOWN])
        for qubit in changed:
            write(qubit)
        if matrix is None:
            acting.append(operation)
        elif changed:
            acting.append(Gate(operation.name, changed, matrix))
        else:
            factor *= matrix[0, 0]
        for qubit, value in zip(operation.qubits, after, strict=True):
            values[qubit] = value
            if matrix is None:
                written[qubit] = value
    for qubit in range(gates.n_qubits):
        write(qubit)
    if factor != 1:
        acting.append(Gate("phase", (0,), factor * np.eye(2)))
    return GateSequence(gates.n_qubits, tuple(acting))


@lru_cache(256)
def _restricted(content: bytes, before: tuple[int, ...]) -> tuple[tuple[int, ...], Array | None]:
    """The values of a gate's qubits after it, and its matrix on those that are unknown then.

    The matrix is None where an unknown qubit becomes known: the gate acts as it is.
    """
    q = len(before)
    tensor = np.frombuffer(content, np.complex128).reshape((2,) * (2 * q))
    columns = tensor[(slice(None),) * q + tuple(slice(None) if v == UNKNOWN else v for v in before)]
    after = []
    for axis in range(q):
        of_values = [np.take(columns, value, axis).any() for value in (0, 1)]
        after.append(UNKNOWN if all(of_values) else int(of_values[1]))
    if any(value != UNKNOWN == start for start, value in zip(before, after, strict=True)):
        return tuple(after), None
    # Where a known qubit becomes unknown its column of the other value stays: nothing is there.
    rows = tuple(slice(None) if value == UNKNOWN else value for value in after)
    inputs = tuple(
        slice(None) if value == UNKNOWN else start for start, value in zip(before, after, strict=True)
    )
    side = 2 ** after.count(UNKNOWN)
    return tuple(after), tensor[rows + inputs].reshape(side, side)

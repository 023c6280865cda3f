"""A circuit's amplitudes as a tensor network with values. Knows no contraction order and no file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tnplan.circuits.circuit import GateSequence, check_qubits
from tnplan.common.errors import InputError
from tnplan.planner.networks.network import Network

ZERO = np.array([1, 0], dtype=np.complex128)
ONE = np.array([0, 1], dtype=np.complex128)


def circuit_network(
    circuit: GateSequence, amplitude: str | None = None, open_qubits: Sequence[int] | None = None
) -> tuple[Network, list[np.ndarray]]:
    """The network of <bits| circuit |0...0>, and its tensors in complex128.

    `amplitude` has one character a qubit: 0 and 1 close it, `.` leaves it open. `open_qubits` instead leaves
    those open, in the order given, and closes the others on 0. With neither, all are closed on 0. The
    result's axes are the open qubits. A gate that is diagonal puts no new index on its qubits: its tensor
    is the diagonal, so that an index may sit on many tensors.
    """
    bits, output_qubits = _ends(circuit.n_qubits, amplitude, open_qubits)
    wires = [f"q{qubit}_0" for qubit in range(circuit.n_qubits)]
    inputs: list[tuple[str, ...]] = [(wire,) for wire in wires]
    arrays = [ZERO] * circuit.n_qubits
    moments = [0] * circuit.n_qubits
    for gate in circuit.gates:
        q = len(gate.qubits)
        incoming = tuple(wires[qubit] for qubit in gate.qubits)
        if gate.is_diagonal:
            inputs.append(incoming)
            arrays.append(np.diag(gate.matrix).reshape((2,) * q).copy())
            continue
        for qubit in gate.qubits:
            moments[qubit] += 1
            wires[qubit] = f"q{qubit}_{moments[qubit]}"
        inputs.append((*(wires[qubit] for qubit in gate.qubits), *incoming))
        arrays.append(gate.matrix.reshape((2,) * (2 * q)))
    for qubit, bit in enumerate(bits):
        if bit != ".":
            inputs.append((wires[qubit],))
            arrays.append(ONE if bit == "1" else ZERO)
    sizes = {index: 2 for term in inputs for index in term}
    return Network(tuple(inputs), tuple(wires[qubit] for qubit in output_qubits), sizes), arrays


def _ends(
    n_qubits: int, amplitude: str | None, open_qubits: Sequence[int] | None
) -> tuple[str, tuple[int, ...]]:
    """What closes each qubit (0, 1 or `.` for open) and the order of the open ones."""
    if amplitude is not None and open_qubits is not None:
        raise InputError("--amplitude", "stands beside --open", "give one of the two")
    if open_qubits is not None:
        check_qubits(open_qubits, n_qubits, "--open")
        return "".join("." if qubit in open_qubits else "0" for qubit in range(n_qubits)), tuple(open_qubits)
    if amplitude is None:
        return "0" * n_qubits, ()
    if len(amplitude) != n_qubits:
        raise InputError(
            "--amplitude", f"has {len(amplitude)} characters", f"give one for each of {n_qubits} qubits"
        )
    wrong = sorted(set(amplitude) - set("01."))
    if wrong:
        raise InputError(
            "--amplitude", f"has the character {wrong[0]!r}", "write 0, 1, or . for an open qubit"
        )
    return amplitude, tuple(qubit for qubit, bit in enumerate(amplitude) if bit == ".")

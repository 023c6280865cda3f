"""Amplitudes, overlaps of two circuits' states, and traces in the Heisenberg picture, as networks.

Knows no contraction order and no file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tnplan.circuits.circuit import Gate, GateSequence, check_qubits
from tnplan.common.errors import InputError
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.of_circuits.steps import is_unitary
from tnplan.planner.networks.of_circuits.wires import (
    BRA,
    KET,
    ONE,
    ZERO,
    OpenNetwork,
    Support,
    Wires,
    forward_cone,
    light_cone,
    qubits_of,
)


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
        raise InputError("--amplitude", "is given together with --open", "give either --amplitude or --open")
    if open_qubits is not None:
        check_qubits(open_qubits, n_qubits, "--open")
        return "".join("." if qubit in open_qubits else "0" for qubit in range(n_qubits)), tuple(open_qubits)
    if amplitude is None:
        return "0" * n_qubits, ()
    if len(amplitude) != n_qubits:
        raise InputError(
            "--amplitude",
            f"has {len(amplitude)} characters",
            f"give one character for each of {n_qubits} qubits",
        )
    wrong = sorted(set(amplitude) - set("01."))
    if wrong:
        raise InputError(
            "--amplitude", f"has the character {wrong[0]!r}", "write 0, 1, or . for an open qubit"
        )
    return amplitude, tuple(qubit for qubit, bit in enumerate(amplitude) if bit == ".")


def overlap_network(
    gates: Sequence[Gate], others: Sequence[Gate], n_qubits: int
) -> tuple[Network, list[np.ndarray]]:
    """The network of <others|gates>, of the states from |0...0>. Equal gates at the ends cancel."""
    left, right = without_common_end(gates, others)
    wires = Wires(range(n_qubits), 2)
    wires.close_start()
    for side, layer in ((KET, left), (BRA, right)):
        for gate in layer:
            wires.apply_gate(gate, side)
    wires.join(range(n_qubits))
    return wires.network(())


def without_common_end(gates: Sequence[Gate], others: Sequence[Gate]) -> tuple[list[Gate], list[Gate]]:
    """Both sequences without the unitary gates that they share at their ends, in whatever order they stand.

    A gate is at the end where no other that is left comes after it on its qubits.
    """
    left, right = list(gates), list(others)
    blocked = False
    while not blocked:
        blocked = True
        last = _at_the_end(right)
        for number in sorted(_at_the_end(left).values(), reverse=True):
            gate = left[number]
            twin = last.get(gate.qubits)
            if twin is not None and is_unitary(gate) and np.array_equal(right[twin].matrix, gate.matrix):
                del left[number], right[twin]
                last = {qubits: at - (at > twin) for qubits, at in last.items() if at != twin}
                blocked = False
    return left, right


def _at_the_end(gates: Sequence[Gate]) -> dict[tuple[int, ...], int]:
    """The gates with no other after them on their qubits: their places by their qubits."""
    seen: set[int] = set()
    last = {}
    for number in range(len(gates) - 1, -1, -1):
        if not seen.intersection(gates[number].qubits):
            last[gates[number].qubits] = number
        seen.update(gates[number].qubits)
    return last


def trace_network(gates: Sequence[Gate], a: Support, b: Support) -> tuple[OpenNetwork, int]:
    """The network of Tr(A U^dagger B U) without A and B, and the number of qubits that it is the trace over.

    Its further tensors are those of A, then those of B, each in the order of its support. Gates outside of
    the light cone of either cancel. On qubits without a wire both A and B are the identity.
    """
    cone = [gates[number] for number in light_cone(gates, b.qubits, b.diagonal)]
    cone = [cone[number] for number in forward_cone(cone, a.qubits, a.diagonal)]
    wires = Wires(qubits_of(cone) | set(a.qubits) | set(b.qubits), 2)
    starts = [dict(side) for side in wires.wires]
    for start in (*starts[KET].values(), *starts[BRA].values()):
        wires.add((start,), np.ones(2, np.complex128))
    wires.apply(cone)
    terms = []
    ends = wires.wires[BRA], wires.wires[KET]
    for support, (rows, columns) in ((a, (starts[KET], starts[BRA])), (b, ends)):
        terms += [
            (columns[qubit],) if qubit in support.diagonal else (rows[qubit], columns[qubit])
            for qubit in support.qubits
        ]
        for qubit in rows:
            if qubit not in support.qubits or qubit in support.diagonal:
                wires.identify(columns[qubit], rows[qubit])
    return wires.open_network(terms), len(starts[KET])

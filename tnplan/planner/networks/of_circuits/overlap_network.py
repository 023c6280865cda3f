"""Overlaps of two circuits' states, and traces of operators in the Heisenberg picture, as networks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.planner.networks.network import Network
from tnplan.planner.networks.of_circuits.steps import is_unitary
from tnplan.planner.networks.of_circuits.wires import (
    BRA,
    KET,
    OpenNetwork,
    Support,
    Wires,
    forward_cone,
    light_cone,
    qubits_of,
)


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
    found = {}
    for number in range(len(gates) - 1, -1, -1):
        if not seen.intersection(gates[number].qubits):
            found[gates[number].qubits] = number
        seen.update(gates[number].qubits)
    return found


def trace_network(gates: Sequence[Gate], a: Support, b: Support) -> tuple[OpenNetwork, int]:
    """The network of Tr(A U^dagger B U) without A and B, and the number of qubits that it is the trace over.

    Its further tensors are those of A, then those of B, each in the order of its support. Gates outside of
    the light cone of either cancel. On qubits without a wire both A and B are the identity.
    """
    kept = [gates[number] for number in light_cone(gates, b.qubits, b.diagonal)]
    kept = [kept[number] for number in forward_cone(kept, a.qubits, a.diagonal)]
    wires = Wires(qubits_of(kept) | set(a.qubits) | set(b.qubits), 2)
    starts = [dict(side) for side in wires.wires]
    for start in (*starts[KET].values(), *starts[BRA].values()):
        wires.add((start,), np.ones(2, np.complex128))
    wires.apply(kept)
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

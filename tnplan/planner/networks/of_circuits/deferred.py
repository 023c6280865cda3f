"""Measurements on the way, deferred to the end of a wider circuit whose outcomes have the same distribution.

A qubit that is measured and then changed is copied to a fresh one by CNOT before. A reset gives a qubit a
fresh wire in |0>, and leaves the old one as it is. What depends on measured bits is controlled by the wires
that have their values (Nielsen and Chuang, section 4.4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.gates import gate
from tnplan.circuits.program import (
    BitAssignment,
    Channel,
    CircuitProgram,
    Conditional,
    Measurement,
    Operation,
    Reset,
    measures,
)
from tnplan.common.errors import InputError
from tnplan.planner.networks.of_circuits.steps import RAISED, ZERO_ROW, Step, diagonal_qubits

LARGEST_CONTROLLED = 8
"""Qubits of a gate or channel and its controls."""
COPY, FLIP = gate("cnot", (0, 1)), gate("x", (0,))


def deferred(program: CircuitProgram) -> CircuitProgram:
    """The wider program of gates and channels, which measures at its end alone.

    The qubits that it measures come first, as the program measures them in time: bits of results, or all
    qubits where no such bit is measured.

    Raises InputError for loops, for conditions on anything but gates, channels and resets, and on too many
      bits.
    """
    wires = _Wires(program)
    for number, operation in enumerate(program.operations):
        wires.add(operation, f"operation {number}")
    n_bits, n_scratch = program.n_bits, program.n_scratch
    start = tuple(wires.known.get(bit, 0) for bit in range(n_bits))
    # Where results have no measured bit, one that they leave out says that they are of bits, not of qubits.
    seen = {bit: wire for bit, wire in wires.source.items() if bit < n_bits - n_scratch} or wires.source
    if not measures(program.operations) or n_bits == n_scratch:
        n_bits, n_scratch, start, seen = program.n_qubits, 0, (), dict(enumerate(wires.of_qubit))
    ends = set(seen.values())
    in_time = [wire for wire in wires.measured if wire in ends]
    order = [*dict.fromkeys([*in_time, *seen.values(), *range(wires.count)])]
    position = {wire: number for number, wire in enumerate(order)}
    operations = [replace(step, qubits=tuple(position[wire] for wire in on)) for step, on in wires.steps]
    ending = [Measurement(position[wire], bit) for bit, wire in seen.items()]
    return CircuitProgram(wires.count, n_bits, (*operations, *ending), start, n_scratch)


class _Wires:
    """The steps so far on `count` wires, and the wires that have the values of qubits and bits."""

    # Invariant: a bit is a constant in `known`, or it has the value of the wire `source[bit]` in the Z basis.
    # No step changes the value of a wire in `measured`, which has the bits with this value: it may as well be
    # measured at the end, or be traced out where these are none any more.
    def __init__(self, program: CircuitProgram) -> None:
        self.count = program.n_qubits
        self.of_qubit = [*range(self.count)]
        self.known = dict.fromkeys(range(program.n_bits), 0) | dict(enumerate(program.start))
        self.source: dict[int, int] = {}
        self.measured: dict[int, set[int]] = {}
        self.steps: list[tuple[Step, tuple[int, ...]]] = []

    def add(self, operation: Operation, place: str) -> None:
        """An operation; `place` names it in errors."""
        if isinstance(operation, Gate | Channel):
            self._act(operation, [self.of_qubit[qubit] for qubit in operation.qubits])
        elif isinstance(operation, Measurement):
            self._write(operation.bit, self.of_qubit[operation.qubit])
        elif isinstance(operation, Reset):
            self.of_qubit[operation.qubit] = self._fresh()
        elif isinstance(operation, BitAssignment):
            target = self._fresh()
            self._act(FLIP, [target], operation.bits, operation.table.__getitem__, place)
            self._write(operation.bit, target)
        elif isinstance(operation, Conditional):
            wanted = operation.value
            for inner in operation.body:
                self._add_under(inner, operation.bits, lambda value: value == wanted, place)
            for inner in operation.otherwise:
                self._add_under(inner, operation.bits, lambda value: value != wanted, place)
        else:
            raise InputError(place, "is a loop over measured bits", "use --method statevector")

    def _add_under(
        self, operation: Operation, bits: Sequence[int], holds: Callable[[int], bool], place: str
    ) -> None:
        """An operation that is done where the value of some bits holds."""
        if isinstance(operation, Reset):
            operation = Channel((operation.qubit,), (ZERO_ROW, RAISED))
        if not isinstance(operation, Gate | Channel):
            problem = f"has a {type(operation).__name__} under a condition"
            raise InputError(place, problem, "use --method statevector")
        self._act(operation, [self.of_qubit[qubit] for qubit in operation.qubits], bits, holds, place)

    def _act(
        self, step: Step, on: list[int], bits: Sequence[int] = (),
        holds: Callable[[int], bool] = lambda _: True, place: str = "",
    ) -> None:  # fmt: skip
        """A step on some wires, done where the value of some bits holds."""
        read = {self.source[bit] for bit in bits if bit in self.source}
        for wire, is_diagonal in zip(on, diagonal_qubits(step), strict=True):
            if wire in self.measured and (wire in read or not is_diagonal):
                self._copy(wire)
        controls = [*dict.fromkeys(self.source[bit] for bit in bits if bit in self.source)]
        if controls and len(controls) + len(on) > LARGEST_CONTROLLED:
            problem = f"acts on {len(on)} qubits under a condition on {len(controls)} measured bits"
            raise InputError(place, problem, "use --method statevector")
        table = []
        for values in product((0, 1), repeat=len(controls)):
            of_wire = dict(zip(controls, values, strict=True))
            of_bits = (self.known[bit] if bit in self.known else of_wire[self.source[bit]] for bit in bits)
            table.append(holds(sum(value << k for k, value in enumerate(of_bits))))
        if all(table):
            self.steps.append((step, tuple(on)))
        elif any(table):
            self.steps.append((_controlled(step, table), (*controls, *on)))

    def _write(self, bit: int, wire: int) -> None:
        """A bit gets the value of a wire."""
        if self.known.pop(bit, None) is None:
            self.measured[self.source[bit]].discard(bit)
        self.source[bit] = wire
        self.measured.setdefault(wire, set()).add(bit)

    def _copy(self, wire: int) -> None:
        """The value of a wire that is measured goes to a fresh wire, and may change then."""
        fresh = self._fresh()
        self.steps.append((COPY, (wire, fresh)))
        self.measured[fresh] = self.measured.pop(wire)
        self.source |= dict.fromkeys(self.measured[fresh], fresh)

    def _fresh(self) -> int:
        """A wire in |0>."""
        self.count += 1
        return self.count - 1


def _controlled(step: Step, table: Sequence[bool]) -> Step:
    """A step that is done for some values of control qubits, which come first."""
    # For values in the set S: sum over K of (P_S x K) rho (P_S x K)^dagger, and P_rest x 1 beside it. For a
    # channel this loses the coherence between both, which measured bits do not have.
    act, idle = np.diag(np.array(table, float)), np.diag(1.0 - np.array(table))
    n_controls = len(table).bit_length() - 1
    on, identity = tuple(range(n_controls + len(step.qubits))), np.eye(2 ** len(step.qubits))
    if isinstance(step, Channel):
        return Channel(on, (*(np.kron(act, operator) for operator in step.kraus), np.kron(idle, identity)))
    return Gate(f"c{step.name}", on, np.kron(act, step.matrix) + np.kron(idle, identity))

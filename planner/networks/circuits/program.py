"""A program: gates with measurements, resets, conditions and noise between them. Knows no file and no engine.

Conventions are those of `circuit.py`. Classical bits are numbered like qubits and start as 0; in a string of
results, character k is bit k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tnplan.planner.common.errors import InputError
from tnplan.planner.networks.circuits.circuit import Circuit, Gate, check_qubits

COMPLETE = 1e-9


@dataclass(frozen=True)
class Measurement:
    """The value of a qubit goes to a classical bit."""

    qubit: int
    bit: int


@dataclass(frozen=True)
class Reset:
    """A qubit is measured, and made 0."""

    qubit: int


@dataclass(frozen=True, eq=False)
class Channel:
    """Noise: one of the operators K, complex128 [2^q, 2^q] each, acts, with probability |K psi|^2.

    The first of the qubits is the most significant bit of a row. The sum of K^dagger K is 1.
    """

    qubits: tuple[int, ...]
    kraus: tuple[np.ndarray, ...]

    def __post_init__(self) -> None:
        side = 2 ** len(self.qubits)
        if not self.qubits or not self.kraus or any(k.shape != (side, side) for k in self.kraus):
            raise InputError(
                "channel", f"has no operators for {len(self.qubits)} qubits",
                f"give matrices of shape ({side}, {side})",
            )  # fmt: skip
        total = sum(k.conj().T @ k for k in self.kraus)
        if not np.allclose(total, np.eye(side), rtol=0, atol=COMPLETE):
            raise InputError("channel", "does not keep the trace", "give K with sum of K^dagger K = 1")


@dataclass(frozen=True, eq=False)
class Conditional:
    """`body` where the classical `bits` (the first least significant) have this value, else `otherwise`."""

    bits: tuple[int, ...]
    value: int
    body: tuple[Operation, ...]
    otherwise: tuple[Operation, ...] = ()


Operation = Gate | Measurement | Reset | Channel | Conditional


@dataclass(frozen=True, eq=False)
class CircuitProgram:
    """Operations in their order on `n_qubits` qubits, which start in |0...0>, and `n_bits` classical bits."""

    n_qubits: int
    n_bits: int
    operations: tuple[Operation, ...]

    def __post_init__(self) -> None:
        Circuit(self.n_qubits, ())
        _check(self.operations, self.n_qubits, self.n_bits, "operation")


def circuit_program(circuit: Circuit) -> CircuitProgram:
    """A circuit as a program."""
    return CircuitProgram(circuit.n_qubits, 0, circuit.gates)


def without_final_measurements(
    operations: Sequence[Operation],
) -> tuple[tuple[Operation, ...], dict[int, int]]:
    """The operations without their final measurements, and the qubit that goes to each bit of these.

    A measurement is final where nothing after it but final ones acts on its qubit, or reads or writes its
    bit: it may as well be done at the end.
    """
    kept: list[Operation] = []
    source: dict[int, int] = {}
    qubits: set[int] = set()
    bits: set[int] = set()
    for operation in reversed(operations):
        if isinstance(operation, Measurement) and operation.qubit not in qubits and operation.bit not in bits:
            source.setdefault(operation.bit, operation.qubit)
            continue
        kept.append(operation)
        acts, uses = _touched(operation)
        qubits |= acts
        bits |= uses
    return tuple(reversed(kept)), source


def _touched(operation: Operation) -> tuple[set[int], set[int]]:
    """The qubits that an operation acts on, and the bits that it reads or writes."""
    if isinstance(operation, Measurement):
        return {operation.qubit}, {operation.bit}
    if isinstance(operation, Reset):
        return {operation.qubit}, set()
    if not isinstance(operation, Conditional):
        return set(operation.qubits), set()
    inner = [_touched(item) for item in (*operation.body, *operation.otherwise)]
    return (
        set[int]().union(*(qubits for qubits, _ in inner)),
        set(operation.bits).union(*(bits for _, bits in inner)),
    )


def final_measurements(program: CircuitProgram) -> dict[int, int] | None:
    """The qubit that goes to each bit; None unless all else are gates and none acts on a measured qubit."""
    kept, source = without_final_measurements(program.operations)
    return source if all(isinstance(operation, Gate) for operation in kept) else None


def measures(operations: Sequence[Operation]) -> bool:
    """Whether there is a measurement anywhere."""
    return any(
        isinstance(operation, Measurement)
        or (isinstance(operation, Conditional) and measures((*operation.body, *operation.otherwise)))
        for operation in operations
    )


def _check(operations: Sequence[Operation], n_qubits: int, n_bits: int, place: str) -> None:
    for number, operation in enumerate(operations):
        where = f"{place} {number}"
        if isinstance(operation, Gate | Channel):
            check_qubits(operation.qubits, n_qubits, where)
        elif isinstance(operation, Measurement | Reset):
            check_qubits([operation.qubit], n_qubits, where)
        bits = operation.bits if isinstance(operation, Conditional) else ()
        if isinstance(operation, Measurement):
            bits = (operation.bit,)
        for bit in bits:
            if not 0 <= bit < n_bits:
                raise InputError(where, f"names classical bit {bit}", f"use bits 0 to {n_bits - 1}")
        if isinstance(operation, Conditional):
            _check(operation.body, n_qubits, n_bits, f"{where}, inner operation")
            _check(operation.otherwise, n_qubits, n_bits, f"{where}, inner operation")

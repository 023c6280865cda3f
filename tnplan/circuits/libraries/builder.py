"""What adapters have in common: operations are put together, and matrices become gates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

import numpy as np

from tnplan.circuits.circuit import Gate, global_phase
from tnplan.circuits.derivatives.dual_number import DualNumber, VariedGate
from tnplan.circuits.gates import Kind, shared_matrix
from tnplan.circuits.program import Channel, CircuitProgram, Measurement, Operation, Reset
from tnplan.common.errors import InputError

LARGEST_MATRIX = 3
"""Qubits of a gate that is taken as a matrix; larger ones are decomposed where the library can."""


class Builder:
    """Operations of a program; `place` says in errors whose they are."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.operations: list[Operation] = []
        self._barriers: list[int] = []
        self._touched: set[int] = set()

    def gate(
        self, name: str, qubits: Sequence[int], matrix: Any, params: Sequence[Any] = (),
        generators: tuple[np.ndarray, ...] = (),
    ) -> None:  # fmt: skip
        """Add a gate by its matrix, whose first qubit is the most significant.

        `generators`, where they are known: for each angle the matrix G with dU/dangle = G U.
        """
        side = 2 ** len(qubits)
        values = np.asarray(matrix, np.complex128).reshape(side, side)
        if not np.isfinite(values).all():
            raise InputError(
                f"{self.place}: gate {name}",
                "has a matrix with NaN or infinite elements",
                "give finite angles",
            )
        # Parameters that are no numbers, such as those of Pauli words, are none by which
        # derivatives are taken.
        numbers = tuple(
            param if isinstance(param, DualNumber) else float(param)
            for param in params if isinstance(param, int | float | np.number)
        )  # fmt: skip
        gate = Gate(name, tuple(qubits), values, numbers)
        if generators:
            gate = VariedGate(name, gate.qubits, values, numbers, generators)
        self.operations.append(gate)
        self._touched.update(qubits)

    def standard(self, name: str, kind: Kind, qubits: Sequence[int], params: tuple[float, ...]) -> None:
        """Add a gate of a kind, whose matrix others of the same angles share."""
        if not all(map(isfinite, params)):
            raise InputError(
                f"{self.place}: gate {name}",
                "has a matrix with NaN or infinite elements",
                "give finite angles",
            )
        self.operations.append(Gate(name, tuple(qubits), shared_matrix(kind, params), params))
        self._touched.update(qubits)

    def channel(self, qubits: Sequence[int], kraus: Iterable[Any]) -> None:
        """Add a channel by its operators, whose first qubit is the most significant."""
        self.operations.append(Channel(tuple(qubits), tuple(np.asarray(k, np.complex128) for k in kraus)))
        self._touched.update(qubits)

    def phase(self, angle: float) -> None:
        """Add a global phase, unless it is 0."""
        if angle:
            self.operations.append(global_phase(angle))

    def measure(self, qubit: int, bit: int) -> None:
        """Add a measurement."""
        self.operations.append(Measurement(qubit, bit))

    def reset(self, qubit: int) -> None:
        """Add a reset, unless nothing has acted on the qubit."""
        if qubit in self._touched:
            self.operations.append(Reset(qubit))

    def barrier(self) -> None:
        """Note a barrier, which does nothing."""
        self._barriers.append(len(self.operations))

    def refuse(self, problem: str, remedy: str) -> InputError:
        """The error for an operation that has no place in a program."""
        return InputError(f"{self.place}: operation {len(self.operations)}", problem, remedy)

    def program(self, n_qubits: int, n_bits: int) -> CircuitProgram:
        """The program of all operations."""
        return CircuitProgram(n_qubits, n_bits, tuple(self.operations), barriers=tuple(self._barriers))

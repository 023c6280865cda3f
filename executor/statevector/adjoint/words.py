"""The Pauli words of the generators of gates. Knows gates and words, no state."""

from __future__ import annotations

from dataclasses import dataclass

from tnplan.planner.common.arrays import Array
from tnplan.planner.networks.circuits.circuit import Gate
from tnplan.planner.networks.circuits.derivatives.generators import generators, pauli_words

Word = tuple[int, int, complex]
"""The masks x and z over all qubits, bit q for qubit q, and the coefficient."""


@dataclass(frozen=True)
class Parameter:
    """Angle `number` of gate `gate`; its derivative is 2 Re of the sum over `words` of the coefficient times
    <lambda| word |psi>."""

    gate: int
    number: int
    words: tuple[Word, ...]


def parameter_words(gate: Gate, number: int) -> list[Parameter]:
    """The angles of gate `number` of a circuit, with their words right after the gate.

    Raises InputError for a gate with angles whose derivatives are not known.
    """
    if not gate.params:
        return []
    return [
        Parameter(number, place, tuple(_on_qubits(matrix, gate.qubits)))
        for place, matrix in enumerate(generators(gate, f"gate {number} ({gate.name})"))
    ]


def _on_qubits(generator: Array, qubits: tuple[int, ...]) -> list[Word]:
    """The words of a generator on all qubits. The identity adds an imaginary number times a real one."""
    return [
        (spread(x, qubits), spread(z, qubits), coefficient)
        for x, z, coefficient in pauli_words(generator)
        if x or z
    ]


def spread(mask: int, qubits: tuple[int, ...]) -> int:
    """The mask over all qubits of one over those of a gate."""
    return sum(1 << qubit for place, qubit in enumerate(qubits) if mask >> place & 1)

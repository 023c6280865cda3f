"""The Pauli words of the generators of gates. Knows gates and words, no state."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from tnplan.circuits.circuit import Gate
from tnplan.circuits.derivatives.generators import generators, pauli_words
from tnplan.common.arrays import Array

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
    if gate not in _words_of_gates:
        matrices = generators(gate, f"gate {number} ({gate.name})")
        _words_of_gates[gate] = [tuple(_on_qubits(matrix, gate.qubits)) for matrix in matrices]
    return [Parameter(number, angle, words) for angle, words in enumerate(_words_of_gates[gate])]


_words_of_gates: WeakKeyDictionary[Gate, list[tuple[Word, ...]]] = WeakKeyDictionary()
"""The words of each angle of a gate, as long as it is there: a check and an answer ask for them."""


def _on_qubits(generator: Array, qubits: tuple[int, ...]) -> list[Word]:
    """The words of a generator on all qubits. The identity adds an imaginary number times a real one."""
    return [
        (spread(x, qubits), spread(z, qubits), coefficient)
        for x, z, coefficient in pauli_words(generator)
        if x or z
    ]


def spread(mask: int, qubits: tuple[int, ...]) -> int:
    """The mask over all qubits of one over those of a gate."""
    if len(qubits) == 1:
        return (mask & 1) << qubits[0]
    return sum(1 << qubit for k, qubit in enumerate(qubits) if mask >> k & 1)

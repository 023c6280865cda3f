"""Where the derivatives by the angles of a circuit are taken: after which gates, about which Pauli words.

A derivative is an inner product right after its gate. It may be taken later where the gates between take each
Pauli word of its generator to one word: then many derivatives share a segment, and gates share passes. Knows
gates and words, no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tnplan.planner.common.arrays import Array
from tnplan.planner.networks.circuits.circuit import Gate
from tnplan.planner.networks.circuits.derivatives.generators import generators, pauli_words, word_matrix

Word = tuple[int, int, complex]
"""The masks x and z over all qubits, bit q for qubit q, and the coefficient."""


@dataclass(frozen=True)
class Parameter:
    """Angle `number` of gate `gate`; its derivative is 2 Re of the sum over `words` of the coefficient times
    <lambda| word |psi>."""

    gate: int
    number: int
    words: tuple[Word, ...]


@dataclass(frozen=True)
class DerivativeSegment:
    """Gates `first` to `stop` - 1; the parameters are taken after the last of them."""

    first: int
    stop: int
    parameters: tuple[Parameter, ...]


def derivative_segments(gates: Sequence[Gate]) -> list[DerivativeSegment]:
    """The segments with derivatives, the last one first.

    Gates before the first that has angles are in none of them. Raises InputError for a gate with angles whose
    derivatives are not known.
    """
    found: list[DerivativeSegment] = []
    stop = len(gates)
    parameters: list[Parameter] = []
    maps: dict[int, dict[tuple[int, int], Word | None]] = {}
    for number in range(len(gates) - 1, -1, -1):
        gate = gates[number]
        if not gate.params:
            continue
        own = [_on_qubits(matrix, gate.qubits) for matrix in generators(gate, f"gate {number} ({gate.name})")]
        moved = [[_moved(word, gates, number + 1, stop, maps) for word in words] for words in own]
        if any(word is None for words in moved for word in words):
            found.append(DerivativeSegment(number + 1, stop, tuple(parameters)))
            stop, parameters, moved = number + 1, [], [list(words) for words in own]
        parameters += [
            Parameter(number, place, tuple(word for word in words if word is not None))
            for place, words in enumerate(moved)
        ]
    first = next((number for number, gate in enumerate(gates) if gate.params), None)
    if first is not None:
        found.append(DerivativeSegment(first, stop, tuple(parameters)))
    return found


def _on_qubits(generator: Array, qubits: tuple[int, ...]) -> list[Word]:
    """The words of a generator on all qubits. The identity adds an imaginary number times a real one."""
    return [
        (_spread(x, qubits), _spread(z, qubits), coefficient)
        for x, z, coefficient in pauli_words(generator)
        if x or z
    ]


def _spread(mask: int, qubits: tuple[int, ...]) -> int:
    return sum(1 << qubit for place, qubit in enumerate(qubits) if mask >> place & 1)


def _moved(
    word: Word, gates: Sequence[Gate], first: int, stop: int,
    maps: dict[int, dict[tuple[int, int], Word | None]],
) -> Word | None:  # fmt: skip
    """A word behind gates `first` to `stop` - 1: V P V^dagger; None where that is no single word."""
    x, z, coefficient = word
    for number in range(first, stop):
        qubits = gates[number].qubits
        local = [(x >> qubit & 1, z >> qubit & 1) for qubit in qubits]
        if not any(a or b for a, b in local):
            continue
        key = (
            sum(a << place for place, (a, _) in enumerate(local)),
            sum(b << place for place, (_, b) in enumerate(local)),
        )
        known = maps.setdefault(number, {})
        if key not in known:
            known[key] = _image(gates[number], *key)
        image = known[key]
        if image is None:
            return None
        clear = ~_spread((1 << len(qubits)) - 1, qubits)
        x, z = x & clear | _spread(image[0], qubits), z & clear | _spread(image[1], qubits)
        coefficient *= image[2]
    return x, z, coefficient


def _image(gate: Gate, x: int, z: int) -> Word | None:
    """U P U^dagger for a word on the gate's qubits; None where it is not one word."""
    word = word_matrix(x, z, len(gate.qubits))
    if np.array_equal(gate.matrix @ word, word @ gate.matrix):
        return x, z, 1.0
    found = pauli_words(gate.matrix @ word @ gate.matrix.conj().T)
    return found[0] if len(found) == 1 else None

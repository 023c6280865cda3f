"""What makes a state of |0...0>: gates, and channels where the state is mixed.

The circuit of a stabilizer state takes its words to words of one Z each, qubit by qubit, and is then turned
round (Aaronson and Gottesman, Phys. Rev. A 70, 052328).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import atan2, cos, hypot, sin, sqrt

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.gates import X, gate
from tnplan.circuits.pauli_sum import unpack
from tnplan.circuits.program import Channel
from tnplan.common.arrays import Array
from tnplan.executor.pauli.algebra.expectation import BLOCH_ROUNDING, bits_bloch
from tnplan.executor.pauli.algebra.gates import (
    Clifford,
    PauliStep,
    Rotation,
    acted_mask,
    heisenberg_matrix,
    local_words,
    rotation_matrix,
    set_bits,
)
from tnplan.executor.pauli.algebra.states import ProductState, StabilizerState, State

# First steps of a circuit that act on one qubit each, taken into the product state they act on. Exact.


BLOCH_WORDS = [1, 3, 2]
"""The local words X, Y and Z, in the order of a Bloch vector."""


def after_first_steps(
    steps: Sequence[PauliStep], state: str | State | None, n_qubits: int
) -> tuple[tuple[PauliStep, ...], str | State | None]:
    """The steps that are left, and the state that they act on.

    A step goes into the state where it acts on one qubit and none before it acts on that qubit and others.
    States that are no products stay as they are, with all steps; so do bits that no step acts on alone.
    """
    if not isinstance(state, str | ProductState | None):
        return tuple(steps), state
    bloch = state.bloch if isinstance(state, ProductState) else bits_bloch(state or "0" * n_qubits)
    turned, remaining, joined = np.array(bloch, np.float64), [], 0
    for step in steps:
        acted = acted_mask(step)
        if acted.bit_count() != 1 or acted & joined:
            joined |= acted
            remaining.append(step)
            continue
        qubit = acted.bit_length() - 1
        values = np.zeros(4)
        values[0], values[BLOCH_WORDS] = 1.0, turned[qubit]
        turned[qubit] = (values @ _local_matrix(step))[BLOCH_WORDS]
    if len(remaining) == len(steps):
        return tuple(steps), state
    lengths = np.linalg.norm(turned, axis=1, keepdims=True)
    return tuple(remaining), ProductState(turned / np.maximum(lengths, 1.0))


def _local_matrix(step: PauliStep) -> Array:
    """[b, a]: the coefficient of local word b in what the step on one qubit makes of word a."""
    if isinstance(step, Rotation):
        word = int(step.x != 0) + 2 * int(step.z != 0)
        return heisenberg_matrix([rotation_matrix(local_words(1)[word], step.angle)])
    if isinstance(step, Clifford):
        matrix = np.zeros((4, 4))
        matrix[step.images, np.arange(4)] = step.signs
        return matrix
    return step.matrix


S_INVERSE = np.diag([1, -1j]).astype(np.complex128)


def bit_preparation(bits: str) -> tuple[Gate, ...]:
    """A flip of each qubit that is 1."""
    return tuple(gate("x", (qubit,)) for qubit, bit in enumerate(bits) if bit == "1")


def product_preparation(state: ProductState) -> tuple[Gate | Channel, ...]:
    """A turn of each qubit, which has a real amplitude of 0; before it a flip by chance where it is mixed."""
    gates: list[Gate | Channel] = []
    for qubit, bloch in enumerate(state.bloch):
        length = min(1.0, float(np.linalg.norm(bloch)))
        if length < 1 - BLOCH_ROUNDING:
            gates.append(flip_by_chance(qubit, (1 - length) / 2))
        if length > 0 and not np.array_equal(bloch, [0, 0, length]):
            gates.append(Gate("prepare", (qubit,), _turn(*bloch.tolist())))
    return tuple(gates)


def stabilizer_preparation(state: StabilizerState, n_qubits: int) -> tuple[Gate | Channel, ...]:
    """Cliffords; before them flips by chance of the qubits without a stabilizer."""
    words = [_Word(*unpack(key), int(sign)) for key, sign in zip(state.keys, state.signs, strict=True)]
    undoing: list[Gate] = []
    free = set(range(n_qubits))
    for number, word in enumerate(words):
        word.drop_z(set(range(n_qubits)) - free)
        later = words[number:]
        pivot = word.lowest(word.x or word.z)
        if not word.x:
            undoing.append(_apply(later, "h", pivot))
        for qubit in set_bits(word.x & word.z):
            undoing.append(_apply(later, "s_inverse", qubit))
        for qubit in set_bits(word.x & ~(1 << pivot)):
            undoing.append(_apply(later, "h", qubit))
        for qubit in set_bits(word.z):
            undoing.append(_apply(later, "cz", pivot, qubit))
        undoing.append(_apply(later, "h", pivot))
        if word.power & 2:
            undoing.append(_apply(later, "x", pivot))
        free.remove(pivot)
    mixed = [flip_by_chance(qubit, 0.5) for qubit in sorted(free)]
    return (*mixed, *(_inverse(inverse_gate) for inverse_gate in reversed(undoing)))


def flip_by_chance(qubit: int, chance: float) -> Channel:
    """A bit flip with this probability."""
    return Channel((qubit,), (sqrt(1 - chance) * np.eye(2, dtype=np.complex128), sqrt(chance) * X))


class _Word:
    """A word of two masks: i^power times all its X, then all its Z."""

    def __init__(self, x: int, z: int, sign: int) -> None:
        self.x, self.z, self.power = x, z, (x & z).bit_count() + 1 - sign

    def drop_z(self, qubits: set[int]) -> None:
        """Times the Z of qubits on which it has no X."""
        for qubit in qubits:
            self.z &= ~(1 << qubit)

    @staticmethod
    def lowest(mask: int) -> int:
        """The first qubit of a mask."""
        return (mask & -mask).bit_length() - 1


def _apply(words: list[_Word], name: str, *qubits: int) -> Gate:
    """Take words P to G P G^dagger; the gate G."""
    first = qubits[0]
    for word in words:
        x, z = word.x >> first & 1, word.z >> first & 1
        if name == "h":
            word.power += 2 * (x & z)
            word.x ^= (x ^ z) << first
            word.z ^= (x ^ z) << first
        elif name == "s_inverse":
            word.power += 3 * x
            word.z ^= x << first
        elif name == "x":
            word.power += 2 * z
        else:
            other = word.x >> qubits[1] & 1
            word.power += 2 * (x & other)
            word.z ^= other << first | x << qubits[1]
    return Gate(name, qubits, S_INVERSE) if name == "s_inverse" else gate(name, qubits)


def _inverse(applied: Gate) -> Gate:
    """The gate that undoes one of `_apply`."""
    return gate("s", applied.qubits) if applied.name == "s_inverse" else applied


def _turn(x: float, y: float, z: float) -> Array:
    """The unitary matrix that takes |0> to the direction of a Bloch vector."""
    angle, phase = atan2(hypot(x, y), z), np.exp(1j * atan2(y, x))
    low, high = cos(angle / 2), sin(angle / 2)
    return np.array([[low, -high * phase.conj()], [high * phase, low]], np.complex128)

"""What a sum of words is measured in: bit strings, product and stabilizer states, another sum.
And the gates that make a state of |0...0>, with channels where it is mixed.

Each gives every word its value; a sum's value is that of its words times their coefficients. Words are
divided by nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import atan2, cos, hypot, sin, sqrt
from typing import Any, Protocol

import numpy as np

from tnplan.circuits.circuit import Gate
from tnplan.circuits.gates import X, gate
from tnplan.circuits.pauli_sum import PauliSum, bit_counts, given_sum, pack, parse, product_powers, unpack
from tnplan.circuits.program import Channel
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra.expectation import (
    BLOCH_ROUNDING,
    bits_bloch,
    coefficients_of,
    product_values,
    state_values,
)
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
from tnplan.executor.pauli.algebra.tableau import Word, product

LABELS = {"0": (0, 0, 1), "1": (0, 0, -1), "+": (1, 0, 0), "-": (-1, 0, 0), "r": (0, 1, 0), "l": (0, -1, 0)}
"""Bloch vectors of the eigenstates of Z, X and Y."""
ONE = np.uint64(1)
WITH_SIGNS = "write words with a sign, such as X0 X1 or -Z0 Z1"


class State(Protocol):
    """Gives words their values."""

    def values(self, terms: PauliSum) -> Array:
        """The value of every word, without its coefficient; float64 or complex128 [term]."""


@dataclass(frozen=True, eq=False)
class ProductState:
    """Every qubit by itself; `bloch` is float64 [qubit, 3]: <X>, <Y> and <Z>."""

    bloch: Array

    def values(self, terms: PauliSum) -> Array:
        """The value of every word, without its coefficient."""
        return product_values(terms, self.bloch)


@dataclass(frozen=True, eq=False)
class StabilizerState:
    """The state that commuting words stabilize; with fewer than a word a qubit, the mean of all such states.

    Row k of `keys`, uint64 [k, 2 W], has bit `pivots`[k], (word of the row, bit), which no other row has;
    with the sign `signs`[k] it stabilizes the state.
    """

    keys: Array
    signs: Array
    pivots: tuple[tuple[int, int], ...]

    def values(self, terms: PauliSum) -> Array:
        """The value of every word: 1 or -1 in the group of the stabilizers up to its sign, else 0."""
        # Gaussian elimination of each word by the stabilizers: multiplied by those whose pivots it
        # has, it becomes the identity, up to a sign, or it is not in the group and has the value 0.
        # Invariant: each pivot bit is in one row alone, so that one pass will do, in any order.
        rows, half = terms.keys.copy(), terms.keys.shape[1] // 2
        powers = bit_counts(terms.x & terms.z)
        for key, sign, (w, bit) in zip(self.keys, self.signs, self.pivots, strict=True):
            hit = (rows[:, w] >> np.uint64(bit) & ONE).astype(bool)
            key_power = int(bit_counts(key[:half] & key[half:])) + 1 - int(sign)
            powers[hit] += key_power + 2 * bit_counts(rows[hit, half:] & key[:half])
            rows[hit] ^= key
        is_reached = ~np.any(rows, axis=1)
        return np.where(is_reached, 1.0 - (powers & 2), 0.0)


@dataclass(frozen=True, eq=False)
class OverlapWith:
    """tr(B^dagger A) / 2^n with another sum B: the mean over inputs where B is what is fed in."""

    other: PauliSum

    def values(self, terms: PauliSum) -> Array:
        """The conjugate of B's coefficient of every word, 0 of others."""
        conjugate = replace(self.other, coefficients=np.conj(self.other.coefficients))
        return coefficients_of(conjugate, terms.keys)


@dataclass(frozen=True, eq=False)
class AfterOperator:
    """<state|B A|state> for another sum B: the value of B times each word of A.

    `state` is a bit string or a `State`.
    """

    other: PauliSum
    state: str | State

    def values(self, terms: PauliSum) -> Array:
        """The value of B times every word, without its coefficient; complex128."""
        total = np.zeros(terms.n_terms, np.complex128)
        for key, coefficient in zip(self.other.keys, self.other.coefficients, strict=True):
            products = replace(terms, keys=terms.keys ^ key, coefficients=np.ones(terms.n_terms))
            powers = product_powers(key, terms.keys)
            total += coefficient * 1j ** (powers & 3) * state_values(products, self.state)
        return total


def given_state(state: Any, n_qubits: int) -> str | State | None:
    """A state as people give it: bits, letters of 0 1 + - r l, Bloch vectors, or stabilizers.

    Returns bits as they are. Stabilizers are words with signs, such as ["X0 X1", "-Z0 Z1"].
    """
    if state is None or (isinstance(state, str) and not set(state) - {"0", "1"}):
        return state
    if isinstance(state, str):
        if len(state) != n_qubits or set(state) - set(LABELS):
            raise InputError(
                "--state",
                f"{state[:40]!r} is not a state",
                f"give one of 0 1 + - r l for each of {n_qubits} qubits",
            )
        return ProductState(np.array([LABELS[letter] for letter in state], np.float64))
    if isinstance(state, np.ndarray):
        terms = PauliSum(n_qubits, np.zeros((0, 2 * (-(-n_qubits // 64))), np.uint64), np.zeros(0))
        product_values(terms, state)
        return ProductState(np.asarray(state, np.float64))
    if isinstance(state, Sequence) and all(isinstance(word, str) for word in state):
        return stabilizer_state(state, n_qubits)
    raise InputError(
        "--state", f"is {state!r:.60}", "give letters, Bloch vectors [qubit, 3], or a list of stabilizers"
    )


def stabilizer_state(words: Sequence[str], n_qubits: int) -> StabilizerState:
    """The state of stabilizers; refuses those that do not commute, and -I as their product."""
    rows: list[Word] = []
    for word in words:
        try:
            terms = parse(word, n_qubits)
        except InputError as error:
            remedy = WITH_SIGNS if "is not a Pauli word" in error.problem else error.remedy
            raise InputError("--stabilizers", error.problem, remedy) from None
        if terms.n_terms != 1 or abs(terms.coefficients[0]) != 1:
            raise InputError("--stabilizers", f"{word[:40]!r} is not a word with a sign", WITH_SIGNS)
        x, z = unpack(terms.keys[0])
        sign = int(np.real(terms.coefficients[0]))
        for other in rows:
            if ((x & other[1]).bit_count() + (z & other[0]).bit_count()) & 1:
                problem = f"{word[:40]!r} anticommutes with another stabilizer"
                raise InputError("--stabilizers", problem, "remove one of the two")
        rows.append((x, z, (x & z).bit_count() + 1 - sign))
    return _reduced(rows, n_qubits)


def _reduced(rows: list[Word], n_qubits: int) -> StabilizerState:
    """The same group by rows of which each has a bit of its own."""
    pivots: list[tuple[int, int]] = []
    reduced: list[Word] = []
    for row in rows:
        # Gauss-Jordan elimination over bits, with signs: rows are products, so powers of i go along.
        for other, (letter, bit) in zip(reduced, pivots, strict=True):
            if row[letter] >> bit & 1:
                row = product(row, other)
        x, z, power = row
        if not x | z:
            if power & 3:
                raise InputError("--stabilizers", "have -I as a product", "change a sign")
            continue
        letter, bit = (0, x.bit_length() - 1) if x else (1, z.bit_length() - 1)
        reduced = [product(other, row) if other[letter] >> bit & 1 else other for other in reduced]
        reduced.append(row)
        pivots.append((letter, bit))
    words = -(-n_qubits // 64)
    keys = np.array([pack(x, z, n_qubits) for x, z, _ in reduced], np.uint64).reshape(len(reduced), 2 * words)
    signs = np.array([1 - (power - (x & z).bit_count()) % 4 for x, z, power in reduced], np.int64)
    bits = tuple((letter * words + bit // 64, bit % 64) for letter, bit in pivots)
    return StabilizerState(keys, signs, bits)


def given_overlap(other: Any, n_qubits: int) -> OverlapWith:
    """The overlap with a sum in any form that an observable has."""
    return OverlapWith(given_sum(other, n_qubits))


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

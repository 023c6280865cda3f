"""What a sum of words is measured in: bit strings, product and stabilizer states, another sum.

Each gives every word its value; a sum's value is that of its words times their coefficients. Words are
divided by nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from tnplan.circuits.pauli_sum import PauliSum, bit_counts, given_sum, pack, parse, product_powers, unpack
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra.expectation import coefficients_of, product_values, state_values
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

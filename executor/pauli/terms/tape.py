"""Terms that keep a tape of what every step did to them, so that it can be run backwards. One thread.

The tape names terms by numbers of their own, given when a word appears and never again: a word that was
dropped and comes back has a new one. It takes memory for every term that a rotation splits, and for every
term at Cliffords and transfers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tnplan.executor.observables.pauli_sum import PauliSum
from tnplan.executor.pauli.algebra.expectation import in_bits
from tnplan.executor.pauli.algebra.gates import Clifford, TransferMatrix
from tnplan.executor.pauli.terms.hash_table import HashTerms
from tnplan.executor.pauli.terms.ledger import Ledger, loss_of
from tnplan.executor.pauli.terms.protocol import Terms
from tnplan.executor.pauli.terms.truncation import TermLimits
from tnplan.planner.common.arrays import Array

ONE = np.uint64(1)


@dataclass(frozen=True, eq=False)
class TapedRotation:
    """A rotation that split `terms`, which had `coefficients` before it.

    Each keeps the cosine; term `terms[places[k]]` sends sine times `signs[k]` to term `targets[k]`.
    """

    terms: Array
    coefficients: Array
    cosine: float
    sine: float
    places: Array
    signs: Array
    targets: Array


@dataclass(frozen=True, eq=False)
class TapedMap:
    """Another step: `terms` were scaled by `factors`; each of `sent` is places, weights and targets."""

    terms: Array
    factors: Array
    sent: tuple[tuple[Array, Array, Array], ...]


class TapedTerms(Terms):
    """The terms of one rank on one thread, with a tape. Terms that are 0 stay."""

    def __init__(self, start: PauliSum) -> None:
        self.terms = HashTerms(start)
        self.numbers = np.arange(start.n_terms)
        self.n_numbers = start.n_terms
        self.tape: list[TapedRotation | TapedMap] = []
        self.ledger = Ledger()
        self.n_qubits = start.n_qubits

    @property
    def n(self) -> int:
        """How many terms there are."""
        return self.terms.n

    @property
    def size_bytes(self) -> int:
        """What the arrays of terms take, without the tape."""
        return self.terms.size_bytes + self.numbers.nbytes

    def rotate(self, generator: Array, cosine: float, sine: float, cut: float) -> None:
        """Rotate about the packed word `generator`; branches below `cut` are dropped."""
        terms, before = self.terms, self.n
        hits = terms.arrays.hits[: terms.count(generator)].copy()
        coefficients = terms.arrays.coefficients[hits]
        branches, branched, loss = terms.split(generator, cosine, sine, cut)
        self.ledger.losses.append(loss)
        signs = branch_signs(branches.keys[branches.senders], generator)
        split, places = self.numbers[hits], np.searchsorted(hits, branches.senders)
        merged = terms.merge(branches)
        targets = self._targets(branches.n)
        self.tape.append(TapedRotation(split, coefficients, cosine, sine, places, signs, targets))
        self.step_counts = (before, self.n, branched, merged)

    def transfer(self, step: TransferMatrix, cut: float) -> None:
        """Apply a transfer; contributions below `cut` to other words are dropped."""
        before, numbers = self.n, self.numbers
        words = local_words(self.terms.rows().keys, step.qubits)
        lists, branched, loss = self.terms.transfer(step, cut)
        self.ledger.losses.append(loss)
        merged, sent = 0, []
        for branches in lists:
            a = words[branches.senders]
            b = a ^ int(local_words(branches.generator[None], step.qubits)[0])
            merged += self.terms.merge(branches)
            sent.append((branches.senders, step.matrix[b, a], self._targets(branches.n)))
        self.tape.append(TapedMap(numbers, np.diag(step.matrix)[words], tuple(sent)))
        self.step_counts = (before, self.n, branched, merged)

    def clifford(self, gates: Sequence[Clifford]) -> None:
        """Apply Cliffords one after another."""
        coefficients = self.terms.arrays.coefficients[: self.n]
        before = coefficients.copy()
        coefficients[:] = 1
        self.terms.clifford(gates)
        signs = coefficients.real.copy()
        coefficients *= before
        self.tape.append(TapedMap(self.numbers, signs, ()))
        self.step_counts = (self.n, self.n, 0, 0)

    def sweep(self, limits: TermLimits) -> None:
        """Drop terms past the limits."""
        rows = self.terms.rows()
        gone = np.abs(rows.coefficients) < limits.merged_cut
        gone |= self.terms.arrays.frequencies[: self.n] > limits.max_frequency
        if limits.has_letters:
            letters = np.bitwise_count(rows.x).sum(axis=1, dtype=np.int64)
            gone |= (rows.weights > limits.max_weight) | (letters > limits.max_xy)
        self._drop(gone)

    def keep_largest(self, count: int) -> None:
        """Keep the `count` largest magnitudes; of equal ones the least words."""
        if self.n > count:
            rows = self.terms.rows()
            gone = np.ones(self.n, bool)
            gone[np.lexsort([*rows.keys.T, -np.abs(rows.coefficients)])[:count]] = False
            self._drop(gone)

    def count(self, generator: Array) -> int:
        """How many terms a rotation about `generator` would split."""
        return self.terms.count(generator)

    def local_terms(self) -> PauliSum:
        """The terms, in rising order of their words."""
        return self.terms.rows().sorted()

    def in_bits(self, bits: str | None = None) -> complex:
        """The value in a computational state; None is all 0."""
        return in_bits(self.terms.rows(), bits)

    def close(self) -> None:
        """Nothing to give back."""

    def _targets(self, n: int) -> Array:
        """The numbers of the `n` terms that branches met; new terms get theirs."""
        fresh = self.n - len(self.numbers)
        self.numbers = np.concatenate([self.numbers, self.n_numbers + np.arange(fresh)])
        self.n_numbers += fresh
        return self.numbers[self.terms.arrays.targets[:n]]

    def _drop(self, gone: Array) -> None:
        sizes = np.abs(self.terms.rows().coefficients[gone]).astype(np.float64)
        self.ledger.losses.append(loss_of(sizes))
        if len(sizes):
            kept = np.flatnonzero(~gone)
            self.terms.keep(kept)
            self.numbers = self.numbers[kept]


def local_words(keys: Array, qubits: Sequence[int]) -> Array:
    """The numbers of the local words that packed words have on `qubits`, int64."""
    half = keys.shape[1] // 2
    words = np.zeros(len(keys), np.int64)
    for j, qubit in enumerate(qubits):
        w, bit = qubit // 64, np.uint64(qubit % 64)
        words |= (keys[:, w] >> bit & ONE).astype(np.int64) << 2 * j
        words |= (keys[:, half + w] >> bit & ONE).astype(np.int64) << 2 * j + 1
    return words


def branch_signs(keys: Array, generator: Array) -> Array:
    """s, 1.0 or -1.0, in: a rotation about G takes P to cos P + s sin Q, where Q is G P up to its phase.

    `keys` are packed words P that anticommute with the packed word G.
    """
    half = len(generator) // 2
    new = keys ^ generator
    power = _bits(generator[:half] & generator[half:]) + _bits(keys[:, :half] & keys[:, half:])
    power = power + 2 * _bits(keys[:, :half] & generator[half:]) - _bits(new[:, :half] & new[:, half:])
    return np.where(power & 3 == 1, -1.0, 1.0)


def _bits(words: Array) -> Array:
    """How many bits are set in each row."""
    return np.bitwise_count(words).sum(axis=-1, dtype=np.int64)

"""The terms of a propagation as sorted arrays in NumPy: every change appends branches and merges by sorting.

The twin of `hash_terms.py`, with the same meaning of every truncation; knows steps only as arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.pauli.steps import Clifford, Transfer
from executor.pauli.truncation import Dropped
from executor.pauli.words import PauliSum

Array = NDArray[Any]
ONE = np.uint64(1)


class SortedTerms:
    """Distinct words, their coefficients and frequencies."""

    def __init__(self, start: PauliSum) -> None:
        self.n_qubits = start.n_qubits
        self.keys, self.coefficients = start.keys, start.coefficients
        self.frequencies = np.zeros(start.n_terms, np.int32)

    @property
    def n(self) -> int:
        """How many terms there are."""
        return len(self.coefficients)

    @property
    def size_bytes(self) -> int:
        """What the arrays take."""
        return self.keys.nbytes + self.coefficients.nbytes + self.frequencies.nbytes

    def rotate(self, generator: Array, cosine: float, sine: float, cut: float, dropped: Dropped) -> Any:
        """Rotate about the packed word `generator`; return terms that branched and pairs that met."""
        words = len(generator) // 2
        gx, gz = generator[:words], generator[words:]
        x, z = self.keys[:, :words], self.keys[:, words:]
        hits = np.bitwise_count((x & gz) ^ (z & gx)).sum(axis=1, dtype=np.int64) & 1 == 1
        n_hits = int(np.count_nonzero(hits))
        if not n_hits:
            return 0, 0
        rows = self.keys[hits]
        new = rows ^ generator
        power = _bits(gx & gz) + _bits(rows[:, :words] & rows[:, words:])
        power = power + 2 * _bits(rows[:, :words] & gz) - _bits(new[:, :words] & new[:, words:])
        branches = np.where(power & 3 == 1, -sine, sine) * self.coefficients[hits]
        coefficients = np.where(hits, cosine, 1.0) * self.coefficients
        self.frequencies = self.frequencies + hits
        frequencies = self.frequencies[hits]
        met = len(rows) + len(new) - len(np.unique(np.concatenate([rows, new]), axis=0))
        kept = _kept(branches, cut, dropped)
        self._merge(
            [self.keys, new[kept]], [coefficients, branches[kept]], [self.frequencies, frequencies[kept]]
        )
        self._pair_frequencies(new, frequencies)
        return n_hits, met // 2

    def clifford(self, gates: Sequence[Clifford]) -> None:
        """Apply Cliffords one after another."""
        for gate in gates:
            words = self._local(gate.qubits)
            self.keys = self._with_local(self.keys, gate.qubits, gate.images[words])
            self.coefficients = self.coefficients * gate.signs[words]
        self._merge([self.keys], [self.coefficients], [self.frequencies])

    def transfer(self, step: Transfer, cut: float, dropped: Dropped) -> Any:
        """Apply a transfer; return terms that branched and branches that met a term."""
        words = self._local(step.qubits)
        if step.is_diagonal:
            self.coefficients = self.coefficients * np.diag(step.matrix)[words]
            return 0, 0
        keys, coefficients, frequencies, gone = [], [], [], []
        for b in range(len(step.matrix)):
            parts = step.matrix[b, words] * self.coefficients
            kept = (step.matrix[b, words] != 0) & ((words == b) | (np.abs(parts) >= cut))
            gone.append(parts[(step.matrix[b, words] != 0) & ~kept])
            keys.append(self._with_local(self.keys[kept], step.qubits, np.full(np.count_nonzero(kept), b)))
            coefficients.append(parts[kept])
            frequencies.append(self.frequencies[kept])
        sizes = np.abs(np.concatenate(gone))
        dropped.add(float(sizes.sum()), float(sizes.sum() ** 2), len(sizes))
        branched = int(np.count_nonzero(np.count_nonzero(step.matrix, axis=0)[words] > 1))
        before = sum(map(len, coefficients))
        self._merge(keys, coefficients, frequencies)
        return branched, before - self.n

    def sweep(self, limits: tuple[float, int, int, int], has_letters: bool, dropped: Dropped) -> None:
        """Drop terms past the limits (merged cut, weight, X and Y, frequency), and zeros."""
        cut, max_weight, max_xy, max_frequency = limits
        sizes = np.abs(self.coefficients)
        gone = (sizes < cut) | (sizes == 0) | (self.frequencies > max_frequency)
        if has_letters:
            x, z = np.split(self.keys, 2, axis=1)
            gone |= (_bits(x | z) > max_weight) | (_bits(x) > max_xy)
        _account(self.coefficients[gone & (sizes > 0)], dropped)
        self._keep(~gone)

    def keep_largest(self, count: int, dropped: Dropped) -> None:
        """Keep the `count` largest magnitudes; of equal ones the least words."""
        if self.n <= count:
            return
        order = np.lexsort([*self.keys.T, -np.abs(self.coefficients)])
        _account(self.coefficients[order[count:]], dropped)
        self._keep(np.sort(order[:count]))

    def sum(self) -> PauliSum:
        """The terms, in rising order of their words."""
        return PauliSum(self.n_qubits, self.keys, self.coefficients).sorted()

    def _keep(self, chosen: Array) -> None:
        self.keys, self.coefficients = self.keys[chosen], self.coefficients[chosen]
        self.frequencies = self.frequencies[chosen]

    def _merge(self, keys: list[Array], coefficients: list[Array], frequencies: list[Array]) -> None:
        """All rows in rising order, equal ones made one: coefficients added, the least frequency kept."""
        rows, values, counts = np.concatenate(keys), np.concatenate(coefficients), np.concatenate(frequencies)
        if not len(rows):
            self.keys, self.coefficients, self.frequencies = rows, values, counts
            return
        order = np.lexsort(rows.T)
        rows, values, counts = rows[order], values[order], counts[order]
        first = np.flatnonzero(np.concatenate([[True], np.any(rows[1:] != rows[:-1], axis=1)]))
        self.keys = rows[first]
        self.coefficients = np.add.reduceat(values, first)
        self.frequencies = np.minimum.reduceat(counts, first)

    def _pair_frequencies(self, partners: Array, frequencies: Array) -> None:
        """Words that met partners take the least frequency of the two, whether or not a branch was kept."""
        rows = np.concatenate([self.keys, partners])
        order = np.lexsort([np.arange(len(rows)), *rows.T])
        follows = np.zeros(len(rows), bool)
        follows[1:] = np.all(rows[order][1:] == rows[order][:-1], axis=1)
        ahead, behind = order[np.flatnonzero(follows) - 1], order[follows]
        np.minimum.at(self.frequencies, ahead, frequencies[behind - self.n])

    def _local(self, qubits: tuple[int, ...]) -> Array:
        """The numbers of the local words on `qubits`."""
        half = self.keys.shape[1] // 2
        words = np.zeros(self.n, np.int64)
        for j, qubit in enumerate(qubits):
            w, bit = qubit // 64, np.uint64(qubit % 64)
            words |= (self.keys[:, w] >> bit & ONE).astype(np.int64) << 2 * j
            words |= (self.keys[:, half + w] >> bit & ONE).astype(np.int64) << 2 * j + 1
        return words

    def _with_local(self, keys: Array, qubits: tuple[int, ...], words: Array) -> Array:
        """Copies of rows with local words `words` on `qubits`."""
        keys = keys.copy()
        half = keys.shape[1] // 2
        for j, qubit in enumerate(qubits):
            w, bit = qubit // 64, np.uint64(qubit % 64)
            for column, digit in ((w, words >> 2 * j & 1), (half + w, words >> 2 * j + 1 & 1)):
                keys[:, column] = keys[:, column] & ~(ONE << bit) | digit.astype(np.uint64) << bit
        return keys


def _bits(words: Array) -> Array:
    """How many bits are set in each row."""
    return np.bitwise_count(words).sum(axis=-1, dtype=np.int64)


def _kept(parts: Array, cut: float, dropped: Dropped) -> Array:
    kept = np.abs(parts) >= cut
    _account(parts[~kept], dropped)
    return kept


def _account(parts: Array, dropped: Dropped) -> None:
    sizes = np.abs(parts)
    dropped.add(float(sizes.sum()), float((sizes**2).sum()), len(sizes))

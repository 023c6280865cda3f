"""The terms of a propagation as sorted arrays in NumPy: every change appends branches and merges by sorting.

The oracle of `ShardedTerms`, with the same meaning of every truncation; knows steps as arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from tnplan.circuits.pauli_sum import PauliSum
from tnplan.executor.pauli.algebra.expectation import value_in
from tnplan.executor.pauli.algebra.gates import Clifford, TransferMatrix
from tnplan.executor.pauli.propagate import Propagation, propagate
from tnplan.executor.pauli.terms.ledger import Ledger, Loss, loss_of
from tnplan.executor.pauli.terms.protocol import Terms
from tnplan.executor.pauli.terms.selection import TermCap
from tnplan.executor.pauli.terms.tape import branch_signs, local_word_numbers
from tnplan.executor.pauli.terms.truncation import TermLimits

Array = NDArray[Any]
ONE = np.uint64(1)


class SortedTerms(Terms):
    """Distinct words, their coefficients and frequencies, and the ledger of what happened to them."""

    def __init__(self, start: PauliSum) -> None:
        self.n_qubits = start.n_qubits
        self.keys, self.coefficients = start.keys, start.coefficients
        self.frequencies = np.zeros(start.n_terms, np.int32)
        self.ledger = Ledger()
        self._step = (0, 0, 0, 0)
        self.most = 1 << 62

    def cap(self, cap: TermCap) -> bool:
        """Remember the cap; others cut."""
        self.most = cap.n_terms
        return False

    def close(self) -> None:
        """Nothing to give back."""

    @property
    def n(self) -> int:
        """How many terms there are."""
        return len(self.coefficients)

    @property
    def size_bytes(self) -> int:
        """What the arrays take."""
        return self.keys.nbytes + self.coefficients.nbytes + self.frequencies.nbytes

    def count(self, generator: Array) -> int:
        """How many terms a rotation about `generator` would split."""
        return int(np.count_nonzero(self._hits(generator)))

    def rotate(self, generator: Array, cosine: float, sine: float, cut: float) -> None:
        """Rotate about the packed word `generator`; branches below `cut` are dropped."""
        hits = self._hits(generator)
        rows = self.keys[hits]
        new = rows ^ generator
        signs = branch_signs(rows, generator)
        branches = (sine * signs * self.coefficients[hits]).astype(self._kind)
        self.coefficients = (np.where(hits, cosine, 1.0) * self.coefficients).astype(self._kind)
        self.frequencies = self.frequencies + hits
        kept = np.abs(branches) >= cut
        self.ledger.losses.append(_loss(branches[~kept]))
        self._add(len(rows), [new[kept]], [branches[kept]], [self.frequencies[hits][kept]])

    def clifford(self, gates: Sequence[Clifford]) -> None:
        """Apply Cliffords one after another."""
        for gate in gates:
            words = local_word_numbers(self.keys, gate.qubits)
            self.keys = self._with_local(self.keys, gate.qubits, gate.images[words])
            self.coefficients = self.coefficients * gate.signs[words].astype(self._kind)
        self._add(0, [], [], [])

    def transfer(self, step: TransferMatrix, cut: float) -> None:
        """Apply a transfer; contributions below `cut` to other words are dropped."""
        words = local_word_numbers(self.keys, step.qubits)
        keys, coefficients, frequencies, gone = [], [], [], []
        for b in range(len(step.matrix)):
            parts = (step.matrix[b, words] * self.coefficients).astype(self._kind)
            leaves = (step.matrix[b, words] != 0) & (words != b)
            kept = leaves & (np.abs(parts) >= cut)
            gone.append(parts[leaves & ~kept])
            keys.append(self._with_local(self.keys[kept], step.qubits, np.full(np.count_nonzero(kept), b)))
            coefficients.append(parts[kept])
            frequencies.append(self.frequencies[kept])
        self.ledger.losses.append(_loss(np.concatenate(gone))._replace(may_merge=True))
        self.coefficients = (np.diag(step.matrix)[words] * self.coefficients).astype(self._kind)
        branched = int(np.count_nonzero(np.count_nonzero(step.matrix, axis=0)[words] > 1))
        self._add(branched, keys, coefficients, frequencies)

    def sweep(self, limits: TermLimits) -> None:
        """Drop terms past the limits, and zeros."""
        sizes = np.abs(self.coefficients)
        gone = (sizes < limits.merged_cut) | (sizes == 0) | (self.frequencies > limits.max_frequency)
        if limits.has_letters:
            x, z = np.split(self.keys, 2, axis=1)
            gone |= (_bits(x | z) > limits.max_weight) | (_bits(x) > limits.max_xy)
        self.ledger.losses.append(_loss(self.coefficients[gone & (sizes > 0)]))
        self._keep(~gone)

    def keep_largest(self, count: int) -> None:
        """Keep the `count` largest magnitudes; of equal ones the least words."""
        if self.n <= count:
            return
        order = np.lexsort([*self.keys.T, -np.abs(self.coefficients)])
        self.ledger.losses.append(_loss(self.coefficients[order[count:]]))
        self._keep(np.sort(order[:count]))

    def end_step(self) -> None:
        """Enter the step in the ledger."""
        before, grown, branched, merged = self._step
        grown = grown if grown <= self.most else self.n
        self.ledger.steps.append((before, grown, self.n, branched, merged))

    def local_terms(self) -> PauliSum:
        """The terms, in rising order of their words."""
        return PauliSum(self.n_qubits, self.keys, self.coefficients).sorted()

    def in_bits(self, bits: str | None = None) -> complex:
        """The value in a computational state; None is all 0."""
        return value_in(PauliSum(self.n_qubits, self.keys, self.coefficients), bits)

    @property
    def _kind(self) -> Any:
        return self.coefficients.dtype

    def _hits(self, generator: Array) -> Array:
        """Which terms anticommute with a packed word."""
        half = len(generator) // 2
        x, z = self.keys[:, :half], self.keys[:, half:]
        both = (x & generator[half:]) ^ (z & generator[:half])
        return np.asarray(np.bitwise_count(both).sum(axis=1, dtype=np.int64) & 1 == 1)

    def _keep(self, chosen: Array) -> None:
        self.keys, self.coefficients = self.keys[chosen], self.coefficients[chosen]
        self.frequencies = self.frequencies[chosen]

    def _add(
        self, branched: int, keys: list[Array], coefficients: list[Array], frequencies: list[Array]
    ) -> None:
        """Append rows; all in rising order, equal ones made one: values added, the least frequency kept."""
        before = self.n
        rows, values = np.concatenate([self.keys, *keys]), np.concatenate([self.coefficients, *coefficients])
        counts = np.concatenate([self.frequencies, *frequencies])
        order = np.lexsort(rows.T)
        rows, values, counts = rows[order], values[order], counts[order]
        first = np.flatnonzero(np.concatenate([[True], np.any(rows[1:] != rows[:-1], axis=1)])[: len(rows)])
        if len(rows):
            self.keys, self.coefficients = rows[first], np.add.reduceat(values, first)
            self.frequencies = np.minimum.reduceat(counts, first)
        self._step = (before, self.n, branched, len(rows) - self.n)

    def _with_local(self, keys: Array, qubits: tuple[int, ...], words: Array) -> Array:
        """Copies of rows with local words `words` on `qubits`."""
        keys = keys.copy()
        half = keys.shape[1] // 2
        for j, qubit in enumerate(qubits):
            w, bit = qubit // 64, np.uint64(qubit % 64)
            for column, digit in ((w, words >> 2 * j & 1), (half + w, words >> 2 * j + 1 & 1)):
                keys[:, column] = keys[:, column] & ~(ONE << bit) | digit.astype(np.uint64) << bit
        return keys


def propagate_sorted(*arguments: Any, **options: Any) -> Propagation:
    """`propagate` on one rank and thread with the terms in sorted arrays."""
    with mock.patch("tnplan.executor.pauli.propagate.open_terms", lambda start, use: SortedTerms(start)):
        return propagate(*arguments, **options)


def _loss(parts: Array) -> Loss:
    return loss_of(np.abs(parts).astype(np.float64))


def _bits(words: Array) -> Array:
    """How many bits are set in each row."""
    return np.bitwise_count(words).sum(axis=-1, dtype=np.int64)

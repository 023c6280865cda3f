"""One shard of the terms of a propagation in a hash table: arrays that grow, one kernel call for each change.

The fast engine on a CPU. Knows steps only as arrays, and of other shards only the lists that they send.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.pauli.account import Loss
from executor.pauli.frame import layer
from executor.pauli.steps import Clifford, Transfer, word_masks
from executor.pauli.truncation import Limits
from executor.pauli.words import PauliSum, pack

Array = NDArray[Any]

SMALLEST = 1024
NO_LIMIT = 1 << 40
FILL = 2
"""Entries of the table for each term, at least."""


@dataclass(frozen=True, eq=False)
class Branches:
    """Values on their way to the words keys[index] times `generator`; `counts` are their frequencies."""

    keys: Array
    index: Array
    values: Array
    counts: Array
    generator: Array

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.values)

    def packed(self) -> tuple[Array, Array, Array]:
        """The words themselves, uint64 [n, 2 W], the values and the frequencies."""
        return np.ascontiguousarray(self.keys[self.index] ^ self.generator), self.values, self.counts


def unpacked(rows: Array, values: Array, counts: Array) -> Branches:
    """Branches from what `packed` gave."""
    return Branches(rows, np.arange(len(rows)), values, counts, np.zeros(rows.shape[1], np.uint64))


class HashTerms:
    """Distinct words, their coefficients and frequencies, and the table that finds them.

    `hits[:n_hits]` are the terms that the last rotation split, and `first` is the number of terms before it.
    Where `is_swept`, no other term below `first` has changed since the last sweep. Arrays do not double past
    `most` terms.
    """

    def __init__(self, start: PauliSum) -> None:
        from executor.pauli import hash_kernel

        self.kernel = hash_kernel
        self.n_qubits = start.n_qubits
        self.n = self.first = start.n_terms
        capacity = max(SMALLEST, 2 * self.n)
        self.keys = np.empty((capacity, start.keys.shape[1]), np.uint64, order="F")
        self.coefficients = np.empty(capacity, start.coefficients.dtype)
        self.frequencies = np.zeros(capacity, np.int32)
        self.keys[: self.n], self.coefficients[: self.n] = start.keys, start.coefficients
        self.hits, self.index, self.targets = (np.empty(capacity, np.int64) for _ in range(3))
        self.values, self.counts = np.empty_like(self.coefficients), np.empty(capacity, np.int32)
        self.n_hits, self.most = 0, NO_LIMIT
        self.slots = _table(capacity)
        self.is_stale, self.is_swept = True, False
        self.size_bytes = self._size_bytes()

    def rows(self) -> PauliSum:
        """The terms, in the order in which they lie."""
        return PauliSum(self.n_qubits, self.keys[: self.n], self.coefficients[: self.n])

    def count(self, generator: Array) -> int:
        """How many terms anticommute with the packed word `generator`."""
        return int(self.kernel.anticommuting(self.keys, self.n, generator, self.hits))

    def split(self, generator: Array, cosine: float, sine: float, cut: float) -> tuple[Branches, int, Loss]:
        """The first half of a rotation about `generator`: its branches, and how many terms split."""
        self.is_swept = self.is_swept and self.first == self.n and not self.n_hits
        self.first, self.n_hits = self.n, self.count(generator)
        listed, l1, squares = self.kernel.split(
            self.keys, self.coefficients, self.frequencies, generator, cosine, sine, cut,
            self.hits, self.n_hits, self.index, self.values, self.counts,
        )  # fmt: skip
        branches = Branches(
            self.keys, self.index[:listed], self.values[:listed], self.counts[:listed], generator
        )
        return branches, self.n_hits, Loss(l1, squares, self.n_hits - listed)

    def transfer(self, step: Transfer, cut: float) -> tuple[list[Branches], int, Loss]:
        """The first half of a transfer: branches by the local word d >= 1 that they multiply by."""
        self.is_swept = False
        qubits = np.array(step.qubits, np.int64)
        lists, l1, dropped = [], 0.0, 0
        words = np.arange(len(step.matrix))
        for d in words[1:]:
            weights = step.matrix[words ^ d, words]
            if not np.any(weights):
                continue
            index, counts = np.empty(self.n, np.int64), np.empty(self.n, np.int32)
            values = np.empty(self.n, self.coefficients.dtype)
            listed, lost, gone = self.kernel.branches(
                self.keys, self.coefficients, self.frequencies, self.n, qubits, weights, cut,
                index, values, counts,
            )  # fmt: skip
            l1, dropped = l1 + lost, dropped + gone
            generator = pack(*word_masks(step.qubits, int(d)), self.n_qubits)
            lists.append(Branches(self.keys, index[:listed], values[:listed], counts[:listed], generator))
        splits = np.count_nonzero(step.matrix, axis=0) > 1
        factors = np.ascontiguousarray(np.diag(step.matrix))
        branched = self.kernel.scale(self.keys, self.coefficients, self.n, qubits, factors, splits)
        return lists, branched, Loss(l1, 0.0, dropped, may_merge=True)

    def meet(self, branches: Branches) -> int:
        """The second half of a step: add branches to their words; return how many met a term."""
        if not branches.n:
            return 0
        self._reserve(self.n + branches.n)
        self._refresh()
        before = self.n
        self.n = self.kernel.meet(
            self.keys, self.coefficients, self.frequencies, self.n, self.slots, branches.keys,
            branches.index, branches.values, branches.counts, branches.generator, branches.n, self.targets,
        )  # fmt: skip
        return branches.n - (self.n - before)

    def clifford(self, gates: Sequence[Clifford]) -> None:
        """Apply Cliffords one after another, in one pass."""
        done = layer(tuple(gates), self.n_qubits)
        self.kernel.clifford(self.keys, self.coefficients, self.n, done.images, done.powers, done.touched)
        self.is_stale, self.is_swept = True, False

    def sweep(self, limits: Limits) -> Loss:
        """Drop terms past the limits, and zeros."""
        self._refresh()
        first, n_hits = (self.first, self.n_hits) if self.is_swept else (0, 0)
        self.n, *lost = self.kernel.sweep(
            self.keys, self.coefficients, self.frequencies, self.n, self.slots, limits.merged_cut,
            limits.max_weight, limits.max_xy, limits.max_frequency, limits.has_letters,
            self.hits, n_hits, first,
        )  # fmt: skip
        self.first, self.n_hits, self.is_swept = self.n, 0, True
        return Loss(*lost)

    def keep(self, chosen: Array) -> None:
        """Keep the terms of these numbers, which rise."""
        for name in OF_TERMS:
            array = getattr(self, name)
            array[: len(chosen)] = array[chosen]
        self.n, self.is_stale, self.is_swept = len(chosen), True, False

    def leave(self, chosen: Array) -> tuple[Array, Array, Array]:
        """Take out the terms of these numbers, which rise: their words, coefficients and frequencies."""
        taken = tuple(np.ascontiguousarray(getattr(self, name)[chosen]) for name in OF_TERMS)
        self.keep(np.delete(np.arange(self.n), chosen))
        return taken  # type: ignore[return-value]

    def join(self, keys: Array, coefficients: Array, frequencies: Array) -> None:
        """Append terms whose words are not here."""
        n = self.n + len(keys)
        self._reserve(n)
        for name, array in zip(OF_TERMS, (keys, coefficients, frequencies), strict=True):
            getattr(self, name)[self.n : n] = array
        self.n, self.is_stale, self.is_swept = n, True, False

    def _reserve(self, n_terms: int) -> None:
        if n_terms <= len(self.values):
            return
        capacity = max(n_terms, min(2 * len(self.values), self.most))
        for name in OF_TERMS:
            setattr(self, name, _grown(getattr(self, name), self.n, capacity))
        for name in OF_BRANCHES:
            array = getattr(self, name)
            setattr(self, name, _grown(array, len(array), capacity))
        if len(self.slots) < FILL * capacity:
            self.slots, self.is_stale = _table(capacity), True
        self.size_bytes = self._size_bytes()

    def _size_bytes(self) -> int:
        """What the arrays take."""
        return sum(getattr(self, name).nbytes for name in (*OF_TERMS, *OF_BRANCHES, "slots"))

    def _refresh(self) -> None:
        if self.is_stale:
            self.kernel.rebuild(self.keys, self.n, self.slots)
            self.is_stale = False


OF_TERMS = ("keys", "coefficients", "frequencies")
OF_BRANCHES = ("hits", "index", "targets", "values", "counts")


def _table(n_terms: int) -> Array:
    return np.zeros(1 << (FILL * n_terms - 1).bit_length(), np.uint64)


def _grown(array: Array, n: int, capacity: int) -> Array:
    larger = np.empty((capacity, *array.shape[1:]), array.dtype, order="F")
    larger[:n] = array[:n]
    return larger

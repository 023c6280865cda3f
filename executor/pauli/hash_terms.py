"""The terms of a propagation in a hash table: arrays that grow, and one kernel call for each change.

The fast engine on a CPU; `sorted_terms.py` is its twin. Knows steps only as arrays.
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

SMALLEST = 1024
FILL = 2
"""Entries of the table for each term, at least."""


class HashTerms:
    """Distinct words, their coefficients and frequencies, and the table that finds them."""

    def __init__(self, start: PauliSum) -> None:
        from executor.pauli import hash_kernel

        self.kernel = hash_kernel
        self.n_qubits = start.n_qubits
        self.n = start.n_terms
        capacity = max(SMALLEST, 2 * self.n)
        self.keys = np.empty((capacity, start.keys.shape[1]), np.uint64)
        self.coefficients = np.empty(capacity, start.coefficients.dtype)
        self.frequencies = np.zeros(capacity, np.int32)
        self.keys[: self.n], self.coefficients[: self.n] = start.keys, start.coefficients
        self.hits = np.empty(capacity, np.int64)
        self.slots = _table(capacity)
        self.is_stale = True

    @property
    def size_bytes(self) -> int:
        """What the arrays take."""
        arrays = (self.keys, self.coefficients, self.frequencies, self.hits, self.slots)
        return sum(array.nbytes for array in arrays)

    def rotate(self, generator: Array, cosine: float, sine: float, cut: float, dropped: Dropped) -> Any:
        """Rotate about the packed word `generator`; return terms that branched and pairs that met."""
        n_hits = self.kernel.anticommuting(self.keys, self.n, generator, self.hits)
        if not n_hits:
            return 0, 0
        self._reserve(self.n + n_hits)
        self._refresh()
        self.n, met, l1, squares, count = self.kernel.rotate(
            self.keys, self.coefficients, self.frequencies, self.n, self.slots, generator, cosine, sine, cut,
            self.hits, n_hits,
        )  # fmt: skip
        dropped.add(l1, squares, count)
        return n_hits, met

    def clifford(self, gates: Sequence[Clifford]) -> None:
        """Apply Cliffords one after another, in one pass."""
        begin = np.cumsum([0, *(len(gate.qubits) for gate in gates)])
        base = np.cumsum([0, *(len(gate.images) for gate in gates)])
        qubits = np.array([qubit for gate in gates for qubit in gate.qubits], np.int64)
        images = np.concatenate([gate.images for gate in gates])
        signs = np.concatenate([gate.signs for gate in gates])
        self.kernel.clifford(self.keys, self.coefficients, self.n, begin, qubits, base, images, signs)
        self.is_stale = True

    def transfer(self, step: Transfer, cut: float, dropped: Dropped) -> Any:
        """Apply a transfer; return terms that branched and branches that met a term."""
        qubits = np.array(step.qubits, np.int64)
        if step.is_diagonal:
            factors = np.ascontiguousarray(np.diag(step.matrix))
            self.kernel.scale(self.keys, self.coefficients, self.n, qubits, factors)
            return 0, 0
        counts = np.count_nonzero(step.matrix, axis=0)
        capacity = max(SMALLEST, self.kernel.count_images(self.keys, self.n, qubits, counts))
        keys = np.empty((capacity, self.keys.shape[1]), np.uint64)
        coefficients = np.empty(capacity, self.coefficients.dtype)
        frequencies = np.zeros(capacity, np.int32)
        slots = _table(capacity)
        n, branched, met, l1, count = self.kernel.transfer(
            self.keys, self.coefficients, self.frequencies, self.n, qubits, step.matrix, cut,
            keys, coefficients, frequencies, slots,
        )  # fmt: skip
        dropped.add(l1, l1**2, count)
        self.n, self.keys, self.coefficients, self.frequencies = n, keys, coefficients, frequencies
        self.hits, self.slots, self.is_stale = np.empty(capacity, np.int64), slots, False
        return branched, met

    def sweep(self, limits: tuple[float, int, int, int], has_letters: bool, dropped: Dropped) -> None:
        """Drop terms past the limits (merged cut, weight, X and Y, frequency), and zeros."""
        self._refresh()
        self.n, l1, squares, count = self.kernel.sweep(
            self.keys, self.coefficients, self.frequencies, self.n, self.slots, *limits, has_letters
        )
        dropped.add(l1, squares, count)

    def keep_largest(self, count: int, dropped: Dropped) -> None:
        """Keep the `count` largest magnitudes; of equal ones the least words."""
        if self.n <= count:
            return
        sizes = np.abs(self.coefficients[: self.n])
        order = np.lexsort([*self.keys[: self.n].T, -sizes])
        kept, gone = np.sort(order[:count]), order[count:]
        dropped.add(float(sizes[gone].sum()), float((sizes[gone] ** 2).sum()), len(gone))
        for array in (self.keys, self.coefficients, self.frequencies):
            array[:count] = array[kept]
        self.n, self.is_stale = count, True

    def sum(self) -> PauliSum:
        """The terms, in rising order of their words."""
        return PauliSum(self.n_qubits, self.keys[: self.n], self.coefficients[: self.n]).sorted()

    def _reserve(self, n_terms: int) -> None:
        capacity = len(self.coefficients)
        if n_terms <= capacity:
            return
        capacity = max(n_terms, 2 * capacity)
        self.keys = _grown(self.keys, self.n, capacity)
        self.coefficients = _grown(self.coefficients, self.n, capacity)
        self.frequencies = _grown(self.frequencies, self.n, capacity)
        self.hits = _grown(self.hits, len(self.hits), capacity)
        if len(self.slots) < FILL * capacity:
            self.slots, self.is_stale = _table(capacity), True

    def _refresh(self) -> None:
        if self.is_stale:
            self.kernel.rebuild(self.keys, self.n, self.slots)
            self.is_stale = False


def _table(n_terms: int) -> Array:
    return np.zeros(1 << (FILL * n_terms - 1).bit_length(), np.uint64)


def _grown(array: Array, n: int, capacity: int) -> Array:
    larger = np.empty((capacity, *array.shape[1:]), array.dtype)
    larger[:n] = array[:n]
    return larger

"""One shard of the terms of a propagation in a hash table: arrays that grow, one kernel call for each change.

The fast engine on a CPU. Knows steps only as arrays, and of other shards only the lists that they send.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.observables.pauli_sum import PauliSum, pack
from tnplan.executor.pauli.algebra.gates import Clifford, TransferMatrix, word_masks
from tnplan.executor.pauli.algebra.tableau import clifford_layer
from tnplan.executor.pauli.terms.ledger import Loss
from tnplan.executor.pauli.terms.truncation import TermLimits
from tnplan.planner.common.errors import InputError

Array = NDArray[Any]

SMALLEST_CAPACITY = 1024
"""Rows that arrays have room for at first, at least."""
FOURFOLD_BELOW = 1 << 14
"""Rows below which arrays grow fourfold, else twofold."""
NO_LIMIT = 1 << 40
"""More rows than there can be."""
MOST_ROWS = (1 << 32) - 2
"""What the table and the numbers of rows have bits for."""
SLOTS_A_TERM = 2
"""Entries of the table for each term, at least."""


@dataclass(frozen=True, eq=False)
class Branches:
    """Values on their way to the words keys[index] times `generator`; `counts` are their frequencies."""

    keys: Array
    tags: Array
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
    from tnplan.executor.pauli.terms.hash_table_kernel import tag_all

    tags = np.empty(len(rows), np.uint32)
    tag_all(rows, len(rows), tags)
    return Branches(
        rows, tags, np.arange(len(rows), dtype=np.uint32), values, counts,
        np.zeros(rows.shape[1], np.uint64),
    )  # fmt: skip


class HashTerms:
    """Distinct words, their coefficients, frequencies and tags, and the table that finds them.

    `hits[:n_hits]` are the terms that the last rotation split, and those behind, up to `n_changed`, the new
    ones. Where `is_swept`, no other term has changed since the last sweep. Rows below `n` are terms, but
    `spare[:n_spare]`, while many rotations are done. Arrays do not grow so past `most` terms.
    """

    def __init__(self, start: PauliSum) -> None:
        from tnplan.executor.pauli.terms import clifford_kernel, hash_table_kernel

        self.kernel, self.maps = hash_table_kernel, clifford_kernel
        self.n_qubits = start.n_qubits
        self.n, self.n_spare = start.n_terms, 0
        capacity = max(SMALLEST_CAPACITY, 2 * self.n)
        self.keys = np.empty((capacity, start.keys.shape[1]), np.uint64, order="F")
        self.coefficients = np.empty(capacity, start.coefficients.dtype)
        self.frequencies, self.tags = np.zeros(capacity, np.int32), np.empty(capacity, np.uint32)
        self.keys[: self.n], self.coefficients[: self.n] = start.keys, start.coefficients
        self.hits, self.index, self.targets, self.spare = (np.empty(capacity, np.uint32) for _ in range(4))
        self.where = np.full(capacity, hash_table_kernel.NONE)
        self.union = np.zeros(start.keys.shape[1], np.uint64)
        self.values, self.counts = np.empty_like(self.coefficients), np.empty(capacity, np.int32)
        self.n_hits, self.n_changed, self.most = 0, 0, NO_LIMIT
        self.slots = _table(capacity)
        self.is_new, self.is_stale, self.is_swept = True, True, False
        self.size_bytes = self._size_bytes()

    @property
    def capacity(self) -> int:
        """For how many rows there is room."""
        return len(self.values)

    def rows(self) -> PauliSum:
        """The terms, in the order in which they lie."""
        return PauliSum(self.n_qubits, self.keys[: self.n], self.coefficients[: self.n])

    def count(self, generator: Array) -> int:
        """How many terms anticommute with the packed word `generator`."""
        return int(self.kernel.anticommuting(self.keys, self.n, generator, self.hits))

    def split(self, generator: Array, cosine: float, sine: float, cut: float) -> tuple[Branches, int, Loss]:
        """The first half of a rotation about `generator`: its branches, and how many terms split."""
        self.refresh()
        self.is_swept = self.is_swept and not self.n_changed
        self.n_hits = self.n_changed = self.count(generator)
        listed, *lost = self.kernel.split(
            self.keys, self.coefficients, self.frequencies, self.where, True, generator, cosine, sine, cut,
            self.hits, self.n_hits, self.index, self.values, self.counts,
        )  # fmt: skip
        branches = Branches(
            self.keys, self.tags, self.index[:listed], self.values[:listed], self.counts[:listed], generator
        )
        return branches, self.n_hits, Loss(*lost)

    def transfer(self, step: TransferMatrix, cut: float) -> tuple[list[Branches], int, Loss]:
        """The first half of a transfer: branches by the local word d >= 1 that they multiply by."""
        self.refresh()
        self._changed()
        qubits = np.array(step.qubits, np.int64)
        lists, l1, dropped = [], 0.0, 0
        words = np.arange(len(step.matrix))
        for d in words[1:]:
            weights = step.matrix[words ^ d, words]
            if not np.any(weights):
                continue
            index, counts = np.empty(self.n, np.uint32), np.empty(self.n, np.int32)
            values = np.empty(self.n, self.coefficients.dtype)
            listed, lost, gone = self.maps.branches(
                self.keys, self.coefficients, self.frequencies, self.n, qubits, weights, cut,
                index, values, counts,
            )  # fmt: skip
            l1, dropped = l1 + lost, dropped + gone
            generator = pack(*word_masks(step.qubits, int(d)), self.n_qubits)
            lists.append(
                Branches(self.keys, self.tags, index[:listed], values[:listed], counts[:listed], generator)
            )
        splits = np.count_nonzero(step.matrix, axis=0) > 1
        factors = np.ascontiguousarray(np.diag(step.matrix))
        branched = self.maps.scale(self.keys, self.coefficients, self.n, qubits, factors, splits)
        return lists, branched, Loss(l1, 0.0, dropped, may_merge=True)

    def merge(self, branches: Branches) -> int:
        """The second half of a step: add branches to their words; return how many met a term."""
        if not branches.n:
            return 0
        self.reserve(self.n + branches.n)
        self.refresh()
        self.n, self.n_spare, fresh, merged = self.kernel.merge_branches(
            self.keys, self.coefficients, self.tags, self.frequencies, self.slots, self.where, self.spare,
            self.union, self.n, self.n_spare, branches.keys, branches.tags, branches.index, branches.values,
            branches.counts, branches.n, branches.generator, self.kernel.tag_of(branches.generator[None], 0),
            False, True, self.targets, self.hits, self.n_hits,
        )  # fmt: skip
        self.n_changed = self.n_hits + fresh
        return int(merged)

    def clifford(self, gates: Sequence[Clifford]) -> None:
        """Apply Cliffords one after another, in one pass."""
        done = clifford_layer(tuple(gates), self.n_qubits)
        self.maps.clifford(self.keys, self.coefficients, self.n, done.images, done.powers, done.touched)
        self._changed(is_new=True)

    def sweep(self, limits: TermLimits) -> Loss:
        """Drop terms past the limits, and zeros."""
        self.refresh()
        self.n_spare, *lost = self.kernel.sweep(
            self.keys, self.coefficients, self.tags, self.frequencies, self.slots, self.where, self.spare,
            self.n, self.n_spare, limits.merged_cut, limits.max_weight, limits.max_xy, limits.max_frequency,
            limits.has_letters, limits.has_frequency, self.hits, self.n_hits,
            self.n_changed if self.is_swept else -1,
        )  # fmt: skip
        self.close_gaps()
        self.n_hits, self.n_changed, self.is_swept = 0, 0, True
        return Loss(*lost)

    def close_gaps(self) -> None:
        """Put the last terms into the spare rows."""
        self.n = self.kernel.close_gaps(
            self.keys, self.coefficients, self.tags, self.frequencies, self.slots, self.where, self.spare,
            self.n, self.n_spare,
        )  # fmt: skip
        self.n_spare = 0

    def keep(self, chosen: Array) -> None:
        """Keep the terms of these numbers, which rise."""
        self.refresh()
        for name in TERM_ARRAYS:
            array = getattr(self, name)
            array[: len(chosen)] = array[chosen]
        self.n, self.is_stale = len(chosen), True
        self._changed()

    def leave(self, chosen: Array) -> tuple[Array, Array, Array]:
        """Take out the terms of these numbers, which rise: their words, coefficients and frequencies."""
        taken = tuple(np.ascontiguousarray(getattr(self, name)[chosen]) for name in TERM_ARRAYS[:3])
        self.keep(np.delete(np.arange(self.n), chosen))
        return taken  # type: ignore[return-value]

    def join(self, keys: Array, coefficients: Array, frequencies: Array) -> None:
        """Append terms whose words are not here."""
        n = self.n + len(keys)
        self.reserve(n)
        for name, array in zip(TERM_ARRAYS, (keys, coefficients, frequencies), strict=False):
            getattr(self, name)[self.n : n] = array
        self.where[self.n : n] = self.kernel.NONE
        self.n = n
        self._changed(is_new=True)

    def reserve(self, n_terms: int, listed: int = 0) -> None:
        """Have room for so many rows; keeps the first `listed` branches."""
        if n_terms <= self.capacity:
            return
        if n_terms > MOST_ROWS:
            raise InputError(
                "terms", f"may be {n_terms} in a shard, which has at most {MOST_ROWS}",
                "truncate, or use more threads or ranks",
            )  # fmt: skip
        times = 4 if self.capacity < FOURFOLD_BELOW else 2
        capacity = max(n_terms, min(times * self.capacity, self.most, MOST_ROWS))
        kept = max(listed, self.n_changed, self.n_spare)
        for name in (*TERM_ARRAYS, "where"):
            setattr(self, name, _grown(getattr(self, name), self.n, capacity))
        for name in BRANCH_ARRAYS:
            setattr(self, name, _grown(getattr(self, name), kept, capacity))
        if len(self.slots) < SLOTS_A_TERM * capacity:
            self.slots, self.is_stale = _table(capacity), True
        self.size_bytes = self._size_bytes()

    def refresh(self) -> None:
        """Have the tags of all rows, and all terms in the table."""
        if self.is_new:
            self.kernel.tag_all(self.keys, self.n, self.tags)
        if self.is_stale:
            self.kernel.rebuild(self.tags, self.where, self.n, self.slots)
        self.is_new = self.is_stale = False

    def _changed(self, is_new: bool = False) -> None:
        """Terms have changed that `hits` does not name, or `is_new`: their words have."""
        self.n_hits, self.n_changed, self.is_swept = 0, 0, False
        self.is_new, self.is_stale = self.is_new or is_new, self.is_stale or is_new

    def _size_bytes(self) -> int:
        """What the arrays take."""
        return sum(getattr(self, name).nbytes for name in (*TERM_ARRAYS, *BRANCH_ARRAYS, "where", "slots"))


TERM_ARRAYS = ("keys", "coefficients", "frequencies", "tags")
"""The arrays that have an element a term."""
BRANCH_ARRAYS = ("hits", "index", "targets", "spare", "values", "counts")
"""The arrays that have an element a branch."""


def _table(n_terms: int) -> Array:
    return np.zeros(1 << (SLOTS_A_TERM * n_terms - 1).bit_length(), np.uint64)


def _grown(array: Array, n: int, capacity: int) -> Array:
    larger = np.empty((capacity, *array.shape[1:]), array.dtype, order="F")
    larger[:n] = array[:n]
    return larger

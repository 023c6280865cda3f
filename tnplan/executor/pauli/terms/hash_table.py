"""One shard of the terms of a propagation in a hash table: arrays that grow, one kernel call for each change.

The fast engine on a CPU. Knows steps only as arrays, and of other shards only the lists that they send.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tnplan.circuits.pauli_sum import PauliSum, pack
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.pauli.algebra.gates import Clifford, TransferMatrix, word_masks
from tnplan.executor.pauli.algebra.tableau import clifford_layer
from tnplan.executor.pauli.terms.ledger import Loss
from tnplan.executor.pauli.terms.selection import Arrivals
from tnplan.executor.pauli.terms.truncation import TRUNCATE, TermLimits, Truncation

SMALLEST_CAPACITY = 1024
"""Rows of the first arrays, at least."""
FOURFOLD_BELOW = 1 << 14
"""Rows below which arrays grow fourfold, else twofold."""
NO_LIMIT = 1 << 40
"""More rows than there can be."""
MOST_ROWS = (1 << 32) - 2
"""What the table and the numbers of rows have bits for."""
SLOTS_A_TERM = 2
"""Entries of the table for each term, at least."""


ZEROS = Truncation().limits
"""Drops what is 0 alone."""


class ShardArrays(NamedTuple):
    """The arrays of a shard, as kernels take them: see `hash_table_kernel` and `HashTerms`.

    `hits` are the terms that split. Of branches there are the terms that send them (`senders`), their
    `values` and frequencies (`counts`), and the terms that they met (`targets`). `columns` is scratch for
    numbers of words.
    """

    keys: Array
    coefficients: Array
    tags: Array
    frequencies: Array
    slots: Array
    where: Array
    spare: Array
    union: Array
    hits: Array
    senders: Array
    values: Array
    counts: Array
    targets: Array
    columns: Array


TERMS, SENT = slice(0, 4), slice(9, 12)
"""The fields of `ShardArrays` that describe a term, and those that are lists of branches."""
TERM_ARRAYS = ("keys", "coefficients", "tags", "frequencies", "where")
"""Those that have an element a term."""
BRANCH_ARRAYS = ("spare", "hits", "senders", "values", "counts", "targets")
"""Those that have an element a branch, or a free row."""


class Branches(NamedTuple):
    """Values on their way to the words keys[senders] times `generator`; `counts` are their frequencies."""

    keys: Array
    tags: Array
    senders: Array
    values: Array
    counts: Array
    generator: Array

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.values)

    def first(self, n: int) -> Branches:
        """The first of them."""
        senders, values, counts = (array[:n] for array in (self.senders, self.values, self.counts))
        return self._replace(senders=senders, values=values, counts=counts)

    def packed(self) -> tuple[Array, Array, Array]:
        """The words themselves, uint64 [n, 2 W], the values and the frequencies."""
        return np.ascontiguousarray(self.keys[self.senders] ^ self.generator), self.values, self.counts


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
    `spare[:n_spare]`, while many rotations are done. Arrays do not grow so past `max_rows` terms.
    """

    def __init__(self, start: PauliSum) -> None:
        from tnplan.executor.pauli.terms import clifford_kernel, hash_table_kernel

        self.kernel, self.maps = hash_table_kernel, clifford_kernel
        self.n_qubits = start.n_qubits
        self.n, self.n_spare = start.n_terms, 0
        capacity, width = max(SMALLEST_CAPACITY, 2 * self.n), start.keys.shape[1]
        kind = start.coefficients.dtype
        self.arrays = ShardArrays(
            # Column by column: a scan for a generator reads the columns alone that it looks at, z
            # where it has x, and x where it has z.
            keys=np.empty((capacity, width), np.uint64, order="F"),
            coefficients=np.empty(capacity, kind),
            tags=np.empty(capacity, np.uint32),
            frequencies=np.zeros(capacity, np.int32),
            slots=_table(capacity),
            where=np.full(capacity, hash_table_kernel.NONE),
            spare=np.empty(capacity, np.uint32),
            union=np.zeros(width, np.uint64),
            hits=np.empty(capacity, np.uint32),
            senders=np.empty(capacity, np.uint32),
            values=np.empty(capacity, kind),
            counts=np.empty(capacity, np.int32),
            targets=np.empty(capacity, np.uint32),
            columns=np.empty(width, np.int64),
        )
        self.arrays.keys[: self.n], self.arrays.coefficients[: self.n] = start.keys, start.coefficients
        self.n_hits, self.n_changed, self.max_rows = 0, 0, NO_LIMIT
        self.is_new, self.is_stale, self.is_swept = True, True, False
        self.size_bytes = _size_bytes(self.arrays)

    @property
    def capacity(self) -> int:
        """How many rows the arrays have."""
        return len(self.arrays.values)

    def rows(self) -> PauliSum:
        """The terms, in the order in which they lie."""
        return PauliSum(self.n_qubits, self.arrays.keys[: self.n], self.arrays.coefficients[: self.n])

    def count(self, generator: Array) -> int:
        """How many terms anticommute with the packed word `generator`."""
        arrays = self.arrays
        return int(self.kernel.anticommuting(arrays.keys, self.n, generator, arrays.hits, arrays.columns))

    def split(self, generator: Array, cosine: float, sine: float, cut: float) -> tuple[Branches, int, Loss]:
        """The first half of a rotation about `generator`: its branches, and how many terms split."""
        self.refresh()
        self.is_swept = self.is_swept and not self.n_changed
        self.n_hits = self.n_changed = self.count(generator)
        listed, *sums = self.kernel.split(self.arrays, self.n_hits, True, (generator, cosine, sine), cut)
        arrays = self.arrays
        branches = Branches(arrays.keys, arrays.tags, arrays.senders, arrays.values, arrays.counts, generator)
        return branches.first(listed), self.n_hits, Loss(*sums)

    def transfer(self, step: TransferMatrix, cut: float) -> tuple[list[Branches], int, Loss]:
        """The first half of a transfer: branches by the local word d >= 1 that they multiply by."""
        self.refresh()
        self._changed()
        arrays, qubits = self.arrays, np.array(step.qubits, np.int64)
        lists, l1, dropped = [], 0.0, 0
        words = np.arange(len(step.matrix))
        # Contributions to word a ^ d from all words a: one list for each d, as they share the generator.
        for d in words[1:]:
            weights = step.matrix[words ^ d, words]
            if not np.any(weights):
                continue
            senders, values, counts = (np.empty(self.n, array.dtype) for array in arrays[SENT])
            sent = senders, values, counts
            listed, lost_l1, n_dropped = self.maps.branches(arrays, self.n, qubits, weights, cut, sent)
            l1, dropped = l1 + lost_l1, dropped + n_dropped
            generator = pack(*word_masks(step.qubits, int(d)), self.n_qubits)
            branches = Branches(arrays.keys, arrays.tags, *sent, generator)
            lists.append(branches.first(listed))
        splits = np.count_nonzero(step.matrix, axis=0) > 1
        factors = np.ascontiguousarray(np.diag(step.matrix))
        # Invariant: all branches are listed from the old coefficients before the diagonal scales
        # these in place.
        branched = self.maps.scale(arrays.keys, arrays.coefficients, self.n, qubits, factors, splits)
        return lists, branched, Loss(l1, 0.0, dropped, may_merge=True)

    def merge(self, branches: Branches) -> int:
        """The second half of a step: add branches to their words; return how many met a term."""
        if not branches.n:
            return 0
        self.reserve(self.n + branches.n)
        self.refresh()
        self.n, self.n_spare, fresh, merged = self.kernel.merge_branches(
            self.arrays, (self.n, self.n_spare, self.n_hits), branches, False, True
        )
        self.n_changed = self.n_hits + fresh
        return int(merged)

    def meet(self, branches: Branches) -> tuple[int, Arrivals]:
        """As `merge`, but words that are no terms stay out: how many branches met a term, and the others.

        Puts the others first in the list.
        """
        self.refresh()
        n_others = int(self.kernel.meet(self.arrays, branches, True)) if branches.n else 0
        return branches.n - n_others, Arrivals(*branches.first(n_others).packed())

    def none(self) -> Arrivals:
        """No words, with coefficients of the type of these."""
        arrays = self.arrays
        return Arrivals(arrays.keys[:0], arrays.values[:0], arrays.counts[:0])

    def clifford(self, gates: Sequence[Clifford]) -> None:
        """Apply Cliffords one after another, in one pass."""
        layer, (keys, coefficients) = clifford_layer(tuple(gates), self.n_qubits), self.arrays[:2]
        row = np.empty(keys.shape[1], np.uint64)
        self.maps.clifford(keys, coefficients, self.n, layer, row)
        self._changed(is_new=True)

    def sweep(self, limits: TermLimits) -> Loss:
        """Drop terms past the limits, and zeros."""
        self.refresh()
        n_changed = self.n_changed if self.is_swept else -1
        self.n_spare, *sums = self.kernel.sweep(
            self.arrays, self.n, self.n_spare, limits, limits.has_frequency, (self.n_hits, n_changed)
        )
        if self.n_spare:
            self.n, self.n_spare = self.kernel.close_gaps(self.arrays, self.n, self.n_spare), 0
        self.n_hits, self.n_changed, self.is_swept = 0, 0, True
        return Loss(*sums)

    def keep(self, rows: Array) -> None:
        """Keep the terms of these numbers, which rise."""
        self.refresh()
        for array in self.arrays[TERMS]:
            array[: len(rows)] = array[rows]
        self.n, self.is_stale = len(rows), True
        self._changed()

    def weaken(self, factors: Array) -> None:
        """Multiply the coefficients by factors, an element each; terms whose factor is 0 go."""
        self.arrays.coefficients[: self.n] *= factors
        self._changed()
        self.sweep(ZEROS)

    def leave(self, rows: Array) -> tuple[Array, Array, Array]:
        """Take out the terms of these numbers, which rise: their words, coefficients and frequencies."""
        keys, coefficients, _, frequencies = (
            np.ascontiguousarray(array[rows]) for array in self.arrays[TERMS]
        )
        self.keep(np.delete(np.arange(self.n), rows))
        return keys, coefficients, frequencies

    def join(self, keys: Array, coefficients: Array, frequencies: Array) -> None:
        """Append terms whose words are not here."""
        if not len(keys):
            return
        n = self.n + len(keys)
        self.reserve(n)
        arrays, new = self.arrays, slice(self.n, n)
        arrays.keys[new], arrays.coefficients[new], arrays.frequencies[new] = keys, coefficients, frequencies
        arrays.where[new] = self.kernel.NONE
        self.n = n
        self._changed(is_new=True)

    def reserve(self, n_terms: int, listed: int = 0) -> None:
        """Have arrays of at least so many rows; keeps the first `listed` branches."""
        if n_terms <= self.capacity:
            return
        if n_terms > MOST_ROWS:
            raise InputError(
                "terms", f"may be {n_terms} in a shard, which has at most {MOST_ROWS}",
                f"{TRUNCATE}, or use more threads or ranks",
            )  # fmt: skip
        # Growth by a factor makes the copies cost a constant a term.
        factor = 4 if self.capacity < FOURFOLD_BELOW else 2
        capacity = max(n_terms, min(factor * self.capacity, self.max_rows, MOST_ROWS))
        n_listed = max(listed, self.n_changed, self.n_spare)
        grown = {name: _grown(getattr(self.arrays, name), self.n, capacity) for name in TERM_ARRAYS}
        grown |= {name: _grown(getattr(self.arrays, name), n_listed, capacity) for name in BRANCH_ARRAYS}
        # Entries name the numbers of rows, so a larger table is filled anew.
        if len(self.arrays.slots) < SLOTS_A_TERM * capacity:
            grown["slots"], self.is_stale = _table(capacity), True
        self.arrays = self.arrays._replace(**grown)
        self.size_bytes = _size_bytes(self.arrays)

    def refresh(self) -> None:
        """Have the tags of all rows, and all terms in the table."""
        arrays = self.arrays
        if self.is_new:
            self.kernel.tag_all(arrays.keys, self.n, arrays.tags)
        if self.is_stale:
            self.kernel.rebuild(arrays.tags, arrays.where, self.n, arrays.slots)
        self.is_new = self.is_stale = False

    def _changed(self, is_new: bool = False) -> None:
        """Terms have changed that `hits` does not name, or `is_new`: their words have."""
        self.n_hits, self.n_changed, self.is_swept = 0, 0, False
        self.is_new, self.is_stale = self.is_new or is_new, self.is_stale or is_new


def _size_bytes(arrays: ShardArrays) -> int:
    """What the arrays take that grow."""
    return sum(array.nbytes for array in arrays) - arrays.union.nbytes - arrays.columns.nbytes


def _table(n_terms: int) -> Array:
    return np.zeros(1 << (SLOTS_A_TERM * n_terms - 1).bit_length(), np.uint64)


def _grown(array: Array, n: int, capacity: int) -> Array:
    larger = np.empty((capacity, *array.shape[1:]), array.dtype, order="F")
    larger[:n] = array[:n]
    return larger

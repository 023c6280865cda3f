"""The terms of a rank on its GPU, changed without waiting for it. Imports CuPy's adapter when it is made.

With ranks, each has one shard, and branches for another rank make the host wait for their number. Other
launches wait for nothing: see `logged`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from tnplan.circuits.pauli_sum import PauliSum, pack
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.device.protocols.communicator import Communicator, messages
from tnplan.executor.pauli.algebra.gates import Clifford, TransferMatrix, word_masks
from tnplan.executor.pauli.algebra.tableau import clifford_layer
from tnplan.executor.pauli.cuda.rotated import RotatedTerms
from tnplan.executor.pauli.resharding import (
    LEAST_ROTATIONS,
    SAMPLE_TERMS,
    SHORT_RUN,
    Costs,
    LinearHash,
    LocalRun,
    Sample,
    rank_and_size,
)
from tnplan.executor.pauli.terms.protocol import RotationBatch
from tnplan.executor.pauli.terms.truncation import TermLimits

COSTS = Costs(exchange_s=5e-4, move_s=4e-3, term_s=2e-10, alone_below=1 << 22)
"""Seconds of exchanges and moves between GPUs, as measured over NVLink."""
MOVED_TERMS = 1 << 18
"""Terms that a rank gives to others at once, at most; or a share of its rows, `MOVED_ROWS_SHARE`."""
MOVED_ROWS_SHARE = 16
MOST_LAYERS = 1024
"""Cliffords in a row that one launch applies, at most."""
MOST_ROTATIONS = 128
"""Rotations that are launched at once, at most."""


class GpuTerms(RotatedTerms):
    """The terms of this rank on the current GPU, and the ledger of what happened to them.

    Coefficients are real. A term whose coefficient is 0 does not count as one.
    """

    def __init__(self, start: PauliSum, ranks: Communicator | None = None) -> None:
        self.ranks = ranks
        self.rank, n_ranks = rank_and_size(ranks)
        self.linear_hash, self.costs = LinearHash(start.n_qubits, n_ranks.bit_length() - 1), COSTS
        if start.n_terms < self.costs.alone_below:
            self.linear_hash.masks[:] = 0
        local = self.linear_hash.of(start.keys) == self.rank
        super().__init__(PauliSum(start.n_qubits, start.keys[local], start.coefficients[local]))

    def limit(self, n_terms: int) -> None:
        """Do not double arrays past so many terms."""
        super().limit(n_terms)
        self.costs = self.costs._replace(alone_below=min(self.costs.alone_below, n_terms // 4))

    def batch_limit(self, memory_terms: int | None) -> int:
        """How many rotations may be launched at once; with several GPUs those that fit if each doubles."""
        if memory_terms is None:
            return MOST_ROTATIONS
        if self.ranks is None:
            return MOST_ROTATIONS if 2 * self.n <= memory_terms else 0
        n = max(1, self.all_ranks(self.n))
        return min(MOST_ROTATIONS, max(0, (memory_terms // n).bit_length() - 1))

    def count(self, generator: Array) -> int:
        """How many terms of this rank a rotation about `generator` would split."""
        return self.table.count(self._settled(), generator)

    def reshard(self, generators: Array) -> int:
        """Spread the terms so that these rotations, which come next, need few exchanges; collective.

        Returns how many of them, at least 1, are to be done before the next call.
        """
        is_alone = not self.linear_hash.masks.any()
        if len(generators) < LEAST_ROTATIONS and not is_alone:
            return max(1, len(generators))
        if is_alone and self.all_ranks(self.n) < self.costs.alone_below:
            return SHORT_RUN
        run = LocalRun(generators, self.linear_hash.masks)
        rows, live = self._settled(), self.event_ledger.live
        keys = self.table.sample(rows, max(1, live * self.n_ranks // SAMPLE_TERMS))
        return self.spread(run, Sample(keys, live), self.costs)

    def rotate(self, generator: Array, cosine: float, sine: float, cut: float) -> None:
        """Rotate about the packed word `generator`; branches below `cut` are dropped."""
        distances = self.linear_hash.of(generator[None])
        batch = RotationBatch(
            generator[None], np.array([cosine]), np.array([sine]), np.zeros(1, bool), distances
        )
        self._rotate_in_shard(batch, cut, None)
        self.may_be_past = True

    def rotate_many(self, rotations: RotationBatch, cut: float, limits: TermLimits) -> int:
        """Rotations one after another, each a step; after those that are `due` terms past the limits go."""
        if self.ranks is None and (self.memory_terms is not None or self.term_cap is not None):
            return self._rotate_bounded(rotations, cut, limits)
        distances = self.linear_hash.of(rotations.generators)
        rotations, first = rotations._replace(distances=distances), 0
        while first < len(distances):
            last = first + 1
            if not distances[first]:
                while last < len(distances) and not distances[last]:
                    last += 1
            self._rotate_in_shard(rotations.between(first, last), cut, limits)
            first = last
        return len(distances)

    def transfer(self, step: TransferMatrix, cut: float) -> None:
        """Apply a transfer; contributions below `cut` to other words are dropped."""
        n = self._settled()
        self.limits_met = None
        qubits, words, branch_lists = np.array(step.qubits), np.arange(len(step.matrix)), []
        # A Pauli transfer matrix takes word a to sum_b T[b, a] b. Branches with b = a ^ d share d,
        # and with it a generator and the rank that owns them.
        for d in words[1:]:
            weights = step.matrix[words ^ d, words]
            if not np.any(weights):
                continue
            rows, values, counts = self.table.branches(n, qubits, weights, cut, self._begin("branches"))
            generator = pack(*word_masks(step.qubits, int(d)), self.n_qubits)
            branch_lists.append((generator, (rows ^ self.table.to_gpu(generator)[0], values, counts)))
        # Invariant: all branches are listed from the old coefficients before the diagonal scales
        # these in place.
        event, splits = self._begin("scale"), np.count_nonzero(step.matrix, axis=0) > 1
        self._do(lambda *_: self.table.scale(qubits, np.diag(step.matrix), splits, event))
        for generator, lists in branch_lists:
            self._catch_up()
            self._merge(lists, self.linear_hash.distance(generator))
        self.may_be_past = True

    def clifford(self, gates: Sequence[Clifford]) -> None:
        """Apply Cliffords one after another, in one pass."""
        if not self.maps or len(self.maps) == MOST_LAYERS:
            self._begin("clifford")
        self.maps.append(clifford_layer(tuple(gates), self.n_qubits))
        for gate in gates:
            self.linear_hash.carry(gate)

    def keep_largest(self, count: int) -> None:
        """Keep the `count` largest magnitudes; of equal ones the least words. For one GPU."""
        if self.all_ranks(self.n) <= count:
            return
        if self.ranks is not None:
            raise InputError(
                "several GPUs", "cannot keep the largest terms (--max-terms, --when-full truncate)",
                "use a cut, or one GPU",
                topic="GPUs",
            )  # fmt: skip
        self._keep_largest(count)

    def end_step(self) -> None:
        """Enter the step in the ledger, when its numbers are known."""
        self.event_ledger.note("end", self.event)
        if self.term_cap is not None and self.may_be_past:
            self.settle()
            self._hold_cap()

    def local_terms(self) -> PauliSum:
        """The terms of this rank, in rising order of their words."""
        from tnplan.executor.pauli.cuda.selection import in_order

        return PauliSum(self.n_qubits, *in_order(self.table, self._settled()))

    def in_bits(self, bits: str | None = None) -> float:
        """This rank's part of the value in a computational state; None is all 0."""
        ones = pack(int((bits or "0")[::-1], 2), 0, self.n_qubits)
        return self.table.in_bits(self._settled(), np.ascontiguousarray(ones[: len(ones) // 2]))

    def in_product(self, bloch: Array) -> float:
        """This rank's part of the value in a product state of Bloch vectors [qubit, 3]."""
        from tnplan.executor.pauli.cuda.selection import in_product

        return in_product(self.table, self._settled(), bloch)

    def _rotate_in_shard(self, rotations: RotationBatch, cut: float, limits: TermLimits | None) -> None:
        """Rotations that all stay in their shards, or one that does not; steps if there are `limits`."""
        generator, cosine, sine, is_due, across = (array[0] for array in rotations)
        if across:
            event = self._begin("quarter" if cosine == 0 else "turn")
            self._catch_up()
            # The branch of word w is w ^ generator. The hash of shards is linear, h(w ^ g) = h(w) ^ h(g),
            # so that all branches of this shard are for one other.
            lists = self.table.split(generator, cosine, sine, cut, event)
            self._merge(lists, int(across))
            self.limits_met = None
            if limits is not None:
                if is_due:
                    self.sweep(limits)
                self.end_step()
            return
        first, n_rotations = 0, len(rotations.due)
        while first < n_rotations:
            self._launch_maps()
            if self.event == self.adapter.LOG_EVENTS - 1:
                self.settle()
            self._refresh()
            last = min(n_rotations, first + self.adapter.LOG_EVENTS - 1 - self.event)
            self._launch_rotations(rotations.between(first, last), cut, limits)
            first = last

    def _merge(self, lists: Any, across: int) -> None:
        """Take branches to the rank that owns their words. All events before are done."""
        if across:
            lists = self.exchange(lists, self.rank ^ across)
        listed = len(lists[1])
        if not listed:
            return
        event = self._begin("meet")
        n = self._rows_after(event - 1)
        if n + listed > self.table.capacity:
            self._grow(n, n + listed)
        elif self.is_stale:
            self.table.rebuild(event - 1)
        self.is_stale = False
        self.table.merge_rows(lists, event)

    def exchange(self, lists: Any, peer: int) -> Any:
        """The peer's branches for this rank."""
        assert self.ranks is not None
        arrived = self.table.row_lists(self.ranks.gather_objects(len(lists[1]))[peer])
        self.ranks.exchange(messages(peer, lists), messages(peer, arrived))
        return arrived

    def move(self, masks: Array) -> None:
        """Take every word to the rank that owns it by other masks; collective. The log is new."""
        assert self.ranks is not None
        self.linear_hash.masks = masks.copy()
        table, rank, n = self.table, self.rank, self._rows_after(0)
        peers = [peer for peer in range(self.ranks.size) if peer != rank]
        counted = self.ranks.gather_objects((table.leave(n, masks, rank, 0)[2], table.capacity))
        # Invariant: every rank knows how many terms each sends to each, so that all make the same
        # number of exchanges.
        n_leaving = np.array([leaves for leaves, _ in counted])
        share = max(MOVED_TERMS, min(capacity for _, capacity in counted) // MOVED_ROWS_SHARE) // len(peers)
        max_terms = max(1, min(int(n_leaving.max()), share))
        rounds = np.arange(0, n_leaving.max(), max_terms)
        n_moved = np.clip(n_leaving - rounds[:, None, None], 0, max_terms)
        surplus = int((n_moved[:, :, rank] - n_moved[:, rank]).clip(0).sum())
        if n + surplus > table.capacity > self.event_ledger.live + surplus:
            self._close_gaps(n)
            n = self.event_ledger.live
        elif n + surplus > table.capacity:
            self._grow(n, n + surplus)
        self.moved_bytes = max(self.moved_bytes, 2 * max_terms * len(peers) * table.listed_bytes)
        for counts in n_moved:
            arrived = [table.row_lists(int(counts[peer, rank])) for peer in peers]
            leaving, free_rows, _ = table.leave(n, masks, rank, max_terms)
            sends, receives = (
                list(chain.from_iterable(map(messages, peers, lists))) for lists in (leaving, arrived)
            )
            self.ranks.exchange(sends, receives)
            for lists, free in zip(arrived, free_rows, strict=True):
                n = table.join(n, lists, free)
        self._close_gaps(n)

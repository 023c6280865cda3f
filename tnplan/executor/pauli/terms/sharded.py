"""All terms of a propagation as shards: of this rank's threads, and of other ranks. Knows steps as arrays.

Rotations whose branches stay on the rank are done many at once (`batched_rotations`). Of other steps each
half runs on all shards of the rank at once. Between the halves the lists of branches go to the shards that
have their words; those of other ranks in messages. A result depends on the number of shards through the order
of sums alone: in a step without transfers no coefficient is a sum of more than two numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from tnplan.circuits.pauli_sum import PauliSum
from tnplan.common.arrays import Array
from tnplan.executor.device.protocols.communicator import Communicator, messages
from tnplan.executor.pauli.algebra.expectation import value_in
from tnplan.executor.pauli.algebra.gates import Clifford, TransferMatrix
from tnplan.executor.pauli.resharding import (
    LEAST_ROTATIONS,
    SAMPLE_TERMS,
    Costs,
    LinearHash,
    LocalRun,
    Sample,
    rank_and_size,
)
from tnplan.executor.pauli.terms.batched_rotations import NO_BOUND, UNBOUNDED, Bound, rotate_all
from tnplan.executor.pauli.terms.hash_table import Branches, HashTerms, unpacked
from tnplan.executor.pauli.terms.ledger import Ledger, loss_of, total_loss
from tnplan.executor.pauli.terms.protocol import RotationBatch, Terms
from tnplan.executor.pauli.terms.selection import Arrivals, TermCap, is_past, least_words, nth_largest, united
from tnplan.executor.pauli.terms.truncation import TermLimits

Result = TypeVar("Result")

COSTS = Costs(exchange_s=2e-4, move_s=1e-3, term_s=1e-7)
"""Seconds of exchanges and moves between ranks of one host, as measured."""
SERIAL_BELOW = 1 << 16
"""Terms of a rank below which its threads cost more than they save in the halves of a rotation."""
SINGLE_SHARD_BELOW = 1 << 13
"""The same of passes over all terms, and of many rotations at once: so few are all in the first shard."""
MOST_ROTATIONS, MOST_ROTATIONS_BOUNDED = 1024, 128
"""Rotations that are done at once, at most; the second where the memory is bounded."""
MOST_VISITS = 1 << 27
"""Rotations, and terms that they meet, after which a propagation may report, about."""


class ShardedTerms(Terms):
    """The terms of this rank, and the ledger of what happened to them.

    A rank has a shard for each of its threads, rounded up to a power of two. A single rank's first shard has
    all terms while they are few.
    """

    def __init__(self, start: PauliSum, threads: int = 1, ranks: Communicator | None = None) -> None:
        self.n_qubits = start.n_qubits
        self.ranks = ranks
        self.rank, n_ranks = rank_and_size(ranks)
        self.n_local = 1 << (threads - 1).bit_length()
        self.linear_hash = LinearHash(start.n_qubits, (self.n_local * n_ranks).bit_length() - 1)
        self.is_distributed = threads == 1 or n_ranks > 1
        owners = self.linear_hash.of(start.keys) - self.rank * self.n_local
        if not self.is_distributed:
            owners[:] = 0
        self.started = [np.flatnonzero(owners == s) for s in range(self.n_local)]
        """The terms of the start that each shard has."""
        self.shards = [
            HashTerms(PauliSum(start.n_qubits, start.keys[rows], start.coefficients[rows]))
            for rows in self.started
        ]
        self.threads = threads
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self.ledger = Ledger()
        self.term_cap: TermCap | None = None
        self.most_terms = NO_BOUND
        """Terms that the memory of this rank holds."""

    def close(self) -> None:
        """End the threads."""
        if self.pool is not None:
            self.pool.shutdown()

    @property
    def n(self) -> int:
        """How many terms this rank has."""
        return sum(shard.n for shard in self.shards)

    @property
    def size_bytes(self) -> int:
        """What this rank's arrays take."""
        return sum(shard.size_bytes for shard in self.shards)

    def batch_limit(self, memory_terms: int | None) -> int:
        """How many rotations may be done at once: where memory is bounded, those that fit if each doubles.

        A lone shard stops by itself where the next may not fit.
        """
        if memory_terms is None or self.is_lone:
            return max(1, min(MOST_ROTATIONS, MOST_VISITS // max(1, self.n)))
        n = max(1, self.all_ranks(self.n))
        return min(MOST_ROTATIONS_BOUNDED, max(0, (memory_terms // n).bit_length() - 1))

    @property
    def is_lone(self) -> bool:
        """Whether all terms of all ranks are always in one shard."""
        return len(self.shards) * self.n_ranks == 1

    def limit(self, n_terms: int) -> None:
        """Grow no shard past its share of so many terms of this rank, unless it has more."""
        self._distribute()
        self.most_terms = n_terms
        for shard in self.shards:
            shard.max_rows = n_terms // self.n_local

    def cap(self, cap: TermCap) -> bool:
        """Never have more terms than `cap` allows, on all ranks together."""
        self.term_cap = cap
        return True

    def count(self, generator: Array) -> int:
        """How many terms of this rank a rotation about `generator` would split."""
        return sum(self._each(lambda shard: shard.count(generator)))

    def reshard(self, generators: Array) -> int:
        """Spread the terms so that these rotations, which come next, need few exchanges; collective.

        Returns how many of them, at least 1, are to be done before the next call.
        """
        if len(generators) < LEAST_ROTATIONS:
            return len(generators)
        run = LocalRun(generators, self.linear_hash.masks[self._first_mask :])
        step = max(1, self.n * self.n_ranks // SAMPLE_TERMS)
        keys = np.concatenate([shard.arrays.keys[: shard.n : step] for shard in self.shards])
        return self.spread(run, Sample(keys, self.n), COSTS)

    def rotate(self, generator: Array, cosine: float, sine: float, cut: float) -> None:
        """Rotate about the packed word `generator`; branches below `cut` are dropped."""
        before = self._begin_step()
        splits = self._each(lambda shard: shard.split(generator, cosine, sine, cut))
        self.ledger.losses.append(total_loss([loss for _, _, loss in splits]))
        merged = self._merge([self._delivered([branches for branches, _, _ in splits], generator)])
        self.step_counts = (before, self.n, sum(hits for _, hits, _ in splits), merged)

    def rotate_many(self, rotations: RotationBatch, cut: float, limits: TermLimits) -> int:
        """Rotations one after another, each a step; after those that are `due` terms past the limits go."""
        if self.term_cap is not None:
            self._rotate_capped(rotations, cut, limits, self.term_cap)
            return len(rotations.due)
        distances = self.linear_hash.of(rotations.generators)
        rotations, first = rotations._replace(distances=distances), 0
        while first < len(distances):
            last = first
            while last < len(distances) and distances[last] < self.n_local:
                last += 1
            if last > first:
                n_done = self._rotate_on_rank(rotations.between(first, last), cut, limits)
                if n_done < last - first:
                    return first + n_done
            else:
                last += 1
                super().rotate_many(rotations.between(first, last), cut, limits)
            first = last
        return len(distances)

    def transfer(self, step: TransferMatrix, cut: float) -> None:
        """Apply a transfer; contributions below `cut` to other words are dropped."""
        before = self._begin_step()
        splits = self._each(lambda shard: shard.transfer(step, cut))
        self.ledger.losses.append(total_loss([loss for _, _, loss in splits]))
        merged = self._merge(
            [
                self._delivered(lists, lists[0].generator)
                for lists in zip(*(lists for lists, _, _ in splits), strict=True)
            ]
        )
        self.step_counts = (before, self.n, sum(branched for _, branched, _ in splits), merged)

    def clifford(self, gates: Sequence[Clifford]) -> None:
        """Apply Cliffords one after another, in one pass."""
        self._each(lambda shard: shard.clifford(gates), least=SINGLE_SHARD_BELOW)
        self.linear_hash.carry(*gates)
        self.step_counts = (self.n, self.n, 0, 0)

    def sweep(self, limits: TermLimits) -> None:
        """Drop terms past the limits, and zeros."""
        self.ledger.losses.append(
            total_loss(self._each(lambda shard: shard.sweep(limits), least=SINGLE_SHARD_BELOW))
        )

    def keep_largest(self, count: int) -> None:
        """Of the terms of all ranks keep the `count` largest magnitudes; of equal ones the least words."""
        if self.all_ranks(self.n) > count:
            self._keep_largest(count, [shard.none() for shard in self.shards])

    def replace(self, change: Callable[[Array, Array], tuple[Array, Array]]) -> None:
        """Make other words, each once, and their coefficients of all; on a lone rank, without frequencies."""
        keys, coefficients = (
            np.concatenate([shard.arrays[field][: shard.n] for shard in self.shards]) for field in (0, 1)
        )
        keys, coefficients = change(keys, coefficients)
        owners = self.linear_hash.of(keys) if self.is_distributed else np.zeros(len(keys), np.int64)
        for number, shard in enumerate(self.shards):
            rows = np.flatnonzero(owners == number)
            shard.keep(rows[:0])
            shard.join(keys[rows], coefficients[rows], np.zeros(len(rows), np.int32))

    def local_terms(self) -> PauliSum:
        """The terms of this rank, in rising order of their words."""
        sums = [shard.rows() for shard in self.shards]
        keys = np.concatenate([terms.keys for terms in sums])
        return PauliSum(self.n_qubits, keys, np.concatenate([terms.coefficients for terms in sums])).sorted()

    def in_bits(self, bits: str | None = None) -> complex:
        """This rank's part of the value in a computational state; None is all 0."""
        return sum((value_in(shard.rows(), bits) for shard in self.shards), 0.0)

    def _rotate_on_rank(self, rotations: RotationBatch, cut: float, limits: TermLimits) -> int:
        """Rotations that leave all branches on this rank; how many are done, all but for a lone shard."""
        n_first = 0
        if not self.is_distributed:
            undistributed = rotations._replace(distances=np.zeros_like(rotations.distances))
            bound = Bound(SINGLE_SHARD_BELOW)
            n_first = rotate_all(self.shards[:1], undistributed, cut, limits, self.ledger, bound=bound)
            rotations = rotations.between(n_first)
            if not len(rotations.due):
                return n_first
            self._distribute()
        self._each(HashTerms.refresh, least=SINGLE_SHARD_BELOW)
        bound = Bound(after=self.most_terms) if self.is_lone else UNBOUNDED
        n_done = rotate_all(self.shards, rotations, cut, limits, self.ledger, self.pool, self.threads, bound)
        return n_first + n_done

    def _rotate_capped(self, rotations: RotationBatch, cut: float, limits: TermLimits, cap: TermCap) -> None:
        """Rotations of capped terms: many at once where one shard has all, while they are sure to fit.

        Where the next may not, terms are resampled before it, unless they are few already.
        """
        before = NO_BOUND if self.threads == 1 else SINGLE_SHARD_BELOW
        while len(rotations.due):
            n_done, is_alone = 0, not self.is_distributed or self.is_lone
            if is_alone:
                undistributed = rotations._replace(distances=np.zeros_like(rotations.distances))
                bound = Bound(before, cap.n_terms)
                n_done = rotate_all(self.shards[:1], undistributed, cut, limits, self.ledger, bound=bound)
            if not n_done and not (is_alone and self.n <= before and self._resample_early(cap)):
                n_done = 1
                super().rotate_many(rotations.between(0, 1), cut, limits)
                for shard in self.shards:
                    shard.is_swept = shard.is_swept and not shard.n_changed
            rotations = rotations.between(n_done)

    def _resample_early(self, cap: TermCap) -> bool:
        """Let a resampler leave as many terms as it leaves of too many; whether any went."""
        n = self.n
        if cap.resampler is None or n <= cap.resampler.n_left(cap.n_terms):
            return False
        self._resample(cap.n_terms, [self.shards[0].none()] * len(self.shards))
        return self.n < n

    def _begin_step(self) -> int:
        """The terms of this rank, spread if they are many."""
        n = self.n
        if n > SINGLE_SHARD_BELOW:
            self._distribute()
        return n

    def _distribute(self) -> None:
        """Give every shard its terms, if the first one has all."""
        if self.is_distributed:
            return
        first = self.shards[0]
        for number in range(1, self.n_local):
            owners = self.linear_hash.of(first.arrays.keys[: first.n])
            self.shards[number].join(*first.leave(np.flatnonzero(owners == number)))
        self.is_distributed = True

    def _each(
        self, work: Callable[..., Result], *arguments: Sequence[Any], least: int | None = None
    ) -> list[Result]:
        """`work(shard, argument ...)` for all shards of this rank, in their order.

        Threads do it where the rank has at least so many terms (default: SERIAL_BELOW).
        """
        is_serial = self.pool is None or self.n < (SERIAL_BELOW if least is None else least)
        run = map if self.pool is None or is_serial else self.pool.map
        return list(run(work, self.shards, *arguments))

    def _delivered(self, lists: Sequence[Branches], generator: Array) -> list[Branches]:
        """The list of every shard's words; exchanges them with the rank at the distance of `generator`."""
        across, within = divmod(
            self.linear_hash.distance(generator) if self.is_distributed else 0, self.n_local
        )
        if across:
            lists = self.exchange(lists, self.rank ^ across)
        return [lists[s ^ within] for s in range(self.n_local)]

    def _merge(self, delivered: Sequence[Sequence[Branches]]) -> int:
        """Add lists to the terms of every shard; return how many branches met a term."""
        cap = self.term_cap
        if cap is not None:
            new = sum(branches.n for lists in delivered for branches in lists)
            if self.all_ranks(self.n + new) > cap.n_terms:
                return self._merge_capped(delivered, cap)
        return sum(sum(self._each(HashTerms.merge, lists)) for lists in delivered)

    def _merge_capped(self, delivered: Sequence[Sequence[Branches]], cap: TermCap) -> int:
        """The same where there may be too many terms: new words wait until some of them are chosen."""
        met = [self._each(HashTerms.meet, lists) for lists in delivered]
        listed = sum(len(words.values) for of_list in met for _, words in of_list)
        arrivals = [united([words for _, words in of_shard]) for of_shard in zip(*met, strict=True)]
        new = sum(len(words.values) for words in arrivals)
        merged = sum(n for of_list in met for n, _ in of_list) + listed - new
        if self.all_ranks(self.n + new) > cap.n_terms:
            arrivals = self._sweep_all(arrivals, cap.limits)
            if self.all_ranks(self.n + sum(len(new_words.values) for new_words in arrivals)) > cap.n_terms:
                choose = self._keep_largest if cap.resampler is None else self._resample
                arrivals = choose(cap.n_terms, arrivals)
        for shard, new_words in zip(self.shards, arrivals, strict=True):
            if len(new_words.values):
                shard.merge(unpacked(*new_words))
        return merged

    def _sweep_all(self, arrivals: Sequence[Arrivals], limits: TermLimits) -> list[Arrivals]:
        """Drop terms and arrivals past the limits, and zeros; returns the arrivals that are left."""
        losses = self._each(lambda shard: shard.sweep(limits), least=SINGLE_SHARD_BELOW)
        are_past = [is_past(new_words, limits) | (new_words.values == 0) for new_words in arrivals]
        dropped = [np.abs(new_words.values[mask]) for new_words, mask in zip(arrivals, are_past, strict=True)]
        losses.append(loss_of(np.concatenate(dropped).astype(np.float64)))
        self.ledger.losses.append(total_loss(losses))
        return [new_words.chosen(~mask) for new_words, mask in zip(arrivals, are_past, strict=True)]

    def _keep_largest(self, count: int, arrivals: Sequence[Arrivals]) -> list[Arrivals]:
        """Of terms and arrivals on all ranks keep the `count` largest, and of equal ones the least words.

        Returns the arrivals that stay.
        """
        sizes, keys = self._candidates(arrivals)
        lost, stayed = [], []
        for s, stays in enumerate(self._largest(sizes, keys, count)):
            lost.append(sizes[s][~stays])
            shard = self.shards[s]
            stayed.append(arrivals[s].chosen(stays[shard.n :]))
            shard.weaken(stays[: shard.n].astype(np.float32))
        self.ledger.losses.append(loss_of(np.concatenate(lost)))
        return stayed

    def _largest(
        self, sizes: Sequence[Array], keys: Sequence[Callable[[Array], Array]], count: int
    ) -> list[Array]:
        """Masks of the `count` largest on all ranks, and of equal ones the least words, for each shard."""
        least = nth_largest(sizes, count, self.all_ranks, is_alone=self.n_ranks == 1)
        ties = [np.flatnonzero(size == least) for size in sizes]
        masks = [size > least for size in sizes]
        n_missing = count - self.all_ranks(sum(int(np.count_nonzero(mask)) for mask in masks))
        tied = [rows(numbers) for rows, numbers in zip(keys, ties, strict=True)]
        everywhere = np.concatenate(tied)
        gathered = [everywhere] if self.ranks is None else self.ranks.gather_objects(everywhere)
        of_ties = least_words(tied, n_missing, self.rank, gathered)
        for mask, tie, chosen in zip(masks, ties, of_ties, strict=True):
            mask[tie[chosen]] = True
        return masks

    def _resample(self, count: int, arrivals: Sequence[Arrivals]) -> list[Arrivals]:
        """Let the resampler leave `count` of terms and arrivals at most; returns the arrivals that stay."""
        assert self.ranks is None
        assert self.term_cap is not None
        resampler = self.term_cap.resampler
        assert resampler is not None
        sizes, words = self._candidates(arrivals)
        sizes = [
            size * resampler.importance(some(np.arange(len(size))))
            for size, some in zip(sizes, words, strict=True)
        ]
        numbers, magnitudes = resampler.draw(np.concatenate(sizes), count)
        # One draw over the terms and arrivals of all shards, in turn: chosen numbers rise, so that
        # each shard's are a range.
        ends, stayed = np.cumsum([len(size) for size in sizes]), []
        for s, (shard, new_words, size) in enumerate(zip(self.shards, arrivals, sizes, strict=True)):
            begin = int(ends[s]) - len(size)
            first, last = np.searchsorted(numbers, (begin, int(ends[s])))
            rows = numbers[first:last] - begin
            # A drawn term gets a new magnitude and keeps its sign: the factor is new over old.
            factors = magnitudes[first:last] / size[rows]
            old = np.searchsorted(rows, shard.n)
            new_words = new_words.chosen(rows[old:] - shard.n)
            values = (new_words.values * factors[old:]).astype(new_words.values.dtype)
            stayed.append(new_words._replace(values=values))
            every = np.zeros(shard.n)
            every[rows[:old]] = factors[:old]
            shard.weaken(every)
        return stayed

    def _candidates(self, arrivals: Sequence[Arrivals]) -> tuple[list[Array], list[Callable[[Array], Array]]]:
        """Of each shard the magnitudes of terms and then of arrivals, and a way to the words of some."""

        def words(shard: HashTerms, new_words: Arrivals) -> Callable[[Array], Array]:
            def some(numbers: Array) -> Array:
                old = np.searchsorted(numbers, shard.n)
                rows = shard.arrays.keys[numbers[:old]], new_words.keys[numbers[old:] - shard.n]
                return np.concatenate(rows)

            return some

        pairs = list(zip(self.shards, arrivals, strict=True))
        sizes = [
            np.abs(np.concatenate([shard.rows().coefficients, new_words.values])).astype(np.float64)
            for shard, new_words in pairs
        ]
        return sizes, [words(shard, new_words) for shard, new_words in pairs]

    def exchange(self, lists: Sequence[Branches], peer: int) -> list[Branches]:
        """The lists of the peer for ours."""
        assert self.ranks is not None
        counts = self.ranks.gather_objects([branches.n for branches in lists])[peer]
        arrived = [self._branch_buffers(n) for n in counts]
        outgoing = [array for branches in lists if branches.n for array in branches.packed()]
        self.ranks.exchange(messages(peer, outgoing), messages(peer, chain.from_iterable(arrived)))
        return [unpacked(*arrays) for arrays in arrived]

    def _branch_buffers(self, n: int) -> tuple[Array, Array, Array]:
        """Empty arrays for words, coefficients and frequencies of other ranks."""
        width, dtype = self.shards[0].arrays.keys.shape[1], self.shards[0].arrays.values.dtype
        return np.empty((n, width), np.uint64), np.empty(n, dtype), np.empty(n, np.int32)

    @property
    def _first_mask(self) -> int:
        """The number of masks that tell the shards of a rank; those of ranks come after them."""
        return self.n_local.bit_length() - 1

    def move(self, masks: Array) -> None:
        """Take every word to the rank that owns it by other masks of ranks; collective."""
        assert self.ranks is not None
        ranks = self.ranks
        self.linear_hash.masks = np.concatenate([self.linear_hash.masks[: self._first_mask], masks])
        # Invariant: counts are gathered first, so that every rank knows what arrives before the
        # arrays are exchanged.
        counts = np.zeros((ranks.size, self.n_local), np.int64)
        sends: list[tuple[int, Array]] = []
        for number, shard in enumerate(self.shards):
            owners = self.linear_hash.of(shard.arrays.keys[: shard.n]) // self.n_local
            rows = np.flatnonzero(owners != self.rank)
            arrays = shard.leave(rows)
            for peer in range(ranks.size):
                goes = owners[rows] == peer
                counts[peer, number] = np.count_nonzero(goes)
                sends += messages(peer, (array[goes] for array in arrays))
        arriving = [
            (peer, number, self._branch_buffers(int(n)))
            for number in range(self.n_local)
            for peer, n in enumerate(arrivals[self.rank, number] for arrivals in ranks.gather_objects(counts))
            if n
        ]
        ranks.exchange(sends, [message for peer, _, arrays in arriving for message in messages(peer, arrays)])
        # Terms join after those that go have left: a word is on one rank at a time.
        for _, number, arrays in arriving:
            self.shards[number].join(*arrays)

"""Masks of shards that a stretch of rotations does not cross, and whether a move pays. Knows no device.

A rotation about G leaves every branch on its rank where all masks of ranks are orthogonal to G (see
`linear_hash`). The masks orthogonal to all generators of a stretch are the null space of these over GF(2).
Masks, like words, are Python integers here: bits of x, then of z, as in a packed row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tnplan.circuits.pauli_sum import bit_counts, integers_of, n_words, rows_of
from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.pauli.algebra.gates import Clifford

# Which shard a word belongs to: a linear hash, which Cliffords carry along. Knows no coefficient.
#
# Bit b of a word's shard is the parity of the bits that it shares with mask b, a random word. Being linear,
# the shard of G P is that of P, xor that of G: a rotation about G sends the branches of every shard to one
# other, the same distance away, or to none. A Clifford moves no word: the masks change with it.


SEED = 20260
"""Of the random masks: every rank has the same."""


def rank_and_size(ranks: Communicator | None) -> tuple[int, int]:
    """The number of this rank and how many there are; raises InputError where masks cannot number them."""
    rank, size = (0, 1) if ranks is None else (ranks.rank, ranks.size)
    if size & (size - 1):
        raise InputError("ranks", f"are {size}", "start a power of two")
    return rank, size


class LinearHash:
    """`bits` masks over the 2 n bits of words on `n_qubits`; shards are 0 .. 2^bits - 1."""

    def __init__(self, n_qubits: int, bits: int) -> None:
        self.n_shards = 1 << bits
        size = (bits, 2 * n_words(n_qubits))
        self.masks = np.random.default_rng(SEED).integers(2**64, size=size, dtype=np.uint64)

    def of(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The shards of packed words [..., 2 W]."""
        shards = np.zeros(keys.shape[:-1], np.int64)
        for bit, mask in enumerate(self.masks):
            shards |= (bit_counts(keys & mask) & 1) << bit
        return shards

    def distance(self, generator: NDArray[np.uint64]) -> int:
        """How far away G P is from P, for every word P."""
        return int(self.of(generator))

    def carry(self, *gates: Clifford) -> None:
        """Change the masks so that every word's image belongs to the shard that the word belonged to."""
        if not len(self.masks):
            return
        width, masks = self.masks.shape[1], integers_of(self.masks)
        half = 32 * width
        for gate in gates:
            bits = [bit_number for qubit in gate.qubits for bit_number in (qubit, half + qubit)]
            sources = _sources(gate)
            for number, mask in enumerate(masks):
                local = sum((mask >> bit & 1) << j for j, bit in enumerate(bits))
                for bit, source in zip(bits, sources, strict=True):
                    mask = mask & ~(1 << bit) | ((source & local).bit_count() & 1) << bit
                masks[number] = mask
        self.masks = np.array(rows_of(masks, width))


@lru_cache(maxsize=4096)
def _sources(gate: Clifford) -> list[int]:
    """For each bit of a local word the word whose image has it alone."""
    order = np.argsort(gate.images)
    return [int(order[1 << j]) for j in range(2 * len(gate.qubits))]


Reduced = list[tuple[int, int]]
"""Pivots and words: a word has its own pivot's bit, and none of those before it."""

SPARE_DIMENSIONS = 8
"""Dimensions that are left to choose among, besides one for each mask."""
MASKS_TRIED = 12
"""Random masks of which the most even is taken."""
SAMPLE_TERMS = 2048
"""Terms of all ranks on which masks are tried, about."""
EVEN_LOAD = 1.2
"""The fullest shard has at most so many times the mean of the sample, where there are many terms."""
FEW_TERMS = 1 << 16
"""With fewer terms on all ranks it does not matter how they are spread."""
UNEVEN_LOAD = 1.1
"""Where the fullest rank has more times the mean, words are moved whatever that costs."""
LEAST_ROTATIONS = 8
"""Rotations in a row, at least, for a move to be thought of."""
SHORT_RUN = 128
"""Rotations for which the masks of few terms hold; and half of them for masks that cannot be improved."""
BRANCHED_SHARE = 1 / 20
"""The share of terms whose branches an exchange takes along."""


class Costs(NamedTuple):
    """Seconds: of an exchange of branches and of a move, and for each term of a rank that is moved.

    With fewer terms on all ranks than `alone_below`, the first rank does all the work sooner than all do.
    """

    exchange_s: float
    move_s: float
    term_s: float
    alone_below: int = 0

    def saves(self, exchanges: int, terms: float) -> bool:
        """Whether a move of `terms` terms of a rank costs less than so many exchanges."""
        saved_s = exchanges * (self.exchange_s + BRANCHED_SHARE * terms * self.term_s)
        return saved_s > self.move_s + terms * self.term_s


class Sample(NamedTuple):
    """Some words of a rank, uint64 [n, 2 W], and how many it has."""

    keys: Array
    terms: int


def reduced(words: Sequence[int]) -> tuple[Reduced, list[int]]:
    """A basis of what the words span, and the numbers of the words that bring its elements, one each."""
    # Gaussian elimination over GF(2), words as bit vectors.
    basis: Reduced = []
    numbers = []
    for number, word in enumerate(words):
        for pivot, other in basis:
            if word >> pivot & 1:
                word ^= other
        if word:
            basis.append((word.bit_length() - 1, word))
            numbers.append(number)
    return basis, numbers


def orthogonal(basis: Reduced, free: int) -> int:
    """The mask orthogonal to the words of a basis whose bits outside the pivots are those of `free`."""
    # Back substitution: the bits outside the pivots are free, each pivot's bit makes the parity
    # with its word even. Invariant: a word has no pivots of those before it in the basis, so they
    # are set from the last to the first.
    mask = free & ~sum(1 << pivot for pivot, _ in basis)
    for pivot, word in reversed(basis):
        mask |= ((mask & word).bit_count() & 1) << pivot
    return mask


def even_masks(basis: Reduced, bits: int, samples: Sequence[Sample]) -> tuple[Array, float]:
    """`bits` masks orthogonal to a basis, uint64 [bits, 2 W], that distribute the samples evenly.

    Returns also how many times the mean the fullest shard has. Each mask is the best of `MASKS_TRIED`.
    """
    keys = np.concatenate([sample.keys for sample in samples])
    sizes = [len(sample.keys) for sample in samples]
    terms_a_key = [sample.terms / max(1, size) for sample, size in zip(samples, sizes, strict=True)]
    weights = np.repeat(terms_a_key, sizes)
    rng, size_bytes = np.random.default_rng(SEED), 8 * keys.shape[1]
    free_bits = [int.from_bytes(rng.bytes(size_bytes), "little") for _ in range(MASKS_TRIED)]
    candidates = rows_of([orthogonal(basis, free) for free in free_bits], keys.shape[1])
    # The parity of |key & mask| of all samples and masks at once, by xor over the words of a row.
    shared = np.bitwise_xor.reduce([keys[:, w] & candidates[:, w, None] for w in range(keys.shape[1])])
    parities = (np.bitwise_count(shared) & 1).astype(np.int64)
    shards, masks, fullest = np.zeros(len(keys), np.int64), [], 1.0
    for bit in range(bits):
        counts = [np.bincount(shards | parity << bit, weights, 2 << bit).max() for parity in parities]
        best = int(np.argmin(counts))
        masks.append(candidates[best])
        shards |= parities[best] << bit
        fullest = float(counts[best]) * (2 << bit) / max(1.0, float(weights.sum()))
    return np.array(masks), fullest


class LocalRun:
    """The rotations that come next, as far as there are masks to choose that none of them crosses.

    `generators` are packed words. A mask that none of them crosses does not tell apart what comes from one
    word, so the stretch ends `SPARE_DIMENSIONS` dimensions and one for each mask before theirs are exhausted.
    """

    def __init__(self, generators: Array, masks: Array) -> None:
        words, present = integers_of(generators), integers_of(masks)
        self.bits, self.n_words, self.none = len(masks), len(words), np.zeros_like(masks)
        self.basis, self.numbers = reduced(words)
        self.rank = max(0, len(self.basis) - self.bits - SPARE_DIMENSIONS)
        self.crosses = [any((word & mask).bit_count() & 1 for mask in present) for word in words]

    @property
    def length(self) -> int:
        """How many rotations it has."""
        return self.numbers[self.rank] if self.rank < len(self.numbers) else self.n_words

    @property
    def crossed(self) -> int:
        """How many of its rotations the masks of the present cross."""
        return sum(self.crosses[: self.length])

    def masks(self, samples: Sequence[Sample], costs: Costs) -> tuple[Array | None, int]:
        """Masks that none of its rotations crosses, or None where the present ones stay; how long they hold.

        The stretch is made shorter until they spread the terms evenly; where there are few, it is short.
        Masks without bits give all terms to the first rank.
        """
        terms = sum(sample.terms for sample in samples)
        is_alone = terms < costs.alone_below
        is_few, mean = is_alone or terms < FEW_TERMS, terms / len(samples)
        is_uneven = not is_few and max(sample.terms for sample in samples) > UNEVEN_LOAD * mean
        if is_few:
            self.rank = min(self.rank, sum(number < SHORT_RUN for number in self.numbers))
        while is_uneven or costs.saves(self.crossed, mean):
            if is_alone:
                return self.none, max(self.length, SHORT_RUN // 2)
            masks, fullest = even_masks(self.basis[: self.rank], self.bits, samples)
            if fullest <= EVEN_LOAD or is_few or not self.rank:
                return masks, max(self.length, SHORT_RUN // 2)
            self.rank = 3 * self.rank // 4
        return None, max(self.length, SHORT_RUN // 2)

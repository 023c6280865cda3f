"""Which shard a word belongs to: a linear hash, which Cliffords carry along. Knows no coefficient.

Bit b of a word's shard is the parity of the bits that it shares with mask b, a random word. Being linear, the
shard of G P is that of P, xor that of G: a rotation about G sends the branches of every shard to one other,
the same distance away, or to none. A Clifford moves no word: the masks change with it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tnplan.circuits.observables.pauli_sum import bit_counts, integers_of, n_words, rows_of
from tnplan.common.errors import InputError
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.pauli.algebra.gates import Clifford

SEED = 20260
"""Of the random masks: every rank has the same."""


def place_of(ranks: Communicator | None) -> tuple[int, int]:
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
            bits = [place for qubit in gate.qubits for place in (qubit, half + qubit)]
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

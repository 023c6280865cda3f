"""A compressed state over several ranks: blocks move between ranks as they are, and errors are those of all.

Bits inside of a block are never exchanged (`Tile.block_bits`). So an exchange decodes and rounds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.device.cpu.host_memory import ranks_here
from tnplan.executor.device.protocols.communicator import agree, messages
from tnplan.executor.statevector.distributed_state import (
    PIECE_BITS,
    DistributedState,
    PreparedExchange,
    sign_of,
)
from tnplan.executor.statevector.packed_codes import BLOCK_BITS, check_room
from tnplan.executor.statevector.packed_error import EncodingErrors


class DistributedPackedState(DistributedState):
    """The parts of all ranks of `ranks` together, that of this rank, `local`, being a `PackedState`, or a
    `CodedState` on its GPU."""

    @property
    def errors(self) -> EncodingErrors:
        """Those of the whole state, the same on every rank."""
        errors: EncodingErrors = self.local.errors
        return errors

    @property
    def bits(self) -> int:
        """Those of a number."""
        return int(self.local.bits)

    @property
    def dtype(self) -> str:
        """The precision inside of a pass."""
        return str(self.local.dtype)

    def apply(self, prepared: Any) -> None:
        """Do a step; add the errors of a pass."""
        if isinstance(prepared, PreparedExchange):
            super().apply(prepared)
        else:
            self.errors.add_pass(self.ranks.gather_objects(self.local.do(prepared)), self.local.unit)

    def arrays(self) -> list[tuple[Array, int]]:
        """See `DistributedState.arrays`."""
        arrays: list[tuple[Array, int]] = self.local.arrays()
        return arrays

    def pauli_sum(self, words: Sequence[tuple[int, int, complex]]) -> complex:
        """The sum over words, masks x and z and factors, of factors times `pauli`."""
        n, rank = self.n_bits, self.ranks.rank
        below = (1 << n) - 1
        # Words that stay on a rank are summed at once, so that its amplitudes are decoded once.
        inside = [(x, z & below, factor * sign_of(z >> n & rank)) for x, z, factor in words if not x >> n]
        total = super().pauli_sum([word for word in words if word[0] >> n])
        return total + sum(self.ranks.gather_objects(self.local.pauli_sum(inside))) if inside else total

    def _pauli_with(self, other: DistributedState, peer: int, x: int, z: int) -> complex:
        """This rank's part of the sum with a peer's amplitudes, whose blocks come piece by piece."""
        codes, scales = other.local.numbers
        total, size = 0j, 1 << min(PIECE_BITS, self.n_bits)
        below, n_blocks = size - 1, size >> BLOCK_BITS
        for first in range(0, 1 << self.n_bits, size):
            partner = first ^ x & ~below
            sent = codes[2 * partner :][: 2 * size], scales[partner >> BLOCK_BITS :][:n_blocks]
            theirs = np.empty_like(sent[0]), np.empty_like(sent[1])
            self.ranks.exchange(messages(peer, sent), messages(peer, theirs))
            total += sign_of(z & first) * self.local.pauli_with(theirs, first, x & below, z & below)
        return total

    def to_host(self) -> Array:
        """All amplitudes, decoded, on every rank; refused where there is no room for them."""
        ranks = self.ranks.size * ranks_here(self.ranks)
        agree(self.ranks, lambda: check_room(self.n_bits + (ranks - 1).bit_length(), self.dtype))
        return super().to_host()

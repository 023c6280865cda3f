"""A state over several ranks, which looks like one: see `executor.statevector.simulator.State`.

Rank r holds the amplitudes whose highest index bits are r. Every call is collective, and gives every rank the
same answer. Passes are each rank's own; an exchange swaps index bits by messages between pairs of ranks.
Knows a communicator and the state of one rank, whose arrays it moves; no circuit and no device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.device.communicator import Communicator
from executor.statevector.passes import Pass
from executor.statevector.staging import Exchange
from planner.errors import InputError

Array = NDArray[Any]

PIECE_BITS = 22
"""An exchange moves at most 2^22 amplitudes of a peer at a time, so that its buffers stay small."""

BindSwap = Callable[[Sequence[int], Sequence[tuple[int, int]], int], Callable[[], None] | None]
"""See `executor.device.cupy_swap.StateSwap.bind`."""


@dataclass(frozen=True)
class Prepared:
    """An exchange, and the call that does it without messages."""

    exchange: Exchange
    call: Callable[[], None] | None


class SpreadState:
    """The parts of all ranks of `ranks` together, that of this rank being `own`."""

    def __init__(self, own: Any, ranks: Communicator, swap: BindSwap | None = None) -> None:
        """`own` is a `HostState` or a `CupyState`, whose arrays `ranks` sends where `swap` gives no call."""
        self.own, self.ranks, self._swap = own, ranks, swap
        self.n_bits, self.tile = own.n_bits, own.tile
        self.sent_bytes = 0

    def restart(self) -> None:
        """Back to |0...0>."""
        self.own.restart()

    def prepare(self, steps: Sequence[Pass | Exchange], again: bool = True) -> list[Any]:
        """The tables of passes; exchanges with the call that does them in peers' memory, if any."""
        made = iter(self.own.prepare([step for step in steps if isinstance(step, Pass)], again))
        return [self._prepared(step) if isinstance(step, Exchange) else next(made) for step in steps]

    def _prepared(self, exchange: Exchange) -> Prepared:
        inside, own, peers = self._peers(exchange)
        call = self._swap(inside, peers, own) if self._swap is not None else None
        return Prepared(exchange, call)

    def apply(self, prepared: Any) -> None:
        """Do a step."""
        if isinstance(prepared, Prepared):
            if prepared.call is not None:
                prepared.call()
            else:
                self._exchange(prepared.exchange)
            self.sent_bytes += self.own.amplitudes.nbytes - (
                self.own.amplitudes.nbytes >> len(prepared.exchange.pairs)
            )
        else:
            self.own.apply(prepared)

    def _peers(self, exchange: Exchange) -> tuple[list[int], int, list[tuple[int, int]]]:
        """Bits inside, this rank's value of those outside, and every other value with its rank."""
        inside = [pair[0] for pair in exchange.pairs]
        outside = [pair[1] - self.n_bits for pair in exchange.pairs]
        own = sum((self.ranks.rank >> bit & 1) << k for k, bit in enumerate(outside))
        base = self.ranks.rank & ~sum(1 << bit for bit in outside)
        peers = [
            (value, base | sum((value >> k & 1) << bit for k, bit in enumerate(outside)))
            for value in range(1 << len(inside))
            if value != own
        ]
        return inside, own, peers

    def _exchange(self, exchange: Exchange) -> None:
        """Swap bits: what has value b in the bits inside goes to the rank with value b in the bits outside.

        It takes the place of what that peer sends. The pieces of all peers are on their way at once.
        """
        inside, _, peers = self._peers(exchange)
        places = {value: _slot(self.own.amplitudes, inside, value) for value, _ in peers}
        shape = places[peers[0][0]].shape
        axis = int(np.argmax(shape))
        step = max(1, (shape[axis] << PIECE_BITS) // prod(shape))
        for first in range(0, shape[axis], step):
            piece = (*[slice(None)] * axis, slice(first, first + step))
            sends = [(peer, places[value][piece].reshape(-1)) for value, peer in peers]
            receives = [(peer, np.empty_like(buffer)) for peer, buffer in sends]
            self.ranks.exchange(sends, receives)
            for (value, _), (_, buffer) in zip(peers, receives, strict=True):
                part = places[value][piece]
                part[...] = buffer.reshape(part.shape)

    def sums(self, chunk_bits: int) -> Array:
        """The probability of each chunk of all ranks, in order."""
        return np.concatenate(self.ranks.gather_objects(self.own.sums(chunk_bits)))

    def draw(self, chunk_bits: int, chunks: Array, rests: Array) -> Array:
        """The indices drawn, each by the rank that has its chunk."""
        bits = self.n_bits - chunk_bits
        mine = slice(*np.searchsorted(chunks >> bits, [self.ranks.rank, self.ranks.rank + 1]))
        drawn = self.own.draw(chunk_bits, chunks[mine] & ((1 << bits) - 1), rests[mine])
        return np.concatenate(self.ranks.gather_objects(drawn | self.ranks.rank << self.n_bits))

    def marginal(self, bits: Sequence[int]) -> Array:
        """The probabilities of the values of some bits; those outside have one value on each rank."""
        inner = [bit for bit in bits if bit < self.n_bits]
        found = self.own.marginal(inner)
        numbers = np.arange(len(found))
        index = np.zeros_like(numbers)
        for k, bit in enumerate(bits):
            if bit < self.n_bits:
                index |= (numbers >> inner.index(bit) & 1) << k
            else:
                index |= (self.ranks.rank >> (bit - self.n_bits) & 1) << k
        table = np.zeros(1 << len(bits))
        table[index] = found
        return np.asarray(sum(self.ranks.gather_objects(table)))

    def pauli(self, x: int, z: int) -> complex:
        """The sum over i of (-1)^|z & i| conj(a[i ^ x]) a[i]; a peer's amplitudes come piece by piece."""
        n, rank = self.n_bits, self.ranks.rank
        peer = rank ^ x >> n
        inner_x, inner_z = x & ((1 << n) - 1), z & ((1 << n) - 1)
        value = self.own.pauli(inner_x, inner_z) if peer == rank else self._pauli_with(peer, inner_x, inner_z)
        sign = -1 if (z >> n & rank).bit_count() & 1 else 1
        return complex(sum(self.ranks.gather_objects(sign * value)))

    def _pauli_with(self, peer: int, x: int, z: int) -> complex:
        size = 1 << min(PIECE_BITS, self.n_bits)
        total = 0j
        for first in range(0, 1 << self.n_bits, size):
            partner = first ^ x & ~(size - 1)
            sent = self.own.amplitudes[partner : partner + size]
            theirs = np.empty_like(sent)
            self.ranks.exchange([(peer, sent)], [(peer, theirs)])
            sign = -1 if (z & first).bit_count() & 1 else 1
            total += sign * self.own.pauli_with(theirs, first, x & (size - 1), z & (size - 1))
        return total

    def take(self, indices: Array) -> Array:
        """The amplitudes at some indices, on every rank."""
        owners = indices >> self.n_bits
        inner = indices & ((1 << self.n_bits) - 1)
        parts = self.ranks.gather_objects(self.own.take(inner[owners == self.ranks.rank]))
        found = np.empty(len(indices), self.own.amplitudes.dtype)
        for rank, part in enumerate(parts):
            found[owners == rank] = part
        return found

    def part(self) -> Array:
        """The amplitudes of this rank."""
        return np.asarray(self.own.part())

    def to_host(self) -> Array:
        """All amplitudes, on every rank."""
        return np.concatenate(self.ranks.gather_objects(self.own.to_host()))

    def load(self, amplitudes: Array) -> None:
        """Set the amplitudes of this rank."""
        self.own.load(amplitudes)


def rank_bits(n_ranks: int, n_qubits: int, least: int) -> int:
    """How many index bits number the ranks; raises InputError where that cannot be.

    A rank holds `least` bits or more.
    """
    if n_ranks & (n_ranks - 1):
        raise InputError("--ranks", f"is {n_ranks}", "give a power of two")
    bits = n_ranks.bit_length() - 1
    if bits and n_qubits - bits < least:
        raise InputError(
            "--ranks",
            f"is {n_ranks} for {n_qubits} qubits, {max(0, n_qubits - bits)} a rank",
            f"leave {least} or more to a rank",
        )  # fmt: skip
    return bits


def _slot(amplitudes: Array, inside: Sequence[int], value: int) -> Array:
    """The view of the amplitudes whose bits `inside` have this value; bit k of it is inside[k]."""
    n = len(amplitudes).bit_length() - 1
    shape: list[int] = []
    index: list[Any] = []
    above = n
    for bit in sorted(inside, reverse=True):
        shape += [1 << (above - bit - 1), 2]
        index += [slice(None), value >> inside.index(bit) & 1]
        above = bit
    shape.append(1 << above)
    return amplitudes.reshape(shape)[tuple(index)]

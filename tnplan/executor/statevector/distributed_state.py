"""A state over several ranks, which looks like one: see `tnplan.executor.statevector.simulator.StateVector`.

Rank r holds the amplitudes whose highest index bits are r. Every call is collective, and gives every rank the
same answer. Passes are each rank's own; an exchange swaps index bits by messages between pairs of ranks or in
memory that they share, and may overlap passes. Blocks of a compressed state move as they are.
Knows a communicator and the state of one rank, whose arrays it moves; no circuit and no device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from tnplan.common.arrays import Array
from tnplan.common.errors import InputError
from tnplan.executor.device.cpu.host_memory import ranks_here
from tnplan.executor.device.protocols.communicator import Communicator, agree, messages
from tnplan.executor.statevector.packed_error import BLOCK_BITS, EncodingErrors, check_room
from tnplan.executor.statevector.scheduling.overlap import LEAST_TILE_BITS, Overlap, Piece, with_overlaps
from tnplan.executor.statevector.scheduling.qubit_cover import ExchangePartners, QubitExchange, index_of
from tnplan.executor.statevector.scheduling.tiled_passes import Pass

PIECE_BITS = 22
"""An exchange moves at most 2^22 amplitudes of a peer at a time, so that its buffers stay small."""

Call = Callable[[], None]


class PiecewiseExchange(Protocol):
    """An exchange of one piece after another, while the device does other work."""

    def begin(self, piece: int) -> None:
        """Exchange a piece as soon as what was given to the devices of its ranks before is done."""

    def end(self, piece: int) -> None:
        """What is given to the device from now on finds the piece, and those before, exchanged."""


class PeerExchange(Protocol):
    """Exchanges without messages: see `tnplan.executor.statevector.cuda.bit_swap.StateSwap`."""

    def bind(self, partners: ExchangePartners) -> Call | None:
        """The call that does an exchange; None where messages have to."""

    def bind_parts(
        self, partners: ExchangePartners, pieces: Sequence[Piece], share: int, wide: Sequence[bool]
    ) -> PiecewiseExchange | None:
        """The same for each piece in turn; `share` as in `Overlap`, `wide` as `overlaps_wide` of it."""


@dataclass(frozen=True)
class PreparedExchange:
    """An exchange, and the call that does it."""

    exchange: QubitExchange
    run: Call


@dataclass(frozen=True)
class PreparedOverlap:
    """An exchange that overlaps passes; `before` and `after` have the calls that do these for each part.

    `begins` has the pieces to exchange after each part before, `awaits` the one that each part after needs.
    """

    exchange: QubitExchange
    before: Sequence[Sequence[Call]]
    begins: Sequence[Sequence[int]]
    swap: PiecewiseExchange
    awaits: Sequence[int]
    after: Sequence[Sequence[Call]]

    def run(self) -> None:
        """A piece is exchanged while passes before are done on the next, or passes after on those before."""
        for calls, pieces in zip(self.before, self.begins, strict=True):
            for call in calls:
                call()
            for piece in pieces:
                self.swap.begin(piece)
        for calls, piece in zip(self.after, self.awaits, strict=True):
            self.swap.end(piece)
            for call in calls:
                call()


class _ByMessages:
    """An exchange of one piece after another, which is done when `begin` returns."""

    def __init__(self, exchange: Callable[[Sequence[int], int], None], pieces: Sequence[Piece]) -> None:
        self._exchange, self._pieces = exchange, pieces

    def begin(self, piece: int) -> None:
        self._exchange(*self._pieces[piece])

    def end(self, piece: int) -> None:
        pass


class _Ended:
    """Replaces a communicator whose other ranks have ended; every use raises InputError."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __getattr__(self, name: str) -> Any:
        raise InputError(
            "state", f"is lost: the {self._size} ranks of this process that had it have ended",
            "ask in the call itself, save the state, or use one rank",
        )  # fmt: skip


class DistributedState:
    """The parts of all ranks of `ranks` together, that of this rank being `local`."""

    def __init__(
        self, local: Any, ranks: Communicator, swap: PeerExchange | None = None,
        least_tile_bits: int = LEAST_TILE_BITS,
    ) -> None:  # fmt: skip
        """`local` is a `HostState` or a `CupyState`, whose arrays `ranks` sends where `swap` gives no call.

        Exchanges overlap passes where parts of 2^least_tile_bits tiles or more can be made.
        """
        self.local, self.ranks, self._swap, self._least_tile_bits = local, ranks, swap, least_tile_bits
        self.n_bits, self.tile = local.n_bits, local.tile
        self.sent_bytes = 0

    def end(self) -> None:
        """The other ranks have ended: what needs them is refused from now on, instead of waiting for them."""
        self.ranks = _Ended(self.ranks.size)

    def restart(self) -> None:
        """Back to |0...0>."""
        self.local.restart()

    def prepare(self, steps: Sequence[Pass | QubitExchange], again: bool = True) -> list[Any]:
        """The tables of passes; exchanges with the call that does them in peers' memory, if any."""
        passes = [step for step in steps if isinstance(step, Pass)]
        tables = dict(zip(map(id, passes), self.local.prepare(passes, again), strict=True))
        divisible = [isinstance(step, Pass) and self.local.is_divisible(tables[id(step)]) for step in steps]
        calls: list[Any] = []
        for step in with_overlaps(steps, divisible, self.n_bits, self.tile, self._least_tile_bits):
            if isinstance(step, Overlap):
                calls += self._overlapped(step, tables)
            else:
                calls.append(self._alone(step) if isinstance(step, QubitExchange) else tables[id(step)])
        return calls

    def _overlapped(self, step: Overlap, tables: dict[int, Any]) -> list[Any]:
        """An exchange that overlaps passes, or in turn with them where messages would be kernels between."""
        swap = self._part_swap(step)
        before, after = ([tables[id(item)] for item in items] for items in (step.before, step.after))
        if swap is None:
            return [*before, self._alone(step.exchange), *after]
        calls = [
            [
                [self.local.bind_part(item, bits, value, step.share) for item in items]
                for value in range(1 << len(bits))
            ]
            for items, bits in ((before, step.bits), (after, step.after_bits))
        ]
        return [PreparedOverlap(step.exchange, calls[0], step.begins, swap, step.awaits, calls[1])]

    def _part_swap(self, step: Overlap) -> PiecewiseExchange | None:
        if self._swap is None:
            return _ByMessages(lambda bits, value: self._exchange(step.exchange, bits, value), step.pieces)
        wide = step.overlaps_wide(self.tile.bits)
        return self._swap.bind_parts(self._partners(step.exchange), step.pieces, step.share, wide)

    def _alone(self, exchange: QubitExchange) -> PreparedExchange:
        call = None if self._swap is None else self._swap.bind(self._partners(exchange))
        return PreparedExchange(exchange, call or (lambda: self._exchange(exchange)))

    def apply(self, prepared: Any) -> None:
        """Do a step."""
        if not isinstance(prepared, PreparedExchange | PreparedOverlap):
            self.local.apply(prepared)
            return
        prepared.run()
        size_bytes = sum(array.nbytes for array, _ in self.arrays())
        self.sent_bytes += size_bytes - (size_bytes >> len(prepared.exchange.pairs))

    def arrays(self) -> list[tuple[Array, int]]:
        """What an exchange moves: arrays, and the bit of the index that is the lowest of a place in each."""
        return [(self.local.amplitudes, 0)]

    def _partners(self, exchange: QubitExchange) -> ExchangePartners:
        """The peers in such an order that at every turn the ranks are pairs, each with links of its own."""
        inside = [pair[0] for pair in exchange.pairs]
        outside = [pair[1] - self.n_bits for pair in exchange.pairs]
        value = sum((self.ranks.rank >> bit & 1) << k for k, bit in enumerate(outside))
        base = self.ranks.rank & ~sum(1 << bit for bit in outside)
        peers = [
            (value ^ turn, base | index_of(value ^ turn, outside)) for turn in range(1, 1 << len(inside))
        ]
        return ExchangePartners(inside, value, peers)

    def _exchange(self, exchange: QubitExchange, bits: Sequence[int] = (), piece_value: int = 0) -> None:
        """Swap bits: what has value b in the bits inside goes to the rank with value b in the bits outside.

        It is replaced by what that peer sends. The pieces of all peers are sent at once. Only
        amplitudes whose `bits` have the value `piece_value` go.
        """
        inside, _, peers = self._partners(exchange)
        for array, lowest in self.arrays():
            places = [bit - lowest for bit in (*inside, *bits)]
            views = {value: _slot(array, places, value | piece_value << len(inside)) for value, _ in peers}
            self._exchange_views(views, peers)

    def _exchange_views(self, views: dict[int, Array], peers: Sequence[tuple[int, int]]) -> None:
        """Send each view to its peer, (value, rank) in `peers`, and replace it by what comes from there."""
        shape = views[peers[0][0]].shape
        axis = int(np.argmax(shape))
        step = max(1, (shape[axis] << PIECE_BITS) // prod(shape))
        for first in range(0, shape[axis], step):
            piece = (*[slice(None)] * axis, slice(first, first + step))
            sends = [(peer, _flat(views[value][piece])) for value, peer in peers]
            receives = [(peer, np.empty_like(buffer)) for peer, buffer in sends]
            self.ranks.exchange(sends, receives)
            for (value, _), (_, buffer) in zip(peers, receives, strict=True):
                target = views[value][piece]
                target[...] = buffer.reshape(target.shape)

    def sums(self, chunk_bits: int) -> Array:
        """The probability of each chunk of all ranks, in order."""
        return np.concatenate(self.ranks.gather_objects(self.local.sums(chunk_bits)))

    def draw(self, chunk_bits: int, chunks: Array, rests: Array) -> Array:
        """The indices drawn, each by the rank that has its chunk."""
        bits = self.n_bits - chunk_bits
        mine = slice(*np.searchsorted(chunks >> bits, [self.ranks.rank, self.ranks.rank + 1]))
        drawn = self.local.draw(chunk_bits, chunks[mine] & ((1 << bits) - 1), rests[mine])
        return np.concatenate(self.ranks.gather_objects(drawn | self.ranks.rank << self.n_bits))

    def marginal(self, bits: Sequence[int]) -> Array:
        """The probabilities of the values of some bits; those outside have one value on each rank."""
        inner = [bit for bit in bits if bit < self.n_bits]
        inner_table = self.local.marginal(inner)
        numbers = np.arange(len(inner_table))
        index = np.zeros_like(numbers)
        for k, bit in enumerate(bits):
            if bit < self.n_bits:
                index |= (numbers >> inner.index(bit) & 1) << k
            else:
                index |= (self.ranks.rank >> (bit - self.n_bits) & 1) << k
        table = np.zeros(1 << len(bits))
        table[index] = inner_table
        return np.asarray(sum(self.ranks.gather_objects(table)))

    def pauli(self, x: int, z: int) -> complex:
        """The sum over i of (-1)^|z & i| conj(a[i ^ x]) a[i]; a peer's amplitudes come piece by piece."""
        n, rank = self.n_bits, self.ranks.rank
        peer = rank ^ x >> n
        inner_x, inner_z = x & ((1 << n) - 1), z & ((1 << n) - 1)
        if peer == rank:
            value = self.local.pauli(inner_x, inner_z)
        else:
            value = self._pauli_with(self, peer, inner_x, inner_z)
        return complex(sum(self.ranks.gather_objects(sign_of(z >> n & rank) * value)))

    def pauli_sum(self, words: Sequence[tuple[int, int, complex]]) -> complex:
        """The sum over words, masks x and z and factors, of factors times `pauli`."""
        return sum((factor * self.pauli(x, z) for x, z, factor in words), 0j)

    def joint(self) -> None:
        """See `AdjointState`."""
        return None

    def twin(self) -> DistributedState:
        """Another state of the same size on the same ranks, all of whose amplitudes are zero."""
        return DistributedState(self.local.twin(), self.ranks, None, self._least_tile_bits)

    def assign(self, source: DistributedState) -> None:
        """Take the amplitudes of another state."""
        self.local.assign(source.local)

    def compile_repeated(self, passes: Sequence[Pass], times: int) -> None:
        """See that the local state has compiled kernels for these passes, where it has such."""
        self.local.compile_repeated(passes, times)

    def rebound(self, steps: Sequence[Pass | QubitExchange], prepared: Sequence[Any]) -> list[Any]:
        """The steps prepared for this state, as another on the same ranks has them."""
        return self.prepare(steps, again=False)

    def add_word(self, source: DistributedState, x: int, z: int, factor: complex) -> None:
        """Add `factor` (-1)^|z & i| a[i] of another state at i ^ x; those of a peer come piece by piece."""
        n, rank = self.n_bits, self.ranks.rank
        peer, inner_x, inner_z = rank ^ x >> n, x & ((1 << n) - 1), z & ((1 << n) - 1)
        factor *= sign_of(z >> n & peer)
        if peer == rank:
            self.local.add_word(source.local, inner_x, inner_z, factor)
            return
        for first, partner, theirs in self._pieces_of(source, peer, inner_x):
            below, own = len(theirs) - 1, sign_of(inner_z & partner) * factor
            self.local.add_word_of(theirs, first, inner_x & below, inner_z & below, own)

    def between(self, other: DistributedState, words: Sequence[tuple[int, int]]) -> Callable[[], Array]:
        """The sums over i of (-1)^|z & i| conj(b[i ^ x]) a[i], b of the other state, added over the ranks by
        what is returned."""
        n, rank = self.n_bits, self.ranks.rank
        below = (1 << n) - 1
        sums = np.zeros(len(words), np.complex128)
        own = [number for number, (x, _) in enumerate(words) if not x >> n]
        inside = self.local.between(other.local, [(words[k][0], words[k][1] & below) for k in own])
        for number, (x, z) in enumerate(words):
            peer = rank ^ x >> n
            if peer != rank:
                sums[number] = self._pauli_with(other, peer, x & below, z & below)

        def values() -> Array:
            sums[own] = inside()
            signs = [sign_of(z >> n & rank) for _, z in words]
            return np.asarray(sum(self.ranks.gather_objects(sums * signs)))

        return values

    def _pieces_of(self, source: DistributedState, peer: int, x: int) -> Iterator[tuple[int, int, Array]]:
        """A peer's amplitudes of `source` in pieces, each with the first of this rank's that it belongs to by
        i ^ x, and its own first."""
        size = 1 << min(PIECE_BITS, self.n_bits)
        for first in range(0, 1 << self.n_bits, size):
            partner = first ^ x & ~(size - 1)
            sent = source.local.amplitudes[partner : partner + size]
            theirs = np.empty_like(sent)
            self.ranks.exchange([(peer, sent)], [(peer, theirs)])
            yield first, partner, theirs

    def _pauli_with(self, other: DistributedState, peer: int, x: int, z: int) -> complex:
        """This rank's part of the sum with a peer's amplitudes of another state."""
        total = 0j
        for first, _, theirs in self._pieces_of(other, peer, x):
            below = len(theirs) - 1
            total += sign_of(z & first) * self.local.pauli_with(theirs, first, x & below, z & below)
        return total

    def take(self, indices: Array) -> Array:
        """The amplitudes at some indices, on every rank."""
        owners = indices >> self.n_bits
        inner = indices & ((1 << self.n_bits) - 1)
        parts = self.ranks.gather_objects(self.local.take(inner[owners == self.ranks.rank]))
        amplitudes = np.empty(len(indices), parts[0].dtype)
        for rank, values in enumerate(parts):
            amplitudes[owners == rank] = values
        return amplitudes

    def shard(self) -> Array:
        """The amplitudes of this rank."""
        return np.asarray(self.local.shard())

    def to_host(self) -> Array:
        """All amplitudes, on every rank."""
        return np.concatenate(self.ranks.gather_objects(self.local.to_host()))

    def load(self, amplitudes: Array) -> None:
        """Set the amplitudes of this rank."""
        self.local.load(amplitudes)


def sign_of(mask: int) -> int:
    """-1 where a mask has an odd number of bits, else 1."""
    return -1 if mask.bit_count() & 1 else 1


def _flat(view: Array) -> Array:
    """As a message has to be: contiguous, which what `reshape` gives of every other element is not."""
    return view.reshape(-1) if view.flags.c_contiguous else view.flatten()


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

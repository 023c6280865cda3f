"""A redistribution whose messages are compressed on some tiers: bound once, sizes known when it runs.

A round packs and compresses one message after the other, exchanges sizes, and then the streams, each behind a
sample of its values; what arrives is restored and unpacked likewise. Where there are several rounds, one is
compressed, and the one before it restored, while a round's streams move. Streams are never longer than the
planned bytes, since values that do not compress are stored as they are. Knows boxes and the interfaces of
device, communicator and codec; never schedules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, hypot, inf, isfinite, nan, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.common.arrays import CACHE_LINE_BYTES, round_down, round_up
from tnplan.common.errors import InputError
from tnplan.compress.format.errors import CodecError
from tnplan.executor.contraction.redistribute.packing import Packing, Piece
from tnplan.executor.contraction.redistribute.plan import (
    BoxTransfer,
    Redistribution,
    RedistributionPlan,
    ShardBox,
    plan_redistribution,
)
from tnplan.executor.device.protocols.codec import Codec, Packed, SampledOverlaps, most_sampled, sample_count
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.device.protocols.device import Call, Device, View
from tnplan.planner.hardware.compression_options import Lossy
from tnplan.planner.hardware.process_grid import slowest_tier

# What compressing did to the values: its bounds accumulated over a schedule, and the fidelity on samples.
#
# Knows sums; never a codec, a device or a schedule.


@dataclass
class Tally:
    """Sums over all that one instruction compressed on one rank, or on several ranks once they are added.

    `errors` bounds the 2-norm of x - x', `norm` is that of x. Over sampled values: `overlap` is the sum of
    conj(x) x', `before` of |x|^2, `after` of |x'|^2. Bytes are those of values and of streams. What
    `overlaps` have still to say is added by `read`.
    """

    errors: float = 0.0
    norm: float = 0.0
    overlap: complex = 0.0
    before: float = 0.0
    after: float = 0.0
    tensor_bytes: int = 0
    stream_bytes: int = 0
    overlaps: SampledOverlaps | None = None

    def packed(self, packed: Packed, tensor_bytes: int) -> None:
        """Count a stream."""
        self.errors = hypot(self.errors, packed.error)
        self.norm = hypot(self.norm, packed.norm)
        self.tensor_bytes += tensor_bytes
        self.stream_bytes += packed.size_bytes

    def read(self) -> Tally:
        """The sums as numbers alone; waits for the device."""
        if self.overlaps is None:
            return self
        overlap, before, after = self.overlaps.read()
        return self.added(Tally(overlap=overlap, before=before, after=after))

    def added(self, other: Tally) -> Tally:
        """The numbers of both."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in SUMS}
        errors, norm = hypot(self.errors, other.errors), hypot(self.norm, other.norm)
        return replace(self, **sums, errors=errors, norm=norm, overlaps=None)

    @property
    def error(self) -> float:
        """A bound of the 2-norm of x - x' over that of x; infinite where the norm cannot say."""
        if self.errors == 0:
            return 0.0
        if not (0 < self.norm < inf):
            return inf
        share = self.errors / self.norm
        return share if isfinite(share) else inf

    @property
    def fidelity(self) -> float:
        """|<x|x'>|^2 / (<x|x> <x'|x'>) over the samples; 1 where both vanish, NaN where all that was
        compressed is so small that its squares cannot say."""
        if self.before < LEAST_SQUARES and self.after < LEAST_SQUARES:
            return nan if self.errors and self.norm < LEAST_NORM else 1.0
        if self.before == 0 or self.after == 0:
            return 0.0
        return min((abs(self.overlap) / sqrt(self.before) / sqrt(self.after)) ** 2, 1.0)


LEAST_SQUARES, LEAST_NORM = 1e-290, 1e-140
"""Sums of squares below the first lost digits; samples of a tensor whose norm is above the second vanish if
their sum is below the first."""
SUMS = ("overlap", "before", "after", "tensor_bytes", "stream_bytes")


def summary(kinds: Sequence[str], ranks: Sequence[Sequence[Tally]]) -> dict[str, Any]:
    """What result.json says: `kinds` are those of all instructions that compress, `ranks` their tallies.

    `bound` is the product of 1 + error over the instructions, less 1; `fidelity` the product of fidelities.
    None where values that are not finite leave neither.
    """
    tallies = [Tally() for _ in kinds]
    for rank in ranks:
        # Every rank has its own shards of the same tensors: squares add up over ranks, for each instruction
        # by itself.
        tallies = [tally.added(other) for tally, other in zip(tallies, rank, strict=True)]
    bound = fidelity = 1.0
    for tally in tallies:
        bound *= 1 + tally.error
        fidelity *= tally.fidelity
    sizes = {kind: {"tensor_bytes": 0, "stream_bytes": 0} for kind in sorted(set(kinds))}
    for kind, tally in zip(kinds, tallies, strict=True):
        sizes[kind]["tensor_bytes"] += tally.tensor_bytes
        sizes[kind]["stream_bytes"] += tally.stream_bytes
    return {
        "bound": bound - 1 if isfinite(bound) else None,
        "fidelity": fidelity if isfinite(fidelity) else None,
        **sizes,
    }


LEAST_SLOT_BYTES = 1 << 20
"""Rounds take turns where slots are at least as large: shorter ones would wait more than they hide."""


@dataclass(frozen=True)
class MessageWorkspace:
    """The workspace: `size_bytes` of it, and its views by first byte, count and dtype; the values' dtype."""

    size_bytes: int
    view: Callable[[int, int, str], View]
    dtype: str

    @property
    def itemsize(self) -> int:
        """Bytes of a value."""
        return np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class MessageCompression:
    """How the messages over `tiers` are compressed, for `step`, and what is counted of it."""

    codec: Codec
    lossy: Lossy
    setting: str
    tiers: tuple[int, ...]
    step: int
    tally: Tally = field(default_factory=Tally)


@dataclass
class _Message:
    """One way of a pair in one round: `values` as they are packed, `copy` that packs or unpacks them.

    Compressed messages have bytes, `slot`, for a sample and the stream behind it. `size` (1,) is that of the
    stream, and before it is known the one that is `expected`.
    """

    peer: int
    values: View
    copy: Call | None
    slot: View = None
    sample: View = None
    stream_start: int = 0
    expected: int = 0
    size: NDArray[np.int64] | None = None

    @property
    def sent(self) -> View:
        """Sample and stream, or the values as they are."""
        if self.size is None:
            return self.values
        return self.slot[: self.stream_start + int(self.size[0])]

    @property
    def stream(self) -> View:
        """The bytes of the stream."""
        assert self.size is not None
        return self.slot[self.stream_start :][: int(self.size[0])]


def bind_compressed(
    change: Redistribution, device: Device, communicator: Communicator, views: tuple[View, View],
    workspace: MessageWorkspace, how: MessageCompression,
) -> Call:  # fmt: skip
    """The call that fills this rank's shard of the target, without sums; `views` are its shards, flat."""
    peers = change.n_peers
    # Two turns only where one round is not enough: they halve the slots, and hide the codec's work behind
    # messages.
    for turns in (1, 2) if workspace.size_bytes >= (4 * peers + 1) * LEAST_SLOT_BYTES else (1,):
        slot_bytes, elements = slots(workspace, peers, turns, how.codec)
        plan = plan_redistribution(change, 2 * peers * elements)
        if plan.rounds.pieces * plan.rounds.waves == 1:
            break
    packing = Packing(device, *change.shards(*views))
    return _Binder(plan, packing, communicator, workspace, slot_bytes, how).call(turns)


def slots(workspace: MessageWorkspace, peers: int, turns: int, codec: Codec) -> tuple[int, int]:
    """The workspace in equal slots, one for values as they are and, for each of the rounds that take turns,
    two for the streams of each peer: bytes of a slot, and the elements whose sample and stream always fit.

    Raises ValueError where there are none.
    """
    # Slot 0 for values as they are, not yet compressed or restored again; then two slots a peer for each
    # turn: streams going and coming. A stream that does not shrink must fit too, hence the codec's worst
    # case.
    slot_bytes = round_down(workspace.size_bytes // (2 * turns * peers + 1), CACHE_LINE_BYTES)
    most = slot_bytes // workspace.itemsize
    overhead_bytes = codec.worst_bytes(most, workspace.dtype) - most * workspace.itemsize
    overhead_bytes += _stream_start(most_sampled(most), workspace)
    elements = (slot_bytes - overhead_bytes) // workspace.itemsize
    if elements < 1:
        raise ValueError(
            f"a workspace of {workspace.size_bytes} bytes is too small to compress for {peers} peers"
        )
    return slot_bytes, elements


def _stream_start(samples: int, workspace: MessageWorkspace) -> int:
    """The bytes of a slot before the stream, for so many sampled values."""
    return round_up(samples * workspace.itemsize, CACHE_LINE_BYTES)


class _Binder:
    def __init__(
        self, plan: RedistributionPlan, packing: Packing, communicator: Communicator,
        workspace: MessageWorkspace, slot_bytes: int, how: MessageCompression,
    ) -> None:  # fmt: skip
        self._change = plan.change
        self._plan = plan
        self._packing = packing
        self._communicator = communicator
        self._workspace = workspace
        self._slot_bytes = slot_bytes
        self._how = how
        self._peers = plan.change.n_peers
        self._overlaps = how.tally.overlaps = how.codec.overlaps()

    def call(self, turns: int) -> Call:
        """All rounds, `turns` of them under way at once, and what the rank keeps."""
        plan = self._plan
        own = [item for item in plan.receives if item.peer == self._change.rank]
        own_copies = [self._packing.keep(Piece(item)) for item in own]
        rounds: list[tuple[list[_Message], list[_Message]]] = []
        for number in range(plan.rounds.pieces):
            for wave in range(plan.rounds.waves):
                slot = 1 + len(rounds) % turns * 2 * self._peers
                leaving, coming = (self._of_round(way, number, wave) for way in (plan.sends, plan.receives))
                sends = [
                    self._message(k, *item, self._packing.source, self._packing.pack)
                    for k, item in enumerate(leaving, slot)
                ]
                receives = [
                    self._message(k, *item, self._packing.target, self._packing.unpack)
                    for k, item in enumerate(coming, slot + self._peers)
                ]
                if sends or receives:
                    # Bound and never begun: `connect` opens the ways to these peers.
                    self._communicator.bind_exchange(
                        [(message.peer, self._slot(0)) for message in sends],
                        [(message.peer, self._slot(0)) for message in receives],
                    )
                    rounds.append((sends, receives))

        def run() -> None:
            begun: deque[tuple[Call, list[_Message]]] = deque()
            for sends, receives in rounds:
                begun.append((self._begin(sends, receives), receives))
                # Invariant: at most `turns` rounds are under way, so that the slots of a round are free when
                # it comes round again.
                if len(begun) == turns:
                    self._end(*begun.popleft())
            for call in own_copies:
                call()
            while begun:
                self._end(*begun.popleft())

        return run

    def _of_round(
        self, transfers: tuple[BoxTransfer, ...], number: int, wave: int
    ) -> list[tuple[BoxTransfer, Piece]]:
        """The transfers of a round with their pieces."""
        pieces = [(item, Piece(item, number, self._plan.rounds)) for item in transfers
                  if item.wave == wave and item.peer != self._change.rank]  # fmt: skip
        return [(item, piece) for item, piece in pieces if piece.elements]

    def _message(
        self, slot: int, transfer: BoxTransfer, piece: Piece, shard: ShardBox,
        bind_copy: Callable[[Piece, View], Call],
    ) -> _Message:  # fmt: skip
        """A message of values in the shard or, where they are not contiguous there, of packed ones."""
        change, workspace = self._change, self._workspace
        compresses = slowest_tier(change.rank, transfer.peer, change.grid) in self._how.tiers
        values, copy = piece.in_place(shard), None
        if values is None:
            start_bytes = 0 if compresses else slot * self._slot_bytes
            values = workspace.view(start_bytes, piece.elements, workspace.dtype)
            copy = bind_copy(piece, values)
        message = _Message(transfer.peer, values, copy)
        if compresses:
            message.slot = self._slot(slot)
            samples = sample_count(piece.elements)
            message.sample = workspace.view(slot * self._slot_bytes, samples, workspace.dtype)
            message.stream_start = _stream_start(samples, workspace)
            expected = ceil(piece.elements * workspace.itemsize / self._how.lossy.ratio)
            message.expected = min(expected, self._slot_bytes - message.stream_start)
            message.size = np.zeros(1, np.int64)
        return message

    def _slot(self, number: int) -> View:
        return self._workspace.view(number * self._slot_bytes, self._slot_bytes, "uint8")

    def _begin(self, sends: list[_Message], receives: list[_Message]) -> Call:
        """Pack and compress, and begin to send; the call that ends it."""
        for message in (*sends, *receives):
            if message.size is not None:
                # The size that the planned ratio gives, until the true one is known: sizes are exchanged
                # before the streams.
                message.size[0] = message.expected
        for message in sends:
            self._pack(message)
        sizes = [
            [(message.peer, message.size) for message in way if message.size is not None]
            for way in (sends, receives)
        ]
        if any(sizes):
            self._communicator.exchange(*sizes)
        begin, end = self._communicator.bind_exchange(
            [(message.peer, message.sent) for message in sends],
            [(message.peer, message.sent) for message in receives],
        )
        begin()
        return end

    def _end(self, end: Call, receives: list[_Message]) -> None:
        end()
        for message in receives:
            self._unpack(message)

    def _pack(self, message: _Message) -> None:
        how = self._how
        if message.copy is not None:
            message.copy()
        if message.size is None:
            return
        how.codec.sample(message.values, message.sample)
        try:
            packed = how.codec.encode(
                message.values, how.lossy, how.setting, message.slot[message.stream_start :]
            )
        except CodecError as error:
            raise InputError(
                f"step {how.step}", f"what is exchanged cannot be compressed ({error.place} {error.problem})",
                "leave exchange=... out of --compress", topic="compressed exchanges",
            ) from None  # fmt: skip
        message.size[0] = packed.size_bytes
        how.tally.packed(packed, message.values.nbytes)

    def _unpack(self, message: _Message) -> None:
        if message.size is not None:
            self._how.codec.decode(message.stream, message.values)
            self._overlaps.add(message.sample, message.values)
        if message.copy is not None:
            message.copy()

"""A change of layout on a device: packs, exchanges and unpacks, round by round, bound once.

Knows the device's and the communicator's interfaces and boxes; never schedules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from executor.contraction.exchange import Exchange, Rounds, Shards, Transfer, leading_modes, plan_exchange
from executor.device.communicator import Communicator, Message
from executor.device.device import Call, Device, View
from executor.device.permutation import Copy, make_copy, row_major
from planner.hardware.layout import Box, Grid, box, box_shape, rank_digits


@dataclass(frozen=True)
class Side:
    """One side of an exchange on this rank: the shard's box, strides over the source's modes, and view."""

    bounds: Box
    strides: tuple[int, ...]
    view: View

    def start(self, bounds: Box) -> int:
        """The element at which a box of the whole tensor begins in the shard."""
        return sum(
            (first - own) * stride
            for (first, _), (own, _), stride in zip(bounds, self.bounds, self.strides, strict=True)
        )


@lru_cache(maxsize=65536)
def piece_copy(
    shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...], n_lead: int
) -> Copy:
    """The copy of a box between two sets of strides, with its first `n_lead` modes as rows."""
    axes = list(zip(shape, strides, target, strict=True))
    return make_copy(axes[n_lead:], axes[:n_lead])


class _Piece:
    """Piece `number` of the box of a transfer: a range of its rows."""

    def __init__(self, transfer: Transfer, number: int, rounds: Rounds) -> None:
        self.bounds = transfer.bounds
        self.shape = box_shape(transfer.bounds)
        self.n_lead = leading_modes(self.shape, rounds.pieces)
        rows = 1
        for extent in self.shape[: self.n_lead]:
            rows *= extent
        self.row_elements = transfer.elements // rows
        self.rows = (rows * number // rounds.pieces, rows * (number + 1) // rounds.pieces)
        self.elements = (self.rows[1] - self.rows[0]) * self.row_elements
        self.packed_strides = row_major(self.shape)

    def packed_start(self, cursor: int) -> int:
        """Where row 0 would stand in a buffer in which the piece begins at `cursor`."""
        return cursor - self.rows[0] * self.row_elements

    def in_place(self, side: Side) -> View | None:
        """The piece's elements in the shard itself, where they are contiguous there."""
        if not piece_copy(self.shape, side.strides, self.packed_strides, 0).contiguous:
            return None
        first = side.start(self.bounds) + self.rows[0] * self.row_elements
        return side.view[first : first + self.elements]


def bind_exchange(
    source: Shards, out: Shards, extents: Mapping[int, int], grid: Grid, device: Device,
    communicator: Communicator, source_view: View, out_view: View, workspace: View | None,
    source_strides: tuple[int, ...], out_strides: tuple[int, ...],
) -> Call:  # fmt: skip
    """The call that fills this rank's shard of `out`; strides are over the source's modes."""
    capacity = 0 if workspace is None else len(workspace)
    plan = plan_exchange(source, out, extents, grid, communicator.rank, capacity)
    digits = rank_digits(communicator.rank, grid)
    own = Side(box(source.modes, source.layout, extents, digits, grid), source_strides, source_view)
    result = Side(box(source.modes, out.layout, extents, digits, grid), out_strides, out_view)
    summed = set(source.partial) != set(out.partial)
    binder = _RoundBinder(plan, own, result, device, communicator, workspace, summed)
    calls: list[Call] = []
    if not summed:
        whole = Rounds(1, 1, 1)
        for transfer in plan.receives:
            if transfer.peer == communicator.rank:
                calls.append(binder.local(_Piece(transfer, 0, whole), False))
    for number in range(plan.rounds.pieces):
        for wave in range(plan.rounds.waves):
            calls += binder.round(number, wave)

    def run() -> None:
        for call in calls:
            call()

    return run


class _RoundBinder:
    def __init__(
        self, plan: Exchange, own: Side, result: Side, device: Device, communicator: Communicator,
        workspace: View | None, summed: bool,
    ) -> None:  # fmt: skip
        self._plan = plan
        self._own = own
        self._result = result
        self._device = device
        self._communicator = communicator
        self._workspace = workspace
        self._summed = summed

    def local(self, piece: _Piece, add: bool) -> Call:
        """Copy or add a piece of this rank's own source."""
        copy = piece_copy(piece.shape, self._own.strides, self._result.strides, piece.n_lead)
        return self._device.bind_copy(
            self._result.view, self._own.view, copy,
            self._result.start(piece.bounds), self._own.start(piece.bounds), piece.rows, add,
        )  # fmt: skip

    def round(self, number: int, wave: int) -> list[Call]:
        """The packs, the exchange and the unpacks of one round."""
        calls, sends = self._packs(number, wave)
        unpacks, receives = self._unpacks(number, wave)
        if sends or receives:
            calls.append(lambda: self._communicator.exchange(sends, receives))
        return calls + unpacks

    def _packs(self, number: int, wave: int) -> tuple[list[Call], list[Message]]:
        calls: list[Call] = []
        sends: list[Message] = []
        cursor = 0
        for transfer in self._plan.sends:
            piece = _Piece(transfer, number, self._plan.rounds)
            if transfer.wave != wave or not piece.elements:
                continue
            view = piece.in_place(self._own)
            if view is None:
                assert self._workspace is not None
                view = self._workspace[cursor : cursor + piece.elements]
                copy = piece_copy(piece.shape, self._own.strides, piece.packed_strides, piece.n_lead)
                calls.append(
                    self._device.bind_copy(
                        self._workspace,
                        self._own.view,
                        copy,
                        piece.packed_start(cursor),
                        self._own.start(piece.bounds),
                        piece.rows,
                    )
                )
                cursor += piece.elements
            sends.append((transfer.peer, view))
        return calls, sends

    def _unpacks(self, number: int, wave: int) -> tuple[list[Call], list[Message]]:
        calls: list[Call] = []
        receives: list[Message] = []
        cursor = 0 if self._workspace is None else len(self._workspace) // 2
        for _, terms in groupby(self._plan.receives, key=lambda transfer: transfer.bounds):
            for place, transfer in enumerate(terms):
                piece = _Piece(transfer, number, self._plan.rounds)
                add = place > 0
                if transfer.peer == self._communicator.rank:
                    if self._summed and piece.elements:
                        calls.append(self.local(piece, add))
                    continue
                if transfer.wave != wave or not piece.elements:
                    continue
                view = None if self._summed else piece.in_place(self._result)
                if view is None:
                    assert self._workspace is not None
                    view = self._workspace[cursor : cursor + piece.elements]
                    copy = piece_copy(piece.shape, piece.packed_strides, self._result.strides, piece.n_lead)
                    calls.append(
                        self._device.bind_copy(
                            self._result.view,
                            self._workspace,
                            copy,
                            self._result.start(piece.bounds),
                            piece.packed_start(cursor),
                            piece.rows,
                            add,
                        )
                    )
                    cursor += piece.elements
                receives.append((transfer.peer, view))
        return calls, receives

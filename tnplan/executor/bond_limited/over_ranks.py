"""Contraction with a bond limit over ranks: each has some of the tensors, and all take the same steps.

A pair is contracted on the rank that gets the result. A tensor that lies on another one is sent. Of a bond
between two ranks the reduced factors and the projectors are sent, and no tensor. The rank of a bond's first
tensor leads its cut. The ranks that have the other tensor or weights answer it until it says that it is done.

Invariant: all ranks take the steps in the same order, and in a step only its leader speaks with the others.
So no two ranks wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tnplan.executor.bond_limited.network import (
    Array,
    BondLimitedNetwork,
    BondLimitedStep,
    BondLimitedValue,
)
from tnplan.executor.device.protocols.communicator import Communicator, messages

HEADER = 200
"""The numbers of a header: of an array of 64 axes at most, and as many besides."""
DTYPES = "float32", "float64", "complex64", "complex128"
DONE, CUT, FACTOR, WEIGHTED, MULTIPLY, GIVE = range(6)
"""What the leader of a cut says: it is over, and whether the other end needs QR now, or it begins; send a
reduced factor of a weight, or that of the other end; multiply by the matrix that follows; or give the tensor
away, and keep a unit matrix."""


class ArrayExchange:
    """Arrays with a few numbers from rank to rank, whose shapes only the sender knows."""

    def __init__(self, ranks: Communicator, xp: Any) -> None:
        self.ranks, self._xp = ranks, xp

    def send(self, peer: int, numbers: Sequence[int], array: Array | None = None) -> None:
        """Send numbers, and perhaps an array; its axes lie at the receiver as they do here."""
        shape, order, kind = list[int](), list[int](), -1
        if array is not None:
            # Invariant: products round by how their operands lie. So the axes are sent as they lie, and
            # results are the same bits.
            order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
            shape, kind = [array.shape[axis] for axis in order], DTYPES.index(str(array.dtype))
        header = [len(numbers), kind, len(shape), *numbers, *shape, *order]
        block = np.zeros(HEADER, np.int64)
        block[: len(header)] = header
        self.ranks.exchange(messages(peer, [self._xp.asarray(block)]), [])
        if array is not None:
            self._send_array(peer, array.transpose(order))

    def receive(self, peer: int) -> tuple[list[int], Any]:
        """What the peer sends next: its numbers, and its array or None."""
        block = self._xp.asarray(np.zeros(HEADER, np.int64))
        self.ranks.exchange([], messages(peer, [block]))
        header = [int(number) for number in (block.get() if hasattr(block, "get") else block)]
        n_numbers, kind, n_axes = header[:3]
        numbers, rest = header[3 : 3 + n_numbers], header[3 + n_numbers :]
        if kind < 0:
            return numbers, None
        shape, order = rest[:n_axes], rest[n_axes : 2 * n_axes]
        array = self._receive_array(peer, shape, DTYPES[kind])
        return numbers, array.transpose(sorted(range(n_axes), key=order.__getitem__))

    def _send_array(self, peer: int, array: Array) -> None:
        self.ranks.exchange(messages(peer, [self._xp.ascontiguousarray(array)]), [])

    def _receive_array(self, peer: int, shape: Sequence[int], dtype: str) -> Array:
        array = self._xp.empty(tuple(shape), dtype)
        self.ranks.exchange([], messages(peer, [array]))
        return array


class RankNetwork(BondLimitedNetwork):
    """The tensors that one rank has; of the others it knows their neighbours.

    - `arrays`: None for those of other ranks.
    - `owners`: The rank of each tensor, of results too.
    """

    def __init__(
        self, arrays: Sequence[Array | None], neighbours: Sequence[Sequence[int]], owners: Sequence[int],
        exchange: ArrayExchange, dtype: str, limits: tuple[int, float], xp: Any,
    ) -> None:  # fmt: skip
        super().__init__(arrays, neighbours, *limits, xp, dtype)
        self._owners, self._exchange, self._rank = owners, exchange, exchange.ranks.rank
        self._opposite: tuple[int, dict[int, int]] = (-1, {})
        """The other end of a bond that this rank cuts with another one, and its extents."""
        self._received: dict[tuple[int, int], Array] = {}
        """Reduced factors of weights, which the leader has sent."""
        self.zero_step: int | None = None
        """The step of a result without values other than 0."""

    def contract(self, left: int, right: int, new: int) -> bool:
        """Contract two tensors on the rank that gets the result; this rank learns their neighbours."""
        owner = self._owners[new]
        for number in (left, right):
            self._move(number, owner)
        if owner == self._rank:
            if not super().contract(left, right, new):
                # The others may wait for this tensor: they go on with any values.
                self.zero_step = self.step if self.zero_step is None else self.zero_step
                self.tensors[new][...] = 1
            return True
        names = self.neighbours.pop(left), self.neighbours.pop(right)
        ends = [other for other in [*names[0], *names[1]] if other not in (left, right)]
        self.neighbours[new] = list(dict.fromkeys(ends))
        for other in self.neighbours[new]:
            if other >= 0:
                self._rename(other, left, right, new)
        for number in (left, right):
            self._forget(number)
        return True

    def _rename(self, number: int, left: int, right: int, new: int) -> None:
        if number in self.tensors:
            super()._rename(number, left, right, new)
        else:
            rest = [name for name in self.neighbours[number] if name not in (left, right)]
            self.neighbours[number] = [*rest, new]

    def _move(self, number: int, owner: int) -> None:
        """Send a tensor to the rank that needs it, where this one has it or needs it."""
        source = self._owners[number]
        if source == owner:
            return
        if source == self._rank:
            numbers = [int(number in self._needs_qr), *self.neighbours[number]]
            self._exchange.send(owner, numbers, self.tensors.pop(number))
        elif owner == self._rank:
            (needs_qr, *self.neighbours[number]), self.tensors[number] = self._exchange.receive(source)
            self._mark([number], bool(needs_qr))

    def compress(self, left: int, right: int, rank: int) -> None:
        """Cut a bond; the rank of `left` leads, and those that have its other end or weights answer."""
        leader, partner = self._owners[left], self._owners[right]
        near = {*self.neighbours[left], *self.neighbours[right]} - {left, right}
        answering = {partner, *(self._owners[other] for other in near if other >= self._n_inputs)} - {leader}
        if self._rank in answering:
            self._answer(left, right, leader)
        if self._rank != leader:
            return
        is_cut = self._extents(left)[right] > self._max_bond
        for peer in sorted(answering):
            self._exchange.send(peer, [CUT if is_cut else DONE])
        if not is_cut:
            return
        self._bond_last(left, right)
        if partner == leader:
            self._bond_last(right, left)
        else:
            (needs_qr, *ends), _ = self._exchange.receive(partner)
            self._mark([right], bool(needs_qr))
            half = len(ends) // 2
            self._opposite = right, dict(zip(ends[:half], ends[half:], strict=True))
        self._cut(left, right, rank)
        self._opposite = -1, {}
        for peer in sorted(answering):
            self._exchange.send(peer, [DONE, int(right in self._needs_qr)])

    def compress_row(self, tensors: tuple[int, ...], ranks: tuple[int, ...]) -> None:
        """Cut the bonds of a row, where it is this rank's: all of it lies on one."""
        if self._owners[tensors[0]] == self._rank:
            super().compress_row(tensors, ranks)

    def _extents(self, number: int) -> dict[int, int]:
        if number == self._opposite[0]:
            return self._opposite[1]
        return super()._extents(number)

    def _answer(self, left: int, right: int, leader: int) -> None:
        """Do what the leader of a cut says until it is done."""
        exchange = self._exchange
        if exchange.receive(leader)[0] == [DONE]:
            return
        if right in self.tensors:
            self._bond_last(right, left)
            extents = self._extents(right)
            exchange.send(leader, [int(right in self._needs_qr), *extents, *extents.values()])
        while True:
            (request, *numbers), array = exchange.receive(leader)
            if request == DONE:
                if right in self.tensors:
                    self._mark([right], bool(numbers[0]))
                return
            if request == FACTOR:
                number, other, is_gram = numbers
                exchange.send(leader, [], self._towards(number, other, self._factor(is_gram)))
            elif request == WEIGHTED:
                self._send_weighted(right, leader, numbers)
            elif request == MULTIPLY:
                self._multiply(right, array)
            else:
                exchange.send(leader, [], self._given_away(right))

    def _factor(self, is_gram: int) -> Callable[[Array], Array]:
        return self._gram_factor if is_gram else self._qr_factor

    def _send_weighted(self, number: int, leader: int, numbers: Sequence[int]) -> None:
        """Send the reduced factor of a tensor, whose weights the leader tells. No array says that there is
        none."""
        is_gram, *weights = numbers
        for other in weights:
            if self._owners[other] != self._rank:
                self._received[other, number] = self._exchange.receive(leader)[1]
        factor = None
        with suppress(np.linalg.LinAlgError):  # not positive by rounding
            factor = self._weighted(number, weights, self._factor(is_gram))
        self._received.clear()
        self._exchange.send(leader, [], factor)

    def _both_weighted(self, left: int, right: int, factor: Callable[[Array], Array]) -> tuple[Array, Array]:
        if right in self.tensors:
            return super()._both_weighted(left, right, factor)
        partner, weights = self._owners[right], self._weights(right, left)
        own_weights = self._weights(left, right)
        # Invariant: the partner answers nothing else before its factor is taken. So what it has for this
        # one's factor is fetched before.
        fetched = {(other, left): self._towards(other, left, factor) for other in own_weights}
        self._exchange.send(partner, [WEIGHTED, int(factor == self._gram_factor), *weights])
        for other in weights:
            if self._owners[other] != partner:
                self._exchange.send(partner, [], self._towards(other, right, factor))
        own = None
        with suppress(np.linalg.LinAlgError):  # the partner is heard first
            self._received = fetched
            own = self._weighted(left, own_weights, factor)
        self._received = {}
        _, theirs = self._exchange.receive(partner)
        if own is None or theirs is None:
            raise np.linalg.LinAlgError("a Gram matrix is not positive")
        return own, theirs

    def _towards(self, number: int, other: int, factor: Callable[[Array], Array]) -> Array:
        if number in self.tensors:
            return super()._towards(number, other, factor)
        if (number, other) in self._received:
            return self._received[number, other]
        owner = self._owners[number]
        self._exchange.send(owner, [FACTOR, number, other, int(factor == self._gram_factor)])
        return self._exchange.receive(owner)[1]

    def _multiply(self, number: int, matrix: Array) -> None:
        if number in self.tensors:
            super()._multiply(number, matrix)
        else:
            self._exchange.send(self._owners[number], [MULTIPLY], matrix)

    def _given_away(self, number: int) -> Array:
        if number in self.tensors:
            return super()._given_away(number)
        self._exchange.send(self._owners[number], [GIVE])
        return self._exchange.receive(self._owners[number])[1]


def contract_over_ranks(
    arrays: Sequence[Array | None],
    neighbours: Sequence[Sequence[int]],
    steps: Sequence[BondLimitedStep],
    owners: Sequence[int],
    limits: tuple[int, float],
    exchange: ArrayExchange,
    dtype: str,
    xp: Any = np,
) -> BondLimitedValue:
    """`contract_with_bond_limit` over ranks; collective.

    All ranks get the exponent and what was cut; the rank that has the last tensor gets the mantissa, and the
    others 0.

    Parameters
    ----------
    arrays
        None for the tensors of other ranks.
    neighbours, steps, limits, xp
        As there; the limits are `max_bond` and `cutoff`.
    owners
        The rank of each tensor, those of results behind those that are given.
    exchange
        What brings arrays from rank to rank.
    dtype
        Of all tensors.
    """
    network = RankNetwork(arrays, neighbours, owners, exchange, dtype, limits, xp)
    for network.step, step in enumerate(steps):
        network.take(step)
    of_ranks = exchange.ranks.gather_objects((network.exponent, network.discarded(), network.zero_step))
    discarded = sorted(note for _, notes, _ in of_ranks for note in notes)
    zeros = [zero for *_, zero in of_ranks if zero is not None]
    if zeros:
        return BondLimitedValue(discarded=[share for step, share in discarded if step < min(zeros)])
    exponent = sum(exponent for exponent, *_ in of_ranks)
    value = BondLimitedValue(0.0, exponent, [share for _, share in discarded])
    for number, last in network.tensors.items():
        value.output = tuple(network.neighbours[number])
        value.mantissa = last if value.output else last.item()
    return value

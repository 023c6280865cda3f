"""The interface of a library that contracts shards and moves blocks between ranks, as replay uses it.

Knows modes and blocks; not layouts, schedules or any library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

from tnplan.executor.device.protocols.device import Call, View

LocalTensor = tuple[tuple[int, int], ...]
"""(label, extent) of the modes of a row-major shard, slowest first."""


class UnsupportedError(Exception):
    """Something that a library does not do; says why in a clause."""


@dataclass(frozen=True)
class SpreadTensor:
    """A tensor spread in equal blocks over the ranks, its modes slowest first: (label, whole extent, parts).

    Rank r holds block r, the parts of the last mode counted fastest; its shard is row-major. A tensor of one
    block is whole on every rank.
    """

    modes: tuple[tuple[int, int, int], ...]


class TensorLibrary(Protocol):
    """Such a library, on one rank of a group."""

    def bind_contract(
        self, tensors: tuple[LocalTensor, LocalTensor, LocalTensor], views: tuple[View, View, View],
        precision: str,
    ) -> Call:  # fmt: skip
        """Bind c = the sum of a times b over the modes that c lacks, of this rank's shards.

        - `tensors`: The modes of a, b and c.
        - `views`: Flat views of the shards, of one dtype.
        - `precision`: As in `Device.bind_contract`.
        """

    def bind_exchange(self, tensors: tuple[SpreadTensor, SpreadTensor], views: tuple[View, View]) -> Call:
        """Bind a redistribution: the second tensor gets the values of the first. Collective, as is the call.

        - `tensors`: One tensor before and after, in two distributions.
        - `views`: Flat views of this rank's shards, of one dtype.
        - raises UnsupportedError: where the library cannot.
        """


def fuse(tensors: Sequence[tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """Runs of modes that stand together, in the same order, in every tensor that holds one, by the first."""
    after: dict[int, set[int | None]] = {}
    before: dict[int, set[int | None]] = {}
    for stored in tensors:
        for left, right in zip((None, *stored), (*stored, None), strict=True):
            if left is not None:
                after.setdefault(left, set()).add(right)
            if right is not None:
                before.setdefault(right, set()).add(left)
    joined = {
        left: right
        for left, followers in after.items()
        for right in followers
        if right is not None and followers == {right} and before[right] == {left}
    }
    runs: dict[int, tuple[int, ...]] = {}
    for first in after.keys() - set(joined.values()):
        run = [first]
        while run[-1] in joined:
            run.append(joined[run[-1]])
        runs[first] = tuple(run)
    return runs


def fused_tensors(tensors: Sequence[tuple[int, ...]], extents: Mapping[int, int]) -> list[LocalTensor]:
    """Tensors with the modes of every run of `fuse` as one, with the label of the first."""
    runs = fuse(tensors)
    return [
        tuple((mode, prod(map(extents.__getitem__, runs[mode]))) for mode in stored if mode in runs)
        for stored in tensors
    ]

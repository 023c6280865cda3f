"""The interface of a library that contracts tensors spread over ranks, as replay uses it.

Knows modes and blocks; not layouts, schedules or any library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from executor.device.device import Call, View


class UnsupportedError(Exception):
    """A contraction that a library does not do; says why in a clause."""


@dataclass(frozen=True)
class SpreadTensor:
    """A tensor spread in equal blocks over the ranks, its modes slowest first: (label, whole extent, parts).

    Rank r holds block r, the parts of the last mode counted fastest; its shard is row-major. A tensor of one
    block is whole on every rank.
    """

    modes: tuple[tuple[int, int, int], ...]


class DistributedContractor(Protocol):
    """A library that contracts spread tensors, on one rank."""

    def bind(
        self, tensors: tuple[SpreadTensor, SpreadTensor, SpreadTensor], views: tuple[View, View, View],
        precision: str,
    ) -> Call:  # fmt: skip
        """c = the sum of a times b over the modes that c lacks; UnsupportedError where it cannot.

        Collective over the group, as is the call.
        """

"""What stands behind a search's symbols: the path of a tree, and the predicted time of its schedule.

Asks the planner for whole schedules. Knows no moves, no rounds and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from tnplan.common.errors import InputError
from tnplan.common.memory import ITEM_BYTES
from tnplan.planner.hardware.cost import memory_limit
from tnplan.planner.hardware.profile import Profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.search.annealing import Found
from tnplan.planner.search.orders.core import Core

TENSORS_OF_A_STEP = 0.5
"""What the largest steps hold, in tensors of the limit: chains work in place, and the largest tensors mostly
lie between their steps, where they are never stored."""


@dataclass(frozen=True)
class SearchedNetwork:
    """The network that is searched; `names` has the index of each of the search's symbols."""

    network: Network
    dtype: str
    names: dict[str, str]
    forced: frozenset[str]
    """Indices that are sliced in any case."""
    core: Core | None = None
    """What is searched of the network; None for all of it."""

    def path(self, found: Found) -> ContractionPath:
        """The path of a tree, its predicted time in `meta` where it is known."""
        sliced = {self.names[symbol] for symbol in found.sliced} | self.forced
        meta = {} if found.time_s is None else {"predicted_s": found.time_s}
        pairs = found.ssa_path if self.core is None else self.core.whole(found.ssa_path)
        return ContractionPath(self.network, pairs, tuple(sorted(sliced)), self.dtype, meta=meta)


@dataclass(frozen=True)
class Target:
    """The devices for which schedules are planned, and their precision."""

    frame: SearchedNetwork
    profile: Profile
    devices: int
    precision: str | None
    """None: the dtype's own."""

    def waist_limit(self, limit: int | None) -> float:
        """The elements of a tensor that there is room for beside the steps of a search with this limit."""
        if limit is None:
            return inf
        room = self.devices * memory_limit(self.profile, None) / ITEM_BYTES[self.frame.dtype]
        return room - TENSORS_OF_A_STEP * limit

    def planned(self, found: Found) -> Found:
        """A tree with the predicted seconds of all its slices. Raises InputError if nothing fits.

        Groups have the ranks that the tree states, else the fastest number.
        """
        from tnplan.planner.passes.pipeline import plan

        schedule = plan(
            self.frame.path(found), self.profile, devices=self.devices, precision=self.precision,
            ranks_per_group=found.ranks,
        )  # fmt: skip
        time_s = schedule.projected_s(self.devices // schedule.ranks_per_group)
        return replace(found, time_s=time_s, ranks=schedule.ranks_per_group)

    def ranked(self, found: Found) -> Found:
        """The same; without a time where nothing fits."""
        try:
            return self.planned(found)
        except InputError:
            return found

    def fastest(self, trees: Sequence[Found]) -> Found:
        """The tree of the least predicted seconds. Raises InputError if none fits."""
        times = {tree.time_s: tree for tree in map(self.ranked, trees) if tree.time_s is not None}
        return times[min(times)] if times else self.planned(trees[0])

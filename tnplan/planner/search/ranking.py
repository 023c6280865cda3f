"""From a tree of the search to its contraction path, and to the predicted time of its schedule.

The planner makes a whole schedule for each. Knows no moves, no rounds and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from tnplan.common.arrays import ITEM_BYTES
from tnplan.common.errors import InputError
from tnplan.planner.hardware.cost import memory_limit
from tnplan.planner.hardware.profile import Profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.search.annealing import ScoredTree
from tnplan.planner.search.orders.core import Core

TENSORS_OF_A_STEP = 0.5
"""The memory of the largest step in tensors of the limit, beside a tensor that waits at the waist. Less than
the three of a matrix product: chains work in place, and the largest tensors mostly lie between their steps,
where they are never stored."""


@dataclass(frozen=True)
class SearchedNetwork:
    """The network that is searched, in the symbols of the search."""

    network: Network
    dtype: str
    names: dict[str, str]
    """The index of each symbol."""
    forced: frozenset[str]
    """Indices that are sliced in any case."""
    core: Core | None = None
    """What is searched of the network; None for all of it."""

    def path(self, tree: ScoredTree) -> ContractionPath:
        """The path of a tree, its predicted time in `meta` where it is known."""
        sliced = {self.names[symbol] for symbol in tree.sliced} | self.forced
        meta = {} if tree.time_s is None else {"predicted_s": tree.time_s}
        pairs = tree.ssa_path if self.core is None else self.core.whole(tree.ssa_path)
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
        """The elements of a tensor for which there is memory beside the steps of a search with this limit."""
        if limit is None:
            return inf
        all_elements = self.devices * memory_limit(self.profile, None) / ITEM_BYTES[self.frame.dtype]
        return all_elements - TENSORS_OF_A_STEP * limit

    def planned(self, tree: ScoredTree) -> ScoredTree:
        """A tree with the predicted seconds of all its slices. Raises InputError if nothing fits.

        Groups have the ranks that the tree states, else the fastest number.
        """
        from tnplan.planner.passes.pipeline import plan

        schedule = plan(
            self.frame.path(tree), self.profile, devices=self.devices, precision=self.precision,
            ranks_per_group=tree.ranks,
        )  # fmt: skip
        time_s = schedule.projected_s(self.devices // schedule.ranks_per_group)
        return replace(tree, time_s=time_s, ranks=schedule.ranks_per_group)

    def ranked(self, tree: ScoredTree) -> ScoredTree:
        """A tree with its predicted seconds; as it is where no schedule fits."""
        try:
            return self.planned(tree)
        except InputError:
            return tree

    def fastest(self, trees: Sequence[ScoredTree]) -> ScoredTree:
        """The tree of the least predicted seconds. Raises InputError if none fits."""
        by_time = {tree.time_s: tree for tree in map(self.ranked, trees) if tree.time_s is not None}
        return by_time[min(by_time)] if by_time else self.planned(trees[0])

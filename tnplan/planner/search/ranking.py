"""From a tree of the search to its contraction path, and to the predicted time of its schedule.

A count of the steps says which trees are worth a plan, and the first variant that fits stands for the whole
plan. Knows no moves, no rounds and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, log2

from tnplan.common.arrays import ITEM_BYTES
from tnplan.common.collector import collector_at_rest
from tnplan.common.errors import InputError
from tnplan.planner.hardware.cost import SAME_TIME, memory_limit
from tnplan.planner.hardware.process_grid import group_sizes
from tnplan.planner.hardware.profile import Profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.network import Network
from tnplan.planner.search.annealing import ScoredTree
from tnplan.planner.search.orders.core import Core
from tnplan.planner.search.path_cost import planned_count

TENSORS_OF_A_STEP = 0.5
"""The memory of the largest step in tensors of the limit, beside a tensor that waits at the waist. Less than
the three of a matrix product: chains work in place, and the largest tensors mostly lie between their steps,
where they are never stored."""
ELEMENT_COUNT = 2
"""Multiply-adds that an element of a result counts beside those of its step: predicted times of devices
follow this sum best. Chains read and write a large tensor once in several steps."""
WORSE_BITS, NEAR_BITS, LESS = 0.2, 0.03, 0.985
"""A tree is planned unless its count is so much above that of the fastest. For one that was made from that it
is the second, and on several devices its work has to take less than this share of what the other's takes."""


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
    exceeds: bool = False
    """Whether tensors may exceed the limit, which follows from the memory, where their plan fits."""
    whole_plans: bool = False
    """Whether trees are compared by whole plans, so that no given path is made slower."""

    def waist_limit(self, limit: int | None) -> float:
        """The elements of a tensor for which there is memory beside the steps of a search with this limit."""
        if limit is None:
            return inf
        all_elements = self.devices * memory_limit(self.profile, None) / ITEM_BYTES[self.frame.dtype]
        return all_elements - TENSORS_OF_A_STEP * limit

    def planned(self, tree: ScoredTree) -> ScoredTree:
        """A tree with the predicted seconds of all its slices in a whole plan. Raises InputError if nothing
        fits.

        Groups have the ranks that the tree states, else the fastest number.
        """
        from tnplan.planner.passes.pipeline import plan

        schedule = plan(
            self.frame.path(tree), self.profile, devices=self.devices, precision=self.precision,
            ranks_per_group=tree.ranks,
        )  # fmt: skip
        time_s = schedule.projected_s(self.devices // schedule.ranks_per_group)
        return replace(tree, time_s=time_s, ranks=schedule.ranks_per_group)

    def ranked(
        self, tree: ScoredTree, rival: ScoredTree | None = None, group_steps: int = 0, is_near: bool = False
    ) -> ScoredTree:
        """A tree with its predicted seconds; as it is where no schedule fits, or it is not worth a plan
        beside the rival, a ranked tree, which it may be made from (`is_near`).

        Groups have the ranks of the rival's, or so many `group_steps` more in the list of all sizes; without
        a rival those of the fastest size, from the largest on.
        """
        path = self.frame.path(tree)
        count_log2 = log2(max(planned_count(path, ELEMENT_COUNT), 1))
        tree, sizes = replace(tree, count_log2=count_log2), group_sizes(self.devices, path.n_slices)
        if rival is not None and rival.count_log2 is not None and rival.ranks is not None:
            if count_log2 > rival.count_log2 + (NEAR_BITS if is_near else WORSE_BITS):
                return tree
            nearest = sum(size < rival.ranks for size in sizes) + group_steps
            last = min(max(nearest, 0), len(sizes) - 1)
            sizes = sizes[last if is_near else max(last - 1, 0) : last + 1]
        try:
            if self.whole_plans:
                return self.planned(replace(tree, ranks=sizes[0] if len(sizes) == 1 else tree.ranks))
            with collector_at_rest():
                rival_s = inf
                if is_near and rival is not None and rival.divided_s and rival.time_s:
                    # Between its work and its time: exchanges, which differ too, are in the second alone.
                    rival_s = (rival.divided_s + rival.time_s) / 2
                return self._by_first_plans(tree, path, sizes, rival_s)
        except InputError:
            return tree

    def _by_first_plans(
        self, tree: ScoredTree, path: ContractionPath, sizes: Sequence[int], rival_s: float
    ) -> ScoredTree:
        from tnplan.planner.passes.pipeline import Planner

        planner = Planner(path, self.profile, precision=self.precision)
        divided_s, best_s, best = 0.0, inf, 0
        if self.devices > 1:
            # What its work takes is worked out in a third of the time of a plan, or less.
            divided_s = planner.estimated_s(self.devices, sizes[-1])
            tree = replace(tree, divided_s=divided_s)
            if divided_s >= LESS * rival_s:
                return tree
        for ranks in reversed(sizes):
            time_s = planner.first_s(ranks, self.devices // ranks, tightens=False)
            before_s, best_s = best_s, min(time_s, best_s)
            best = ranks if time_s < before_s else best
            # Smaller groups are tried while they gain, and while there is more to gain.
            if time_s * SAME_TIME >= before_s or divided_s * SAME_TIME >= best_s:
                break
        if not best and rival_s == inf:
            best, best_s = sizes[-1], planner.first_s(sizes[-1], self.devices // sizes[-1])
        return tree if best_s == inf else replace(tree, time_s=best_s, ranks=best)

    def fastest(self, trees: Sequence[ScoredTree]) -> ScoredTree:
        """The first of the trees that fits, with its predicted seconds. Raises InputError if none does."""
        ranked = (tree for tree in map(self.ranked, trees) if tree.time_s is not None)
        return next(ranked, None) or self.planned(trees[0])

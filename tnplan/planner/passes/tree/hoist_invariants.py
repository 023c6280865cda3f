"""The choice among all ways to nest the loops over sliced indices.

A step depends on the sliced indices of the inputs under it. With the loops nested so that the innermost ones
change the least work, its result serves all slices that differ in loops further inside. An index of which all
inputs are under one node, the waist, can be summed there: only what is under it is done for each of its
values, and what is above no longer depends on it. Knows no layouts and no machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from tnplan.planner.passes.tree.build import Tree
from tnplan.planner.passes.tree.loop_levels import LoopNest
from tnplan.planner.passes.tree.loop_nest import ELEMENTS_TO_ADD, LevelDepths, LoopOrder
from tnplan.planner.passes.tree.slice_dependence import Dependence, work_of_elements

WAISTS = 12
"""Nodes that are looked at closely as waists."""
FEW_ROUNDS = 64
"""Of an early sum, whatever the number of slices. Between slices, not within them, runs are saved and groups
take turns: a sum of more rounds than that has no more of them than there are slices."""
LEAST_SAVING_OF_A_WAIST = 0.02
"""A waist is taken where it saves at least this share of the work."""


class InvariantHoisting:
    """What all loop nests of one tree have in common; without `early_sums` none has a waist."""

    def __init__(
        self, tree: Tree, sliced: Sequence[str], size_dict: Mapping[str, int], early_sums: bool = True
    ) -> None:
        self._dependence, self._early_sums = Dependence(tree, sliced, size_dict), early_sums

    @property
    def work_unshared(self) -> int:
        """The work of all slices, were nothing shared between them."""
        return sum(self._dependence.work) * self._dependence.count(self._dependence.everything)

    def loop_nest(self, most_elements: float, groups: int = 1) -> LoopNest:
        """The loop nest that saves most while what it keeps and the largest step take so many elements.

        With several groups work counts as if each had as many slices as the one that has most.
        """
        without_waist, *with_waist = self._orders
        best, depths = without_waist, without_waist.choose(most_elements)
        least = without_waist.work_of_groups(depths, groups)
        for order in with_waist:
            # `least_work` is a bound, cheap to compare; levels are chosen only for waists that could win by
            # it.
            if order.least_work < least * (1 - LEAST_SAVING_OF_A_WAIST) and order.fits(most_elements):
                chosen = order.choose(most_elements)
                work = order.work_of_groups(chosen, groups)
                if work < least * (1 - LEAST_SAVING_OF_A_WAIST):
                    best, depths, least = order, chosen, work
        return best.loop_nest(depths)

    @cached_property
    def unlimited(self) -> list[LoopNest]:
        """The loop nest of each order of the loops, were there no end of levels and memory.

        No other with this order does any step less often.
        """
        loop_nests = []
        for order in self._orders:
            fewest = order.loop_nest(order.choose(0.0))
            depths, inner = range(len(fewest.order) + 1), range(1, len(fewest.summed) + 1)
            loop_nests.append(order.loop_nest(LevelDepths(tuple(depths), tuple(inner))))
        return loop_nests

    @cached_property
    def _orders(self) -> list[LoopOrder]:
        """The tree without a waist, then with those of the least work."""
        dependence = self._dependence
        waists = self._waists() if self._early_sums else []
        return [LoopOrder(dependence), *(LoopOrder(dependence, node, summed) for node, summed in waists)]

    def _waists(self) -> list[tuple[int, int]]:
        """Nodes, and the sliced indices of which all inputs are under them: those of the least work, counted
        without what slices share besides."""
        dependence = self._dependence
        tree, everything = dependence.tree, dependence.everything
        under = [0] * tree.n_leaves
        for work, (left, right) in zip(dependence.work, tree.children, strict=True):
            under.append(under[left] + under[right] + work)
        # Work with the sum at a node: what is under it for every value of all indices below it, everything
        # else for the slices that are left.
        candidates = []
        for node, summed in enumerate(dependence.summed_under()):
            if node < tree.n_leaves or summed in (0, everything):
                continue
            rounds, slices = dependence.count(summed), dependence.count(everything & ~summed)
            if rounds > max(FEW_ROUNDS, slices):
                continue
            added = work_of_elements(ELEMENTS_TO_ADD * dependence.sizes[node])
            work = (under[node] + added) * dependence.count(dependence.below[node])
            work += (under[tree.root] - under[node]) * slices
            candidates.append((work, node, summed))
        return [(node, summed) for _, node, summed in sorted(candidates)[:WAISTS]]

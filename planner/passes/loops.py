"""Loops: the order of the loops over sliced indices, and those at which a part of the schedule begins.

A step depends on the sliced indices of the inputs under it. With the loops nested so that the innermost ones
change the least work, its result serves all slices that differ in loops further inside. Where such a result
meets a step of a loop further inside it has to be held, so that only some loops begin a part of the schedule:
those that save most, while what is held leaves room for the largest step. Knows no layouts and no machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, prod

from planner.passes.nesting import Nesting, parts_of
from planner.passes.tree import Tree

MOST_OUTER = 8
"""Parts between what is done once and the body."""
WORTH_A_PART = 0.02
"""A part is made where it saves at least this share of the work."""
HALVES_OF_AN_ELEMENT = 7
"""What an element that a step reads or writes costs, in halves of multiply-adds (docs/search.md, `fused`)."""


class Loops:
    """What all nestings of one tree have in common: the order of its loops, and its work by their depth."""

    def __init__(self, tree: Tree, sliced: Sequence[str], size_dict: Mapping[str, int]) -> None:
        place = {tree.indices[index][0]: number for number, index in enumerate(sliced)}
        below = [sum(1 << place[mode] for mode in own) for own in tree.leaf_sliced]
        sizes = [tree.extent(legs) for legs in tree.legs]
        work: list[int] = []
        steps: list[int] = []
        for number, (left, right) in enumerate(tree.children):
            node = tree.n_leaves + number
            below.append(below[left] | below[right])
            products = tree.extent(tuple({*tree.legs[left], *tree.legs[right]}))
            steps.append(sizes[left] + sizes[right] + sizes[node])
            work.append(max(products, HALVES_OF_AN_ELEMENT * steps[-1] // 2))
        largest = max(work, default=1)
        costs = [cost / largest for cost in work]
        order = _order(below[tree.n_leaves :], costs, len(sliced))
        depth = {index: number + 1 for number, index in enumerate(order)}
        self._tree = tree
        self.order = tuple(sliced[index] for index in order)
        self._serves = [prod(size_dict[index] for index in self.order[d:]) for d in range(len(order) + 1)]
        self._levels = [max((depth[bit] for bit in _bits(mask)), default=0) for mask in below]
        self._work = [0.0] * (len(order) + 1)
        self._step = [0] * (len(order) + 1)
        self._met: dict[tuple[int, int], int] = {}
        for number, (left, right) in enumerate(tree.children):
            level = self._levels[tree.n_leaves + number]
            self._work[level] += costs[number]
            self._step[level] = max(self._step[level], steps[number])
            for child in (left, right):
                met = self._levels[child], level
                if child >= tree.n_leaves and met[0] < level:
                    self._met[met] = self._met.get(met, 0) + sizes[child]

    def nesting(self, room: float) -> Nesting:
        """The parts that save most while what they hold and the largest step take `room` elements at most."""
        depths = {0, len(self.order)}
        work = self._total(depths)
        while len(depths) < MOST_OUTER + 2:
            fitting = [
                (self._total(more), depth)
                for depth in range(1, len(self.order))
                if self._work[depth] and depth not in depths and self._needs(more := {*depths, depth}) <= room
            ]
            less, depth = min(fitting, default=(inf, 0))
            if less > work * (1 - WORTH_A_PART):
                break
            work = less
            depths.add(depth)
        chosen = sorted(depths)
        return Nesting(
            self.order, tuple(chosen), tuple(self._serves[depth] for depth in chosen),
            parts_of(self._levels, chosen, self._tree.children, self._tree.n_leaves),
        )  # fmt: skip

    def _total(self, depths: set[int]) -> float:
        """The work of all slices, in that of a slice."""
        chosen, total = sorted(depths), 0.0
        for level, work in enumerate(self._work):
            if work:
                total += work / self._serves[next(depth for depth in chosen if depth >= level)]
        return total

    def _needs(self, depths: set[int]) -> int:
        """The most elements that are held for parts further inside while a step is done."""
        chosen, most = sorted(depths), 0
        held, before = 0, -1
        for depth in chosen:
            most = max(most, held + max(self._step[before + 1 : depth + 1]))
            held += sum(
                size for (made, used), size in self._met.items() if before < made <= depth < used
            )  # fmt: skip
            before = depth
        return most


def _order(below: Sequence[int], costs: Sequence[float], count: int) -> list[int]:
    """The loops from the outermost to the innermost: inside go those on which the least work depends."""
    work = [0.0] * count
    users: list[list[int]] = [[] for _ in range(count)]
    for number, mask in enumerate(below):
        for loop in _bits(mask):
            work[loop] += costs[number]
            users[loop].append(number)
    inner: list[int] = []
    left = set(range(count))
    counted = [True] * len(below)
    while left:
        loop = min(left, key=lambda one: (work[one], -one))
        left.remove(loop)
        inner.append(loop)
        for number in users[loop]:
            if counted[number]:
                counted[number] = False
                for other in _bits(below[number]):
                    work[other] -= costs[number]
    return inner[::-1]


def _bits(mask: int) -> list[int]:
    """The places of the bits of a mask that are set."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found

"""The choice among all ways to nest the loops over sliced indices, and which of them begin levels.

A step depends on the sliced indices of the inputs under it. With the loops nested so that the innermost ones
change the least work, its result serves all slices that differ in loops further inside. An index of which all
inputs are under one node, the waist, can be summed there: only what is under it is done for each of its
values, and what is above no longer depends on it. Results that wait for loops further inside, and the sum at
the waist, take memory: levels are added where they save most while the largest step still fits. Knows no
layouts and no machine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import inf, prod

from tnplan.planner.passes.tree.build import Tree
from tnplan.planner.passes.tree.loop_levels import LoopDepth, LoopNest, last_level_needed, with_leaves

HALVES_OF_AN_ELEMENT = 7
"""What an element that a step reads or writes costs, in halves of multiply-adds.

docs/explanation/search.md has it as `fused`.
"""
MOST_OUTER_LEVELS = 8
"""Levels between what is done once and the body, those that a waist needs not counted."""
LEAST_SAVING_OF_A_LEVEL = 0.02
"""A level is added where it saves at least this share of the work."""
ELEMENTS_TO_ADD = 3
"""An addition reads two elements and writes one."""
BEFORE, INSIDE, ELSEWHERE = range(3)
"""Steps under the waist that no index touches which is summed there; those that one touches; all others."""
Key = tuple[int, int]
"""One of these three, and the loops that the steps are inside of: of the early sum, or over slices."""
WAISTS = 12
"""Nodes that are looked at closely as waists."""
FEW_ROUNDS = 64
"""Of an early sum, whatever the number of slices. Between slices, not within them, runs are saved and groups
take turns: a sum of more rounds than that has no more of them than there are slices."""
LEAST_SAVING_OF_A_WAIST = 0.02
"""A waist is taken where it saves at least this share of the work."""


class Dependence:
    """The sliced indices of the inputs under every node, and the work of every step, in multiply-adds.

    A set of sliced indices is a mask, one bit each in the order of the path.
    """

    def __init__(self, tree: Tree, sliced: Sequence[str], size_dict: Mapping[str, int]) -> None:
        position = {tree.indices[index][0]: number for number, index in enumerate(sliced)}
        self.tree, self.sliced = tree, tuple(sliced)
        self.extents = tuple(size_dict[index] for index in sliced)
        self.sizes = tree.sizes
        self.below = [sum(1 << position[mode] for mode in modes) for modes in tree.leaf_sliced]
        self.work: list[int] = []
        self.elements: list[int] = []
        for number, (left, right) in enumerate(tree.children):
            self.below.append(self.below[left] | self.below[right])
            products = tree.extent(tuple({*tree.legs[left], *tree.legs[right]}))
            self.elements.append(sum(self.sizes[node] for node in (left, right, tree.n_leaves + number)))
            # As in the search: a step costs its multiply-adds or the traffic of its tensors, whichever is
            # more.
            self.work.append(max(products, work_of_elements(self.elements[-1])))

    @property
    def everything(self) -> int:
        """All sliced indices."""
        return (1 << len(self.sliced)) - 1

    def count(self, mask: int) -> int:
        """The product of the extents of some sliced indices."""
        return prod(self.extents[bit] for bit in bits_of(mask))

    def summed_under(self) -> list[int]:
        """Of every node, the sliced indices of which all inputs are under it."""
        tree = self.tree
        # Invariant: what is open counts one tensor more than there are, so that it is never summed.
        inputs = [int(tree.indices[index][0] in tree.sliced_output) for index in self.sliced]
        for mask in self.below[: tree.n_leaves]:
            for bit in bits_of(mask):
                inputs[bit] += 1
        # By node and sliced index, the inputs under it that have the index; all of them: it can be summed
        # there.
        counts = [dict.fromkeys(bits_of(mask), 1) for mask in self.below[: tree.n_leaves]]
        for left, right in tree.children:
            both = dict(counts[left])
            for bit, count in counts[right].items():
                both[bit] = both.get(bit, 0) + count
            counts.append(both)
        return [sum(1 << bit for bit, count in below.items() if count == inputs[bit]) for below in counts]


def work_of_elements(count: int) -> int:
    """What it costs to read or write so many elements."""
    return HALVES_OF_AN_ELEMENT * count // 2


@lru_cache(1 << 14)
def bits_of(mask: int) -> tuple[int, ...]:
    """The positions of the set bits of a mask, the lowest first."""
    positions = []
    while mask:
        low = mask & -mask
        positions.append(low.bit_length() - 1)
        mask ^= low
    return tuple(positions)


@dataclass(frozen=True)
class LevelDepths:
    """The depths at which levels begin: in the loops over slices, and in those of the early sum."""

    depths: tuple[int, ...]
    inner: tuple[int, ...] = ()


class LoopOrder:
    """One order of the loops of a tree: over slices, and over the indices `summed` at a waist."""

    def __init__(self, dependence: Dependence, waist: int | None = None, summed: int = 0) -> None:
        self._dependence, self._waist = dependence, waist
        tree, extents, count = dependence.tree, dependence.extents, len(dependence.sliced)
        below = dependence.below
        # Indices that what is under the waist depends on beside those summed: the early sum is inside of
        # their loops.
        live = 0 if waist is None else below[waist] & ~summed
        under = _under(tree.children, tree.n_leaves, waist)
        kinds, over_slices, in_sum = [], [], []
        for node in range(tree.n_leaves, tree.n_nodes):
            # Invariant: a step has one key, its kind and the innermost loop that it depends on; all sums over
            # steps become sums over these few keys.
            inside = node in under and below[node] & summed
            kinds.append(INSIDE if inside else BEFORE if node in under else ELSEWHERE)
            over_slices.append(live if inside else below[node] & ~summed)
            in_sum.append(below[node] & summed if inside else 0)
        largest = max(dependence.work, default=1)
        work = [cost / largest for cost in dependence.work]
        # What is inside of the early sum is done for each of its values: it weighs as much more in the order.
        repeats = dependence.count(summed)
        costs = [cost * repeats if kind == INSIDE else cost for kind, cost in zip(kinds, work, strict=True)]
        outer = [bit for bit in _order(over_slices, costs, count) if not summed >> bit & 1]
        inner = [bit for bit in _order(in_sum, work, count) if summed >> bit & 1]
        self._outer = tuple(dependence.sliced[bit] for bit in outer)
        self._inner = tuple(dependence.sliced[bit] for bit in inner)
        # serves[d]: slices in a row for which what is inside of the first d loops stays the same. repeats[d]:
        # how often what is inside of the first d loops of the early sum is done for one sum.
        self._serves = [prod(extents[bit] for bit in outer[depth:]) for depth in range(len(outer) + 1)]
        self._served = [_float(serves) for serves in self._serves]
        self._all_slices = prod(extents)
        self._repeats = [prod(extents[bit] for bit in inner[:depth]) for depth in range(len(inner) + 1)]
        self._live = _level(live, outer)
        self._keys: list[Key] = [
            (kind, _level(mask, inner) if kind == INSIDE else _level(rest, outer))
            for kind, mask, rest in zip(kinds, in_sum, over_slices, strict=True)
        ]
        self._add_up(work, largest)

    def _add_up(self, work: Sequence[float], largest: int) -> None:
        """By key: the work, and the elements of the largest step; by pairs of keys: what meets."""
        dependence, keys = self._dependence, self._keys
        self._work: dict[Key, float] = {}
        self._elements: dict[Key, int] = {}
        self._met: dict[tuple[Key, Key], int] = {}
        for key, cost, elements in zip(keys, work, dependence.elements, strict=True):
            self._work[key] = self._work.get(key, 0.0) + cost
            self._elements[key] = max(self._elements.get(key, 0), elements)
        if self._waist is not None:
            added = work_of_elements(ELEMENTS_TO_ADD * dependence.sizes[self._waist])
            self._work[INSIDE, len(self._inner)] += added / largest
        n_leaves = dependence.tree.n_leaves
        for key, pair in zip(keys, dependence.tree.children, strict=True):
            for child in pair:
                if child >= n_leaves:
                    # The sum at the waist is there from before the loops that it is over.
                    writer = (BEFORE, self._live) if child == self._waist else keys[child - n_leaves]
                    self._met[writer, key] = self._met.get((writer, key), 0) + dependence.sizes[child]
        self._all_keys = {*self._elements, *(key for pair in self._met for key in pair)}

    def choose(self, most_elements: float) -> LevelDepths:
        """The depths that save most while what is kept and the largest step take `most_elements`."""
        # Greedy: each time the depth that saves most among those that fit.
        depths = self._least()
        work = self._work_of_slice(depths)
        for _ in range(MOST_OUTER_LEVELS):
            choices = sorted(self._with_one_more(depths), key=self._work_of_slice)
            worth = (
                more for more in choices if self._work_of_slice(more) <= work * (1 - LEAST_SAVING_OF_A_LEVEL)
            )
            chosen = next((more for more in worth if self._needs(more) <= most_elements), None)
            if chosen is None:
                break
            depths, work = chosen, self._work_of_slice(chosen)
        return depths

    def fits(self, most_elements: float) -> bool:
        """Whether the least levels that there can be fit."""
        return self._needs(self._least()) <= most_elements

    @cached_property
    def least_work(self) -> float:
        """The work of all slices, were there no end of levels and memory, in the unit of `work_of_groups`."""
        return self.work_of_groups(self._all_depths, 1)

    @property
    def unlimited(self) -> LoopNest:
        """The loop nest with a level for every loop."""
        return self.loop_nest(self._all_depths)

    @property
    def _all_depths(self) -> LevelDepths:
        return LevelDepths(tuple(range(len(self._outer) + 1)), tuple(range(1, len(self._inner) + 1)))

    def work_of_groups(self, depths: LevelDepths, groups: int) -> float:
        """The work of all slices, were they as many for each group as for the one that has most.

        In that of the largest step of the tree, done for every value of all sliced indices: the work itself
        may be beyond floating point.
        """
        # A group that has fewer slices waits for the one that has most.
        n_slices = -(-self._serves[0] // groups) * groups
        return self._work_of_slice(depths) * (n_slices / self._all_slices)

    def loop_nest(self, depths: LevelDepths) -> LoopNest:
        """The loop nest with these depths."""
        levels = self._levels(depths)
        tree = self._dependence.tree
        return LoopNest(
            order=self._outer,
            summed=self._inner,
            waist=self._waist,
            levels=levels,
            serves=tuple(self._serves[level.depth] for level in levels),
            repeats=tuple(self._repeats[level.inner] for level in levels),
            level_of=with_leaves(
                [*map(self._numbers(depths, levels).__getitem__, self._keys)],
                [bool(mask) for mask in self._dependence.below[: tree.n_leaves]],
                tree.children,
                len(levels) - 1,
            ),
        )

    def _least(self) -> LevelDepths:
        """What is done once and the body, and with a waist the loops over what is summed."""
        if self._waist is None:
            return LevelDepths(_sorted(0, len(self._outer)))
        return LevelDepths(_sorted(0, self._live, len(self._outer)), (len(self._inner),))

    def _with_one_more(self, depths: LevelDepths) -> Iterator[LevelDepths]:
        """The choices with one depth more, where there is work."""
        levels = {level for kind, level in self._work if kind != INSIDE} - {*depths.depths}
        for depth in sorted(levels):
            yield replace(depths, depths=_sorted(*depths.depths, depth))
        levels = {level for kind, level in self._work if kind == INSIDE} - {*depths.inner}
        for depth in sorted(levels):
            yield replace(depths, inner=_sorted(*depths.inner, depth))

    def _work_of_slice(self, depths: LevelDepths) -> float:
        """The work of a slice in the mean of all, in that of the largest step."""
        total = 0.0
        for (kind, level), work in self._work.items():
            if kind == INSIDE:
                repeats = self._repeats[_first(depths.inner, level)]
                total += work * repeats / self._served[_first(depths.depths, self._live)]
            else:
                total += work / self._served[_first(depths.depths, level)]
        return total

    def _levels(self, depths: LevelDepths) -> tuple[LoopDepth, ...]:
        """The loops of every level; at the waist there is one before the loops of the sum and one after."""
        levels = []
        for depth in depths.depths:
            levels.append(LoopDepth(depth))
            if depths.inner and depth == _first(depths.depths, self._live):
                levels += [*(LoopDepth(depth, inner) for inner in depths.inner), LoopDepth(depth)]
        return tuple(levels)

    def _numbers(self, depths: LevelDepths, levels: Sequence[LoopDepth]) -> dict[Key, int]:
        """The level of the steps of each key. Of two with the same loops, what goes into the sum is in the
        first and all else in the last."""
        last = {loops: number for number, loops in enumerate(levels)}
        first = {loops: number for number, loops in reversed([*enumerate(levels)])}
        at_waist = _first(depths.depths, self._live)
        numbers = {}
        for key in self._all_keys:
            kind, level = key
            if kind == INSIDE:
                numbers[key] = first[LoopDepth(at_waist, _first(depths.inner, level))]
            else:
                numbers[key] = (first if kind == BEFORE else last)[LoopDepth(_first(depths.depths, level))]
        return numbers

    def _needs(self, depths: LevelDepths) -> int:
        """The most elements that are kept for other levels while a step is done, and those of that step."""
        levels = self._levels(depths)
        numbers = self._numbers(depths, levels)
        largest, change = [0] * len(levels), [0] * (len(levels) + 1)
        for key, elements in self._elements.items():
            number = numbers[key]
            largest[number] = max(largest[number], elements)
        for (writer, reader), size in self._met.items():
            if numbers[writer] < numbers[reader]:
                change[numbers[writer] + 1] += size
                change[last_level_needed(levels, numbers[writer], numbers[reader]) + 1] -= size
        # A sweep over levels: `waiting` are the elements of tensors made on earlier levels that are still
        # needed.
        most = waiting = 0
        for elements, more in zip(largest, change, strict=False):
            waiting += more
            most = max(most, waiting + elements)
        return most


def _float(count: int) -> float:
    """A count as a float, infinite where it is beyond floating point."""
    try:
        return float(count)
    except OverflowError:
        return inf


def _under(children: Sequence[tuple[int, int]], n_leaves: int, top: int | None) -> set[int]:
    """A node and all nodes under it."""
    todo = [] if top is None else [top]
    under = set()
    while todo:
        node = todo.pop()
        under.add(node)
        if node >= n_leaves:
            todo += children[node - n_leaves]
    return under


def _level(mask: int, order: Sequence[int]) -> int:
    """How many of some loops, from the outermost on, go around what depends on a set of indices."""
    return max((depth for depth, bit in enumerate(order, 1) if mask >> bit & 1), default=0)


def _sorted(*depths: int) -> tuple[int, ...]:
    return tuple(sorted({*depths}))


def _first(depths: Sequence[int], least: int) -> int:
    """The first of some depths, in ascending order, that is at least so much."""
    return depths[bisect_left(depths, least)]


def _order(masks: Sequence[int], costs: Sequence[float], count: int) -> list[int]:
    """The loops from the outermost to the innermost: inside go those on which the least work depends."""
    work = [0.0] * count
    users: list[list[int]] = [[] for _ in range(count)]
    for number, mask in enumerate(masks):
        for loop in bits_of(mask):
            work[loop] += costs[number]
            users[loop].append(number)
    # From the innermost loop out: the index on which the least work depends changes fastest. The work of
    # steps that are inside of it is then settled, and no longer counts for other loops.
    inner: list[int] = []
    left = set(range(count))
    counted = [True] * len(masks)
    while left:
        loop = min(left, key=lambda index: (work[index], -index))
        left.remove(loop)
        inner.append(loop)
        for number in users[loop]:
            if counted[number]:
                counted[number] = False
                for other in bits_of(masks[number]):
                    work[other] -= costs[number]
    return inner[::-1]


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
        return [order.unlimited for order in self._orders]

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

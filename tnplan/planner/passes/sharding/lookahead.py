"""An estimate of what a distribution state will cost later, to rank the states that the search keeps.

The estimate follows a simple plan that can be carried out: hold the state until one of its modes is about
to be summed, and change, at the cheapest point before that, to the longest-lived modes there; and so on up
to the root. It only ranks states; costs in the dynamic programming never contain it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tnplan.planner.passes.sharding.states import ShardingState, StateSpace
from tnplan.planner.passes.tree.build import Tree


class Lookahead:
    """Estimated seconds, a slice, of the exchanges still to come from a node's tensor in a state.

    `settled` are states of all nodes over the digits that are settled in `space`; changes leave these alone.
    """

    def __init__(self, tree: Tree, space: StateSpace, settled: Sequence[ShardingState]) -> None:
        self._tree, self._space = tree, space
        self._depth = tree.depths
        self._parent = [-1 if above is None else above for above in tree.parents]
        self._weight = tree.later_weights
        self._smaller = [-1] * tree.n_nodes
        self._death_order: dict[int, list[tuple[int, int]]] = {}
        self._enter, self._leave = self._tour()
        slots = tree.slots
        self._fresh = [
            space.fill(state, [1 << slots[mode] for mode in modes])
            for state, modes in zip(settled, tree.lifetimes, strict=True)
        ]
        self._fresh_later_s = [0.0] * tree.n_nodes
        for node in range(tree.n_nodes - 1, -1, -1):
            above = self._parent[node]
            while above >= 0 and space.size_bytes[above] >= space.size_bytes[node]:
                above = self._smaller[above]
            self._smaller[node] = above
            if self._parent[node] >= 0:
                self._fresh_later_s[node] = self._later_s(node, self._fresh[node], strictly=True)

    def seconds(self, node: int, state: ShardingState) -> float:
        """The estimate for a node's tensor in a state."""
        return self._later_s(node, state, strictly=False)

    def _later_s(self, node: int, state: ShardingState, strictly: bool) -> float:
        end = self._first_death(node, state)
        if end < 0:
            return 0.0
        last = self._child_towards(end, node)
        best = inf
        point = node
        while point >= 0 and self._depth[point] > self._depth[end]:
            if not (strictly and point == node):
                best = min(best, self._change_s(point, state))
            point = self._smaller[point]
        if not (strictly and last == node):
            best = min(best, self._change_s(last, state))
        return 0.0 if best == inf else best

    def _change_s(self, node: int, state: ShardingState) -> float:
        count = self._space.n_settled
        changed = (*state[:count], *self._fresh[node][count:])
        return self._weight[node] * self._space.move_s(node, state, changed) + self._fresh_later_s[node]

    def _first_death(self, node: int, state: ShardingState) -> int:
        """The node at which the first of a state's unsettled modes is summed, or -1 where none is."""
        spread = 0
        for modes in state[self._space.n_settled :]:
            spread |= modes
        for bit, death in self._deaths(node):
            if spread & bit:
                return death
        return -1

    def _deaths(self, node: int) -> list[tuple[int, int]]:
        """The modes of a node that are summed somewhere, soonest first: their bits and those nodes."""
        known = self._death_order.get(node)
        if known is None:
            slots, death = self._tree.slots, self._tree.death
            found = [
                (1 << slots[mode], end) for mode in self._tree.legs[node] if (end := death[mode]) is not None
            ]
            known = self._death_order[node] = sorted(found, key=lambda item: -self._depth[item[1]])
        return known

    def _child_towards(self, ancestor: int, node: int) -> int:
        """The operand of `ancestor` whose sub-tree holds `node`."""
        left, right = self._tree.children[ancestor - self._tree.n_leaves]
        return left if self._enter[left] <= self._enter[node] < self._leave[left] else right

    def _tour(self) -> tuple[list[int], list[int]]:
        """Positions at which a walk from the root enters and leaves every sub-tree."""
        count = [1] * self._tree.n_nodes
        for number, (left, right) in enumerate(self._tree.children):
            count[self._tree.n_leaves + number] += count[left] + count[right]
        enter = [0] * self._tree.n_nodes
        for number in range(len(self._tree.children) - 1, -1, -1):
            node = self._tree.n_leaves + number
            left, right = self._tree.children[number]
            enter[left] = enter[node] + 1
            enter[right] = enter[left] + count[left]
        return enter, [first + size for first, size in zip(enter, count, strict=True)]

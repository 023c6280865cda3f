"""An estimate of what a distribution state will cost later, to rank the states that the search keeps.

The distribution of modes is the paper's, section IV-B, whose dynamic programming keeps every state. Here a
node may have many more states, of which `search` keeps the most promising. The estimate follows a simple plan
that can be carried out: hold the state until one of its modes is about to be summed, and change, at the
cheapest point before that, to the longest-lived modes there, its renewed state; and so on up to the root:

    later_s(node, state) = min over points p of  weight(p) change_s(p, state) + later_s(p, renewed(p))

It only ranks states; costs in the dynamic programming never contain it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tnplan.planner.passes.sharding.states import ShardingState, StateSpace
from tnplan.planner.passes.tree.build import Tree

NONE = -1
"""In lists of nodes: there is none."""


class Lookahead:
    """Estimated seconds, a slice, of the exchanges still to come from a node's tensor in a state.

    `settled` are states of all nodes over the digits that are settled in `space`; changes leave these alone.
    """

    def __init__(self, tree: Tree, space: StateSpace, settled: Sequence[ShardingState]) -> None:
        self._tree, self._space = tree, space
        self._depth = tree.depths
        self._parent = [NONE if parent is None else parent for parent in tree.parents]
        self._weight = tree.later_weights
        self._summed_first: dict[int, list[tuple[int, int]]] = {}
        self._enter, self._leave = self._tour()
        # The renewed state of a node: what is settled, and else its longest-lived modes.
        slots = tree.slots
        self._renewed = [
            space.fill(state, [1 << slots[mode] for mode in modes])
            for state, modes in zip(settled, tree.lifetimes, strict=True)
        ]
        # From the root down, of every node: the nearest one above it with a smaller tensor, and the seconds
        # to come once it is in its renewed state. Changes are weighed at these smaller and smaller tensors,
        # of which less moves, and at the last one before a mode is summed.
        self._smaller_above = [NONE] * tree.n_nodes
        self._renewed_later_s = [0.0] * tree.n_nodes
        for node in range(tree.n_nodes - 1, -1, -1):
            above = self._parent[node]
            while above >= 0 and space.size_bytes[above] >= space.size_bytes[node]:
                above = self._smaller_above[above]
            self._smaller_above[node] = above
            if self._parent[node] >= 0:
                self._renewed_later_s[node] = self._later_s(node, self._renewed[node], may_change_here=False)

    def seconds(self, node: int, state: ShardingState) -> float:
        """The estimate for a node's tensor in a state."""
        return self._later_s(node, state, may_change_here=True)

    def _later_s(self, node: int, state: ShardingState, may_change_here: bool) -> float:
        """The cheapest change between a node and the step that sums one of the state's modes.

        0 where none is summed, and where there is no point to change at.
        """
        # Invariant: renewed_later_s of all nodes above is settled, as nodes are numbered with parents after
        # children and `__init__` goes down from the root.
        summing = self._first_sum(node, state)
        if summing == NONE:
            return 0.0
        # The last tensor on the way before the sum, and all that are smaller than everything before them
        # (size valleys, in the paper's words).
        last = self._child_towards(summing, node)
        points = [last]
        point = node
        while point >= 0 and self._depth[point] > self._depth[summing]:
            points.append(point)
            point = self._smaller_above[point]
        seconds = [self._change_s(point, state) for point in points if may_change_here or point != node]
        least_s = min(seconds, default=inf)
        return 0.0 if least_s == inf else least_s

    def _change_s(self, node: int, state: ShardingState) -> float:
        """Seconds of the change to the renewed state at a node, and of what comes after it."""
        n_settled = self._space.n_settled
        renewed = (*state[:n_settled], *self._renewed[node][n_settled:])
        change_s = self._weight[node] * self._space.move_s(node, state, renewed)
        return change_s + self._renewed_later_s[node]

    def _first_sum(self, node: int, state: ShardingState) -> int:
        """The node at which the first of a state's unsettled modes is summed, or NONE."""
        spread = 0
        for modes in state[self._space.n_settled :]:
            spread |= modes
        for bit, summing in self._modes_by_sum(node):
            if spread & bit:
                return summing
        return NONE

    def _modes_by_sum(self, node: int) -> list[tuple[int, int]]:
        """The modes of a node that are summed somewhere, soonest first: their bits and those nodes."""
        known = self._summed_first.get(node)
        if known is None:
            slots, summed_at = self._tree.slots, self._tree.death
            modes = [
                (1 << slots[mode], summing)
                for mode in self._tree.legs[node]
                if (summing := summed_at[mode]) is not None
            ]
            # Deepest node first: on the way to the root it comes soonest.
            known = self._summed_first[node] = sorted(modes, key=lambda mode: -self._depth[mode[1]])
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
        # Preorder numbers: a sub-tree is the range enter .. leave - 1, so that `_child_towards` takes no
        # walk.
        enter = [0] * self._tree.n_nodes
        for number in range(len(self._tree.children) - 1, -1, -1):
            node = self._tree.n_leaves + number
            left, right = self._tree.children[number]
            enter[left] = enter[node] + 1
            enter[right] = enter[left] + count[left]
        return enter, [first + size for first, size in zip(enter, count, strict=True)]

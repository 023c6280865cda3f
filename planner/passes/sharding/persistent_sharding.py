"""Pass 3, distribute: where the digits of one tier keep their modes for long, as a proposal to the search.

The stem of a tree is what its waist is made from: on either side of each step the operand with the larger
tensors. A stay is a run of its steps in which the digits have the same modes, those that appear first of
what its last tensor has. It may begin before all of them are there: until then several ranks make the same.
Between two stays the tensor is exchanged; before the first, every rank makes all. The last stay is one of
both sides, which then meet without an exchange: the search, which keeps few states, sees one side at a time.
A tree without a waist is one side. Dynamic programming over the steps at which stays begin. All other tensors
are taken to be whole on every rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tnplan.planner.passes.sharding.search import Distribution, StepModes, contract_cost, restrict
from tnplan.planner.passes.sharding.states import ShardingState, StateSpace
from tnplan.planner.passes.tree.build import Tree

SMALLEST = 2.0**-12
"""The stem begins at tensors of this share of the largest."""
WAIST = 2.0**-8
"""At the waist either side leads to tensors of this share of the largest."""

PersistentSharding = tuple[int, ...]
"""The modes of a stay for each class of digits that is not settled, one bit for each mode."""


def persistent_shardings(
    tree: Tree, space: StateSpace, steps: Sequence[StepModes], settled: Distribution | None = None
) -> tuple[ShardingState | None, ...]:
    """The layout of each step of the stem, None for other nodes; for all of them where no stays fit."""
    return _Search(tree, space, steps, settled).layouts()


@dataclass
class _Side:
    """One side of the waist, from there down: nodes by place, and what is known of them."""

    nodes: list[int]
    modes: list[int]
    """In the order in which they appear."""
    alone_s: list[float]
    """Seconds for all up to a node where every rank makes all."""
    made_s: list[float]
    """The least seconds for all up to a node where a stay ends there."""
    stays: list[tuple[PersistentSharding, int]]
    """That stay and where it begins, see `_Search._stay`."""


class _Search:
    def __init__(
        self, tree: Tree, space: StateSpace, steps: Sequence[StepModes], settled: Distribution | None
    ) -> None:
        self._tree, self._space, self._steps = tree, space, steps
        self._legs = [sum(1 << mode for mode in legs) for legs in tree.legs]
        self._masks = [sum(1 << tree.slots[mode] for mode in legs) for legs in tree.legs]
        self._base = [space.local] * tree.n_nodes
        if settled is not None:
            self._base = [space.widen(choice.layout) if choice else space.local for choice in settled.choices]
        self._settles = [
            above is None or restrict(self._base[above], mask) == restrict(own, mask)
            for above, own, mask in zip(tree.parents, self._base, self._masks, strict=True)
        ]
        """Whether each tensor is spread over settled digits as the step that takes it needs it."""
        self._classes = space.classes[space.n_settled :]
        self._nothing: PersistentSharding = (0,) * len(self._classes)
        self._peaks = [0] * tree.n_nodes
        """The largest tensor that the steps of each sub-tree make."""
        for node, (left, right) in enumerate(tree.children, tree.n_leaves):
            self._peaks[node] = max(space.size_bytes[node], self._peaks[left], self._peaks[right])
        self._step_times: dict[tuple[int, ...], float] = {}

    def layouts(self) -> tuple[ShardingState | None, ...]:
        tree = self._tree
        found: list[ShardingState | None] = [None] * tree.n_nodes
        waist = self._waist()
        if waist is None:
            if tree.children:
                side = self._side(tree.root)
                self._lay(found, side, *side.stays[0])
            return tuple(found)
        left, right = tree.children[waist - tree.n_leaves]
        sides = self._side(left), self._side(right)
        best_s, best, begins = inf, self._nothing, (0, 0)
        for side, other in (sides, sides[::-1]):
            for node in other.nodes:
                stay = self._first_modes(side, node)
                (left_s, first), (right_s, second) = (self._last(each, stay) for each in sides)
                if left_s + right_s < best_s:
                    best_s, best, begins = left_s + right_s, stay, (first, second)
        if best_s < inf:
            for side, begin in zip(sides, begins, strict=True):
                self._lay(found, side, best, begin)
            found[waist] = self._space.settle(self._base[waist], self._state(left, waist, best))
        return tuple(found)

    def _waist(self) -> int | None:
        """The first node from the root both of whose operands lead to large tensors, if there is one."""
        node, least = self._tree.root, WAIST * max(self._peaks)
        while node >= self._tree.n_leaves:
            pair = self._tree.children[node - self._tree.n_leaves]
            smaller, larger = sorted(pair, key=self._peaks.__getitem__)
            if self._peaks[smaller] >= least:
                return node
            node = larger
        return None

    def _side(self, top: int) -> _Side:
        tree, node, least = self._tree, top, SMALLEST * max(self._peaks)
        nodes: list[int] = []
        while node >= tree.n_leaves and self._peaks[node] >= least:
            nodes.append(node)
            node = max(tree.children[node - tree.n_leaves], key=self._peaks.__getitem__)
        modes = list(dict.fromkeys(mode for node in reversed(nodes) for mode in sorted(tree.legs[node])))
        count = len(nodes)
        side = _Side(nodes, modes, [inf] * count, [inf] * count, [(self._nothing, 0)] * count)
        alone_s = 0.0
        for place in range(count - 1, -1, -1):
            node = nodes[place]
            if place + 1 < count:
                alone_s += self._move_s(nodes[place + 1], self._nothing, self._nothing)
            alone_s += self._step_s(node, self._nothing)
            side.alone_s[place] = alone_s
            stay = self._first_modes(side, node)
            side.made_s[place], begin = self._stay(side, place, stay)
            side.stays[place] = stay, begin
        return side

    def _first_modes(self, side: _Side, node: int) -> PersistentSharding:
        """The modes of a tensor that are first on a side, one for each digit."""
        taken = 0
        for spread in self._base[node]:
            taken |= spread
        slots, legs = self._tree.slots, self._legs[node]
        waiting = [mode for mode in side.modes if legs >> mode & 1 and not taken >> slots[mode] & 1]
        stay = []
        for item in self._classes:
            fitting = [mode for mode in waiting if self._tree.modes[mode].extent >= item.radix]
            own = fitting[: len(item.places)]
            waiting = [mode for mode in waiting if mode not in own]
            stay.append(sum(1 << mode for mode in own))
        return tuple(stay)

    def _stay(self, side: _Side, last: int, stay: PersistentSharding) -> tuple[float, int]:
        """The least seconds for all up to the node at `last` if it is made in a stay, and where that begins.

        A number of nodes from the waist down, which this stay and those after it make; negative where all
        below are made by every rank.
        """
        best_s, begin, run_s = inf, 0, 0.0
        for place in range(last, len(side.nodes)):
            run_s += self._step_s(side.nodes[place], stay)
            below = place + 1
            if below == len(side.nodes):
                return (run_s, -below) if run_s < best_s else (best_s, begin)
            operand = side.nodes[below]
            alone_s = run_s + side.alone_s[below] + self._move_s(operand, self._nothing, stay)
            if alone_s < best_s:
                best_s, begin = alone_s, -below
            if run_s + side.made_s[below] < best_s:
                changed_s = run_s + side.made_s[below] + self._move_s(operand, side.stays[below][0], stay)
                if changed_s < best_s:
                    best_s, begin = changed_s, below
            run_s += self._move_s(operand, stay, stay)
            if run_s >= best_s:
                break
        return best_s, begin

    def _last(self, side: _Side, stay: PersistentSharding) -> tuple[float, int]:
        """The same up to the waist."""
        made_s, begin = self._stay(side, 0, stay)
        return made_s + self._move_s(side.nodes[0], stay, stay), begin

    def _lay(
        self, found: list[ShardingState | None], side: _Side, stay: PersistentSharding, begin: int
    ) -> None:
        """Write down the layouts of a side; its last stay begins at `begin`."""
        place = 0
        while True:
            for node in side.nodes[place : abs(begin)]:
                found[node] = self._state(node, node, stay)
            if begin <= 0:
                break
            place = begin
            stay, begin = side.stays[place]

    def _state(self, node: int, taker: int, stay: PersistentSharding) -> ShardingState:
        """How a node's tensor is spread in a stay where settled digits are as in the step `taker`."""
        base = restrict(self._base[taker], self._masks[node])
        own = [modes & self._legs[node] for modes in stay]
        return self._space.settle(base, (*base[: self._space.n_settled], *map(self._slots, own)))

    def _slots(self, modes: int) -> int:
        slots = 0
        while modes:
            slots |= 1 << self._tree.slots[modes.bit_length() - 1]
            modes ^= 1 << modes.bit_length() - 1
        return slots

    def _step_s(self, node: int, stay: PersistentSharding) -> float:
        """Seconds of a step in a stay: nearly the same for all modes, so that only their number counts."""
        key = (node, *((modes & self._legs[node]).bit_count() for modes in stay))
        known = self._step_times.get(key)
        if known is None:
            step = self._steps[node - self._tree.n_leaves]
            step_s = contract_cost(self._space, step, self._state(node, node, stay))
            known = self._step_times[key] = self._tree.weights[node] * step_s
        return known

    def _move_s(self, node: int, stay: PersistentSharding, then: PersistentSharding) -> float:
        """Seconds to bring a tensor from the layout that it was made in to that of the step that takes it."""
        taker = self._tree.parents[node]
        assert taker is not None
        if self._settles[node] and (stay == then or stay == self._nothing):
            return 0.0
        source, target = self._state(node, node, stay), self._state(node, taker, then)
        return self._tree.later_weights[node] * self._space.move_s(node, source, target)

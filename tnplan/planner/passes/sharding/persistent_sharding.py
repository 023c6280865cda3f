"""Pass 3, distribute, one tier after the other: where its digits keep their modes for long, as a proposal.

The stem of a tree is what its waist is made from: on either side of each step the operand with the larger
tensors. Along a run of its steps the digits keep the same modes, those that appear first of what its last
tensor has. A run may begin before all of them are there: until then several ranks make the same.
Between two runs the tensor is exchanged; before the first, every rank makes all. The last run is one of
both sides, which then meet without an exchange: the search, which keeps few states, sees one side at a time.
A tree without a waist is one side. Dynamic programming over the steps at which runs begin. All other tensors
are taken to be whole on every rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tnplan.planner.hardware.process_grid import Grid
from tnplan.planner.passes.sharding import policies
from tnplan.planner.passes.sharding.search import Distribution, StepModes, contract_cost, distribute, restrict
from tnplan.planner.passes.sharding.states import ShardingState, StateSpace
from tnplan.planner.passes.tree.build import Tree

SMALLEST = 2.0**-12
"""The stem begins at tensors of this share of the largest."""
WAIST = 2.0**-8
"""At the waist either side leads to tensors of this share of the largest."""

PersistentSharding = tuple[int, ...]
"""The modes of a run for each class of digits that is not settled, one bit for each mode."""


def persistent_shardings(
    tree: Tree, space: StateSpace, steps: Sequence[StepModes], settled: Distribution | None = None
) -> tuple[ShardingState | None, ...]:
    """The layout of each step of the stem, None for other nodes; for all of them where no runs fit."""
    return _Search(tree, space, steps, settled).layouts()


@dataclass
class _Side:
    """One side of the waist, from there down: nodes by position, and what is known of them."""

    nodes: list[int]
    modes: list[int]
    """In the order in which they appear."""
    alone_s: list[float]
    """Seconds for all up to a node where every rank makes all."""
    made_s: list[float]
    """The least seconds for all up to a node where a run ends there."""
    runs: list[tuple[PersistentSharding, int]]
    """The sharding of that run and where it begins, see `_Search._cheapest_run`."""


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
            above is None or restrict(self._base[above], mask) == restrict(chosen, mask)
            for above, chosen, mask in zip(tree.parents, self._base, self._masks, strict=True)
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
        layout_of: list[ShardingState | None] = [None] * tree.n_nodes
        waist = self._waist()
        if waist is None:
            if tree.children:
                side = self._side(tree.root)
                self._write_layouts(layout_of, side, *side.runs[0])
            return tuple(layout_of)
        left, right = tree.children[waist - tree.n_leaves]
        sides = self._side(left), self._side(right)
        best_s, best, begins = inf, self._nothing, (0, 0)
        # The last run has the same modes on both sides of the waist: proposals come from either, at any of
        # its nodes, and what both sides pay together decides.
        for side, other in (sides, sides[::-1]):
            for node in other.nodes:
                sharding = self._first_modes(side, node)
                (left_s, first), (right_s, second) = (self._last(each, sharding) for each in sides)
                if left_s + right_s < best_s:
                    best_s, best, begins = left_s + right_s, sharding, (first, second)
        if best_s < inf:
            for side, begin in zip(sides, begins, strict=True):
                self._write_layouts(layout_of, side, best, begin)
            layout_of[waist] = self._space.settle(self._base[waist], self._state(left, waist, best))
        return tuple(layout_of)

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
        # made_s(p) = min over q of run_s(p .. q, sharding of p) + move_s + min(made_s(q), alone_s(q)), from
        # the far end of the stem up.
        # Invariant: `nodes` goes from the waist down, so that position + 1 is the operand of position.
        alone_s = 0.0
        for position in range(count - 1, -1, -1):
            node = nodes[position]
            if position + 1 < count:
                alone_s += self._move_s(nodes[position + 1], self._nothing, self._nothing)
            alone_s += self._step_s(node, self._nothing)
            side.alone_s[position] = alone_s
            sharding = self._first_modes(side, node)
            side.made_s[position], begin = self._cheapest_run(side, position, sharding)
            side.runs[position] = sharding, begin
        return side

    def _first_modes(self, side: _Side, node: int) -> PersistentSharding:
        """The modes of a tensor that are first on a side, one for each digit."""
        taken = 0
        for spread in self._base[node]:
            taken |= spread
        slots, legs = self._tree.slots, self._legs[node]
        waiting = [mode for mode in side.modes if legs >> mode & 1 and not taken >> slots[mode] & 1]
        sharding = []
        for item in self._classes:
            # Slowest class first: it gets the modes that appear first and stay for longest.
            fitting = [mode for mode in waiting if self._tree.modes[mode].extent >= item.radix]
            chosen = fitting[: len(item.positions)]
            waiting = [mode for mode in waiting if mode not in chosen]
            sharding.append(sum(1 << mode for mode in chosen))
        return tuple(sharding)

    def _cheapest_run(self, side: _Side, last: int, sharding: PersistentSharding) -> tuple[float, int]:
        """The least seconds for all up to the node at `last` if a run of this sharding makes it; its begin.

        A number of nodes from the waist down, which this run and those after it make; negative where all
        below are made by every rank.
        """
        best_s, begin, run_s = inf, 0, 0.0
        for position in range(last, len(side.nodes)):
            # The run grows downwards by a node at a time; it begins there by itself, after what every rank
            # makes, or after another run and an exchange.
            run_s += self._step_s(side.nodes[position], sharding)
            below = position + 1
            if below == len(side.nodes):
                return (run_s, -below) if run_s < best_s else (best_s, begin)
            operand = side.nodes[below]
            alone_s = run_s + side.alone_s[below] + self._move_s(operand, self._nothing, sharding)
            if alone_s < best_s:
                best_s, begin = alone_s, -below
            if run_s + side.made_s[below] < best_s:
                changed_s = run_s + side.made_s[below] + self._move_s(operand, side.runs[below][0], sharding)
                if changed_s < best_s:
                    best_s, begin = changed_s, below
            run_s += self._move_s(operand, sharding, sharding)
            # Times only add up: no longer run is better.
            if run_s >= best_s:
                break
        return best_s, begin

    def _last(self, side: _Side, sharding: PersistentSharding) -> tuple[float, int]:
        """The same up to the waist."""
        made_s, begin = self._cheapest_run(side, 0, sharding)
        return made_s + self._move_s(side.nodes[0], sharding, sharding), begin

    def _write_layouts(
        self, layouts: list[ShardingState | None], side: _Side, sharding: PersistentSharding, begin: int
    ) -> None:
        """Write down the layouts of a side; its last run begins at `begin`."""
        position = 0
        while True:
            for node in side.nodes[position : abs(begin)]:
                layouts[node] = self._state(node, node, sharding)
            if begin <= 0:
                break
            position = begin
            sharding, begin = side.runs[position]

    def _state(self, node: int, taker: int, sharding: PersistentSharding) -> ShardingState:
        """How a node's tensor is spread in a run where settled digits are as in the step `taker`."""
        base = restrict(self._base[taker], self._masks[node])
        chosen = [modes & self._legs[node] for modes in sharding]
        return self._space.settle(base, (*base[: self._space.n_settled], *map(self._slots, chosen)))

    def _slots(self, modes: int) -> int:
        slots = 0
        while modes:
            slots |= 1 << self._tree.slots[modes.bit_length() - 1]
            modes ^= 1 << modes.bit_length() - 1
        return slots

    def _step_s(self, node: int, sharding: PersistentSharding) -> float:
        """Seconds of a step in a run: nearly the same for all modes, so that only their number counts."""
        key = (node, *((modes & self._legs[node]).bit_count() for modes in sharding))
        known = self._step_times.get(key)
        if known is None:
            step = self._steps[node - self._tree.n_leaves]
            step_s = contract_cost(self._space, step, self._state(node, node, sharding))
            known = self._step_times[key] = self._tree.weights[node] * step_s
        return known

    def _move_s(self, node: int, sharding: PersistentSharding, next_sharding: PersistentSharding) -> float:
        """Seconds to bring a tensor from the layout that it was made in to that of the step that takes it."""
        taker = self._tree.parents[node]
        assert taker is not None
        if self._settles[node] and (sharding == next_sharding or sharding == self._nothing):
            return 0.0
        source, target = self._state(node, node, sharding), self._state(node, taker, next_sharding)
        return self._tree.later_weights[node] * self._space.move_s(node, source, target)


def distribute_by_tier(
    tree: Tree, grid: Grid, space: StateSpace, steps: tuple[StepModes, ...], persistent: bool = False
) -> Distribution:
    """Choose the states under the memory limit of `space`, tier by tier. Raises DoesNotFit.

    The digits of the slowest tier take their modes as if faster digits split everything evenly, at no cost;
    the next tier works around them. So the few states that a search keeps differ where bytes are dearest.
    Every stage may leave a digit free until a mode comes that stays for longer. With `persistent` every stage
    is proposed shardings that keep for long (`persistent_shardings`).
    """
    chosen: Distribution | None = None
    for tier in sorted({digit.tier for digit in grid}, reverse=True):
        stage = StateSpace(tree, grid, space.model, space.limit_bytes, tier=tier)
        proposal = persistent_shardings(tree, stage, steps, chosen) if persistent else ()
        chosen = distribute(tree, stage, steps, policies.waiting, chosen, proposal)
    assert chosen is not None
    return chosen

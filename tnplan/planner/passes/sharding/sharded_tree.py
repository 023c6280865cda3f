"""A tree on a process grid: what the sharding passes add to it, and later passes read together."""

from __future__ import annotations

from dataclasses import dataclass, field

from tnplan.planner.hardware.process_grid import Grid, Layout
from tnplan.planner.passes.sharding.assign_digits import Placement
from tnplan.planner.passes.sharding.search import Choice, Distribution, StepModes, restrict
from tnplan.planner.passes.sharding.states import ExchangeTraffic, StateSpace
from tnplan.planner.passes.tree.build import Tree
from tnplan.planner.passes.tree.mode_order import Orders


@dataclass(frozen=True)
class ShardedTree:
    """A tree, its mode orders, the grid, and the chosen sharding of every node, empty before it is chosen.

    `space` has the costs of sharding states, without a limit of memory.
    """

    tree: Tree
    orders: Orders
    grid: Grid
    space: StateSpace
    distribution: Distribution = field(default_factory=Distribution)
    placement: Placement = field(default_factory=Placement)

    def step(self, node: int) -> StepModes:
        """The modes of the step that makes a node."""
        return self.distribution.steps[node - self.tree.n_leaves]

    def choice(self, node: int) -> Choice:
        """How the step that makes a node is distributed."""
        choice = self.distribution.choices[node]
        assert choice is not None
        return choice

    def layout(self, node: int) -> Layout:
        """The layout of the step that makes a node."""
        layout = self.placement.steps[node]
        assert layout is not None
        return layout

    def is_taken_as_produced(self, node: int) -> bool:
        """Whether the step that takes a tensor needs it in its layout, and is on the same loop level."""
        level, parent = self.tree.loop_nest.level_of, self.tree.parents[node]
        in_place = self.placement.needed[node] == self.placement.produced[node]
        return in_place and parent is not None and level[node] == level[parent]

    def exchange_before(self, node: int, operand: int) -> ExchangeTraffic | None:
        """What moves to bring an operand of the step that makes a node to the step's layout."""
        step, state = self.step(node), self.distribution.states[operand]
        mask = step.left_mask if operand == step.left else step.right_mask
        target = restrict(self.choice(node).layout, mask)
        return None if target == state else self.space.exchange(operand, state, target)

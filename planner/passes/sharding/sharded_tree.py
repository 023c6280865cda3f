"""A tree on a process grid: what the sharding passes add to it, and later passes read together."""

from __future__ import annotations

from dataclasses import dataclass, field

from tnplan.planner.hardware.process_grid import Grid, Layout
from tnplan.planner.passes.sharding.assign_digits import Placement, restrict_layout
from tnplan.planner.passes.sharding.search import Choice, Distribution, StepModes
from tnplan.planner.passes.sharding.states import StateSpace
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

    def operand_layout(self, step: int, operand: int) -> Layout:
        """The layout in which the step that makes node `step` takes an operand."""
        return restrict_layout(self.layout(step), frozenset(self.tree.legs[operand]))

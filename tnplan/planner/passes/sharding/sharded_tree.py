"""A tree on a process grid: what the sharding passes add to it, and later passes read together."""

from __future__ import annotations

from dataclasses import dataclass, field

from tnplan.planner.hardware.process_grid import Grid, Layout
from tnplan.planner.passes.sharding.search import Choice, Distribution, StepModes, restrict
from tnplan.planner.passes.sharding.states import ExchangeTraffic, ShardingState, StateSpace
from tnplan.planner.passes.tree.build import Orders, Tree


@dataclass(frozen=True)
class Placement:
    """Layouts of nodes as they are produced, as the step that takes them needs them (the root: as it is
    produced), and of steps (by node; None for leaves).

    A step's layout may hold summed modes; `partial` has their digits. An operand enters its step in the
    step's layout restricted to its own modes.
    """

    produced: tuple[Layout, ...] = ()
    needed: tuple[Layout, ...] = ()
    steps: tuple[Layout | None, ...] = ()
    partial: tuple[tuple[int, ...], ...] = ()


def restrict_layout(layout: Layout, modes: frozenset[int]) -> Layout:
    """The digits of a layout that spread some modes; the others replicate."""
    return tuple(mode if mode in modes else None for mode in layout)


def assign_digits(tree: Tree, grid: Grid, space: StateSpace, chosen: Distribution) -> Placement:
    """Pass 4: the digit of the process grid that each distributed mode of every node and step takes.

    From the root to the leaves: a mode keeps its digit as long as it stays distributed, and a mode that is
    replaced had the digit of its successor, so that an exchange stays inside the smallest sub-group.
    """
    nothing: Layout = (None,) * len(grid)
    if not grid:
        whole, steps_whole = (nothing,) * tree.n_nodes, (nothing,) * len(tree.children)
        return Placement(whole, whole, (*(None,) * tree.n_leaves, *steps_whole), ((),) * tree.n_nodes)
    legs = [frozenset(modes) for modes in tree.legs]
    produced: list[Layout] = [nothing] * tree.n_nodes
    steps: list[Layout | None] = [None] * tree.n_nodes
    partial: list[tuple[int, ...]] = [()] * tree.n_nodes
    # From the root down each tensor inherits digits from the step that takes it: keep and activate then move
    # nothing at all, and an exchange stays within digits whose mode changes.
    # Invariant: `chosen.steps` reversed has parents before children, so that produced[step.node] is settled.
    order = tree.lifetimes[tree.root]
    needed = produced.copy()
    produced[tree.root] = state_layout(tree, space, chosen.states[tree.root], order, nothing, nothing)
    needed[tree.root] = produced[tree.root]
    for step in reversed(chosen.steps):
        choice = chosen.choices[step.node]
        assert choice is not None
        own = produced[step.node]
        modes = tree.legs[step.left] + tree.legs[step.right]
        layout = state_layout(tree, space, choice.layout, modes, own, own)
        steps[step.node] = layout
        partial[step.node] = tuple(
            position
            for position, mode in enumerate(layout)
            if mode is not None and mode not in legs[step.node]
        )
        for child in (step.left, step.right):
            taken = needed[child] = restrict_layout(layout, legs[child])
            produced[child] = state_layout(tree, space, chosen.states[child], tree.legs[child], taken, taken)
    return Placement(tuple(produced), tuple(needed), tuple(steps), tuple(partial))


def state_layout(
    tree: Tree, space: StateSpace, state: ShardingState, modes: tuple[int, ...], keep: Layout, prefer: Layout
) -> Layout:
    """Digits for a state over some modes: those that `keep` has on the same class stay where they are, the
    others follow in the order of `modes`, first on digits that `prefer` gives to modes outside the state."""
    layout: list[int | None] = [None] * len(keep)
    by_slot = {tree.slots[mode]: mode for mode in modes}
    order = {mode: number for number, mode in enumerate(modes)}
    for item, spread in zip(space.classes, state, strict=True):
        waiting = {mode for slot, mode in by_slot.items() if spread >> slot & 1}
        # A mode stays on its digit; a rank then has what it needs already.
        for position in item.positions:
            mode = keep[position]
            if mode is not None and mode in waiting:
                layout[position] = mode
                waiting.remove(mode)
        free = [position for position in item.positions if layout[position] is None]
        # Free digits that had a mode come first: the exchange replaces that mode, within the ranks of this
        # digit alone.
        free.sort(key=lambda position: prefer[position] is None)
        for position, mode in zip(free, sorted(waiting, key=order.__getitem__), strict=False):
            layout[position] = mode
    return tuple(layout)


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

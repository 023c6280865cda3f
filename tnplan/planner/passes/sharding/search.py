"""Pass 3, distribute: which modes every step is spread over, by dynamic programming over the tree.

The state of a tensor is the set of its distributed modes (paper, section IV-B); the cost of a state at a
node is the least predicted time of the whole sub-tree that ends there, a slice in the mean: what several
slices share counts less. A step may inherit the state of an
operand (keep), receive it in another one (redistribute, gather), start from whole operands (activate), or
sum over a distributed mode (reduce). Which candidates a step tries is the policy's choice. Knows no ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import NamedTuple

from tnplan.planner.hardware.cost import ShortExtents
from tnplan.planner.hardware.fusion_tile import MOST_EXTENT
from tnplan.planner.passes.sharding.states import ShardingState, StateSpace
from tnplan.planner.passes.tree.build import Orders, Tree

NONE = -1
"""In lists of nodes: there is none."""
STATES_KEPT = 8
SURE_ROWS = 128
"""A tile of this many times the larger of k and n has the runs and rows that `hardware.fusion_tile` needs."""


class Lookahead:
    """Estimated seconds, a slice, of the exchanges still to come from a node's tensor in a state.

    It ranks the states that the search keeps; costs in the dynamic programming never contain it. The plan
    behind it can be carried out: hold the state until one of its modes is about to be summed, and change, at
    the cheapest point before that, to the longest-lived modes there, its renewed state; so up to the root:

        later_s(node, state) = min over points p of  weight(p) change_s(p, state) + later_s(p, renewed(p))

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


@dataclass(frozen=True)
class Choice:
    """How a node's tensor is produced in one state: the step's layout and the states of the operands.

    `layout` may hold modes that the step sums; then the shards are partial and are summed into the state.
    `left` and `right` are the states in which the operands were produced (None for a leaf, which is loaded
    in any state); they are brought to the modes of `layout` that they have.
    """

    cost_s: float
    layout: ShardingState
    left: ShardingState | None
    right: ShardingState | None


ProductTerms = tuple[float, float, ShortExtents]
"""The bytes of all three shards of a step on a rank, its real operations and its short extents."""


@dataclass(frozen=True)
class StepModes:
    """The modes of one step as bit masks of their slots, and as lists of such bits, longest-lived first."""

    node: int
    left: int
    right: int
    left_mask: int
    right_mask: int
    out_mask: int
    out_bits: tuple[int, ...]
    left_kept_bits: tuple[int, ...]
    right_kept_bits: tuple[int, ...]
    reduced_bits: tuple[int, ...]
    out_order_bits: tuple[int, ...]
    products: int
    reduced: int
    permuted: bool
    binary: bool
    large: bool
    known: dict[ShardingState, tuple[ProductTerms, tuple[float, float, float]]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """What `contract_terms` has found by layout: the search, the fusion and the annotations ask for it.

    A layout's length tells over which digits it is, as those of one tier and all slower ones are taken.
    """

    @property
    def reduced_mask(self) -> int:
        """The modes summed by the step."""
        return (self.left_mask | self.right_mask) & ~self.out_mask

    @property
    def batch_mask(self) -> int:
        """The modes on both operands and the output."""
        return self.left_mask & self.right_mask & self.out_mask

    @cached_property
    def operands(self) -> tuple[tuple[int, int], ...]:
        """The nodes of both operands with their modes."""
        return (self.left, self.left_mask), (self.right, self.right_mask)


class StepChoices(NamedTuple):
    """What the layouts of a step are chosen from: `base` is its layout over the settled digits, `left` and
    `right` are the states in which its operands can be had, cheapest first."""

    space: StateSpace
    step: StepModes
    base: ShardingState
    left: Sequence[ShardingState]
    right: Sequence[ShardingState]


Candidates = Callable[[StepChoices], Iterable[ShardingState]]
"""The layouts of a step to try."""


@dataclass(frozen=True)
class Distribution:
    """The chosen state of every node and how it is produced. Leaves have the state they are loaded in."""

    steps: tuple[StepModes, ...] = ()
    states: tuple[ShardingState, ...] = ()
    choices: tuple[Choice | None, ...] = ()


def step_modes(tree: Tree, orders: Orders, item_bytes: int, threshold_bytes: float) -> tuple[StepModes, ...]:
    """The modes of every step; a step is large if an operand or the output reaches the threshold."""
    # Invariant: modes that meet in a step have different slots (`tree.build`), so that within a step, and in
    # a state of its tensors, a bit is one mode.
    bit = {mode: 1 << slot for mode, slot in tree.slots.items()}
    masks = [sum([bit[mode] for mode in legs]) for legs in tree.legs]
    binary = frozenset(number for number, mode in enumerate(tree.modes) if mode.extent == 2)
    lifetimes, sizes = tree.lifetimes, tree.sizes
    steps = []
    for number, (left, right) in enumerate(tree.children):
        node = tree.n_leaves + number
        a, b, c = masks[left], masks[right], masks[node]
        out_bits = tuple([bit[mode] for mode in lifetimes[node]])
        reduced_modes = [mode for mode in lifetimes[left] if not bit[mode] & c]
        out_order_bits = tuple([bit[mode] for mode in orders[node]])
        reduced = tree.extent(reduced_modes)
        steps.append(
            StepModes(
                node=node, left=left, right=right, left_mask=a, right_mask=b, out_mask=c, out_bits=out_bits,
                left_kept_bits=tuple([own for own in out_bits if own & a]),
                right_kept_bits=tuple([own for own in out_bits if own & b]),
                reduced_bits=tuple([bit[mode] for mode in reduced_modes]), out_order_bits=out_order_bits,
                products=sizes[node] * reduced, reduced=reduced, permuted=_permuted(out_order_bits, a, b),
                binary=binary.issuperset(tree.legs[left]) and binary.issuperset(tree.legs[right]),
                large=max(sizes[left], sizes[right], sizes[node]) * item_bytes >= threshold_bytes,
            )
        )
    return tuple(steps)


def _permuted(order: Sequence[int], left: int, right: int) -> bool:
    """Whether the output's order is neither [batch | m | n] nor [batch | n | m]."""
    if len(order) <= 1:
        return False
    kinds = [bool(left & bit) + 2 * bool(right & bit) for bit in order]
    runs = [kind for position, kind in enumerate(kinds) if position == 0 or kinds[position - 1] != kind]
    return len(runs) != len(set(runs)) or (3 in runs and runs[0] != 3)


def distribute(
    tree: Tree, space: StateSpace, steps: tuple[StepModes, ...], candidates: Candidates,
    settled: Distribution | None = None, proposal: Sequence[ShardingState | None] = (),
) -> Distribution:  # fmt: skip
    """Choose the states with the least predicted time under the memory limit of `space`.

    `settled` is a distribution over the digits that are settled in `space`: all layouts agree with it there.
    `proposal` has for each node one more layout to try in its step, or None; what it leads to is always kept.
    """
    if not space.classes:
        return _on_one_rank(tree, space, steps)
    states, layouts = [space.local] * tree.n_nodes, [space.local] * tree.n_nodes
    if settled is not None:
        states = [space.widen(state) for state in settled.states]
        layouts = [space.widen(choice.layout) if choice else space.local for choice in settled.choices]
    # Dynamic programming over the tree, from the leaves up (paper, section IV-B.3, where it is over a
    # use-chain): best_s(node, state) = min over layouts of step_s + moves of both operands + their best_s.
    # Invariant: `steps` is in the order of nodes, children before parents; a leaf has None, as it is loaded
    # in any state at no cost.
    produced: list[dict[ShardingState, Choice] | None] = [None] * tree.n_leaves
    active = [False] * tree.n_leaves
    lookahead = Lookahead(tree, space, states) if any(step.large for step in steps) else None
    for step in steps:
        # A use-chain begins at a large step (LARGE in the paper) and lasts to the root: what came of a
        # distributed tensor may stay so. Everything else is local, without a search.
        active.append(step.large or active[step.left] or active[step.right])
        tried, proposed = {layouts[step.node]}, proposal[step.node] if proposal else None
        if active[-1]:
            left, right = (list(produced[node] or ()) for node, _ in step.operands)
            tried = set(candidates(StepChoices(space, step, layouts[step.node], left, right)))
            if proposed is not None:
                tried.add(proposed)
        best = _solve(space, step, tried, produced, tree.weights[step.node])
        # The local state goes on whatever its promise, unless a move from a cheaper one reaches it as
        # cheaply: gather stays possible at any step.
        always = {space.local} if proposed is None else {space.local, restrict(proposed, step.out_mask)}
        produced.append(_prune(space, step.node, best, always, lookahead, tree.later_weights[step.node]))
    return _backtrack(tree, space, steps, produced)


def _on_one_rank(tree: Tree, space: StateSpace, steps: tuple[StepModes, ...]) -> Distribution:
    """Where there is nothing to choose: each step and what is under it, whole. Raises DoesNotFit."""
    cost_s = [0.0] * tree.n_leaves
    choices: list[Choice | None] = [None] * tree.n_leaves
    for step in steps:
        node_s = tree.weights[step.node] * contract_cost(space, step, space.local)
        if node_s == inf:
            raise DoesNotFit(step.node)
        cost_s.append(node_s + cost_s[step.left] + cost_s[step.right])
        left, right = (None if node < tree.n_leaves else space.local for node, _ in step.operands)
        choices.append(Choice(cost_s[-1], space.local, left, right))
    return Distribution(steps, (space.local,) * tree.n_nodes, tuple(choices))


def _solve(
    space: StateSpace, step: StepModes, layouts: Iterable[ShardingState],
    produced: Sequence[dict[ShardingState, Choice] | None], weight: float,
) -> dict[ShardingState, Choice]:  # fmt: skip
    """The cheapest way to each state that some layouts of a step leave its result in. Raises DoesNotFit."""
    best: dict[ShardingState, Choice] = {}
    # Many layouts agree on the modes of one operand: the cheapest source of each restriction is looked for
    # once.
    delivered: dict[tuple[int, ShardingState], tuple[float, ShardingState | None]] = {}

    def deliver(node: int, target: ShardingState) -> tuple[float, ShardingState | None]:
        states = produced[node]
        if states is None:
            return 0.0, None
        key = (node, target)
        if key not in delivered:
            delivered[key] = cheapest_source(space, node, states, target, weight)
        return delivered[key]

    for layout in layouts:
        # Eq. 6, times how often the step is done for a slice.
        own_s = weight * contract_cost(space, step, layout)
        if own_s == inf:
            continue
        left_s, left = deliver(step.left, restrict(layout, step.left_mask))
        right_s, right = deliver(step.right, restrict(layout, step.right_mask))
        cost_s = own_s + left_s + right_s
        if cost_s == inf:
            continue
        # A layout over summed modes leaves terms on several ranks, to be summed into one of several states.
        for state, reduce_s in outcomes(space, step, layout):
            known = best.get(state)
            total_s = cost_s + weight * reduce_s
            if known is None or total_s < known.cost_s:
                best[state] = Choice(total_s, layout, left, right)
    if not best:
        raise DoesNotFit(step.node)
    return best


class DoesNotFit(Exception):  # noqa: N818 - a signal between passes, not an error of the user's
    """No layout of a step fits the memory limit."""

    def __init__(self, node: int) -> None:
        super().__init__(node)
        self.node = node


def restrict(state: ShardingState, modes: int) -> ShardingState:
    """The part of a state that is spread over some modes."""
    return tuple(spread & modes for spread in state)


def cheapest_source(
    space: StateSpace, node: int, states: dict[ShardingState, Choice], target: ShardingState, weight: float
) -> tuple[float, ShardingState | None]:
    """The least cost of having a node's tensor in `target`, and the state that it is produced in.

    `weight` is that of the step that takes it, which it is moved for.
    """
    best_s, best = inf, None
    # A move costs no less than nothing: states are sorted by cost, so that the rest cannot be cheaper.
    for state, choice in states.items():  # sorted by cost
        if choice.cost_s >= best_s:
            break
        cost_s = choice.cost_s + weight * space.move_s(node, state, target)
        if cost_s < best_s:
            best_s, best = cost_s, state
    return best_s, best


def contract_cost(space: StateSpace, step: StepModes, layout: ShardingState) -> float:
    """Predicted seconds of a step, output permutation included; infinite where its shards do not fit."""
    contract_s, permute_s, held_bytes = contract_terms(space, step, layout)
    if held_bytes > space.limit_bytes:
        return inf
    return min(contract_s + permute_s, fused_alone_s(space, step, layout)) if permute_s else contract_s


def fused_alone_s(space: StateSpace, step: StepModes, layout: ShardingState) -> float:
    """Predicted seconds of a step as a fused chain of one, where it surely has a tile; infinite elsewhere."""
    model = space.model
    capacity = model.fused_elements
    if not capacity or not step.binary or step.batch_mask:
        return inf
    for spread in layout:
        if spread & step.reduced_mask:
            return inf
    # The operand with fewer elements is the branch, which stays on chip as a whole.
    branch, stem = sorted(
        space.size_bytes[node] * space.share(layout, mask) / model.item_bytes for node, mask in step.operands
    )
    n = branch / step.reduced
    if stem < capacity or branch > capacity or max(step.reduced, n) > min(MOST_EXTENT, capacity / SURE_ROWS):
        return inf
    # k = `reduced`, n = branch / k: the stem has m k elements and the result m n.
    out = stem / step.reduced * n
    flops = step.products * space.share(layout) * model.flops_per_product
    moved, inside = (model.item_bytes * size for size in (stem + branch + out, 2 * (stem + out)))
    return model.fused_s(model.run_s(moved, inf), inside, flops, max(stem / capacity, 1.0))[0]


def gemm_precision(space: StateSpace, step: StepModes, layout: ShardingState) -> str:
    """How the values of a step are multiplied where it is a matrix product."""
    product, _ = step.known.get(layout) or _work_out(space, step, layout)
    return space.model.gemm_precision(*product, step.permuted)


def contract_terms(space: StateSpace, step: StepModes, layout: ShardingState) -> tuple[float, float, float]:
    """Seconds of a step's matrix product, seconds of its output permutation, and the bytes of its shards."""
    return (step.known.get(layout) or _work_out(space, step, layout))[1]


def _work_out(
    space: StateSpace, step: StepModes, layout: ShardingState
) -> tuple[ProductTerms, tuple[float, float, float]]:
    """The sizes of a step's matrix product, and what it takes."""
    model, size_bytes, share = space.model, space.size_bytes, space.share
    a = size_bytes[step.left] * share(layout, step.left_mask)
    b = size_bytes[step.right] * share(layout, step.right_mask)
    c = size_bytes[step.node] * share(layout, step.out_mask)
    products, item_bytes = step.products * share(layout), model.item_bytes
    extents = model.short_extents(products, a / item_bytes, b / item_bytes, c / item_bytes)
    moved_bytes, flops = a + b + c, products * model.flops_per_product
    scatter_s, held_bytes = 0.0, moved_bytes
    if step.permuted:
        # A result in an order of its own is written by way of a tile, which takes memory beside the shards.
        scatter_s = model.scatter_s(moved_bytes, flops, extents, c)
        held_bytes += min(c, model.profile.tile_bytes)
    seconds = model.contract_s(moved_bytes, flops, extents), scatter_s, held_bytes
    known = step.known[layout] = (moved_bytes, flops, extents), seconds
    return known


def outcomes(space: StateSpace, step: StepModes, layout: ShardingState) -> list[tuple[ShardingState, float]]:
    """The states that the output can be left in, with the cost of summing partial shards.

    Digits spread over a summed mode go to the longest-lived other modes of the output (reduce-scatter) or
    to none (all ranks get the sum).
    """
    base = restrict(layout, step.out_mask)
    if base == layout:
        return [(base, 0.0)]
    # Digits of summed modes are free afterwards. `fill` gives them to the longest-lived modes of the output
    # (reduce-scatter); with `base` every rank has the whole sum (all-reduce).
    partial = tuple(whole & ~left for whole, left in zip(layout, base, strict=True))
    capacity = tuple(modes.bit_count() for modes in partial)
    states = []
    for state in {space.fill(base, step.out_bits, capacity), base}:
        exchange = space.reduction(step.node, partial, base, state)
        held_bytes = exchange.source_bytes + exchange.out_bytes
        if held_bytes <= space.limit_bytes:
            states.append((state, space.exchange_s(exchange)))
    return states


def _prune(
    space: StateSpace, node: int, states: dict[ShardingState, Choice], always: set[ShardingState],
    lookahead: Lookahead | None, weight: float,
) -> dict[ShardingState, Choice]:  # fmt: skip
    """Drop states that a cheaper one can be moved to for the difference; keep the most promising few.

    States in `always` are kept among these. `weight` is that of the step that takes the tensor, which it is
    moved for.
    """
    best: dict[ShardingState, Choice] = {}
    # Cheapest first. Invariant: `best` is sorted by cost, which `cheapest_source` and the root in
    # `_backtrack` rely on; of equal costs the smaller tuple comes first, so that plans do not depend on
    # hashing.
    for state, choice in sorted(states.items(), key=lambda item: (item[1].cost_s, item[0])):
        if not any(
            other.cost_s + weight * space.move_s(node, source, state) <= choice.cost_s
            for source, other in best.items()
        ):
            best[state] = choice
    if lookahead is None or len(best) <= STATES_KEPT:
        return best
    # The paper keeps all states of a use-chain. Of two operands' mixtures there would be too many: those of
    # the least cost so far and estimated cost to come stay.
    promise = {state: choice.cost_s + lookahead.seconds(node, state) for state, choice in best.items()}
    chosen = set(sorted(promise, key=lambda state: (promise[state], state))[:STATES_KEPT])
    return {state: choice for state, choice in best.items() if state in chosen or state in always}


def _backtrack(
    tree: Tree, space: StateSpace, steps: tuple[StepModes, ...],
    produced: list[dict[ShardingState, Choice] | None],
) -> Distribution:  # fmt: skip
    states: list[ShardingState] = [space.local] * tree.n_nodes
    choices: list[Choice | None] = [None] * tree.n_nodes
    at_root = produced[tree.root]
    if at_root is not None:
        # The cheapest, as the states are sorted.
        states[tree.root] = next(iter(at_root))
    for step in reversed(steps):
        options = produced[step.node]
        assert options is not None
        choice = options[states[step.node]]
        choices[step.node] = choice
        for (child, mask), source in zip(step.operands, (choice.left, choice.right), strict=True):
            # A leaf is loaded as its step needs it.
            states[child] = restrict(choice.layout, mask) if source is None else source
    return Distribution(steps, tuple(states), tuple(choices))

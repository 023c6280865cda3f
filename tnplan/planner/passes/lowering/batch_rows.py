"""The plan for many bit strings as flat steps over one arena: how each tensor is stored, and where.

Every result is stored as the step that reads it wants it, so that nothing is copied to another order:
[batch | rows | own modes | summed modes], or with its rows first where pairs of rows are multiplied. What
does not depend on inner slices is kept while these change, where the memory allows that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod

from tnplan.planner.hardware.cost import CostModel
from tnplan.planner.passes.lowering.buffer_assignment import Lifetime, assign
from tnplan.planner.schedule.row_schedule import BatchPlan, Modes, RowLeaf, RowSchedule, RowStep

ROWS = ""
"""Stands for the axis of the rows among the modes of a tensor."""
WORKSPACE_ELEMENTS = 1 << 25
"""Of tiles of products: larger ones gain nothing."""
PAIR_BYTES = 24
"""What a pair of rows takes in the tables of a product, at most."""


def lower_rows(plan: BatchPlan, model: CostModel, most_bytes: float = inf) -> RowSchedule:
    """The schedule of a plan of one step at least, in the dtype of the cost model.

    A step takes the most exact precision that costs it no time, down to the model's.

    It keeps the results of all outer loops, else of what no slice changes, else none, until it takes no more
    than `most_bytes`; the last where none does.
    """
    lowering = _RowLowering(plan, model)
    deepest = len(plan.sliced) - 1
    for deepest_kept in dict.fromkeys((deepest, -1, -2)):
        schedule = lowering.schedule(deepest_kept, deepest)
        if schedule.size_bytes + schedule.table_bytes <= most_bytes:
            break
    return schedule


@dataclass(frozen=True)
class _Groups:
    """The modes of a step by what becomes of them."""

    both: list[str]
    left: list[str]
    right: list[str]
    summed: list[str]


class _RowLowering:
    """What all schedules of a plan share: orders of modes and of steps."""

    def __init__(self, plan: BatchPlan, model: CostModel) -> None:
        self.plan, self.model, self.item_bytes = plan, model, model.item_bytes
        self.n_leaves = len(plan.network.inputs)
        self.position = {index: number for number, index in enumerate(plan.sliced)}
        self.legs = [self._unsliced(legs) for legs in plan.leaf_legs]
        self.rows = [len(bits) for _, bits in plan.leaf_bits]
        for step in plan.steps:
            self.legs.append(self._unsliced(step.legs))
            self.rows.append(len(step.pairs))
        sizes = plan.network.size_dict
        self.counts = [
            count * prod(sizes[index] for index in legs)
            for count, legs in zip(self.rows, self.legs, strict=True)
        ]
        self.consumer = {
            tensor: number for number, step in enumerate(plan.steps) for tensor in (step.left, step.right)
        }
        self.orders, self.groups = self._orders()
        self.in_depth = self._in_depth()

    def _unsliced(self, legs: Sequence[str]) -> tuple[str, ...]:
        return tuple(index for index in legs if index not in self.position)

    def is_outer(self, number: int) -> bool:
        """Whether step `number` multiplies each row of one operand with each of the other.

        Rows of a product are in the order of pairs, and each is there once.
        """
        step = self.plan.steps[number]
        return len(step.pairs) == self.rows[step.left] * self.rows[step.right]

    def _orders(self) -> tuple[dict[int, list[str]], list[_Groups]]:
        """The order of the modes of each tensor, from the result on to what it is made of."""
        steps = self.plan.steps
        orders: dict[int, list[str]] = {self.n_leaves + len(steps) - 1: [ROWS]}
        groups: list[_Groups] = []
        for number in reversed(range(len(steps))):
            step, order = steps[number], orders[self.n_leaves + number]
            left, right = set(self.legs[step.left]), set(self.legs[step.right])
            # Own modes stand as they do in the result, so that neighbours there are neighbours here.
            both, own_left, own_right = (
                [index for index in order if index in modes]
                for modes in (left & right, left - right, right - left)
            )
            summed = self._summed(step.left, step.right, (left & right) - set(both))
            groups.append(_Groups(both, own_left, own_right, summed))
            ahead = [*both, ROWS] if self.is_outer(number) else [ROWS, *both]
            orders[step.left] = [*ahead, *own_left, *summed]
            orders[step.right] = [*ahead, *own_right, *summed]
        return orders, groups[::-1]

    def _summed(self, left: int, right: int, summed: set[str]) -> list[str]:
        """The summed modes, last those that the larger operand of the larger one has: it writes long runs."""
        larger = max(left, right, key=lambda tensor: self.counts[tensor])
        ordered = [index for index in self.legs[larger] if index in summed]
        if larger < self.n_leaves:
            return ordered
        made = self.plan.steps[larger - self.n_leaves]
        behind = set(self.legs[max(made.left, made.right, key=lambda tensor: self.counts[tensor])])
        return sorted(ordered, key=lambda index: index in behind)

    def _in_depth(self) -> list[int]:
        """The steps in an order that holds little at once: of two operands first that which needs more beside
        what it leaves (Sethi and Ullman, J. ACM 17, 715)."""
        needs = [0] * self.n_leaves
        first = []
        for number, step in enumerate(self.plan.steps):
            pair = sorted((step.left, step.right), key=lambda tensor: self._held(tensor) - needs[tensor])
            sizes = [self._held(tensor) for tensor in pair]
            own = self.counts[self.n_leaves + number]
            needs.append(max(needs[pair[0]], sizes[0] + needs[pair[1]], sum(sizes) + own))
            first.append(pair)
        done: list[int] = []
        stack = [(self.n_leaves + len(first) - 1, False)]
        while stack:
            tensor, is_ready = stack.pop()
            if tensor < self.n_leaves:
                continue
            if is_ready:
                done.append(tensor - self.n_leaves)
            else:
                stack += [
                    (tensor, True),
                    *((child, False) for child in reversed(first[tensor - self.n_leaves])),
                ]
        return done

    def _held(self, tensor: int) -> int:
        """Elements that a result takes; inputs stay."""
        return 0 if tensor < self.n_leaves else self.counts[tensor]

    def schedule(self, deepest_kept: int, deepest: int) -> RowSchedule:
        """The schedule that keeps results of loops up to `kept`; all others are made in each slice."""
        plan = self.plan
        levels = [
            max((self.position[index] for index in legs if index in self.position), default=-1)
            for legs in plan.leaf_legs
        ]
        leaves = [self._leaf(number, levels[number]) for number in range(self.n_leaves)]
        for step in plan.steps:
            level = max(levels[step.left], levels[step.right])
            levels.append(level if level <= deepest_kept else deepest)
        program = sorted(self.in_depth, key=lambda number: levels[self.n_leaves + number])
        lives, places = self._lifetimes(program, levels)
        arena = assign(lives)
        offsets = [arena.offsets[places[tensor]] for tensor in range(len(levels))]
        return RowSchedule(
            tuple(plan.network.size_dict[index] for index in plan.sliced),
            tuple(leaves),
            tuple(self._step(number, levels[self.n_leaves + number]) for number in program),
            tuple(self.counts), tuple(offsets),
            {leaf.tensor: arena.offsets[places[-1 - leaf.tensor]] for leaf in leaves if leaf.sliced},
            arena.offsets[places["total"]], arena.offsets[places["workspace"]], self._workspace(),
            arena.size_bytes,
            PAIR_BYTES * sum(len(plan.steps[n].pairs) for n in program if not self.is_outer(n)),
            plan.rows,
        )  # fmt: skip

    def _workspace(self) -> int:
        """Elements of the workspace: a large tile, and the product of any pair of rows."""
        a_pair = [
            self.counts[self.n_leaves + number] // self.rows[self.n_leaves + number]
            for number in range(len(self.plan.steps)) if not self.is_outer(number)
        ]  # fmt: skip
        largest = max(self.counts[self.n_leaves :])
        return max(min(WORKSPACE_ELEMENTS, largest), *a_pair, 1)

    def _lifetimes(
        self, program: list[int], levels: list[int]
    ) -> tuple[list[Lifetime], dict[int | str, int]]:
        """Of all buffers, and the number of each: of tensors, of whole sliced inputs (-1 - tensor), of the
        total and the workspace."""
        end, item = len(program), self.item_bytes
        when = {self.n_leaves + number: moment for moment, number in enumerate(program)}
        lives: list[Lifetime] = []
        places: dict[int | str, int] = {}

        def add(key: int | str, elements: int, first: int = 0, last: int = end) -> None:
            places[key] = len(lives)
            lives.append(Lifetime(elements * item, first, last))

        for tensor in range(self.n_leaves):
            add(tensor, self.counts[tensor])
            n_slices = self._slices(tensor)
            if n_slices > 1 or levels[tensor] >= 0:
                add(-1 - tensor, n_slices * self.counts[tensor])
        for tensor, moment in when.items():
            # Invariant: what an inner loop reads stays while it runs; what a loop makes for itself is made
            # anew in its next round, and its place is free in between.
            consumer = self.consumer.get(tensor)
            out = None if consumer is None else self.n_leaves + consumer
            last = end if out is None or levels[out] > levels[tensor] else when[out]
            add(tensor, self.counts[tensor], moment, last)
        add("total", self.rows[-1])
        add("workspace", self._workspace())
        return lives, places

    def _slices(self, tensor: int) -> int:
        """The slices of an input."""
        legs, sizes = self.plan.leaf_legs[tensor], self.plan.network.size_dict
        return prod(sizes[index] for index in legs if index in self.position)

    def _leaf(self, tensor: int, level: int) -> RowLeaf:
        """An input: its array with rows first has the axis of rows and then its other axes as they come."""
        term = self.plan.network.inputs[tensor]
        final, bits = self.plan.leaf_bits[tensor]
        others = [ROWS, *(index for index in term if index not in final)]
        sliced = sorted((index for index in others if index in self.position), key=self.position.__getitem__)
        order = [*sliced, *self.orders[tensor]]
        return RowLeaf(
            tensor, tuple(term.index(index) for index in final), bits,
            tuple(others.index(index) for index in order),
            tuple(self.position[index] for index in sliced), level,
        )  # fmt: skip

    def _step(self, number: int, level: int) -> RowStep:
        """A step with its modes' strides in the result."""
        step, groups, out = self.plan.steps[number], self.groups[number], self.n_leaves + number
        sizes = {**self.plan.network.size_dict, ROWS: self.rows[out]}
        strides, stride = {}, 1
        for index in reversed(self.orders[out]):
            strides[index] = stride
            stride *= sizes[index]

        def modes(names: Sequence[str]) -> Modes:
            return tuple((sizes[index], strides[index]) for index in names)

        batch, m, n = modes(groups.both), modes(groups.left), modes(groups.right)
        k = prod(sizes[index] for index in groups.summed)
        if not self.is_outer(number):
            precision = self._precision(number, is_plain(((self.rows[out], strides[ROWS]), *batch), m, n))
            return RowStep(
                step.left, step.right, out, batch, m, n, k, level, precision, step.pairs, strides[ROWS]
            )  # fmt: skip
        # Row i of the left and j of the right one make row i * (rows of the right one) + j.
        second = self.rows[step.right]
        m = ((self.rows[step.left], second * strides[ROWS]), *m)
        n = ((second, strides[ROWS]), *n)
        precision = self._precision(number, is_plain(batch, m, n))
        return RowStep(step.left, step.right, out, batch, m, n, k, level, precision)

    def _precision(self, number: int, plain: bool) -> str:
        """That of a step, whose result is stored as the product is formed or not."""
        figures = step_figures(self.plan, number, self.rows, self.counts)
        return self.model.gemm_precision(
            self.model.item_bytes * figures.elements, self.model.flops_per_product * figures.products,
            figures.extents(self.model), not plain,
        )  # fmt: skip


def is_plain(batch: Modes, m: Modes, n: Modes) -> bool:
    """Whether a result is stored as [batch | m | n] or [batch | n | m]."""
    for modes in ((*batch, *m, *n), (*batch, *n, *m)):
        expected, plain = 1, True
        for extent, stride in reversed(modes):
            plain = plain and (extent == 1 or stride == expected)
            expected *= extent
        if plain:
            return True
    return False


@dataclass(frozen=True)
class StepFigures:
    """What the cost model takes of a step: its multiply-adds; the elements of both operands, with a row for
    each pair, and of the result; and in how many equal products it is done."""

    products: float
    left: float
    right: float
    out: float
    parts: int

    @property
    def elements(self) -> float:
        """All that are read and written."""
        return self.left + self.right + self.out

    def extents(self, model: CostModel) -> tuple[float, float]:
        """The two lesser ones of each product."""
        return model.short_extents(
            *(x / self.parts for x in (self.products, self.left, self.right, self.out))
        )


def step_figures(plan: BatchPlan, number: int, rows: Sequence[int], counts: Sequence[float]) -> StepFigures:
    """The figures of a step in one slice; `rows` and `counts` are the rows and elements of all tensors."""
    step = plan.steps[number]
    pairs, is_outer = len(step.pairs), len(step.pairs) == rows[step.left] * rows[step.right]
    left, right = (
        counts[tensor] if is_outer else counts[tensor] / rows[tensor] * pairs
        for tensor in (step.left, step.right)
    )
    return StepFigures(step.products, left, right, step.elements, 1 if is_outer else pairs)

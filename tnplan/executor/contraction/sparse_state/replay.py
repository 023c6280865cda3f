"""The steps for a batch of bit strings on one CPU: slices in turn, what they share kept. Knows no path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np

from tnplan.common.arrays import Array
from tnplan.executor.contraction.sparse_state.product import ROWS, RowProducts, RowTensor, StepLegs, sort_legs
from tnplan.executor.device.cpu.parallel_rows import blas_threads
from tnplan.planner.schedule.batch_plan import BatchPlan


class BatchReplay:
    """The contraction of a batch with the values of its network's tensors.

    Parameters
    ----------
    plan
        The steps.
    arrays
        The tensors of the plan's network.
    dtype
        In which they are contracted.
    threads
        Of the CPU.
    """

    def __init__(self, plan: BatchPlan, arrays: Sequence[Array], dtype: str, threads: int) -> None:
        self.plan, self.threads, self.dtype = plan, threads, np.dtype(dtype)
        self.products = RowProducts(threads)
        n_leaves = len(plan.network.inputs)
        self.leaves = [self._leaf(number, np.asarray(array, dtype)) for number, array in enumerate(arrays)]
        sizes = {**plan.network.size_dict, **dict.fromkeys(plan.sliced, 1)}
        level = {index: number for number, index in enumerate(plan.sliced)}
        self.level = [
            max((level[index] for index in legs if index in level), default=-1) for legs in plan.leaf_legs
        ]
        """The innermost loop that each tensor depends on; -1 for none."""
        legs = [tuple(index for index in term if index not in level) for term in plan.leaf_legs]
        self.legs: list[StepLegs] = []
        for step in plan.steps:
            kept = tuple(index for index in step.legs if index not in level)
            self.legs.append(sort_legs(legs[step.left], legs[step.right], kept, sizes))
            legs.append(self.legs[-1].result)
            self.level.append(max(self.level[step.left], self.level[step.right]))
        self.n_leaves = n_leaves

    def run(self, slices: Sequence[int] | None = None, tell: Callable[[int], None] | None = None) -> Array:
        """The sum over some slices, all where that is None: one value for each string."""
        plan = self.plan
        total: Array | None = None
        held: dict[int, RowTensor] = {}
        before: tuple[int, ...] | None = None
        with blas_threads(self.threads):
            for done, number in enumerate(range(plan.n_slices) if slices is None else slices):
                values = self._values(number)
                changed = self._changed(before, values)
                before = values
                found = self._slice(held, dict(zip(plan.sliced, values, strict=True)), changed)
                total = found.copy() if total is None else total + found
                if tell is not None:
                    tell(done + 1)
        if total is None:
            return np.zeros(len(plan.rows), self.dtype)
        return total.reshape(-1)[plan.rows]

    def _leaf(self, number: int, array: Array) -> tuple[Array, tuple[str, ...]]:
        """An input with its rows first: the values of its final indices are those of each row."""
        term = self.plan.network.inputs[number]
        final, bits = self.plan.leaf_bits[number]
        legs = self.plan.leaf_legs[number]
        axes = [term.index(index) for index in (*final, *legs)]
        ordered = array.transpose(axes)
        if not final:
            return ordered[None], legs
        return ordered[tuple(bits.T.astype(np.int64))], legs

    def _values(self, number: int) -> tuple[int, ...]:
        """The values of the sliced indices in a slice, the last one fastest."""
        extents = [self.plan.network.size_dict[index] for index in self.plan.sliced]
        found = []
        for extent in reversed(extents):
            number, value = divmod(number, extent)
            found.append(value)
        return tuple(reversed(found))

    @staticmethod
    def _changed(before: tuple[int, ...] | None, values: tuple[int, ...]) -> int:
        """The outermost loop whose value is new; -1 in the first slice."""
        if before is None:
            return -1
        pairs = enumerate(zip(before, values, strict=True))
        return next((level for level, (a, b) in pairs if a != b), len(values))

    def _slice(self, held: dict[int, RowTensor], values: dict[str, int], changed: int) -> Array:
        """One slice. `held` has tensors of slices before, and keeps those that later ones may need."""
        plan, last = self.plan, self.n_leaves + len(self.plan.steps) - 1
        needed = set(self._needed(last, held, changed))
        tensors: dict[int, RowTensor] = {}

        def take(number: int) -> RowTensor:
            if number not in needed:
                return held[number]
            if number < self.n_leaves:
                array, legs = self.leaves[number]
                places = tuple(values[index] if index in values else slice(None) for index in legs)
                order = (ROWS, *(index for index in legs if index not in values))
                return RowTensor(np.ascontiguousarray(array[(slice(None), *places)]), order)
            return tensors.pop(number)

        for number in sorted(one for one in needed if one >= self.n_leaves):
            place = number - self.n_leaves
            step, legs = plan.steps[place], self.legs[place]
            found = self.products.multiply(take(step.left), take(step.right), legs, step.pairs)
            if self.level[number] < len(plan.sliced) - 1:
                held[number] = found
            tensors[number] = found
            for child in (step.left, step.right):
                if self.level[child] == self.level[number]:
                    held.pop(child, None)
        return take(last).array

    def _needed(self, top: int, held: dict[int, RowTensor], changed: int) -> Iterator[int]:
        """The tensors to compute for the one at the top: those that are new, down to those that are held."""
        stack = [top]
        while stack:
            number = stack.pop()
            if number in held and (changed >= 0 and self.level[number] < changed):
                continue
            yield number
            if number >= self.n_leaves:
                step = self.plan.steps[number - self.n_leaves]
                stack += [step.left, step.right]


def peak_elements(plan: BatchPlan) -> int:
    """Elements that a replay holds at once, the copies of operands in another order among them."""
    sizes = [
        len(bits) * prod(plan.network.size_dict[index] for index in legs if index not in plan.sliced)
        for (_, bits), legs in zip(plan.leaf_bits, plan.leaf_legs, strict=True)
    ]
    held = sum(sizes)
    most = held
    for step in plan.steps:
        sizes.append(step.elements)
        held += step.elements
        most = max(most, held + sizes[step.left] + sizes[step.right])
        held -= sizes[step.left] + sizes[step.right]
    return most

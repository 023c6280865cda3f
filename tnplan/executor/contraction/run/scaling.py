"""Which tensors of a schedule are scaled, and the slots whose sum is the exponent of each. Knows no device.

The largest part of a tensor lies between two powers of two. A product's bounds follow from those of its
operands. Where they would leave the range of the dtype, one of the tensors that the product is made of,
directly or through products before, is scaled as soon as it is made. The exponent of a tensor is then the sum
of the slots of all tensors that it is made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log2, prod

from tnplan.common.errors import InputError
from tnplan.executor.device.protocols.device import Call, Device, View, call_in_turn
from tnplan.planner.schedule.data_flow import reads, writes
from tnplan.planner.schedule.schedule import (
    Accumulate,
    Contract,
    FixSlice,
    Free,
    Fused,
    Instruction,
    Load,
    Schedule,
    SumModes,
    Zero,
)

KEPT_CALLS = 64
"""Choices of inputs that are scaled together, whose calls are kept."""


@dataclass(frozen=True)
class SafeRange:
    """Limits of the bounds of a tensor, in bits, by its dtype.

    - `above`: Of the largest part: below the range's end by the terms of a sum that are added in other
      orders.
    - `below`: Of its inverse. Parts that are smaller than the largest by the dtype's precision are then
      normal too.
    - `shrinkage`: By which a product's largest part may be smaller than the product of its operands' largest.
      It may be smaller still, where terms cancel: there is no bound. A chain, within which nothing is scaled,
      counts as one product.
    - `tolerated`: Up to which a large tensor, once measured, stays as it is.
    """

    above: float
    below: float
    shrinkage: float
    tolerated: int


SINGLE = SafeRange(120, 102, 20, 10)
DOUBLE = SafeRange(1000, 960, 20, 160)
SAFE = {"float32": SINGLE, "complex64": SINGLE, "float64": DOUBLE, "complex128": DOUBLE}
MOST_TERMS_BITS = 5
"""Of the instructions that add to one sum, in each of its rounds."""
CACHED_ELEMENTS = 1 << 20
"""Up to so many, to scale a tensor costs little more than to measure it: it never stays as it is."""
LEAST_COST = 1 << 14
"""Elements of a tensor up to which it costs the same to scale it, whatever its size."""


@dataclass(eq=False)
class ScaledTensor:
    """A tensor as the plan sees it: what its bounds are made of, and its slot where it has one.

    One with a slot is scaled, or is a sum: `above` and `below` are its bounds. Those of others have its
    sources' bounds besides. `cost`, in elements, is that of scaling it; inf where that is not possible.
    """

    sources: tuple[ScaledTensor, ...] = ()
    above: float = 0.0
    below: float = 0.0
    cost: float = inf
    tolerated: int = 0
    slot: int | None = None


class ScalingPlan:
    """What is scaled while a schedule is carried out on one rank.

    - `schedule`: For one rank, without compressed tensors.
    - `n_slots`: How many slots there are: of the inputs, by their number; of others; of the result,
      `result_slot`.
    """

    def __init__(self, schedule: Schedule) -> None:
        if schedule.sliced_output:
            raise InputError(
                "strip_exponent", "is not for slices of open indices", "allow more memory, or leave it out"
            )
        self._schedule, self._safe = schedule, SAFE[schedule.dtype]
        self._inputs = [ScaledTensor(slot=number) for number in range(len(schedule.leaves))]
        self.n_slots = len(self._inputs)
        self._of_buffers: dict[int, ScaledTensor] = {}
        self._made: dict[Instruction, ScaledTensor] = {}
        """What an instruction makes, or adds; those that load and that begin a sum are not here."""
        # Instructions in the order in which they run: the sources of each are known when it is included.
        # `often` is how many times it runs in all, and so its scaling.
        for level in schedule.parts:
            often = schedule.n_slices / schedule.serves(level.depth) * schedule.repeats(level.inner)
            for item in level.instructions:
                if not isinstance(item, Free):
                    self._include(item, often)
        self._of_buffers.setdefault(schedule.result, ScaledTensor())
        self.result_slot = self._new_slot()

    def scaling(self, item: Instruction) -> tuple[int, int] | None:
        """The slot of what an instruction makes, if that is scaled then, and the bits that are tolerated."""
        tensor = self._made.get(item)
        return None if tensor is None or tensor.slot is None else (tensor.slot, tensor.tolerated)

    def sum_slot(self, buffer: int) -> int:
        """The slot of a sum in a buffer."""
        slot = self._of_buffers[buffer].slot
        assert slot is not None
        return slot

    def terms(self, item: Instruction) -> list[int]:
        """The slots whose sum is the exponent of what an instruction adds."""
        return sorted(_slots(self._made[item].sources))

    def result_slots(self) -> list[int]:
        """The slots whose sum is the exponent of the result."""
        return [*_slots([self._of_buffers[self._schedule.result]]), self.result_slot]

    def _include(self, item: Instruction, often: float) -> None:
        """Add an instruction, and scale what it takes where that is needed."""
        safe = self._safe
        if isinstance(item, Load):
            self._of_buffers[item.out] = self._inputs[item.tensor]
            return
        if isinstance(item, Zero):
            self._of_buffers[item.out] = self._sum()
            return
        out = writes(item)[0]
        sources = tuple(self._of_buffers[buffer] for buffer in reads(item))
        elements = self.elements(out)
        tensor = ScaledTensor(sources, *self._own_bounds(item), often * max(elements, LEAST_COST))
        # A large tensor is measured first and scaled only if that takes more than so many bits.
        tensor.tolerated = safe.tolerated if elements > CACHED_ELEMENTS else 0
        self._made[item] = tensor
        if isinstance(item, Accumulate) or (isinstance(item, Fused) and item.adds):
            self._add(item, out, tensor)
            return
        self._keep_within(tensor, 0.0)
        self._of_buffers[out] = tensor

    def _add(self, item: Instruction, out: int, term: ScaledTensor) -> None:
        """Add a term to a sum. What `Accumulate` adds is measured first, so that its bounds do not matter."""
        if out not in self._of_buffers:
            self._of_buffers[out] = self._sum()
        total = self._of_buffers[out]
        rounds = self._schedule.n_slices * self._schedule.repeats(len(self._schedule.summed))
        # A sum of t terms has at most log2(t) bits more than the largest of them.
        grown = log2(rounds) + MOST_TERMS_BITS
        if isinstance(item, Accumulate):
            total.above = max(total.above, grown)
            return
        self._keep_within(term, grown)
        above, below = _bounds(term)
        total.above, total.below = max(total.above, above + grown), max(total.below, below)

    def _sum(self) -> ScaledTensor:
        return ScaledTensor(below=self._safe.shrinkage, slot=self._new_slot())

    def _own_bounds(self, item: Instruction) -> tuple[float, float]:
        """The bits by which a result may be larger and smaller than the product of what it is made of."""
        schedule, safe = self._schedule, self._safe
        parts = 1.0 if schedule.dtype.startswith("complex") else 0.0
        if isinstance(item, SumModes):
            return log2(self.elements(item.source)) - log2(self.elements(item.out)), safe.shrinkage
        if isinstance(item, FixSlice):
            return 0.0, safe.shrinkage
        if isinstance(item, Contract):
            return log2(schedule.steps[item.step].k) + parts, safe.shrinkage
        if isinstance(item, Fused):
            # a b| summed over k terms is at most k max|a| max|b|; a complex product has two such terms in
            # each part.
            above = sum(log2(schedule.steps[number].k) + parts for number in item.steps)
            return above, safe.shrinkage
        return 0.0, 0.0

    def _keep_within(self, product: ScaledTensor, grown: float) -> None:
        """Scale what a tensor is made of, until its own bounds are within the range.

        `grown` is by how many bits it grows where it is added up. Of the tensors that can be scaled, that one
        is which costs least for the bits that it gives.
        """
        # Greedy: of the tensors that the bounds are made of, the one of least cost a bit is scaled, which
        # sets its bounds to what is tolerated; until the product is within the range, or nothing is left to
        # scale.
        while True:
            above, below = _bounds(product)
            over = above + grown > self._safe.above, below > self._safe.below
            if not any(over):
                return
            best, least = None, inf
            for tensor in _reach(product.sources):
                spare = [bits - tensor.tolerated for bits in _bounds(tensor)]
                gain = sum(bits for bits, is_over in zip(spare, over, strict=True) if is_over)
                if tensor.slot is None and gain > 0 and tensor.cost / gain < least:
                    best, least = tensor, tensor.cost / gain
            if best is None:
                return
            best.slot = self._new_slot()
            best.above = best.below = float(best.tolerated)

    def _new_slot(self) -> int:
        self.n_slots += 1
        return self.n_slots - 1

    def elements(self, buffer: int) -> int:
        """The elements of what a buffer holds."""
        extents = self._schedule.extents
        return prod(extents[mode] for mode in self._schedule.buffers[buffer].modes)


def _reach(sources: Sequence[ScaledTensor]) -> Iterator[ScaledTensor]:
    """The tensors that bounds are made of: the sources, and those of all that have no slot."""
    left = list(sources)
    while left:
        tensor = left.pop()
        yield tensor
        if tensor.slot is None:
            left += tensor.sources


def _bounds(tensor: ScaledTensor) -> tuple[float, float]:
    """The bits of a tensor's largest part, at most, and of its inverse."""
    reached = [tensor, *(_reach(tensor.sources) if tensor.slot is None else ())]
    return sum(source.above for source in reached), sum(source.below for source in reached)


def _slots(tensors: Sequence[ScaledTensor]) -> Iterator[int]:
    """The slots of tensors and of all that they are made of."""
    left = list(tensors)
    while left:
        tensor = left.pop()
        left += tensor.sources
        if tensor.slot is not None:
            yield tensor.slot


class ScaledCalls:
    """The exponents of the tensors of one rank, and the calls of a schedule that keep them.

    - `schedule`: For one rank, without compressed tensors.
    - `device`: Its arena is allocated.
    - `inputs`: The input tensors, which `scale_inputs` scales where they are.
    """

    def __init__(self, schedule: Schedule, device: Device, inputs: Sequence[View]) -> None:
        if schedule.ranks_per_group > 1 or schedule.compression is not None:
            problem = "is for several ranks, or with compressed tensors"
            raise InputError("schedule", problem, "plan for one device without compression")
        self._schedule, self._device, self._inputs = schedule, device, inputs
        self._plan = ScalingPlan(schedule)
        self._exponents = device.exponents(self._plan.n_slots, schedule.dtype)
        self._send, self._total = self._exponents.bind_total(self._plan.result_slots())
        self._calls: dict[frozenset[int], Call] = {}

    def scale_inputs(self, numbers: frozenset[int]) -> None:
        """Scale inputs that have new values."""
        if numbers not in self._calls:
            if len(self._calls) >= KEPT_CALLS:
                self._device.synchronize()  # a call that is dropped gives back what its kernels read
                self._calls.clear()
            chosen = sorted(numbers)
            views = [self._inputs[number] for number in chosen]
            self._calls[numbers] = self._exponents.bind_normalize(views, chosen)
        self._calls[numbers]()

    def begin_result(self) -> Call:
        """The call after which the result is a sum without terms."""
        return self._exponents.bind_clear(self._plan.sum_slot(self._schedule.result))

    def end_result(self) -> Call:
        """The call that scales the result until its largest part is from 0.5 to 1."""
        scale = self._exponents.bind_normalize([self._view(self._schedule.result)], [self._plan.result_slot])
        return call_in_turn([scale, self._send])

    def exponent(self) -> int:
        """The exponent of the result, 0 where it is zero; waits for the work before."""
        return self._total()

    def scaled(self, items: Sequence[Instruction], calls: Sequence[Call]) -> list[Call]:
        """The calls of instructions in a row, with the scaling of what they make.

        Small tensors are scaled together, as soon as one of them is read.
        """
        scaled_calls: list[Call] = []
        waiting: dict[int, int] = {}
        for item, call in zip(items, calls, strict=True):
            # Scaling waits until one of the tensors is read: small ones are then scaled together, in one
            # launch.
            if not waiting.keys().isdisjoint(reads(item)):
                scaled_calls.append(self._scale(waiting))
                waiting.clear()
            scaled_calls.append(self._tracked(item, call))
            scaling = self._plan.scaling(item)
            if scaling is not None and scaling[1]:
                scaled_calls.append(self._scale({writes(item)[0]: scaling[0]}, scaling[1]))
            elif scaling is not None:
                waiting[writes(item)[0]] = scaling[0]
        return [*scaled_calls, self._scale(waiting)] if waiting else scaled_calls

    def _scale(self, slots: Mapping[int, int], tolerated_bits: int = 0) -> Call:
        """The call that scales the tensors of buffers, each with its slot."""
        views = [self._view(buffer) for buffer in slots]
        return self._exponents.bind_normalize(views, list(slots.values()), tolerated_bits)

    def _tracked(self, item: Instruction, call: Call) -> Call:
        """A call that keeps the exponents of sums, where it has to do with one."""
        plan, exponents, out = self._plan, self._exponents, writes(item)[0]
        if isinstance(item, Zero):
            return call_in_turn([call, exponents.bind_clear(plan.sum_slot(out))])
        if isinstance(item, Accumulate):
            source = self._view(item.source)
            return exponents.bind_accumulate(self._view(out), source, plan.sum_slot(out), plan.terms(item))
        if isinstance(item, Fused) and item.adds:
            factor = self._view(min(reads(item), key=plan.elements))
            return exponents.bind_aligned(self._view(out), factor, plan.sum_slot(out), plan.terms(item), call)
        return call

    def _view(self, buffer: int) -> View:
        offset_bytes = self._schedule.buffers[buffer].offset_bytes
        return self._device.view(offset_bytes, self._plan.elements(buffer), self._schedule.dtype)

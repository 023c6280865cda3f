"""The instructions of a contraction and of its gradients, part by part; buffers have no offsets yet.

A part of a loop level is followed by its mirror image: for every instruction, the last one first, one that
takes the cotangent of its result to those of its operands. Cotangents have the layout of their tensors, and
are whole on every rank that repeats them. The cotangent of a tensor that inner loops read is a sum: zeroed
where the tensor is made, added to inside, taken up after the last slice that it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tnplan.common.arrays import ITEM_BYTES
from tnplan.common.errors import InputError
from tnplan.planner.hardware.process_grid import Layout
from tnplan.planner.schedule.data_flow import reads, writes
from tnplan.planner.schedule.schedule import (
    Accumulate,
    AddSlice,
    Buffer,
    Contract,
    FixSlice,
    Free,
    Fused,
    FusedAdjoint,
    Gather,
    Instruction,
    Load,
    Redistribute,
    ReduceScatter,
    Schedule,
    StepAnnotation,
    SumModes,
    TensorGradient,
    Zero,
)

CHAIN_BACK = 2.7
"""The seconds of a chain's backward pass over those of its forward pass: 14 of Sycamore m10 on an H100."""
Make = Callable[[int], None]
"""Emits what makes a buffer."""


@dataclass(frozen=True)
class AdjointProgram:
    """The parts: `forward` of every loop level, of the innermost with its mirror image; `backward`, those of
    the others, the outermost last."""

    forward: tuple[tuple[Instruction, ...], ...]
    backward: tuple[tuple[Instruction, ...], ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[StepAnnotation, ...]
    gradients: tuple[TensorGradient, ...]


def adjoint_program(
    schedule: Schedule, flow: AdjointFlow, wrt: Collection[int], stored: Collection[int]
) -> AdjointProgram:
    """The program with the values of the buffers in `stored` kept from one half of a part to the other."""
    return _Emitter(schedule, flow, frozenset(stored)).run(wrt)


class _Emitter:
    def __init__(self, schedule: Schedule, flow: AdjointFlow, stored: frozenset[int]) -> None:
        self._schedule, self._flow = schedule, flow
        self._kept = stored & flow.needed
        self._buffers, self._steps = list(schedule.buffers), list(schedule.steps)
        self._orders: dict[int, tuple[int, ...]] = {}
        self._cotangents: dict[int, int] = {}
        self._sums: set[int] = set()  # tensors whose cotangents are sums
        self._gradients: dict[int, int] = {}
        self._part: list[Instruction] = []
        self._level = 0
        self._seed = -1

    def run(self, wrt: Collection[int]) -> AdjointProgram:
        """Both halves of every part."""
        last = len(self._schedule.parts) - 1
        forward = [self._forward(level) for level in range(last + 1)]
        backward = [self._backward(level) for level in range(last, -1, -1)]
        # The innermost part goes forward and back in one: its values are needed for this slice alone.
        forward[last] += backward.pop(0)
        return AdjointProgram(
            tuple(map(tuple, forward)), tuple(map(tuple, backward)), tuple(self._buffers), tuple(self._steps),
            tuple(TensorGradient(tensor, self._gradients[tensor]) for tensor in wrt),
        )  # fmt: skip

    def _begin(self, level: int) -> None:
        self._level, self._part = level, []

    def _forward(self, level: int) -> list[Instruction]:
        """The part without the `Free`s of what is kept, and then the sums and the cotangent of the result."""
        self._begin(level)
        freed = self._freed(level)
        for item in self._schedule.parts[level].instructions:
            if not (isinstance(item, Free) and item.buffer in self._kept):
                self._part.append(item)
            if isinstance(item, Fused) and self._loses_operand(item, level) and item.operand not in freed:
                self._part += [Free(item.operand)] if item.operand not in self._kept else []
        if not level:
            self._load_seed()
        for item in self._flow.parts[level]:
            tensor = made_by(item)
            # Read on an inner level, in several slices: its cotangent is a sum over these, zeroed where the
            # tensor is made.
            inside = self._flow.reader.get(tensor, level) > level
            if tensor in self._flow.active and inside and not isinstance(item, Accumulate):
                self._sums.add(tensor)
                self._cotangents[tensor] = self._cotangent_buffer(tensor)
                self._part.append(Zero(self._cotangents[tensor]))
        return self._part

    def _freed(self, level: int) -> set[int]:
        """What a part frees."""
        return {item.buffer for item in self._schedule.parts[level].instructions if isinstance(item, Free)}

    def _loses_operand(self, item: Fused, level: int) -> bool:
        """Whether a chain's operand is gone after it, also without a `Free`: its result took the place."""
        return self._flow.level[item.operand] == level

    def _load_seed(self) -> None:
        """The cotangent of what is, or is added to, the result."""
        # The result is a sum over slices: each term has the cotangent of the sum itself.
        added = [item.source for item in self._schedule.body if isinstance(item, Accumulate)]
        root = added[-1] if added else self._schedule.result
        self._seed = self._cotangents[root] = self._cotangent_buffer(root)
        self._part.append(Load(len(self._schedule.leaves), self._seed))

    def _backward(self, level: int) -> list[Instruction]:
        """The mirror image of a part."""
        self._begin(level)
        if level < len(self._schedule.parts) - 1:
            self._free_inner_values(level)
        for item in reversed(self._flow.parts[level]):
            out = made_by(item)
            if out in self._flow.active:
                self._adjoin(item, out)
            if isinstance(item, Contract | Fused):
                self._free_operands(item)
        return self._part

    def _free_inner_values(self, level: int) -> None:
        """What the part made for inner loops is not read any more."""
        freed = self._freed(level)
        for item in self._flow.parts[level]:
            if isinstance(item, Fused) and self._loses_operand(item, level):
                freed.add(item.operand)
        for item in self._flow.parts[level]:
            for buffer in writes(item):
                if buffer not in freed and buffer != self._schedule.result and buffer not in self._kept:
                    self._part.append(Free(buffer))

    def _free_operands(self, item: Contract | Fused) -> None:
        """The values that were kept for the adjoint of a step; a tensor that is read here is made here."""
        for buffer in reads(item):
            if buffer in self._kept:
                self._part.append(Free(buffer))

    def _adjoin(self, item: Instruction, out: int) -> None:
        """The adjoint of one instruction, from the cotangent of its result."""
        match item:
            case Load():
                self._gradients[item.tensor] = self._cotangents[out]
            case Accumulate():
                self._cotangents[item.source] = self._seed
            case SumModes():  # constant along what is summed, which the gradient lacks
                self._cotangents[item.source] = self._cotangents[out]
            case FixSlice():
                self._part.append(AddSlice(self._cotangents[out], self._cotangents[item.source]))
                self._free_cotangent(out)
            case Redistribute() | ReduceScatter():
                self._adjoin_exchange(item, out)
            case Contract():
                for operand, other in ((item.a, item.b), (item.b, item.a)):
                    if operand in self._flow.active:
                        self._adjoin_operand(item, operand, other)
                self._free_cotangent(out)
            case Fused():
                self._adjoin_chain(item)
                self._free_cotangent(out)

    def _free_cotangent(self, tensor: int) -> None:
        buffer = self._cotangents[tensor]
        if buffer != self._seed or not self._schedule.body:
            self._part.append(Free(buffer))

    def _adjoin_exchange(self, item: Redistribute | ReduceScatter, out: int) -> None:
        """Back to the layout before; the terms of a sum all have the sum's cotangent."""
        source = item.source
        before, after = self._buffers[source].layout, self._buffers[out].layout
        # The layout stays: every term of a sum over ranks has the sum's cotangent, which each rank has
        # already.
        if before == after and source not in self._sums:
            self._cotangents[source] = self._cotangents[out]
            return
        self._contribute(source, lambda target: self._exchange(self._cotangents[out], target, item.step))
        self._free_cotangent(out)

    def _adjoin_operand(self, item: Contract, operand: int, other: int) -> None:
        """The cotangent of the result, contracted with the other operand."""
        value, is_new = self._value(other)
        adjoined, factor = self._buffers[operand], self._buffers[other]
        # c = a b: the cotangent of a is that of c times b, summed over n. A digit that spreads a mode of n
        # leaves a term on each of its ranks.
        partial = tuple(
            digit
            for digit, mode in enumerate(factor.layout)
            if mode is not None and mode not in adjoined.modes
        )
        number = self._annotate(item, operand, other)

        def make(target: int) -> None:
            product = target
            if partial:
                product = self._new(replace(self._buffers[target], partial=partial))
            self._contract(self._cotangents[item.c], value, product, number, item.precision)
            if partial:
                self._exchange(product, target, number)
                self._part.append(Free(product))

        self._contribute(operand, make)
        if is_new:
            self._part.append(Free(value))

    def _adjoin_chain(self, item: Fused) -> None:
        """The cotangents of all that a chain reads, at once."""
        values = [self._value(buffer) for buffer in (item.operand, *item.branches)]
        layouts = [self._buffers[buffer].layout for buffer in (item.operand, *item.branches, item.out)]
        # What each digit spreads in the chain. A gradient without that mode is a sum over the digit's ranks:
        # made as terms, and exchanged into the layout of its tensor.
        spread = [
            next((mode for mode in modes if mode is not None), None) for modes in zip(*layouts, strict=True)
        ]
        numbers = [number for step in item.steps for number in self._annotate_both(step)]
        written: list[int | None] = []
        exchanged: list[tuple[int, int]] = []
        for operand in (item.operand, *item.branches):
            if operand not in self._flow.active:
                written.append(None)
                continue
            target = self._cotangent_buffer(operand)
            gradient_buffer = self._buffers[target]
            partial = tuple(
                digit
                for digit, mode in enumerate(spread)
                if mode is not None and mode not in gradient_buffer.modes
            )
            written.append(self._new(replace(gradient_buffer, partial=partial)) if partial else target)
            exchanged.append((operand, target))
        out, *gradients = written
        cotangent = self._cotangents[item.out]
        read, *branches = (value for value, _ in values)
        self._part.append(
            FusedAdjoint(read, tuple(branches), cotangent, out, tuple(gradients), tuple(numbers))
        )
        products = [product for product in written if product is not None]
        for product, (operand, target) in zip(products, exchanged, strict=True):
            if product != target:
                self._exchange(product, target, numbers[-1])
                self._part.append(Free(product))
            if operand in self._sums:
                self._part += [Accumulate(target, self._cotangents[operand]), Free(target)]
            else:
                self._cotangents[operand] = target
        self._part += [Free(value) for value, is_new in values if is_new]

    def _annotate_both(self, step: int) -> tuple[int, int]:
        """The annotations of the backward pass through a step of a chain: its products for either operand."""
        known = self._steps[step]
        a, b, c = known.a_modes, known.b_modes, known.c_modes
        m, n, k = known.m, known.n, known.k
        alone = replace(
            known, contract_s=CHAIN_BACK / 2 * known.contract_s, exchange_s=0.0, moved_bytes=0,
            moved_bytes_by_tier=(0,) * len(known.moved_bytes_by_tier),
        )  # fmt: skip
        self._steps += [
            replace(alone, a_modes=c, b_modes=b, c_modes=a, m=m, n=k, k=n),
            replace(alone, a_modes=c, b_modes=a, c_modes=b, m=n, n=k, k=m),
        ]
        return len(self._steps) - 2, len(self._steps) - 1

    def _contribute(self, tensor: int, make: Make) -> None:
        """Make the cotangent of a tensor, or add to it where it is a sum."""
        if tensor not in self._sums:
            self._cotangents[tensor] = self._cotangent_buffer(tensor)
            make(self._cotangents[tensor])
            return
        term = self._cotangent_buffer(tensor)
        make(term)
        self._part += [Accumulate(term, self._cotangents[tensor]), Free(term)]

    def _value(self, tensor: int) -> tuple[int, bool]:
        """A buffer with the value of a tensor, and whether it was made again for this."""
        if self._is_there(tensor):
            return tensor, False
        again: dict[int, int] = {}
        # Values that are not kept are made again from those of outer levels or kept ones: depth first, each
        # once.
        stack = [tensor]
        while stack:
            wanted = stack[-1]
            item = self._flow.maker[wanted]
            missing = [buffer for buffer in reads(item) if not self._is_there(buffer) and buffer not in again]
            if missing:
                stack += missing
                continue
            stack.pop()
            again[wanted] = self._make_again(item, wanted, again)
        return again[tensor], True

    def _is_there(self, tensor: int) -> bool:
        return self._flow.level[tensor] < self._level or tensor in self._kept

    def _make_again(self, item: Instruction, out: int, again: dict[int, int]) -> int:
        """Repeat an instruction into a new buffer; what was made for it alone is freed."""
        new = self._new(self._buffers[out])
        names: dict[str, Any] = {
            name: again[getattr(item, name)]
            for name in ("source", "a", "b", "operand")
            if getattr(item, name, None) in again
        }
        workspace = getattr(item, "workspace", None)
        if workspace is not None:
            names["workspace"] = self._new(self._buffers[workspace])
        if isinstance(item, Contract):
            self._steps.append(self._steps[item.step])
            names["step"] = len(self._steps) - 1
        if isinstance(item, Fused):
            self._steps += [self._steps[step] for step in item.steps]
            names["steps"] = tuple(range(len(self._steps) - len(item.steps), len(self._steps)))
            names["branches"] = tuple(again.get(branch, branch) for branch in item.branches)
        names["c" if isinstance(item, Contract) else "out"] = new
        self._part.append(replace(item, **names))
        for buffer in (*(again.get(operand) for operand in reads(item)), names.get("workspace")):
            if buffer is not None:
                self._part.append(Free(buffer))
        return new

    def _order(self, tensor: int) -> tuple[int, ...]:
        """The order in which the cotangent of a tensor stores its modes: the one that the adjoint of what
        made the tensor reads."""
        if tensor not in self._orders:
            item = self._flow.maker[tensor]
            source = tensor
            while isinstance(item, Redistribute | ReduceScatter):
                source = item.source
                item = self._flow.maker[source]
            order = self._buffers[source].modes
            if isinstance(item, Contract):
                a, b = self._buffers[item.a].modes, self._buffers[item.b].modes
                order = (
                    *(mode for mode in a if mode in order),
                    *(mode for mode in b if mode in order and mode not in a),
                )
            self._orders[tensor] = order
        return self._orders[tensor]

    def _cotangent_buffer(self, tensor: int) -> int:
        buffer = self._buffers[tensor]
        return self._new(Buffer(self._order(tensor), buffer.layout, 0, buffer.size_bytes))

    def _new(self, buffer: Buffer) -> int:
        self._buffers.append(buffer)
        return len(self._buffers) - 1

    def _contract(self, a: int, b: int, c: int, number: int, precision: str) -> None:
        """A product, through a tile where its result has another order."""
        modes = [self._buffers[buffer].modes for buffer in (a, b, c)]
        batch = [mode for mode in modes[0] if mode in modes[1] and mode in modes[2]]
        m = [mode for mode in modes[0] if mode in modes[2] and mode not in modes[1]]
        n = [mode for mode in modes[1] if mode in modes[2] and mode not in modes[0]]
        tile = None
        if modes[2] not in ((*batch, *m, *n), (*batch, *n, *m)):
            limit = max(int(self._schedule.profile["tile_bytes"]), ITEM_BYTES[self._schedule.dtype])
            tile = self._workspace(min(self._buffers[c].size_bytes, limit))
        self._part.append(Contract(a, b, c, tile, number, precision=precision))
        if tile is not None:
            self._part.append(Free(tile))

    def _exchange(self, source: int, out: int, step: int) -> None:
        """From one layout to another, terms summed; on ranks that hold what they need, a copy."""
        grid = self._schedule.grid
        before, after = self._buffers[source], self._buffers[out]
        peers = -1 + prod(
            digit.radix
            for position, digit in enumerate(grid)
            if position in before.partial
            or (before.layout[position] is not None and before.layout[position] != after.layout[position])
        )
        workspace = None
        if peers:
            item_bytes = ITEM_BYTES[self._schedule.dtype]
            most = max(before.size_bytes, after.size_bytes) * (peers if before.partial else 1)
            limit = int(self._schedule.profile["exchange_bytes"])
            workspace = self._workspace(max(min(2 * most, limit), 2 * peers * item_bytes))
        kind: type[Redistribute] | type[ReduceScatter] = ReduceScatter
        if not before.partial:
            kind = Redistribute if any(mode is not None for mode in after.layout) else Gather
        self._part.append(kind(source, out, workspace, step))
        if workspace is not None:
            self._part.append(Free(workspace))

    def _workspace(self, size_bytes: int) -> int:
        layout: Layout = (None,) * len(self._schedule.grid)
        return self._new(Buffer((), layout, 0, size_bytes, workspace=True))

    def _annotate(self, item: Contract, operand: int, other: int) -> int:
        """The annotation of a cotangent's product: the sizes change places, the time is about the same."""
        step = self._steps[item.step]
        m, n, k = (step.m, step.n, step.k) if operand == item.a else (step.n, step.m, step.k)
        self._steps.append(
            replace(
                step, a_modes=self._order(item.c), b_modes=self._buffers[other].modes,
                c_modes=self._order(operand), m=m, n=k, k=n, exchange_s=0.0, moved_bytes=0,
                moved_bytes_by_tier=(0,) * len(step.moved_bytes_by_tier),
            )
        )  # fmt: skip
        return len(self._steps) - 1


DIFFERENTIABLE = Load | FixSlice | SumModes | Contract | Fused | Redistribute | ReduceScatter | Accumulate
"""The instructions whose adjoints are known."""


@dataclass(frozen=True)
class AdjointFlow:
    """The instructions of a schedule as a graph. A buffer is made once and read by one instruction.

    `parts` are the instructions of every loop level without `Free`, the body last; `maker` and `level` are
    those of each buffer, `reader` the level at which it is read. The tensors in `active` depend on an input
    that is wanted. `needed` are those whose values a gradient reads at the level that made them.
    """

    parts: tuple[tuple[Instruction, ...], ...]
    maker: dict[int, Instruction]
    level: dict[int, int]
    reader: dict[int, int]
    active: frozenset[int]
    needed: frozenset[int]


def adjoint_flow(schedule: Schedule, wrt: Collection[int]) -> AdjointFlow:
    """Raises InputError where the schedule has instructions that have no adjoint here."""
    parts = tuple(
        tuple(item for item in part.instructions if not isinstance(item, Free)) for part in schedule.parts
    )
    maker: dict[int, Instruction] = {}
    level: dict[int, int] = {}
    reader: dict[int, int] = {}
    active: set[int] = set()
    needed: set[int] = set()
    for number, part in enumerate(parts):
        for item in part:
            _check(item)
            sources = reads(item)
            reader.update(dict.fromkeys(sources, number))
            # Forward through the graph: what no wanted input reaches needs no cotangent.
            depends = item.tensor in wrt if isinstance(item, Load) else not active.isdisjoint(sources)
            out = made_by(item)
            if depends:
                active.add(out)
            if not isinstance(item, Accumulate):
                maker[out], level[out] = item, number
    for item in (item for part in parts for item in part if isinstance(item, Contract)):
        # The derivative by one operand reads the other one. A value from an outer level is still there; one
        # made on this level must be kept or made again.
        for operand, other in ((item.a, item.b), (item.b, item.a)):
            if operand in active and level[other] == reader[other]:
                needed.add(other)
    for item in (item for part in parts for item in part if isinstance(item, Fused) and item.out in active):
        needed.update(buffer for buffer in reads(item) if level[buffer] == reader[buffer])
    return AdjointFlow(parts, maker, level, reader, frozenset(active), frozenset(needed))


def made_by(item: Instruction) -> int:
    """The buffer of an instruction's result."""
    assert not isinstance(item, Free | FusedAdjoint)
    return item.c if isinstance(item, Contract) else item.out


def _check(item: Instruction) -> None:
    plain = isinstance(item, DIFFERENTIABLE)
    if isinstance(item, Redistribute):
        plain = item.parts == 1 and not item.compressed
    elif isinstance(item, Fused):
        plain = item.parts == 1 and item.closing is None and not item.adds
    if not plain:
        raise InputError(
            f"schedule: {item.op}", "has no adjoint",
            "plan without chains that close the network or work in parts, early sums and compression",
        )  # fmt: skip

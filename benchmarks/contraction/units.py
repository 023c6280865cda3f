"""The contractions of a schedule as they can be timed alone: shapes of one device, made to fit a memory.

A unit is what one instruction does: a lone contraction, or a fused chain with the contractions in it. Tensors
too large for the memory lose leading modes of the large operand that its result keeps, so that batch, n and k
and the order of the other modes stay those of the real step. Knows no device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from tnplan.common.arrays import ITEM_BYTES
from tnplan.executor.device.protocols.copy import row_major
from tnplan.executor.device.protocols.device import ContractShape, FusedShape
from tnplan.planner.hardware.cost import FLOPS_PER_PRODUCT
from tnplan.planner.hardware.fusion_tile import fused_tile
from tnplan.planner.schedule.data_flow import end_of
from tnplan.planner.schedule.schedule import Contract, Fused, Schedule, StepAnnotation

Modes = tuple[tuple[int, int], ...]
"""(mode, extent) in storage order, row-major."""


@dataclass(frozen=True)
class Single:
    """One contraction: modes of its operands and its result as they are stored."""

    number: int
    a: Modes
    b: Modes
    c: Modes

    def __post_init__(self) -> None:
        batch, m, n, k = self.parts
        if self.a != (*batch, *m, *k) or self.b != (*batch, *n, *k):
            raise ValueError(f"step {self.number}: its operands are not stored as [batch | m | k]")

    @property
    def parts(self) -> tuple[Modes, Modes, Modes, Modes]:
        """The modes of batch, m, n and k, each in the order of its operand."""
        a, b, c = (dict(part) for part in (self.a, self.b, self.c))
        return (
            tuple(mode for mode in self.a if mode[0] in b and mode[0] in c),
            tuple(mode for mode in self.a if mode[0] not in b),
            tuple(mode for mode in self.b if mode[0] not in a),
            tuple(mode for mode in self.a if mode[0] in b and mode[0] not in c),
        )

    @property
    def elements(self) -> tuple[int, int, int]:
        """The elements of both operands and the result."""
        return count(self.a), count(self.b), count(self.c)

    @property
    def products(self) -> float:
        """The products of numbers that the contraction takes."""
        return float(prod(count(part) for part in self.parts))

    @property
    def contract(self) -> ContractShape:
        """The shape as a matrix product takes it."""
        strides = row_major([extent for _, extent in self.c])
        place = {mode: stride for (mode, _), stride in zip(self.c, strides, strict=True)}
        batch, m, n, k = self.parts
        placed = [tuple((extent, place[mode]) for mode, extent in part) for part in (batch, m, n)]
        return ContractShape(placed[0], placed[1], placed[2], count(k))

    def fused(self, capacity: int) -> FusedShape | None:
        """The shape as a chain of one step, the larger operand first; None where the kernel takes none."""
        if self.parts[0]:
            return None
        stem, branch = (self.a, self.b) if count(self.a) >= count(self.b) else (self.b, self.a)
        if fused_tile(stem, (branch,), self.c, capacity) is None:
            return None
        return FusedShape(stem, (branch,), self.c)


@dataclass(frozen=True)
class Unit:
    """What one instruction of `path` does: its steps, and for a chain its shape. `dropped` is the factor by
    which the tensors were made smaller."""

    path: str
    singles: tuple[Single, ...]
    chain: FusedShape | None
    predicted_s: float
    dropped: int = 1

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for units that do the same work: mode numbers replaced by the order of their appearance."""
        names: dict[int, int] = {}

        def named(modes: Modes) -> Modes:
            return tuple((names.setdefault(mode, len(names)), extent) for mode, extent in modes)

        parts = tuple((named(one.a), named(one.b), named(one.c)) for one in self.singles)
        chain = self.chain and tuple(map(named, (self.chain.operand, *self.chain.branches, self.chain.out)))
        return parts, chain

    @property
    def largest(self) -> int:
        """The elements of the largest tensor of any step."""
        return max(max(one.elements) for one in self.singles)

    @property
    def products(self) -> float:
        """The products of numbers in the longest step."""
        return max(one.products for one in self.singles)

    @property
    def held(self) -> int:
        """The most elements that a step, or the chain, needs at once."""
        needs = [sum(one.elements) for one in self.singles]
        if self.chain is not None:
            needs.append(chain_elements(self.chain))
        return max(needs)


def count(modes: Modes) -> int:
    """The elements of a tensor."""
    return prod(extent for _, extent in modes)


def chain_elements(shape: FusedShape) -> int:
    """The elements that a chain reads and writes: operand, branches and result, or what closes it, and what
    the result is added to."""
    added = [shape.out] if shape.adds else []
    return sum(count(part) for part in (shape.operand, *shape.branches, shape.out, *added))


def large_units(
    schedule: Schedule, least_bytes: int, most_bytes: int, most_flops: float
) -> tuple[list[Unit], int]:
    """Units of a schedule of one rank with a tensor of `least_bytes` or more, by falling predicted time.

    They are made to need at most `most_bytes` and, as far as leading modes go, `most_flops` real operations a
    step; each kind of work stands once. The second figure counts those that cannot be made to fit.
    """
    item_bytes = ITEM_BYTES[schedule.dtype]
    units: dict[tuple[object, ...], Unit] = {}
    misfits = 0
    for unit in _units(schedule):
        if unit.largest * item_bytes < least_bytes:
            continue
        fitted = _fitted(unit, most_bytes // item_bytes, most_flops / FLOPS_PER_PRODUCT[schedule.dtype])
        if fitted is None:
            misfits += 1
        else:
            units.setdefault(fitted.key, fitted)
    return sorted(units.values(), key=lambda unit: -unit.predicted_s), misfits


def _units(schedule: Schedule) -> Iterator[Unit]:
    extents = schedule.extents

    def modes(numbers: Sequence[int]) -> Modes:
        return tuple((mode, extents[mode]) for mode in numbers)

    def single(number: int) -> Single:
        step: StepAnnotation = schedule.steps[number]
        return Single(number, modes(step.a_modes), modes(step.b_modes), modes(step.c_modes))

    for instruction in schedule.instructions:
        numbers: tuple[int, ...]
        if isinstance(instruction, Contract):
            numbers, chain = (instruction.step,), None
        elif isinstance(instruction, Fused):
            numbers = instruction.steps
            closes = instruction.closing is not None
            operand, *branches, out = (
                modes(schedule.buffers[number].modes)
                for number in (instruction.operand, *instruction.branches, end_of(instruction))
            )
            chain = FusedShape(operand, tuple(branches), out, instruction.adds, closes)
        else:
            continue
        time_s = sum(schedule.steps[number].predicted_s for number in numbers)
        yield Unit(schedule.name, tuple(map(single, numbers)), chain, time_s)


def _fitted(unit: Unit, most: int, most_products: float) -> Unit | None:
    """The unit without leading modes of its large operand that all its results keep; None if too large."""
    first, last = unit.singles[0], unit.singles[-1]
    stem = first.a if count(first.a) >= count(first.b) else first.b
    if unit.chain is not None:
        stem = unit.chain.operand
    kept, small = {mode for mode, _ in last.c}, unit.singles
    if unit.chain is not None and unit.chain.closes:
        kept, small = {mode for mode, _ in unit.chain.out}, unit.singles[:-1]
    touched = {mode for one in small for mode in _small(one)}
    free = [mode for mode, _ in stem if mode in kept and mode not in touched]
    while free and (unit.held > most or unit.products > most_products):
        unit = _without(unit, free.pop(0))
    return unit if unit.held <= most else None


def _small(single: Single) -> list[int]:
    smaller = single.b if count(single.a) >= count(single.b) else single.a
    return [mode for mode, _ in smaller]


def _without(unit: Unit, gone: int) -> Unit:
    factor = 1

    def left(modes: Modes) -> Modes:
        nonlocal factor
        for mode, extent in modes:
            if mode == gone:
                factor = extent
        return tuple(mode for mode in modes if mode[0] != gone)

    singles = tuple(Single(one.number, left(one.a), left(one.b), left(one.c)) for one in unit.singles)
    whole = unit.chain
    chain = whole and FusedShape(
        left(whole.operand), tuple(map(left, whole.branches)), left(whole.out), whole.adds, whole.closes
    )
    return Unit(unit.path, singles, chain, unit.predicted_s, unit.dropped * factor)

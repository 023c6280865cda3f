"""The shapes of a schedule's fused chains, as a device gets ready for them."""

from __future__ import annotations

from collections.abc import Callable

from tnplan.executor.device.protocols.device import FusedShape
from tnplan.planner.hardware.chunked_overlap import cut_modes
from tnplan.planner.schedule.overlap_rows import end_of
from tnplan.planner.schedule.schedule import Fused, Schedule


def chain_shape(
    schedule: Schedule, chain: Fused, parts: int, shape_of: Callable[[int], tuple[int, ...]]
) -> FusedShape:
    """The shape of a chain, or of one of several equal parts of it, on the rank whose buffers have the shapes
    that `shape_of` gives."""
    operand = schedule.buffers[chain.operand]
    cut = cut_modes(operand.modes, operand.layout, schedule.extents, schedule.grid, parts)
    if cut is None:
        raise ValueError(f"the chain of step {chain.steps[-1]} has no {parts} parts")

    def modes(buffer: int) -> tuple[tuple[int, int], ...]:
        stored = zip(schedule.buffers[buffer].modes, shape_of(buffer), strict=True)
        return tuple(entry for entry in stored if entry[0] not in cut)

    branches = tuple(map(modes, chain.branches))
    return FusedShape(
        modes(chain.operand), branches, modes(end_of(chain)), chain.adds, chain.closing is not None
    )


def chains_of_one_rank(schedule: Schedule) -> list[tuple[FusedShape, str]]:
    """The shape and the precision of each chain of a schedule for one rank."""

    def shape_of(buffer: int) -> tuple[int, ...]:
        return tuple(schedule.extents[mode] for mode in schedule.buffers[buffer].modes)

    return [
        (chain_shape(schedule, chain, chain.parts, shape_of), chain.precision)
        for chain in schedule.instructions
        if isinstance(chain, Fused)
    ]

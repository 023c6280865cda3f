"""The backward pass through chains, bound to a rank's views.

Knows schedules and the device's interface; never how a device works.
"""

from __future__ import annotations

from collections.abc import Callable

from tnplan.executor.contraction.redistribute.redistribution import ShardBox
from tnplan.executor.device.protocols.adjoint import AdjointShape
from tnplan.executor.device.protocols.device import Call, Device, FusedShape, View
from tnplan.planner.schedule.fused_adjoint import FusedAdjoint
from tnplan.planner.schedule.schedule import Schedule

Shard = Callable[[int], ShardBox]
"""Gives this rank's part of a buffer."""


def bind_adjoint(schedule: Schedule, instruction: FusedAdjoint, device: Device, shard: Shard) -> Call:
    """The call of one instruction."""

    def view(buffer: int | None) -> View | None:
        return None if buffer is None else shard(buffer).view

    return device.bind_adjoint(
        _shape(schedule, instruction, shard), view(instruction.operand),
        list(map(view, instruction.branches)), view(instruction.cotangent),
        list(map(view, instruction.gradients)), view(instruction.out), schedule.profile["fused_bytes"],
    )  # fmt: skip


def prepare_adjoints(schedule: Schedule, device: Device, shard: Shard) -> None:
    """Let the device get ready for all backward passes at once."""
    items = [item for item in schedule.instructions if isinstance(item, FusedAdjoint)]
    if items:
        shapes = [_shape(schedule, item, shard) for item in items]
        device.prepare_adjoints(shapes, schedule.dtype, schedule.profile["fused_bytes"])


def _shape(schedule: Schedule, instruction: FusedAdjoint, shard: Shard) -> AdjointShape:
    """The shape on this rank."""

    def modes(buffer: int) -> tuple[tuple[int, int], ...]:
        return tuple(zip(schedule.buffers[buffer].modes, shard(buffer).shape, strict=True))

    def made(buffer: int | None) -> tuple[tuple[int, int], ...] | None:
        return None if buffer is None else modes(buffer)

    chain = FusedShape(
        modes(instruction.operand), tuple(map(modes, instruction.branches)), modes(instruction.cotangent)
    )
    return AdjointShape(chain, tuple(map(made, instruction.gradients)), made(instruction.out))

"""What gradients need of a schedule: who makes and reads each buffer, and what depends on which inputs.

Knows instructions and parts; emits nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tnplan.common.errors import InputError
from tnplan.planner.schedule.data_flow import reads
from tnplan.planner.schedule.schedule import (
    Accumulate,
    Contract,
    FixSlice,
    Free,
    Fused,
    FusedAdjoint,
    Instruction,
    Load,
    Redistribute,
    ReduceScatter,
    Schedule,
    SumModes,
)

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

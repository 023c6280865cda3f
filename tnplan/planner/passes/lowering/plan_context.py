"""The context that goes through the passes: options of a plan, results of the passes, and its schedule."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from tnplan.common.errors import OverLimitError
from tnplan.common.units import size_text
from tnplan.planner.hardware.cost import CostModel
from tnplan.planner.hardware.process_grid import grid_size
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import path_identity
from tnplan.planner.passes.chunk_exchanges import ChunkedExchanges
from tnplan.planner.passes.fuse import Fusion
from tnplan.planner.passes.lowering.annotate import predict
from tnplan.planner.passes.lowering.buffer_assignment import Arena, at_offsets
from tnplan.planner.passes.lowering.lower import LoweredProgram
from tnplan.planner.passes.sharding.sharded_tree import ShardedTree
from tnplan.planner.passes.tree.loop_levels import LoopNest
from tnplan.planner.schedule.file import with_identity
from tnplan.planner.schedule.schedule import LoopLevel, Schedule

BY_TIER = "ours, tier by tier"
PERSISTENT = "ours, tier by tier, persistent"
"""Tier by tier, with persistent shardings proposed to the search."""


@dataclass(frozen=True)
class Limits:
    """Bytes of a rank: of a single step, of the whole arena, and of all memory that the user allows; and the
    bytes of a tensor over all ranks from which its step may be distributed."""

    step_bytes: float
    arena_bytes: float
    memory_bytes: float
    threshold_bytes: int


@dataclass(frozen=True)
class Variant:
    """One way to plan a path, as data: what was chosen where several ways may lead to a plan that fits.

    `variants` lists them. The last three are chosen anew where a program is too large.
    """

    ranks: int
    """Ranks that work on a slice together."""
    loop_nest: LoopNest
    policy: str
    """One of `POLICIES`, or ours in another order of the digits: `BY_TIER`, `PERSISTENT`."""
    share: float = 1.0
    """Of the memory of all ranks, what the loop nest was chosen to need."""
    step_limited: bool = True
    """Whether each step by itself must fit the limit."""
    tries: int = 1
    """How often that limit may be tried, ever lower."""
    spilled: bool = False
    """Whether idle tensors may be stored compressed."""
    fusion: str = "free"
    """How far steps are fused, of `EXTENTS_OF_FUSION`."""
    chunked: bool = True
    """Whether exchanges may go in chunks, which overlap with the steps around them."""
    extended: bool = True
    """Whether small buffers around these live longer, so that more overlaps."""


@dataclass(frozen=True)
class PlanContext:
    """One group of ranks working on one path. Every pass returns a context with its own result in it."""

    path: ContractionPath
    model: CostModel
    limits: Limits
    sharded: ShardedTree
    variant: Variant
    fusion: Fusion = field(default_factory=Fusion)
    exchanges: ChunkedExchanges = field(default_factory=ChunkedExchanges)
    program: LoweredProgram = field(default_factory=LoweredProgram)
    arena: Arena = field(default_factory=Arena)

    @property
    def loop_nest(self) -> LoopNest:
        """The loop nest of the tree."""
        return self.sharded.tree.loop_nest

    @property
    def fits(self) -> bool:
        """Whether the arena keeps its limit."""
        return self.arena.size_bytes <= self.limits.arena_bytes

    @property
    def is_local(self) -> bool:
        """Whether no step is distributed: every rank does the same work."""
        return all(step.state == "local" for step in self.program.steps)

    @property
    def total_s(self) -> float:
        """Predicted seconds of all slices in one group."""
        n_slices = self.loop_nest.n_slices
        return sum(
            step.predicted_s * (1 if step.once else n_slices * step.often) for step in self.program.steps
        )

    @property
    def refusal(self) -> OverLimitError:
        """Why the program does not fit: by how much, and its largest step."""
        steps, limit_bytes = self.program.steps, self.limits.arena_bytes
        worst = max(range(len(steps)), key=lambda number: steps[number].size_bytes, default=None)
        over = self.arena.size_bytes - limit_bytes
        ranks = grid_size(self.sharded.grid)
        each = f" on each of {ranks} ranks" if ranks > 1 else ""
        return OverLimitError(
            "tensor 0" if worst is None else f"step {worst}",
            f"the contraction needs {size_text(self.arena.size_bytes)}{each}, "
            f"{size_text(over)} more than the limit of {size_text(limit_bytes)}",
            "allow more memory, use more ranks, or search a path that is sliced further",
            topic="memory",
        )


def emit_schedule(context: PlanContext, policy: str) -> Schedule:
    """The schedule of one group of ranks; `policy` is the requested one."""
    path, model, limits = context.path, context.model, context.limits
    tree, loop_nest, grid = context.sharded.tree, context.loop_nest, context.sharded.grid
    program, arena = context.program, context.arena
    buffers = at_offsets(program.buffers, arena.offsets)
    # Invariant: segments are the loop levels in order: done once, the outer ones, the body of every slice.
    once, *others = program.segments
    body = others.pop() if others else ()
    return with_identity(
        Schedule(
            path_identity=path_identity(path),
            name=path.name,
            policy=policy,
            dtype=path.dtype,
            precision=model.precision,
            profile=model.profile.document(),
            ranks_per_group=grid_size(grid),
            grid=grid,
            memory_bytes=None if limits.memory_bytes == inf else int(limits.memory_bytes),
            threshold_bytes=limits.threshold_bytes,
            size_dict=dict(path.network.size_dict),
            leaves=path.network.inputs,
            output=path.network.output,
            sliced=loop_nest.order,
            summed=loop_nest.summed,
            tensors=path.tensors,
            modes=tree.modes,
            indices=tree.indices,
            buffers=buffers,
            once=once,
            outer=tuple(
                LoopLevel(level.depth, instructions, level.inner)
                for level, instructions in zip(loop_nest.levels[1:-1], others, strict=True)
            ),
            body=body,
            steps=program.steps,
            result=program.result,
            predicted=predict(program.steps, arena.size_bytes, arena.live_bytes),
            compression=model.compression,
        )
    )

"""The schedule of a context: what the executor reads, without what was tried to find it."""

from __future__ import annotations

from math import inf

from tnplan.planner.hardware.process_grid import grid_size
from tnplan.planner.networks.path_file import path_identity
from tnplan.planner.passes.lowering.annotate import predict
from tnplan.planner.passes.lowering.liveness import at_offsets
from tnplan.planner.passes.lowering.plan_context import PlanContext
from tnplan.planner.schedule.file import with_identity
from tnplan.planner.schedule.schedule import LoopLevel, Schedule


def emit_schedule(context: PlanContext, policy: str) -> Schedule:
    """The schedule of one group of ranks; `policy` is the one that was asked for."""
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

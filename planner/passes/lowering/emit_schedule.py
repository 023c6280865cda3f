"""The schedule of an attempt: what the executor reads, without what was tried to find it."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from tnplan.planner.hardware.cost import CostModel
from tnplan.planner.hardware.profile import Profile
from tnplan.planner.networks.contraction_path import ContractionPath
from tnplan.planner.networks.path_file import path_identity
from tnplan.planner.passes.lowering.annotate import predict
from tnplan.planner.passes.lowering.attempt import Attempt
from tnplan.planner.passes.tree.build import Tree
from tnplan.planner.schedule.file import with_identity
from tnplan.planner.schedule.schedule import Part, Schedule


def assemble(
    path: ContractionPath, profile: Profile, model: CostModel, tree: Tree, limit_bytes: float,
    attempt: Attempt, ranks: int, policy: str,
) -> Schedule:  # fmt: skip
    """The schedule of one group of `ranks` ranks, each with at most `limit_bytes` of memory."""
    program, arena = attempt.program, attempt.arena
    buffers = tuple(
        replace(buffer, offset_bytes=offset)
        for buffer, offset in zip(program.buffers, arena.offsets, strict=True)
    )
    once, *others = map(tuple, program.segments)
    body = others.pop() if others else ()
    return with_identity(
        Schedule(
            path_identity=path_identity(path),
            name=path.name,
            policy=policy,
            dtype=path.dtype,
            precision=model.precision,
            profile=profile.document(),
            ranks_per_group=ranks,
            grid=attempt.grid,
            memory_bytes=None if limit_bytes == inf else int(limit_bytes),
            threshold_bytes=attempt.threshold_bytes,
            size_dict=dict(path.network.size_dict),
            leaves=path.network.inputs,
            output=path.network.output,
            sliced=attempt.nesting.order,
            summed=attempt.nesting.summed,
            tensors=path.tensors,
            modes=tree.modes,
            indices=tree.indices,
            buffers=buffers,
            once=once,
            outer=tuple(
                Part(place.depth, instructions, place.inner)
                for place, instructions in zip(attempt.nesting.places[1:-1], others, strict=True)
            ),
            body=body,
            steps=tuple(program.steps),
            result=program.result,
            predicted=predict(program.steps, arena.size_bytes, arena.live_bytes),
            compression=model.compression,
        )
    )

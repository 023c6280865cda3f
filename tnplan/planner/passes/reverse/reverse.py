"""Reverse mode: the schedule of a contraction becomes that of the contraction and its gradients.

A pass on a finished schedule, of one rank or of several. The network with the cotangent of its result as one
tensor more is closed. The gradient of an input is the contraction of all others, and shares its steps with
the other gradients. For a step A, B -> C the cotangents of A and B are those of C contracted with B and A.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf

from tnplan.common.errors import OverLimitError
from tnplan.common.files import identity_of
from tnplan.common.units import size_text
from tnplan.planner.passes.lowering.annotate import predict
from tnplan.planner.passes.lowering.buffer_assignment import in_one_arena, until_freed
from tnplan.planner.passes.reverse.adjoint_flow import AdjointFlow, adjoint_flow
from tnplan.planner.passes.reverse.adjoint_program import AdjointProgram, adjoint_program
from tnplan.planner.passes.reverse.keep_values import by_saving
from tnplan.planner.schedule.schedule import GradientSchedule, LoopLevel, Schedule


def reverse(schedule: Schedule, wrt: Sequence[int], memory_bytes: float = inf) -> GradientSchedule:
    """The schedule of a contraction and its gradients.

    Values that gradients need are kept as far as the memory allows, first those that cost most seconds a byte
    to make again; others are made again.

    - `schedule`: Without chains that close the network, work in parts or add to early sums, and without
      compression.
    - `wrt`: The input tensors whose gradients are wanted, each once.
    - `memory_bytes`: The largest arena of a rank.
    - returns: Its inputs are those of the schedule, and then the cotangent of the result.
    - raises InputError: where an instruction has no adjoint, or the arena is too large even if nothing is
      kept.
    """
    flow = adjoint_flow(schedule, wrt)
    best = _assigned(schedule, adjoint_program(schedule, flow, wrt, flow.needed))
    if best.predicted.peak_bytes > memory_bytes:
        best = _within(schedule, flow, wrt, memory_bytes)
    facts = {"schedule": schedule.identity, "wrt": list(wrt), "peak_bytes": best.predicted.peak_bytes}
    memory = None if memory_bytes == inf else int(memory_bytes)
    return replace(best, memory_bytes=memory, identity=identity_of(facts))


def _within(
    schedule: Schedule, flow: AdjointFlow, wrt: Collection[int], memory_bytes: float
) -> GradientSchedule:
    """The schedule that keeps most of what fits."""
    order = by_saving(schedule, flow)

    def tried(number: int) -> GradientSchedule:
        return _assigned(schedule, adjoint_program(schedule, flow, wrt, order[:number]))

    best = tried(0)
    if best.predicted.peak_bytes > memory_bytes:
        needed, limit = size_text(best.predicted.peak_bytes), size_text(memory_bytes)
        raise OverLimitError(
            "gradients", f"need {needed} per rank where nothing is kept, and the limit is {limit}",
            "allow more memory, use more devices, or search a path that is sliced further",
            topic="memory",
        )  # fmt: skip
    # Bisection on how many of the best are kept: with all of them it did not fit.
    fewest, most = 0, len(order) - 1
    while fewest < most:
        number = (fewest + most + 1) // 2
        gradients = tried(number)
        if gradients.predicted.peak_bytes <= memory_bytes:
            fewest, best = number, gradients
        else:
            most = number - 1
    return best


def _assigned(schedule: Schedule, program: AdjointProgram) -> GradientSchedule:
    """The program with its buffers in one arena."""
    result = {schedule.result: len(program.forward[0])} if schedule.body else {}
    lived = until_freed((*program.forward, *program.backward), program.buffers, result)
    buffers, arena = in_one_arena([replace(buffer, offset_bytes=0) for buffer in program.buffers], lived)
    once, *others = program.forward
    body = others.pop() if schedule.body else ()
    depths = [level.depth for level in schedule.parts[-2::-1]]
    stated = {name: getattr(schedule, name) for name in schedule.__dataclass_fields__}
    return GradientSchedule(
        **stated
        | {
            "leaves": (*schedule.leaves, schedule.output),
            "buffers": buffers,
            "once": once,
            "outer": tuple(
                replace(level, instructions=new) for level, new in zip(schedule.outer, others, strict=True)
            ),
            "body": body,
            "after": tuple(map(LoopLevel, depths, program.backward)),
            "steps": program.steps,
            "predicted": predict(program.steps, arena.size_bytes, arena.live_bytes),
            "gradients": program.gradients,
        }
    )

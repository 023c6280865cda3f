"""Reverse mode: the schedule of a contraction becomes that of the contraction and its gradients.

A pass on a finished schedule, of one rank or of several. The network with the cotangent of its result as one
tensor more is closed. The gradient of an input is the contraction of all others, and shares its steps with
the other gradients. For a step A, B -> C the cotangents of A and B are those of C contracted with B and A.

What is kept for them is chosen by the seconds saved a byte; the rest is made again, from what is kept below
it. Greedy: each choice counts with those before it, so that along a stem kept tensors come to lie apart.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from math import inf

from tnplan.common.errors import OverLimitError
from tnplan.common.files import identity_of
from tnplan.common.units import size_text
from tnplan.planner.passes.adjoint_program import (
    AdjointFlow,
    AdjointProgram,
    adjoint_flow,
    adjoint_program,
    made_by,
)
from tnplan.planner.passes.lowering.annotate import predict
from tnplan.planner.passes.lowering.buffer_assignment import in_one_arena, until_freed
from tnplan.planner.schedule.data_flow import reads
from tnplan.planner.schedule.schedule import (
    Contract,
    Fused,
    GradientSchedule,
    Instruction,
    LoopLevel,
    Redistribute,
    ReduceScatter,
    Schedule,
)


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


def by_saving(schedule: Schedule, flow: AdjointFlow) -> list[int]:
    """The buffers that gradients need at the level that makes them, the most worth keeping first."""
    return _Greedy(schedule, flow).order()


class _Greedy:
    """`cost[b]`: the seconds to make b again from what is kept. `uses[b]`: how often that is done where b is
    not kept, for itself and for what is made from it."""

    def __init__(self, schedule: Schedule, flow: AdjointFlow) -> None:
        self._sizes = [max(buffer.size_bytes, 1) for buffer in schedule.buffers]
        self._needed = flow.needed
        self._above: dict[int, int] = {}
        self._below: dict[int, list[int]] = {}
        self._often: dict[int, int] = {}
        self._cost: dict[int, float] = {}
        self._uses: dict[int, int] = {}
        self._kept: set[int] = set()
        for level, (segment, replayed) in enumerate(zip(flow.parts, schedule.parts, strict=True)):
            often = schedule.n_slices // schedule.serves(replayed.depth) if level else 1
            self._add(schedule, flow, level, segment, often)

    def _add(
        self, schedule: Schedule, flow: AdjointFlow, level: int, segment: tuple[Instruction, ...], often: int
    ) -> None:
        """The buffers that one part makes."""
        values = [(made_by(item), item) for item in segment if flow.maker.get(made_by(item)) is item]
        for out, item in values:
            # Invariant: parts are in the order in which they run, so that the costs of operands are known.
            # Those of outer levels are there and cost nothing.
            self._below[out] = [buffer for buffer in reads(item) if flow.level[buffer] == level]
            self._above.update(dict.fromkeys(self._below[out], out))
            self._often[out] = often
            self._cost[out] = seconds(schedule, item) + sum(
                self._cost[operand] for operand in self._below[out]
            )
        # From the last result down: a value is made again for itself and for each time that something above
        # it is.
        for out, _ in reversed(values):
            above = self._above.get(out)
            self._uses[out] = (out in self._needed) + (0 if above is None else self._uses[above])

    def order(self) -> list[int]:
        """Savings only fall while others are kept, so that one that is still the largest is the next."""
        heap = [(-self._saving(buffer), buffer) for buffer in self._needed]
        heapify(heap)
        most_saving_first: list[int] = []
        while heap:
            # Lazy greedy: a saving may have fallen since it was put into the heap; it is looked at again only
            # when it comes up.
            stated, buffer = heappop(heap)
            saving = -self._saving(buffer)
            if heap and saving > stated and saving > heap[0][0]:
                heappush(heap, (saving, buffer))
                continue
            most_saving_first.append(buffer)
            self._keep(buffer)
        return most_saving_first

    def _saving(self, buffer: int) -> float:
        return self._often[buffer] * self._uses[buffer] * self._cost[buffer] / self._sizes[buffer]

    def _keep(self, buffer: int) -> None:
        self._kept.add(buffer)
        above = self._above.get(buffer)
        while above is not None:
            # What is made from a kept value is cheaper by it, up to the next kept one; what it is made from
            # is needed less.
            self._cost[above] -= self._cost[buffer]
            above = None if above in self._kept else self._above.get(above)
        uses, below = self._uses[buffer], list(self._below[buffer])
        while below:
            node = below.pop()
            self._uses[node] -= uses
            if node not in self._kept:
                below += self._below[node]


def seconds(schedule: Schedule, item: Instruction) -> float:
    """The predicted seconds of an instruction, without those of others of its step."""
    if isinstance(item, Contract):
        step = schedule.steps[item.step]
        return step.contract_s + step.permute_s
    if isinstance(item, Fused):
        return sum(
            schedule.steps[number].contract_s + schedule.steps[number].permute_s for number in item.steps
        )
    if isinstance(item, Redistribute | ReduceScatter):
        return schedule.steps[item.step].exchange_s
    copied = 2 * schedule.buffers[made_by(item)].size_bytes
    return float(schedule.profile["launch_s"] + copied / schedule.profile["permute_bytes_per_s"])

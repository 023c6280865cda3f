"""The order in which intermediates are worth keeping for the gradients: by the seconds saved a byte.

What is not kept is made again when it is needed, from what is kept below it. Greedy: each choice counts with
those before it, so that along a stem kept tensors come to lie apart.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from tnplan.planner.passes.reverse.adjoint_flow import AdjointFlow, made_by
from tnplan.planner.schedule.data_flow import reads
from tnplan.planner.schedule.schedule import (
    Contract,
    Fused,
    Instruction,
    Redistribute,
    ReduceScatter,
    Schedule,
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

"""A schedule bound to one rank: its instructions as calls, their data, and the size of the arena.

Knows no device; `bind` makes it and `replay` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from tnplan.executor.contraction.redistribute.compressed import Tally
from tnplan.executor.device.protocols.device import Call, View
from tnplan.planner.hardware.profile import profile_from_document
from tnplan.planner.schedule.schedule import Schedule

Part = TypeVar("Part")


@dataclass(frozen=True)
class BoundInstruction:
    """An instruction, or a part of one, ready to run: its opcode, the step that it belongs to (or None; of a
    fused chain the last one) and the call.

    With `overlaps` it begins or ends an exchange that overlaps with contractions; `exchange_s` gives the
    seconds of that.
    """

    op: str
    step: int | None
    call: Call
    overlaps: bool = False
    exchange_s: Callable[[], float] | None = None

    @property
    def name(self) -> str:
        """How a profiler shows it."""
        return self.op if self.step is None else f"{self.op} {self.step}"


@dataclass
class BoundProgram:
    """A schedule bound to one rank. `loop_values` is read by the calls; set it through `set_slice`, and
    inside an early sum through `set_round`.

    `outer` has the parts between what is done once and the body, in the order of the schedule. `after` has
    those after the body, and `gradients` this rank's shards of them, where the schedule is one of gradients.

    `tallies` are those of all instructions that compress, in their order, with their kind, `exchange` or
    `store`.
    """

    schedule: Schedule
    once: list[BoundInstruction] = field(default_factory=list)
    outer: list[list[BoundInstruction]] = field(default_factory=list)
    body: list[BoundInstruction] = field(default_factory=list)
    after: list[list[BoundInstruction]] = field(default_factory=list)
    loop_values: dict[str, int] = field(default_factory=dict)
    result: View = None
    gradients: list[View] = field(default_factory=list)
    tallies: list[tuple[str, Tally]] = field(default_factory=list)

    @property
    def parts(self) -> list[list[BoundInstruction]]:
        """All instructions by part, in the order of the schedule."""
        return [self.once, *self.outer, *([self.body] if self.body else [])]

    def loops(
        self, replayed: Iterable[Part], early_sum: Callable[[int, list[tuple[int, Part]]], Part]
    ) -> list[tuple[int, Part]]:
        """The parts after the first, each with how many slices in a row it serves.

        Those inside the loops of the early sum are one, that `early_sum` makes of the number of its rounds
        and of the parts, each with how many rounds in a row it serves.
        """
        schedule = self.schedule
        loops: list[tuple[int, Part]] = []
        inside: list[tuple[int, Part]] = []
        rounds = schedule.repeats(len(schedule.summed))
        for level, replay in zip(schedule.parts[1:], replayed, strict=True):
            if not level.inner:
                loops.append((schedule.serves(level.depth), replay))
                continue
            if not inside:
                loops.append((schedule.serves(level.depth), early_sum(rounds, inside)))
            inside.append((rounds // schedule.repeats(level.inner), replay))
        return loops

    def set_slice(self, number: int) -> None:
        """Choose the slice that the body computes next."""
        self.loop_values.update(self.schedule.slice_values(number))

    def set_round(self, number: int) -> None:
        """Choose the values of the indices that are summed early."""
        self.loop_values.update(self.schedule.summed_values(number))


def arena_bytes(schedule: Schedule) -> int:
    """The bytes of the arena that all buffers of the schedule lie in."""
    return max((buffer.offset_bytes + buffer.size_bytes for buffer in schedule.buffers), default=0)


def needed_bytes(schedule: Schedule) -> int:
    """The bytes of the arena, and those that a codec takes besides."""
    if schedule.compression is None or not any(schedule.compressed_counts):
        return arena_bytes(schedule)
    profile = profile_from_document(schedule.profile, "schedule: profile")
    return arena_bytes(schedule) + profile.codec(schedule.compression.setting).workspace_bytes

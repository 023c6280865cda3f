"""Slices over groups of ranks: who computes which, and the sum of the groups' partial results.

World ranks are numbered so that a group is a run of consecutive ranks. A group computes a run of consecutive
slices, which share most with each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from tnplan.common.arrays import CACHE_LINE_BYTES, round_up
from tnplan.common.errors import InputError
from tnplan.executor.contraction.bind.program import BoundProgram, arena_bytes
from tnplan.executor.device.protocols.communicator import Communicator
from tnplan.executor.device.protocols.device import Call, Device, call_in_turn, nothing
from tnplan.planner.hardware.process_grid import largest_shard
from tnplan.planner.schedule.data_flow import DataFlow
from tnplan.planner.schedule.schedule import GradientSchedule, Schedule

STAGING_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class SliceRanges:
    """Slices in rising order, as ranges of their numbers: none is empty, and between two there is a gap.

    There may be more slices than `len` can count.
    """

    ranges: tuple[range, ...]

    @classmethod
    def of(cls, *ranges: range) -> SliceRanges:
        """The slices of ranges that rise; those that touch become one."""
        joined: list[range] = []
        for numbers in filter(None, ranges):
            if joined and numbers.start < joined[-1].stop:
                raise ValueError(f"{numbers} does not come after {joined[-1]}")
            touches = joined and numbers.start == joined[-1].stop
            joined.append(range(joined.pop().start if touches else numbers.start, numbers.stop))
        return cls(tuple(joined))

    def __iter__(self) -> Iterator[int]:
        """The numbers of the slices."""
        return chain.from_iterable(self.ranges)

    @property
    def count(self) -> int:
        """How many slices there are."""
        return sum(numbers.stop - numbers.start for numbers in self.ranges)

    def part(self, first: int, stop: int) -> SliceRanges:
        """Those from position `first` on and before position `stop`, counted from 0."""
        parts = []
        for numbers in self.ranges:
            parts.append(range(numbers.start + max(first, 0), min(numbers.start + stop, numbers.stop)))
            first, stop = (position - (numbers.stop - numbers.start) for position in (first, stop))
        return self.of(*parts)

    def of_group(self, group: int, n_groups: int) -> SliceRanges:
        """Those that one of several groups computes: an even share, as many in a row as there are."""
        positions = slices_of_group(group, n_groups, 0, self.count)
        return self.part(positions.start, positions.stop)


@dataclass(frozen=True)
class Share:
    """What one rank of the world does: its group of `n_groups`, its rank in it, the group's slices."""

    n_groups: int
    group: int
    rank_in_group: int
    slices: SliceRanges

    @property
    def n_slices(self) -> int:
        """The number of the group's slices."""
        return self.slices.count


def share_of(schedule: Schedule, world_size: int, rank: int, first: int, stop: int) -> Share:
    """A world rank's share of slices first .. stop-1; raises where the world is no multiple of a group."""
    n_ranks = schedule.ranks_per_group
    if world_size % n_ranks:
        raise InputError(
            "ranks", f"{world_size} ranks are not a multiple of the schedule's group of {n_ranks}",
            f"start a multiple of {n_ranks}, or plan for another number of devices",
        )  # fmt: skip
    n_groups = world_size // n_ranks
    group, rank_in_group = divmod(rank, n_ranks)
    slices = SliceRanges.of(slices_of_group(group, n_groups, first, stop))
    return Share(n_groups, group, rank_in_group, slices)


def slices_of_group(group: int, n_groups: int, first: int, stop: int) -> range:
    """Those of slices first .. stop-1 that one of several groups computes: an even share, in a row.

    Group 0, which has the result in the end, has one of them at least.
    """
    # first + ceil((stop - first) number / n_groups), in integers: parts differ by one slice at most, and are
    # in order without gaps.
    start, end = (first - (first - stop) * number // n_groups for number in (group, group + 1))
    return range(start, end)


def starts(slices: SliceRanges, serves: int) -> int:
    """How often a part runs for some slices, if its results serve `serves` in a row."""
    count, before = 0, None
    for numbers in slices.ranges:
        # Blocks of `serves` slices that the range touches, but for one that the range before has begun
        # already.
        first, last = numbers.start // serves, (numbers.stop - 1) // serves
        count += last - first + (first != before)
        before = last
    return count


def parse_slices(text: str | None, n_slices: int) -> tuple[int, int]:
    """The range that 'a:b' names; either end may be left out."""
    if text is None:
        return 0, n_slices
    parts = re.fullmatch(r" *([0-9]{0,300}) *: *([0-9]{0,300}) *", text)
    if parts is None:
        raise InputError("--slices", f"{text!r} is not a range", "give FIRST:STOP, such as 0:16")
    first = int(parts[1] or 0)
    stop = int(parts[2] or n_slices)
    if not first < stop <= n_slices:
        raise InputError(
            "--slices", f"{text} selects none of the {n_slices} slices, or goes beyond the last one",
            f"give FIRST:STOP with FIRST below STOP and STOP at most {n_slices}",
        )  # fmt: skip
    return first, stop


def bind_sum_groups(
    program: BoundProgram, device: Device, across: Communicator, active: Sequence[int]
) -> Call:
    """The call that adds the partial results of the `active` groups, in rising order, to those of group 0.

    On its ranks; `across` joins the ranks of all groups with the same rank in their group, numbered by group.
    Parts arrive in bytes of the arena that nothing uses any more. Kernels are loaded and messages bound
    here: other groups may still replay when the call is made.
    """
    senders = [group for group in active if group != 0]
    if not senders or (across.rank != 0 and across.rank not in senders):
        return nothing
    offset, length = _staging(program.schedule)
    pieces = [
        result[first : first + length]
        for result in (program.result, *program.gradients)
        for first in range(0, len(result), length)
    ]
    if across.rank != 0:
        calls = [call for piece in pieces for call in across.bind_exchange([(0, piece)], [])]
    else:
        staging = device.view(offset, length, program.schedule.dtype)
        adds = [device.bind_accumulate(piece, staging[: len(piece)]) for piece in pieces]
        calls = []
        for group in senders:
            # Invariant: groups are added in rising order, piece by piece, so that the sum has the same bits
            # each time.
            arrivals = {
                count: across.bind_exchange([], [(group, staging[:count])]) for count in set(map(len, pieces))
            }
            for piece, add in zip(pieces, adds, strict=True):
                calls += [*arrivals[len(piece)], add]
    return call_in_turn([*calls, device.synchronize])


def active_groups(n_slices: int, n_groups: int) -> list[int]:
    """The groups that have one of so many slices."""
    return [group for group in range(n_groups) if slices_of_group(group, n_groups, 0, n_slices)]


def _staging(schedule: Schedule) -> tuple[int, int]:
    """Where arriving pieces go, and their elements: the largest part of the arena without the results and
    without what is kept for the next run.

    A schedule with slices has memory there, for operands that it fixes; without, only group 0 has a result.
    """
    buffer = schedule.buffers[schedule.result]
    if isinstance(schedule, GradientSchedule):
        lasting = {gradient.buffer for gradient in schedule.gradients}
    else:
        lasting = DataFlow(schedule).kept
    # The largest gap between what must last: the results and what later runs need. Everything else of the
    # arena is free once all slices are done.
    occupied = sorted(
        (each.offset_bytes, round_up(each.offset_bytes + each.size_bytes, CACHE_LINE_BYTES))
        for each in (buffer, *(schedule.buffers[number] for number in lasting))
    )
    offset = size_bytes = end = 0
    for start, stop in [*occupied, (arena_bytes(schedule), 0)]:
        if start - end > size_bytes:
            offset, size_bytes = end, start - end
        end = max(end, stop)
    itemsize = buffer.size_bytes // largest_shard(
        buffer.modes, buffer.layout, schedule.extents, schedule.grid
    )
    if size_bytes < itemsize:
        raise ValueError("the arena has no space besides the result")
    return offset, min(size_bytes // itemsize, STAGING_ELEMENTS)

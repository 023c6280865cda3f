"""Pass 8, memory: offsets in one arena for buffers with known lifetimes. And how long buffers live.

Large buffers are placed first, largest first, each at the lowest gap between those that live at the same
time; the many small ones share a region above them. Of equal ones the first is placed first, or the last
where that needs less. Lifetimes are those of a schedule.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import accumulate, chain
from typing import NamedTuple

from tnplan.common.arrays import ALIGNMENT_BYTES, round_up
from tnplan.planner.schedule.data_flow import writes
from tnplan.planner.schedule.schedule import Buffer, Free, Instruction

LARGE_COUNT = 512
LARGE = 1 << 20
"""Where some take each other's places, the bytes of one that is placed by size."""
CLOSE = 1.01
"""An arena of at most so many times the bytes that live at once is not improved further."""


@dataclass(frozen=True)
class Lifetime:
    """A buffer of `size_bytes` from the instruction that makes it to the last that uses it, both included."""

    size_bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Arena:
    """Offsets of the buffers, the arena's size, and the most bytes that live at once (its lower bound)."""

    offsets: tuple[int, ...] = ()
    size_bytes: int = 0
    live_bytes: int = 0


def assign(lifetimes: Sequence[Lifetime], in_place: Mapping[int, tuple[int, int]] | None = None) -> Arena:
    """Place every buffer so that no two that live at the same time overlap.

    `in_place` has buffers that take the place of another one, which is dead when they are made, and the parts
    in which they do: they begin where it does, or with several a part of the smaller one or more beside it.
    """
    # Dynamic storage allocation: rectangles in time and address, NP-hard in general. First fit by decreasing
    # size comes close to the bound, the most bytes that live at once.
    # Invariant: `placed` is sorted by offset; all offsets are multiples of ALIGNMENT_BYTES, as all sizes are.
    sizes, in_place = [_aligned(item.size_bytes) for item in lifetimes], in_place or {}
    _, live_bytes = most_alive(_one_by_one(lifetimes, in_place))
    best: Arena | None = None
    for groups in _orders(sizes, in_place):
        large = [
            group for position, group in enumerate(groups)
            if len(group) > 1
            or (position < LARGE_COUNT and not (in_place and sizes[group[0].number] < LARGE))
        ]  # fmt: skip
        small = set(range(len(sizes))) - {member.number for group in large for member in group}
        offsets = [0] * len(sizes)
        placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last; sorted by offset
        for group in large:
            base = _lowest(lifetimes, sizes, group, placed)
            for number, start in group:
                offset, item = base + start, lifetimes[number]
                offsets[number] = offset
                insort(placed, (offset, offset + sizes[number], item.first, item.last))
        # Small buffers are many: they go in time order into a region of their own, above.
        base = max((end for _, end, _, _ in placed), default=0)
        top = _place_in_time(lifetimes, sizes, sorted(small), offsets, base)
        if best is None or max(base, top) < best.size_bytes:
            best = Arena(tuple(offsets), max(base, top), live_bytes)
        if not in_place and best.size_bytes <= CLOSE * live_bytes:
            break
    assert best is not None
    return best


class _Member(NamedTuple):
    """A buffer of a group that lies as one: its number, and where it begins in the group."""

    number: int
    start: int


def _orders(sizes: Sequence[int], in_place: Mapping[int, tuple[int, int]]) -> Iterator[list[list[_Member]]]:
    """All buffers in groups, in two orders in which they may be placed, the largest first.

    Of equal ones the first comes first, or the last. Where some take each other's places, what slides goes
    ahead, or the last of its group goes behind, which leaves the space ahead to what follows.
    """
    for second in (False, True):
        groups = buffer_groups(sizes, in_place, second)
        if second and not in_place:
            groups.reverse()
        if in_place:
            yield sorted(groups, key=lambda group: -max(sizes[member.number] for member in group))
        else:
            yield sorted(groups, key=lambda group: -sizes[group[0].number])


def _one_by_one(lifetimes: Sequence[Lifetime], in_place: Mapping[int, tuple[int, int]]) -> list[Lifetime]:
    """The lifetimes without the moments at which a buffer and a smaller one that takes its place are both."""
    disjoint = list(lifetimes)
    for number, (before, _) in in_place.items():
        smaller = min(number, before, key=lambda buffer: lifetimes[buffer].size_bytes)
        if smaller == number:
            disjoint[number] = replace(disjoint[number], first=disjoint[number].first + 1)
        else:
            disjoint[before] = replace(disjoint[before], last=lifetimes[number].first - 1)
    return disjoint


def buffer_groups(
    sizes: Sequence[int], in_place: Mapping[int, tuple[int, int]], behind: bool
) -> list[list[_Member]]:
    """All buffers in groups that lie as one, which begin at 0."""
    if not in_place:
        return [[_Member(number, 0)] for number in range(len(sizes))]
    members: dict[int, list[_Member]] = {number: [] for number in range(len(sizes)) if number not in in_place}
    root = {number: number for number in members}
    followed = {before for before, _ in in_place.values()}
    start = dict.fromkeys(members, 0)
    for number in sorted(in_place):
        before, parts = in_place[number]
        # Invariant: a buffer that takes another's place has a higher number, so that its group's start is
        # known.
        root[number], start[number] = root[before], start[before]
        if parts > 1:
            # A sliding chain writes part by part beside the parts still to be read: one part of the smaller
            # one between the two beginnings.
            gap = _aligned(-(-min(sizes[number], sizes[before]) // parts))
            larger = sizes[number] > sizes[before]
            start[number] += gap if larger else -gap
            if behind and not larger and number not in followed:
                start[number] = start[before] + sizes[before] + gap - sizes[number]
    for number in range(len(sizes)):
        members[root[number]].append(_Member(number, start[number]))
    return [
        [_Member(number, start - min(member.start for member in group)) for number, start in group]
        for group in members.values()
    ]


def _lowest(
    lifetimes: Sequence[Lifetime], sizes: Sequence[int], group: Sequence[_Member],
    placed: Sequence[tuple[int, int, int, int]],
) -> int:  # fmt: skip
    """The lowest place of a group where it overlaps nothing that lives at the same time."""
    taken = []
    for number, ahead in group:
        size, born, dies = sizes[number] + ahead, lifetimes[number].first, lifetimes[number].last
        # A group lies as one: each placed buffer excludes the bases at which some member alive with it would
        # meet it.
        taken += [
            (start - size, end - ahead)
            for start, end, first, last in placed
            if first <= dies and born <= last
        ]
    offset = 0
    # Lowest base that no excluded range covers: a sweep over the ranges by their start.
    for start, end in sorted(taken):
        if start >= offset:
            break
        offset = max(offset, end)
    return offset


def _aligned(size: int) -> int:
    return round_up(max(size, 1), ALIGNMENT_BYTES)


def _place_in_time(
    lifetimes: Sequence[Lifetime], sizes: list[int], order: list[int], offsets: list[int], base: int
) -> int:
    """First fit along time: free gaps are kept sorted by offset and merged."""
    gaps: list[list[int]] = []
    top = base
    ending: list[tuple[int, int]] = []
    for number in sorted(order, key=lambda n: (lifetimes[n].first, n)):
        # The soonest last use first. Lifetimes include both ends, hence strictly before.
        while ending and ending[0][0] < lifetimes[number].first:
            _, done = heappop(ending)
            _release(gaps, offsets[done], offsets[done] + sizes[done])
        for gap in gaps:
            if gap[1] - gap[0] >= sizes[number]:
                offsets[number] = gap[0]
                gap[0] += sizes[number]
                if gap[0] == gap[1]:
                    gaps.remove(gap)
                break
        else:
            offsets[number] = top
            top += sizes[number]
        heappush(ending, (lifetimes[number].last, number))
    return top


def _release(gaps: list[list[int]], start: int, end: int) -> None:
    # Invariant: gaps are sorted and no two touch, so that a new one can touch its two neighbours alone.
    position = bisect(gaps, [start, end])
    if position < len(gaps) and gaps[position][0] == end:
        end = gaps.pop(position)[1]
    if position and gaps[position - 1][1] == start:
        gaps[position - 1][1] = end
    else:
        gaps.insert(position, [start, end])


def most_alive(lifetimes: Sequence[Lifetime]) -> tuple[int, int]:
    """The first instruction at which most bytes live, and how many they are."""
    changes: dict[int, int] = {}
    for item in lifetimes:
        changes[item.first] = changes.get(item.first, 0) + item.size_bytes
        # A sum over moments of births and deaths; at equal moments deaths of the one before count already.
        changes[item.last + 1] = changes.get(item.last + 1, 0) - item.size_bytes
    alive, most = 0, (0, 0)
    for moment in sorted(changes):
        alive += changes[moment]
        if alive > most[1]:
            most = moment, alive
    return most


def lifetimes(
    segments: Sequence[Sequence[Instruction]], early_sum: range, buffers: Sequence[Buffer], result: int
) -> tuple[Lifetime, ...]:
    """From the first write of each buffer to its `Free`, or else to the end, that of the `early_sum` for one
    made there; an unused one has no bytes."""
    # Moments are numbers of instructions over all segments, one after the other, as they stand in the program
    # and not as they are replayed: what is freed nowhere lives to the end, as a replay reads it again.
    starts = [0, *accumulate(map(len, segments))]
    end = starts[-1]
    inside = range(starts[early_sum.start], starts[early_sum.stop])
    starting = {result: len(segments[0])} if len(segments) > 1 else {}
    first, last = _first_and_last(chain.from_iterable(segments), starting)
    return tuple(
        Lifetime(
            buffer.size_bytes,
            first[number],
            last.get(number, inside.stop - 1 if first[number] in inside else end),
        )
        if number in first
        else Lifetime(0, 0, 0)
        for number, buffer in enumerate(buffers)
    )


def until_freed(
    segments: Iterable[Sequence[Instruction]], buffers: Sequence[Buffer], starting: Mapping[int, int]
) -> dict[int, Lifetime]:
    """From the first write of a buffer, or when it is `starting` to begin, to its `Free`, or to the end."""
    items = list(chain.from_iterable(segments))
    first, last = _first_and_last(items, starting)
    return {
        number: Lifetime(buffers[number].size_bytes, start, last.get(number, len(items)))
        for number, start in first.items()
    }


def in_one_arena(
    buffers: Sequence[Buffer], lived: Mapping[int, Lifetime]
) -> tuple[tuple[Buffer, ...], Arena]:
    """The buffers with their offsets in an arena; those that do not live are where they were."""
    used = sorted(lived)
    arena = assign([lived[number] for number in used])
    offsets = dict(zip(used, arena.offsets, strict=True))
    placed = at_offsets(buffers, (offsets.get(number) for number in range(len(buffers))))
    return placed, arena


def at_offsets(buffers: Iterable[Buffer], offsets: Iterable[int | None]) -> tuple[Buffer, ...]:
    """The buffers where an arena has them; one without an offset is where it was."""
    return tuple(
        buffer if offset is None else
        Buffer(buffer.modes, buffer.layout, offset, buffer.size_bytes, buffer.partial, buffer.workspace)
        for buffer, offset in zip(buffers, offsets, strict=True)
    )


def _first_and_last(
    instructions: Iterable[Instruction], starting: Mapping[int, int]
) -> tuple[dict[int, int], dict[int, int]]:
    """When each buffer is written first, unless it is given, and when it is freed."""
    first, last = dict(starting), {}
    for now, instruction in enumerate(instructions):
        for number in writes(instruction):
            first.setdefault(number, now)
        if isinstance(instruction, Free):
            last[instruction.buffer] = now
    return first, last

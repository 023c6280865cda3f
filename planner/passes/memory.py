"""Pass 8, memory: offsets in one arena for buffers with known lifetimes. Pure lists in, lists out.

Large buffers are placed first, largest first, each at the lowest gap between those that live at the same
time; the many small ones share a region above them. Of equal ones the first is placed first, or the last
where that needs less. Knows neither tensors nor instructions.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

ALIGNMENT = 256
LARGE_COUNT = 512
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

    offsets: tuple[int, ...]
    size_bytes: int
    live_bytes: int


def assign(lifetimes: Sequence[Lifetime], in_place: Mapping[int, int] | None = None) -> Arena:
    """Place every buffer so that no two that live at the same time overlap.

    `in_place` has buffers that lie where another one of the same size does, which is dead when they are made.
    """
    if in_place:
        return _assign_together(lifetimes, in_place)
    sizes = [_aligned(item.size_bytes) for item in lifetimes]
    live_bytes = _most_alive(lifetimes)
    best: Arena | None = None
    for direction in (1, -1):
        by_size = sorted(range(len(sizes)), key=lambda number: (-sizes[number], direction * number))
        offsets = [0] * len(sizes)
        large, small = by_size[:LARGE_COUNT], sorted(by_size[LARGE_COUNT:])
        base = _place_by_size(lifetimes, sizes, large, offsets)
        top = _place_in_time(lifetimes, sizes, small, offsets, base)
        if best is None or max(base, top) < best.size_bytes:
            best = Arena(tuple(offsets), max(base, top), live_bytes)
        if best.size_bytes <= CLOSE * live_bytes:
            break
    assert best is not None
    return best


def _assign_together(lifetimes: Sequence[Lifetime], in_place: Mapping[int, int]) -> Arena:
    """Places for buffers of which some follow each other in one place."""
    first = list(range(len(lifetimes)))
    merged = list(lifetimes)
    for number in sorted(in_place):
        start = first[in_place[number]]
        first[number] = start
        merged[start] = replace(merged[start], last=max(merged[start].last, lifetimes[number].last))
    alone = [number for number, start in enumerate(first) if number == start]
    arena = assign([merged[number] for number in alone])
    offsets = dict(zip(alone, arena.offsets, strict=True))
    return replace(arena, offsets=tuple(offsets[start] for start in first))


def _aligned(size: int) -> int:
    return max(-(-size // ALIGNMENT), 1) * ALIGNMENT


def _place_by_size(
    lifetimes: Sequence[Lifetime], sizes: list[int], order: list[int], offsets: list[int]
) -> int:
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last; sorted by offset
    top = 0
    for number in order:
        item = lifetimes[number]
        offset = 0
        for start, end, first, last in placed:
            if last < item.first or item.last < first:
                continue
            if start - offset >= sizes[number]:
                break
            offset = max(offset, end)
        offsets[number] = offset
        insort(placed, (offset, offset + sizes[number], item.first, item.last))
        top = max(top, offset + sizes[number])
    return top


def _place_in_time(
    lifetimes: Sequence[Lifetime], sizes: list[int], order: list[int], offsets: list[int], base: int
) -> int:
    """First fit along time: free gaps are kept sorted by offset and merged."""
    gaps: list[list[int]] = []
    top = base
    ending: list[tuple[int, int]] = []
    for number in sorted(order, key=lambda n: (lifetimes[n].first, n)):
        while ending and ending[0][0] < lifetimes[number].first:
            _, done = ending.pop(0)
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
        insort(ending, (lifetimes[number].last, number))
    return top


def _release(gaps: list[list[int]], start: int, end: int) -> None:
    insort(gaps, [start, end])
    merged: list[list[int]] = []
    for gap in gaps:
        if merged and merged[-1][1] == gap[0]:
            merged[-1][1] = gap[1]
        else:
            merged.append(gap)
    gaps[:] = merged


def _most_alive(lifetimes: Sequence[Lifetime]) -> int:
    changes: dict[int, int] = {}
    for item in lifetimes:
        changes[item.first] = changes.get(item.first, 0) + item.size_bytes
        changes[item.last + 1] = changes.get(item.last + 1, 0) - item.size_bytes
    alive = most = 0
    for moment in sorted(changes):
        alive += changes[moment]
        most = max(most, alive)
    return most

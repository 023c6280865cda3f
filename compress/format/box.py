"""A frame as a box of points, and the passes in which a predictor fills it, from coarse to fine.

The first point is told as it is. Level by level, with spacings s of falling powers of two, the points between
those that are known, 2 s apart, are filled along one axis after the other: each pass has points at odd multiples
of s along its axis, at multiples of s along the axes of the level's passes before it, and of 2 s along the
others. Residuals stand in the order of passes, those of a pass in C order.

Interpolation by levels: Zhao et al., ICDE 2021 (SZ3). Knows no values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

AXES = 3


@dataclass(frozen=True)
class Pass:
    """Points of a box along one axis: their first coordinates, steps and counts, the spacing s, the level
    (1 is the finest), and how many residuals stand before theirs."""

    axis: int
    spacing: int
    level: int
    starts: tuple[int, int, int]
    steps: tuple[int, int, int]
    counts: tuple[int, int, int]
    first: int

    @property
    def size(self) -> int:
        """How many points it fills."""
        return prod(self.counts)


@lru_cache(256)
def passes(box: tuple[int, int, int], order: tuple[int, int, int]) -> tuple[Pass, ...]:
    """All passes of a box but the first point, the axes of a level in this order; those without points are
    left out."""
    found, first = [], 1
    for level in range(max(max(box) - 1, 0).bit_length(), 0, -1):
        spacing = 1 << (level - 1)
        done: set[int] = set()
        for axis in order:
            starts = [spacing if k == axis else 0 for k in range(AXES)]
            steps = [spacing if k in done else 2 * spacing for k in range(AXES)]
            counts = [
                max(0, -(-(n - start) // step)) for n, start, step in zip(box, starts, steps, strict=True)
            ]
            done.add(axis)
            if prod(counts):
                found.append(Pass(axis, spacing, level, _three(starts), _three(steps), _three(counts), first))
                first += prod(counts)
    return tuple(found)


def _three(numbers: list[int]) -> tuple[int, int, int]:
    return numbers[0], numbers[1], numbers[2]

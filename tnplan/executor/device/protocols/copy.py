"""Permuting copies as arithmetic: fused modes and the offset tables of a copy.

A copy moves the elements of a box from one row-major order to another. Its modes are fused where they stay
adjacent on both sides, then dealt to four nested loops whose offsets add up:
target[start + outer + middle + column + inner + r] = source[the same sum], r in a contiguous run.
Knows nothing of arrays' contents, of devices or of layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

View = Any
"""A flat typed view of a device's memory: a NumPy array on the CPU."""
Axis = tuple[int, int, int]
"""Extent, stride in the source, stride in the target; strides in elements."""

SIDE_ELEMENTS = 64
"""How many elements that lie together on one side the two inner loops take."""


@dataclass(frozen=True)
class Copy:
    """A copy of a box. `lead` are outermost axes kept apart: a range of their rows can be copied alone.

    `axes` are the other fused axes by falling target stride; the last `run` elements are contiguous on both
    sides.
    """

    lead: tuple[Axis, ...]
    axes: tuple[Axis, ...]
    run: int

    @property
    def rows(self) -> int:
        """The number of rows of the leading axes."""
        return prod(extent for extent, _, _ in self.lead)

    @property
    def row_elements(self) -> int:
        """The number of elements of one row."""
        return self.run * prod(extent for extent, _, _ in self.axes)

    @property
    def elements(self) -> int:
        """The number of elements of the whole copy."""
        return self.rows * self.row_elements

    @property
    def contiguous(self) -> bool:
        """Whether source and target are both one contiguous run."""
        return not self.lead and not self.axes


class CopyTables(NamedTuple):
    """Offsets of a copy, in elements, for each side: the entries of the four loops one after the other."""

    source: NDArray[np.uint64]
    target: NDArray[np.uint64]
    outer: int
    middle: int
    columns: int
    run: int


def row_major(extents: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of a row-major array with these extents."""
    strides = []
    stride = 1
    for extent in reversed(extents):
        strides.append(stride)
        stride *= extent
    return tuple(reversed(strides))


def mode_strides(modes: Sequence[tuple[int, int]]) -> dict[int, int]:
    """The stride, in elements, of every mode of a row-major tensor of (mode, extent)."""
    return dict(zip((mode for mode, _ in modes), row_major([extent for _, extent in modes]), strict=True))


def make_copy(axes: Sequence[Axis], lead: Sequence[Axis] = ()) -> Copy:
    """The copy over `lead` and `axes` (in any order), with axes fused that stay adjacent on both sides."""
    ordered = sorted((axis for axis in axes if axis[0] != 1), key=lambda axis: (-axis[2], -axis[1]))
    fused: list[Axis] = []
    for extent, source, target in ordered:
        if fused and fused[-1][1] == source * extent and fused[-1][2] == target * extent:
            fused[-1] = (fused[-1][0] * extent, source, target)
        else:
            fused.append((extent, source, target))
    run = 1
    if fused and fused[-1][1] == 1 and fused[-1][2] == 1:
        run = fused.pop()[0]
    return Copy(tuple(axis for axis in lead if axis[0] != 1), tuple(fused), run)


def widen(copy: Copy, start_divisor: int, widest: int) -> tuple[Copy, int]:
    """The copy in units of several elements, at most `widest` (a power of two), and the elements a unit.

    `start_divisor` divides every start that the copy will be used with (0: all starts are zero).
    """
    # The largest power of two that divides the run, all starts and all strides: every element then lies in a
    # unit with the same neighbours on both sides.
    common = gcd(copy.run, start_divisor)
    for _, source, target in copy.lead + copy.axes:
        common = gcd(common, source, target)
    unit = min(common & -common, widest)
    if unit <= 1:
        return copy, 1

    def scaled(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple((extent, source // unit, target // unit) for extent, source, target in axes)

    return Copy(scaled(copy.lead), scaled(copy.axes), copy.run // unit), unit


def deal(copy: Copy) -> tuple[list[Axis], list[Axis], list[Axis], list[Axis]]:
    """The axes of the outer, middle, column and inner loops.

    The inner loop takes the fastest axes of the target and the columns those of the source, so that cache
    lines of both sides are used up by neighbouring iterations; the others run from large to small strides.
    With leading axes, the outer loop is over their rows.
    """
    if any(extent == 0 for extent, _, _ in copy.lead + copy.axes):
        return [(0, 0, 0)], [], [], []
    remaining = list(copy.axes)
    inner = _take_fastest(remaining, 2, copy.run)
    # Cache lines of both sides: what the inner loop takes of the source already counts towards its share.
    near = prod(extent for extent, source, _ in inner if source < SIDE_ELEMENTS)
    columns = _take_fastest(remaining, 1, near)
    remaining.sort(key=lambda axis: -min(axis[1], axis[2]))
    if copy.lead:
        return list(copy.lead), remaining, columns, inner
    half = 0
    total = prod(extent for extent, _, _ in remaining)
    # About the square root of the rest in the outer loop, so that both tables stay small.
    while half < len(remaining) and prod(axis[0] for axis in remaining[:half]) ** 2 < total:
        half += 1
    return remaining[:half], remaining[half:], columns, inner


def _take_fastest(remaining: list[Axis], side: int, taken: int) -> list[Axis]:
    """Move the fastest axes of one side out of `remaining` until, with `taken`, they hold enough elements."""
    moved: list[Axis] = []
    while remaining and taken < SIDE_ELEMENTS:
        axis = min(remaining, key=lambda entry: entry[side])
        factor = _factor(axis[0], -(-SIDE_ELEMENTS // taken))
        remaining.remove(axis)
        moved.append((factor, axis[1], axis[2]))
        if factor < axis[0]:
            remaining.append((axis[0] // factor, axis[1] * factor, axis[2] * factor))
        taken *= factor
    return sorted(moved, key=lambda axis: -axis[2])


def _factor(extent: int, wanted: int) -> int:
    """The smallest divisor of `extent` that is at least `wanted`, or all of it."""
    return next((value for value in range(wanted, extent) if extent % value == 0), extent)


def offsets(axes: Sequence[Axis], side: int) -> NDArray[np.uint64]:
    """The offsets of all combinations of axes on one side (1: source, 2: target), the last axis fastest."""
    table = np.zeros(1, np.uint64)
    for axis in axes:
        steps = np.arange(axis[0], dtype=np.uint64) * np.uint64(axis[side])
        table = (table[:, None] + steps[None, :]).ravel()
    return table


@lru_cache(maxsize=4096)
def tables(copy: Copy) -> CopyTables:
    """The offset tables of a copy; equal copies share them."""
    loops = deal(copy)
    sides = [[offsets(axes, side) for axes in loops] for side in (1, 2)]
    outer, middle, columns, _ = (len(table) for table in sides[0])
    return CopyTables(np.concatenate(sides[0]), np.concatenate(sides[1]), outer, middle, columns, copy.run)

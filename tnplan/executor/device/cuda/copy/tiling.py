"""Permuting copies for a GPU as arithmetic: which elements make a tile, and where each thread finds them.

A tile holds the fastest modes of both sides. Threads load it in the order of the source into slots of shared
memory, and store it in the order of the target. All offsets are sums of small tables:
offset = lanes[thread] + steps[step] + rows[number // columns] + columns[number % columns].
Knows neither arrays nor devices. NumPy twin: copy_tiles in tests/oracles/copy.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt, prod

import numpy as np
from numpy.typing import NDArray

from tnplan.executor.device.protocols.copy import Axis, Copy, make_copy, offsets

Table = NDArray[np.uint64]

TILE_BYTES = 49152
"""Bytes of a tile; it may take a quarter more for its last factor, and slots are padded besides."""
SHARED_BYTES = 96 * 1024
"""The most shared memory of a block; every GPU since sm_80 has more."""
TILES_WANTED = 528
"""A copy of fewer tiles gets smaller ones, so that all multiprocessors have work."""
LEAST_TILE = 512
FEW_THREADS = 64
BLOCK_THREADS = (256, 512, 1024)
"""Most threads of a block, and what prime factors may make of it."""
DIRECT_BYTES = 256
"""Runs of this many bytes are copied straight from memory to memory."""
LARGEST_FACTOR = 47
"""The largest prime whose square fits a tile of 16-byte units."""
NEAR_ELEMENTS = 64
FEW_CHUNKS = 16
MOST_TILES = 1 << 31
LONG_AXIS = 4096
LINE_BYTES = 128
"""The shared memory that one group of lanes reads or writes at once: all of its banks."""


@dataclass(frozen=True)
class Phase:
    """One pass of the threads over a tile: two offsets (columns) for every lane, and for every step."""

    lanes: Table
    steps: Table

    def all(self) -> Table:
        """The two offsets of every element, in the order of the pass."""
        return (self.steps[:, None, :] + self.lanes[None, :, :]).reshape(-1, 2)


@dataclass(frozen=True)
class CopyTiles:
    """A copy in tiles, offsets in units. `rows` and `columns` give (source, target) of tiles.

    With `store` None, threads move units straight: the columns of `load` are source and target. Otherwise
    the columns of `load` are source and slot, those of `store` target and slot, of `slots` in all.
    """

    load: Phase
    store: Phase | None
    rows: Table
    columns: Table
    slots: int

    @property
    def count(self) -> int:
        """The number of tiles."""
        return len(self.rows) * len(self.columns)

    @property
    def threads(self) -> int:
        """The threads of a block: whole warps."""
        lanes = max(len(self.load.lanes), len(self.store.lanes) if self.store else 0)
        return -(-lanes // 32) * 32


@dataclass(frozen=True)
class CopyBox:
    """A part of a copy whose extents can be cut into tiles, and where it begins on each side."""

    copy: Copy
    source_start: int
    target_start: int


def parts(copy: Copy, rows: tuple[int, int] | None = None) -> list[CopyBox]:
    """The copy, or a range of its leading rows, as boxes without leading axes; large primes are split off."""
    first, last = rows if rows is not None and copy.lead else (0, copy.rows)
    if first == last or copy.elements == 0:
        return []
    inner = [*copy.axes, (copy.run, 1, 1)]
    return [
        CopyBox(make_copy(cut), lead_source + source, lead_target + target)
        for lead, lead_source, lead_target in _row_boxes(copy.lead, first, last)
        for cut, source, target in _smooth_boxes(make_copy([*lead, *inner]))
    ]


def _row_boxes(lead: tuple[Axis, ...], first: int, last: int) -> Iterator[tuple[tuple[Axis, ...], int, int]]:
    """The rows first .. last-1 of the leading axes as boxes: their axes and starts on both sides."""
    if first == last:
        return
    if not lead:
        yield (), 0, 0
        return
    (_, source, target), rest = lead[0], lead[1:]
    inner = prod(axis[0] for axis in rest)
    # As digits of a mixed radix: the rest of the first value, whole values as one box, the begun last one;
    # each recursion takes one axis off.
    (top, head), (end, tail) = divmod(first, inner), divmod(last, inner)
    if top == end:
        spans = [(top, head, tail)]
    else:
        spans = [(top, head, inner if head else 0), (end, 0, tail)]
        top += head > 0
        if end > top:
            yield ((end - top, source, target), *rest), top * source, top * target
    for value, begin, stop in spans:
        if begin < stop:
            for axes, source_start, target_start in _row_boxes(rest, begin, stop):
                yield axes, source_start + value * source, target_start + value * target


def _smooth_boxes(copy: Copy) -> Iterator[tuple[list[Axis], int, int]]:
    """The copy as boxes whose fast and whose long axes have small prime factors."""
    axes = [*copy.axes, *([(copy.run, 1, 1)] if copy.run > 1 else [])]
    for number, (extent, source, target) in enumerate(axes):
        small = prod(factor for factor in factors(extent) if factor <= LARGEST_FACTOR)
        # A large prime among the fast axes gives tiles of one element there: the axis is cut in two, of which
        # the longer has small factors.
        is_rough = small < min(extent, NEAR_ELEMENTS) and _is_fast(axes, number)
        if is_rough or factors(extent)[-1:] > [LONG_AXIS]:
            cut = _cut(extent)
            others = axes[:number] + axes[number + 1 :]
            for length, start in ((cut, 0), (extent - cut, cut)):
                shorter = make_copy([*others, (length, source, target)])
                for box, source_start, target_start in _smooth_boxes(shorter):
                    yield box, source_start + start * source, target_start + start * target
            return
    yield axes, 0, 0


def _is_fast(axes: Sequence[Axis], number: int) -> bool:
    """Whether an axis is among the fastest of a side that together hold a tile's share."""
    return any(
        prod(extent for extent, *strides in axes if strides[side] < axes[number][1 + side]) < NEAR_ELEMENTS
        for side in (0, 1)
    )


@lru_cache(maxsize=4096)
def factors(extent: int) -> list[int]:
    """The prime factors, rising; none of 1."""
    primes = []
    prime = 2
    while extent > 1:
        if prime * prime > extent:
            prime = extent
        while extent % prime == 0:
            primes.append(prime)
            extent //= prime
        prime += 1
    return primes


def _cut(extent: int) -> int:
    """A number below `extent`, and near to it, whose small prime factors make good tiles."""
    chunks = extent // NEAR_ELEMENTS
    if chunks < FEW_CHUNKS:
        return _smooth(extent)
    return NEAR_ELEMENTS * (chunks if chunks <= LONG_AXIS else _smooth(chunks))


def _smooth(extent: int) -> int:
    """The largest number up to `extent` (within 2^-14) that has no prime factor above 13."""
    shift = max(0, extent.bit_length() - 14)
    return next(value for value in range(extent >> shift, 0, -1) if factors(value)[-1:] <= [13]) << shift


@lru_cache(maxsize=1024)
def tiles(copy: Copy, unit_bytes: int, tile_bytes: int = TILE_BYTES) -> CopyTiles:
    """The tiles of a copy without leading axes, whose elements are units of 4, 8 or 16 bytes.

    ValueError where there are more tiles than a launch can count.
    """
    axes = [*copy.axes, *([(copy.run, 1, 1)] if copy.run > 1 else [])]
    # Small copies get smaller tiles, so that there are about TILES_WANTED of them.
    capacity = min(tile_bytes // unit_bytes, max(LEAST_TILE, copy.elements // TILES_WANTED))
    tile, outer = _choose(axes, capacity)
    rows, columns = (_pairs(level) for level in two_levels(outer))
    if len(rows) * len(columns) >= MOST_TILES:
        raise ValueError(f"a copy of {copy.elements} elements falls into too many tiles of {capacity}")
    by_target = sorted(tile, key=lambda axis: axis[2])
    # Runs long enough for whole lines on both sides need no way through shared memory.
    if copy.run * unit_bytes >= DIRECT_BYTES or copy.contiguous:
        return CopyTiles(_phase(by_target), None, rows, columns, 0)
    by_source = sorted(tile, key=lambda axis: axis[1])
    slot = _slot_strides(by_source, by_target, LINE_BYTES // unit_bytes)
    slots = 1 + sum((axis[0] - 1) * slot[axis] for axis in tile)
    load = _phase([(axis[0], axis[1], slot[axis]) for axis in by_source])
    store = _phase([(axis[0], axis[2], slot[axis]) for axis in by_target])
    if shared_bytes(load, store, slots, unit_bytes) > SHARED_BYTES:
        return tiles(copy, unit_bytes, tile_bytes // 2)
    return CopyTiles(load, store, rows, columns, slots)


def shared_bytes(load: Phase, store: Phase, slots: int, unit_bytes: int) -> int:
    """The shared memory of a block: the slots and both tables of steps."""
    return slots * unit_bytes + 16 * (len(load.steps) + len(store.steps))


def _choose(axes: Sequence[Axis], capacity: int) -> tuple[list[Axis], list[Axis]]:
    """The prime factors of the axes inside a tile, and the other factors, by falling target stride.

    The tile grows by one factor at a time on the side where it covers fewer neighbouring elements.
    """
    split = [_split(axis) for axis in axes]
    taken = [0] * len(axes)
    orders = [sorted(range(len(axes)), key=lambda number: axes[number][side]) for side in (1, 2)]

    def growth(order: list[int]) -> tuple[int, int]:
        """The elements that lie together in the tile, and the axis that would add to them (or -1)."""
        # Invariant: `taken[number]` counts factors of an axis from its fastest on, so that what a tile has of
        # an axis is a box.
        covered = 1
        for number in order:
            covered *= prod(factor[0] for factor in split[number][: taken[number]])
            if taken[number] < len(split[number]):
                return covered, number
        return covered, -1

    size = 1
    while True:
        # The side with the shorter runs grows first; a tile may go a quarter beyond its capacity for a last
        # factor.
        choices = sorted((growth(order) for order in reversed(orders)), key=lambda choice: choice[0])
        fits = [
            number for _, number in choices
            if number >= 0 and size * split[number][taken[number]][0] <= capacity * 5 // 4
        ]  # fmt: skip
        if not fits:
            break
        size *= split[fits[0]][taken[fits[0]]][0]
        taken[fits[0]] += 1
    inside = [factor for number, count in enumerate(taken) for factor in split[number][:count]]
    outside = [factor for number, count in enumerate(taken) for factor in split[number][count:]]
    return inside, sorted(outside, key=lambda axis: -axis[2])


def _split(axis: Axis) -> list[Axis]:
    """An axis as the axes of its prime factors, the fastest first."""
    axes = []
    _, source, target = axis
    for factor in factors(axis[0]):
        axes.append((factor, source, target))
        source, target = source * factor, target * factor
    return axes


def two_levels(axes: Sequence[Axis]) -> tuple[list[Axis], list[Axis]]:
    """The factors of the axes, in order, as two groups of about equal sizes: two small tables, not one."""
    split = [factor for axis in axes for factor in _split(axis)[::-1]]
    half = isqrt(prod(factor[0] for factor in split))
    cut = next(
        number for number in range(len(split) + 1)
        if prod(factor[0] for factor in split[:number]) >= half
    )  # fmt: skip
    return split[:cut], split[cut:]


def _pairs(axes: Sequence[Axis]) -> Table:
    """Both offsets of all combinations of axes, the last axis fastest."""
    return np.stack([offsets(axes, 1), offsets(axes, 2)], axis=1)


def _phase(axes: Sequence[Axis]) -> Phase:
    """A pass in the order of the axes (the first is fastest), dealt to lanes and steps."""
    lanes = 0
    size = 1
    while lanes < len(axes):
        size *= axes[lanes][0]
        if size > BLOCK_THREADS[-1] or (size > BLOCK_THREADS[0] and size // axes[lanes][0] >= FEW_THREADS):
            break
        lanes += 1
    return Phase(_pairs(axes[:lanes][::-1]), _pairs(axes[lanes:][::-1]))


def _slot_strides(by_source: Sequence[Axis], by_target: Sequence[Axis], banks: int) -> dict[Axis, int]:
    """The stride of every axis in the slots, padded so that lanes that work together meet few bank conflicts.

    The fastest axes of the target lie dense, up to as many as there are banks; then come the fastest of the
    source, each with the padding that spreads the lanes of a load over the most banks; then all others.
    """
    strides: dict[Axis, int] = {}
    size = 1

    def place(axis: Axis, stride: int) -> int:
        strides[axis] = stride
        return stride * (axis[0] - 1) + size

    # Dense along the target: lanes that store follow each other in the slots.
    for axis in _near(by_target, banks):
        size = place(axis, size)
    lanes = np.zeros(1, np.int64)
    for axis in sorted(_near(by_source, banks), key=lambda axis: axis not in strides):
        if axis not in strides:
            # Each padding up to a whole turn of the banks is tried: the one with the fewest lanes of a load
            # in one bank.
            crowds = [_crowd(lanes, axis, stride, banks) for stride in range(size, size + banks)]
            size = place(axis, size + crowds.index(min(crowds)))
        lanes = _extended(lanes, axis, strides[axis])[:banks]
    for axis in by_target:
        if axis not in strides:
            size = place(axis, size)
    return strides


def _near(axes: Sequence[Axis], wanted: int) -> list[Axis]:
    """The first axes that together have as many elements as wanted."""
    count = next(
        (number for number in range(len(axes)) if prod(axis[0] for axis in axes[:number]) >= wanted),
        len(axes),
    )
    return list(axes[:count])


def _extended(lanes: NDArray[np.int64], axis: Axis, stride: int) -> NDArray[np.int64]:
    return (np.arange(axis[0])[:, None] * stride + lanes[None, :]).ravel()


def _crowd(lanes: NDArray[np.int64], axis: Axis, stride: int, banks: int) -> int:
    """The most lanes that meet at one bank."""
    return int(np.bincount(_extended(lanes, axis, stride)[:banks] % banks).max())

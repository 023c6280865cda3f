"""Whether an array gets a predictor, and which: by what a few sampled boxes would take.

The boxes are of the array's own points, or of every 4th, 16th, ... along each axis where the finest
points are all foretold: those are what coarser levels see. Knows no array; its boxes are given, from a
host or a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu import rans
from tnplan.compress.format.bit_tiling import TILE
from tnplan.compress.format.box import (
    LARGEST_FINE,
    PREDICTORS,
    SHIFT,
    Box,
    Predictor,
    box_of_shape,
    lattices,
)
from tnplan.compress.format.stream import Header

N_BOXES = 4
EDGES = (TILE + 1, 65, 17)
"""Of a box of one, two and three axes: a tile of points, and those between which they lie."""
LEAST_SIZE = 2 * TILE
WORTH = 0.85
"""A predictor is taken where it makes samples smaller than this."""
FORETOLD_BITS = 0.05
"""A number that takes less says nothing about which predictor is best."""
COARSER = 4
MOST_BEYOND = 0.02
"""Of numbers that are too large for a predictor, and stored exactly."""
FIRST_TRIED = PREDICTORS[1]


@dataclass(frozen=True)
class SampledBoxes:
    """Boxes of equal size: their first points, how many points there are along each axis, and how far these
    are apart along each."""

    starts: tuple[Box, ...]
    counts: Box
    stride: int

    @property
    def size(self) -> int:
        """The points of one box."""
        return prod(self.counts)


TakeBoxes = Callable[[int], NDArray[np.floating]]
"""Values (boxes, points, components) of the boxes of one level of `sampled_boxes`."""


@lru_cache(64)
def sampled_boxes(shape: tuple[int, ...]) -> tuple[SampledBoxes, ...]:
    """The boxes of an array of this shape that may be looked at, for each stride; none of a small array."""
    found, stride, whole = list[SampledBoxes](), 1, box_of_shape(shape)
    while prod(extents := _extents(whole, stride)) >= LEAST_SIZE:
        found.append(_boxes(extents, stride))
        stride *= COARSER
    return tuple(found)


def chosen_predictor(header: Header, take: TakeBoxes) -> tuple[Predictor | None, float]:
    """The predictor of an array of which `header` says all but that, and the share of the bytes that its
    samples take with it; None and 1 where it does not pay, or too many fine numbers would be too
    large."""
    levels = sampled_boxes(header.shape)
    if not levels:
        return None, 1.0
    steps = np.array([rule.step for rule in header.quantizers])
    trial = _Trial(levels[0], take(0), steps)
    if trial.share_beyond(float(steps.min()) * (LARGEST_FINE >> SHIFT)) > MOST_BEYOND:
        return None, 1.0
    plain = min(trial.plain_bits(turned) for turned in (False, True))
    least = trial.bits(FIRST_TRIED)
    if least >= WORTH * plain:
        return None, 1.0
    says_nothing, share, best = FORETOLD_BITS * N_BOXES * TILE * len(steps), least / plain, FIRST_TRIED
    for level in range(1, len(levels) + 1):
        is_last = level == len(levels)
        if is_last or trial.bits(FIRST_TRIED) > says_nothing:
            least, _, best = min((trial.bits(tried), tried.code, tried) for tried in PREDICTORS)
            if is_last or least > says_nothing:
                break
        trial = _Trial(levels[level], take(level), steps)
    return best, share


class _Trial:
    """What predictors make of some boxes of values (boxes, points, components)."""

    def __init__(self, boxes: SampledBoxes, values: NDArray[np.floating], steps: NDArray[np.float64]) -> None:
        self.box, self.values, self.steps = boxes.counts, values, steps
        self.fine, self.residuals = np.empty(boxes.size, np.int32), np.empty(boxes.size, np.int32)
        self.tiles = np.zeros((len(steps), N_BOXES * TILE), np.int32)
        self.known: dict[tuple[bytes, bool], float] = {}

    def share_beyond(self, most: float) -> float:
        """The share of the values that are too large for fine numbers."""
        from tnplan.compress.cpu.prediction import choice_kernel as kernel

        return int(kernel.count_beyond(self.values, most)) / self.values.size

    def plain_bits(self, turned: bool) -> float:
        """What the numbers take as they are; `turned`: neighbours are in rounds instead of lanes."""
        from tnplan.compress.cpu.prediction import choice_kernel as kernel

        kernel.fill_plain(self.values, self.steps, turned, self.tiles)
        return coded_bits(self.tiles)

    def bits(self, predictor: Predictor) -> float:
        """What the finest residuals take. Boxes of one axis have the same passes in every order."""
        from tnplan.compress.cpu.prediction import choice_kernel as kernel

        passes = lattices(self.box, predictor.order)
        key = passes.tobytes(), predictor.cubic
        if key not in self.known:
            units = self.steps / (1 << SHIFT)
            some = kernel.fill_residuals(
                self.values,
                units,
                np.array(self.box, np.uint64),
                passes,
                predictor.cubic,
                self.fine,
                self.residuals,
                self.tiles,
            )
            self.known[key] = coded_bits(self.tiles) if some else 0.0
        return self.known[key]


def _extents(whole: Box, stride: int) -> Box:
    n0, n1, n2 = whole
    return -(-n0 // stride), -(-n1 // stride), -(-n2 // stride)


def _boxes(extents: Sequence[int], stride: int) -> SampledBoxes:
    """Boxes spread over an array along each axis in another order."""
    edge = EDGES[max(sum(n > 1 for n in extents), 1) - 1]
    counts = [min(n, edge) for n in extents]
    for axis in (2, 1, 0):
        others = prod(counts) // counts[axis]
        counts[axis] = min(extents[axis], max(counts[axis], -(-TILE // others) + 1))
    starts = list[Box]()
    for k in range(N_BOXES):
        parts = [(2 * k + 1) * odd % (2 * N_BOXES) for odd in (1, 3, 5)]
        z, y, x = (
            (n - m) * part // (2 * N_BOXES) * stride
            for n, m, part in zip(extents, counts, parts, strict=True)
        )
        starts.append((z, y, x))
    return SampledBoxes(tuple(starts), (counts[0], counts[1], counts[2]), stride)


def coded_bits(q: NDArray[np.int32]) -> float:
    """The bits that the coder `small` takes for tiles (components, tiles * 4096), its tables left out."""
    from tnplan.compress.cpu import rans_encode_kernel as kernel

    counts = np.zeros(rans.count_shape(q.shape[0]), np.int64)
    raw = int(kernel.count(q, counts, np.empty(q.shape, np.uint16), np.empty(q.shape, np.uint8)))
    totals = np.broadcast_to(counts.sum(axis=1, keepdims=True), counts.shape)
    used = counts > 0
    return raw + float((counts[used] * np.log2(totals[used] / counts[used])).sum())

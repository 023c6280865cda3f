"""A frame under a predictor: values to residuals and back; and which predictor an array gets, if any.

Values become fine whole numbers (`format.box`), and each point is predicted from what a decoder knows of
others. All of it is whole numbers but the first and the last step, so that a CPU and a GPU do the same.
An element that misses its bound, or is no number, is stored exactly; its residual says something all the
same.

A predictor is chosen by what a few sampled boxes would take. They are of the array's own points, or of every
4th, 16th, ... along each axis where the finest points are all foretold: those are what coarser levels see.
What boxes take is counted in whole units, so that a CPU and a GPU choose alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu import rans
from tnplan.compress.format.bit_tiling import LOG2_BITS, TILE, tile_count, times_log2
from tnplan.compress.format.bounds import round_down
from tnplan.compress.format.box import (
    LARGEST_FINE,
    PREDICTORS,
    SHIFT,
    Box,
    Predictor,
    box_of_shape,
    frame_box,
    lattices,
)
from tnplan.compress.format.stream import Header

Values = NDArray[np.floating]
N_BOXES = 4
EDGES = (TILE + 1, 65, 17)
"""Of a box of one, two and three axes: a tile of points, and those between which they lie."""
LEAST_SIZE = 2 * TILE
WORTH = 0.85
"""A predictor is taken where it makes samples smaller than this."""
FORETOLD_BITS = 0.05
"""A number that takes less says nothing about which predictor is best."""
COARSER = 4
MOST_POINTS = 6144
"""A box has fewer points."""
MOST_BEYOND = 0.02
"""Of numbers that are too large for a predictor, and stored exactly."""
FIRST_TRIED = PREDICTORS[1]


def quantize(
    values: Values, header: Header, limits: tuple[float, ...], most_exact: int
) -> tuple[NDArray[np.int32], NDArray[np.int64] | None]:
    """Residuals (components, tiles * 4096), and the positions (component * tiles * 4096 + element) of values
    to be stored exactly; None for these where they are more than `most_exact`."""
    from tnplan.compress.cpu import predictor_kernel as kernel

    predictor, n, real = _predictor(header), header.components, values.dtype.type
    box = frame_box(header.shape, values.size // n)
    fine = np.empty(values.size // n, np.int32)
    residuals = np.empty((n, tile_count(fine.size) * TILE), np.int32)
    residuals[:, fine.size :] = 0
    exact, n_exact = np.empty(most_exact, np.int64), 0
    for c, rule in enumerate(header.quantizers):
        before, step, component = n_exact, real(rule.step), np.ascontiguousarray(values[c::n])
        kernel.fill_fine(component, real(1) / step, fine)
        split(fine, box, predictor, residuals[c])
        limit = real(round_down(limits[c], values.dtype))
        n_exact = int(kernel.find_missing(component, fine, step, limit, exact, n_exact))
        exact[before:n_exact] += c * residuals.shape[1]
    return residuals, exact[:n_exact] if n_exact <= exact.size else None


def dequantize(residuals: NDArray[np.int32], header: Header, values: Values) -> None:
    """Fill a frame's values from residuals."""
    from tnplan.compress.cpu import predictor_kernel as kernel

    predictor, n = _predictor(header), header.components
    fine = np.empty(values.size // n, np.int32)
    box = frame_box(header.shape, fine.size)
    component = values if n == 1 else np.empty(fine.size, values.dtype)
    for c, rule in enumerate(header.quantizers):
        join(residuals[c], box, predictor, fine)
        kernel.fill_values(fine, values.dtype.type(rule.step), component)
        if n > 1:
            values[c::n] = component


def _predictor(header: Header) -> Predictor:
    assert header.predictor is not None
    return header.predictor


def split(fine: NDArray[np.int32], box: Box, predictor: Predictor, residuals: NDArray[np.int32]) -> None:
    """Residuals of a box of fine numbers, which become what a decoder will know."""
    from tnplan.compress.cpu import predictor_kernel as kernel

    kernel.split(fine, *_passes(box, predictor), residuals, _rows(box))


def join(residuals: NDArray[np.int32], box: Box, predictor: Predictor, fine: NDArray[np.int32]) -> None:
    """A box of fine numbers from residuals."""
    from tnplan.compress.cpu import predictor_kernel as kernel

    kernel.join(fine, *_passes(box, predictor), residuals, _rows(box))


def _passes(box: Box, predictor: Predictor) -> tuple[NDArray[np.uint64], NDArray[np.uint64], bool]:
    return np.array(box, np.uint64), lattices(box, predictor.order), predictor.cubic


def _rows(box: Box) -> NDArray[np.int32]:
    """Memory for work on a row of points."""
    return np.empty((2, box[2] + 1), np.int32)


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


class Trials(Protocol):
    """What predictors make of an array's sampled boxes, in units of 2^-LOG2_BITS bits."""

    def share_beyond(self) -> float:
        """The share of the finest boxes' values that are too large for a predictor (`most_predictable`)."""

    def plain(self) -> int:
        """What the finest boxes take as they are."""

    def predicted(self, level: int, predictor: Predictor) -> int:
        """What the finest residuals of a level's boxes take."""


MakeTrials = Callable[[NDArray[np.float64]], Trials]
"""The trials of an array for the steps of its components."""
TakeBoxes = Callable[[int], NDArray[np.floating]]
"""Values (boxes, points, components) of the boxes of one level of `sampled_boxes`."""


@lru_cache(64)
def sampled_boxes(shape: tuple[int, ...]) -> tuple[SampledBoxes, ...]:
    """The boxes of an array of this shape that may be looked at, for each stride; none of a small array."""
    levels, stride, box = list[SampledBoxes](), 1, box_of_shape(shape)
    while prod(extents := _extents(box, stride)) >= LEAST_SIZE:
        levels.append(_boxes(extents, stride))
        stride *= COARSER
    return tuple(levels)


def most_predictable(steps: NDArray[np.float64]) -> float:
    """The largest value that a predictor may have, for the steps of an array's components."""
    return float(steps.min()) * (LARGEST_FINE >> SHIFT)


def chosen_predictor(header: Header, make_trials: MakeTrials) -> tuple[Predictor | None, float]:
    """The predictor of an array of which `header` says all but that, and the share of the bytes that its
    samples take with it; None and 1 where it does not pay, or too many fine numbers would be too
    large."""
    n_levels = len(sampled_boxes(header.shape))
    if not n_levels:
        return None, 1.0
    trials = make_trials(np.array([rule.step for rule in header.quantizers]))
    if trials.share_beyond() > MOST_BEYOND:
        return None, 1.0
    plain, least = trials.plain(), trials.predicted(0, FIRST_TRIED)
    if least >= WORTH * plain:
        return None, 1.0
    share, best = least / plain, FIRST_TRIED
    says_nothing = FORETOLD_BITS * N_BOXES * TILE * header.components * (1 << LOG2_BITS)
    for level in range(n_levels):
        is_last = level == n_levels - 1
        if is_last or trials.predicted(level, FIRST_TRIED) > says_nothing:
            least, _, best = min((trials.predicted(level, tried), tried.code, tried) for tried in PREDICTORS)
            if is_last or least > says_nothing:
                break
    return best, share


class HostTrials:
    """The trials of an array on the host, each when it is needed."""

    def __init__(self, shape: tuple[int, ...], take: TakeBoxes, steps: NDArray[np.float64]) -> None:
        self._levels, self._take, self._steps = sampled_boxes(shape), take, steps
        self._trials: dict[int, _Trial] = {}

    def _at(self, level: int) -> _Trial:
        if level not in self._trials:
            self._trials[level] = _Trial(self._levels[level], self._take(level), self._steps)
        return self._trials[level]

    def share_beyond(self) -> float:
        """See `Trials`."""
        return self._at(0).share_beyond(most_predictable(self._steps))

    def plain(self) -> int:
        """See `Trials`."""
        return min(self._at(0).plain(turned) for turned in (False, True))

    def predicted(self, level: int, predictor: Predictor) -> int:
        """See `Trials`."""
        return self._at(level).predicted(predictor)


class _Trial:
    """What predictors make of some boxes of values (boxes, points, components)."""

    def __init__(self, boxes: SampledBoxes, values: NDArray[np.floating], steps: NDArray[np.float64]) -> None:
        self.box, self.values, self.steps = boxes.counts, values, steps
        self.sizes: dict[tuple[bytes, bool], int] = {}

    def share_beyond(self, most: float) -> float:
        """The share of the values that are too large for fine numbers."""
        return int(np.count_nonzero(np.abs(self.values) > most)) / self.values.size

    def plain(self, turned: bool) -> int:
        """What the numbers take as they are; `turned`: neighbours are in rounds instead of lanes."""
        tiles = _first_tile(self._whole_numbers(1))
        if turned:
            tiles = tiles.reshape(-1, rans.LANES, TILE // rans.LANES).swapaxes(1, 2).reshape(tiles.shape)
        return coded_units(tiles)

    def predicted(self, predictor: Predictor) -> int:
        """What the finest residuals take. Boxes of one axis have the same passes in every order."""
        key = lattices(self.box, predictor.order).tobytes(), predictor.cubic
        if key not in self.sizes:
            numbers = self.fine.copy()
            residuals = np.empty_like(numbers)
            for at in np.ndindex(numbers.shape[:2]):
                split(numbers[at], self.box, predictor, residuals[at])
            # The finest residuals are the last ones.
            last = residuals[:, :, -min(residuals.shape[2] - 1, TILE) :]
            self.sizes[key] = coded_units(_first_tile(last))
        return self.sizes[key]


    @cached_property
    def fine(self) -> NDArray[np.int32]:
        """The fine numbers (components, boxes, points)."""
        return self._whole_numbers(1 << SHIFT)

    def _whole_numbers(self, parts: int) -> NDArray[np.int32]:
        """Whole numbers of such parts of the steps; 0 for what is too large, or no number."""
        with np.errstate(all="ignore"):
            scaled = np.rint(self.values.astype(np.float64) / (self.steps / parts))
        whole = np.where(np.abs(scaled) <= LARGEST_FINE, scaled, 0).astype(np.int32)
        return np.ascontiguousarray(np.moveaxis(whole, 2, 0))


def _first_tile(numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    """The first tile of each box (components, boxes, points), filled up with zeros, one behind the other."""
    tiles = np.zeros((*numbers.shape[:2], TILE), np.int32)
    tiles[:, :, : numbers.shape[2]] = numbers[:, :, :TILE]
    return tiles.reshape(len(tiles), -1)


def _extents(box: Box, stride: int) -> Box:
    n0, n1, n2 = box
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
        fractions = [(2 * k + 1) * odd % (2 * N_BOXES) for odd in (1, 3, 5)]
        z, y, x = (
            (n - m) * fraction // (2 * N_BOXES) * stride
            for n, m, fraction in zip(extents, counts, fractions, strict=True)
        )
        starts.append((z, y, x))
    return SampledBoxes(tuple(starts), (counts[0], counts[1], counts[2]), stride)


def coded_units(q: NDArray[np.int32]) -> int:
    """What the coder `small` takes for tiles (components, N_BOXES * 4096), its tables left out, in units of
    2^-LOG2_BITS bits: by whole logarithms of how often tokens occur."""
    counts, raw, *_ = rans.count(q)
    logs = _logs()
    return (raw << LOG2_BITS) + int(logs.take(counts.sum(axis=1)).sum() - logs.take(counts).sum())


@cache
def _logs() -> NDArray[np.int64]:
    """n log2 n for as many numbers as the boxes of a level have."""
    return times_log2(N_BOXES * TILE)

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

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import chain, pairwise, product
from math import inf, prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu import rans
from tnplan.compress.cpu.workspace import workspace
from tnplan.compress.format.bit_tiling import LOG2_BITS, TILE, tile_count, times_log2
from tnplan.compress.format.bounds import round_down
from tnplan.compress.format.box import (
    KINDS,
    LARGEST_FINE,
    LEAST_EXTENT,
    SHIFT,
    STRIP,
    Box,
    Predictor,
    box_of_shape,
    lattices,
    passes,
    predicted_box,
    turned,
)
from tnplan.compress.format.stream import Header

Values = NDArray[np.floating]
N_BOXES, MANY = 8, 1 << 20
"""Of arrays from so many elements on; half as many of smaller ones."""
BOX = TILE // 2
"""Numbers of a box that are looked at; a tile has those of two."""
TURNS = np.array([1, 23, 39, 53, 77, 101])
"""Along an axis, places are so many times odd parts of it: in another order along each."""
N_PLACES, PROBES, RANKS = 64, 16, [0, 2, 6, 12, 20, 30, 42, 56]
"""Where boxes may be, the points that are probed at each, and which places have one, the most active first:
where little happens, all predictors do alike."""
LEAST_SIZE, LEAST_COARSE = 512, 64
"""The points of an array, and of its coarser levels, that are looked at."""
WORTH = 0.95
"""A predictor is taken where it makes samples smaller than this."""
COARSE_BITS, COARSE_SHARE = 3, 0.2
"""What a point of a coarser level may take, and the share of all that counts."""
LEAST_BITS = 0.1
"""From so many bits an element on sums of corners may foretell better than interpolation."""
FINAL_BITS, MOST_WHOLE = 0.5, 1 << 15
"""Up to so many bits an element the best predictor and means are compared on all coarse points."""
MEAN_COST = 1.03
"""Means take half as much time again: they are taken where they save more than this."""
FEW_BITS = 5
"""Numbers that take less as they are, lines foretell better than cubics."""
COARSER = 4
MOST_POINTS = 3072
"""A box has fewer points."""
SHORT, MOST_SHORT = 12, 12
"""Extents of axes that a box has whole, and how many points along all of these."""
MOST_BEYOND = 0.02
"""Of numbers that are too large for a predictor, and stored exactly."""


def quantize(
    values: Values, header: Header, limits: tuple[float, ...], most_exact: int
) -> tuple[NDArray[np.int32], NDArray[np.int64] | None]:
    """Residuals (components, tiles * 4096), in a `workspace`, and the positions (component * tiles * 4096 +
    element) of values to be stored exactly; None for these where they are more than `most_exact`."""
    from tnplan.compress.cpu import predictor_kernel as kernel

    predictor, n, real = _predictor(header), header.components, values.dtype.type
    box, last = _frame_box(header, values.size // n)
    fine = workspace("fine", (values.size // n,), np.int32)
    residuals = workspace("q", (n, tile_count(fine.size) * TILE), np.int32)
    residuals[:, fine.size :] = 0
    exact, n_exact = np.empty(most_exact, np.int64), 0
    for c, rule in enumerate(header.quantizers):
        before, step = n_exact, real(rule.step)
        component = np.ascontiguousarray(values[c::n].reshape(-1, last).T).reshape(-1)
        kernel.fill_fine(component, real(1) / step, predictor.largest, fine)
        limit = real(round_down(limits[c], values.dtype))
        if predictor.is_lorenzo:
            n_exact = int(kernel.find_missing(component, fine, step, limit, exact, n_exact))
            split(fine, box, predictor, residuals[c])
        else:
            split(fine, box, predictor, residuals[c])
            n_exact = int(kernel.find_missing(component, fine, step, limit, exact, n_exact))
        if last > 1:
            here, beside = np.divmod(exact[before:n_exact], fine.size // last)
            exact[before:n_exact] = np.sort(beside * last + here)
        exact[before:n_exact] += c * residuals.shape[1]
    return residuals, exact[:n_exact] if n_exact <= exact.size else None


def dequantize(residuals: NDArray[np.int32], header: Header, values: Values) -> None:
    """Fill a frame's values from residuals."""
    from tnplan.compress.cpu import predictor_kernel as kernel

    predictor, n = _predictor(header), header.components
    fine = workspace("fine", (values.size // n,), np.int32)
    box, last = _frame_box(header, fine.size)
    component = values if n == last == 1 else np.empty(fine.size, values.dtype)
    for c, rule in enumerate(header.quantizers):
        join(residuals[c], box, predictor, fine)
        kernel.fill_values(fine, values.dtype.type(rule.step), component)
        if component is not values:
            values[c::n] = component.reshape(last, -1).T.reshape(-1)


def _predictor(header: Header) -> Predictor:
    assert header.predictor is not None
    return header.predictor


def _frame_box(header: Header, n_elements: int) -> tuple[Box, int]:
    """The box of a frame as a predictor takes it, and the points along axes that go first there."""
    return predicted_box(header.shape, n_elements, _predictor(header).early)


def split(fine: NDArray[np.int32], box: Box, predictor: Predictor, residuals: NDArray[np.int32]) -> None:
    """Residuals of a box of fine numbers, which become what a decoder will know; under a Lorenzo predictor
    anything."""
    from tnplan.compress.cpu import predictor_kernel as kernel

    if predictor.is_lorenzo:
        for axis in range(len(box) - 1):
            if axis in predictor.axes and fine.size:
                kernel.subtract_along(fine, box[axis], prod(box[axis + 1 :]))
        line = np.empty(box[-1], np.int32)
        kernel.split_differences(fine, box[-1], len(box) - 1 in predictor.axes, residuals, line)
        return
    fill_passes(fine[np.newaxis], box, predictor, residuals[np.newaxis], back=False)


def join(residuals: NDArray[np.int32], box: Box, predictor: Predictor, fine: NDArray[np.int32]) -> None:
    """A box of fine numbers from residuals."""
    from tnplan.compress.cpu import predictor_kernel as kernel

    if predictor.is_lorenzo:
        kernel.join_differences(fine, box[-1], len(box) - 1 in predictor.axes, residuals)
        for axis in range(len(box) - 1):
            if axis in predictor.axes and fine.size:
                kernel.add_along(fine, box[axis], prod(box[axis + 1 :]))
        return
    fill_passes(fine[np.newaxis], box, predictor, residuals[np.newaxis], back=True)


def fill_passes(
    fine: NDArray[np.int32], box: Box, predictor: Predictor, residuals: NDArray[np.int32], *, back: bool
) -> None:
    """Residuals of boxes of fine numbers (boxes, points) under interpolation, or `back`."""
    from tnplan.compress.cpu import predictor_kernel as kernel

    work = np.empty((3, box[-1] + 1), np.int32), np.empty(len(box), np.uint64)
    kernel.fill_passes(fine, *_geometry(box, predictor), residuals, work, back)


@lru_cache(256)
def _geometry(box: Box, predictor: Predictor) -> tuple[Any, ...]:
    """What `predictor_kernel.fill_passes` takes of a box and a predictor."""
    shape = np.array([box, [prod(box[axis + 1 :]) for axis in range(len(box))]], np.uint64)
    rows = np.concatenate([lattices(box, predictor), _turns(box, predictor)], axis=1)
    return shape, rows, predictor.is_cubic, np.uint64(predictor.strip)


def _turns(box: Box, predictor: Predictor) -> NDArray[np.uint64]:
    """Of the turn of each pass (passes, 3): the pass behind it; and two numbers, layers of the first axis
    with points being at multiples of one below the other."""
    own = passes(box, predictor)
    turns = np.empty((len(own), 3), np.uint64)
    bounds = [0, *(k for k in range(1, len(own)) if own[k].along & 1), len(own)]
    for begin, stop in pairwise(bounds):
        unit, end = 1 << 62, 1
        for one in own[begin:stop] if len(box) > 1 else ():
            start, step, count = one.starts[0], one.steps[0], one.counts[0]
            unit, end = min(unit, start or step), max(end, start + step * (count - 1) + 1)
        turns[begin:stop] = stop, unit, end
    return turns


@dataclass(frozen=True)
class SampledBoxes:
    """Boxes of equal size: their first points, how many points there are along each axis, and how far these
    are apart along each. Axes are in the order in which predictors take them."""

    starts: tuple[Box, ...]
    counts: Box
    strides: Box

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

    def predicted(self, level: int, predictors: Sequence[Predictor]) -> list[int]:
        """What the finest residuals of a level's boxes take under each predictor."""

    def whole(self, predictors: Sequence[Predictor]) -> list[int]:
        """What all residuals of each predictor's `coarse_lattice` take."""


MakeTrials = Callable[[NDArray[np.float64]], Trials]
"""The trials of an array for the steps of its components."""
TakeBoxes = Callable[[SampledBoxes], NDArray[np.floating]]
"""Values (boxes, points, components) of boxes."""
TakePoints = Callable[[NDArray[np.int64]], NDArray[np.floating]]
"""Values (..., components) of elements."""


@lru_cache(64)
def sampled_boxes(shape: tuple[int, ...]) -> tuple[SampledBoxes, ...]:
    """The boxes of an array of this shape that may be looked at, for each stride; none of a small array."""
    box = box_of_shape(shape)
    extents = tuple(box[axis] for axis in turned(box))
    n_boxes = N_BOXES if prod(box) >= MANY else N_BOXES // 2
    levels, strides = list[SampledBoxes](), (1,) * len(extents)
    while not levels or strides != levels[-1].strides:
        coarse = tuple(-(-n // stride) for n, stride in zip(extents, strides, strict=True))
        if prod(coarse) < (LEAST_COARSE if levels else LEAST_SIZE):
            break
        levels.append(_boxes(coarse, strides, n_boxes))
        # Short axes stay as they are: they may be batches, of which coarse levels have every point.
        strides = tuple(
            stride * COARSER if n >= stride * COARSER * LEAST_EXTENT else stride
            for n, stride in zip(extents, strides, strict=True)
        )
    return tuple(levels)


def coarse_lattice(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, SampledBoxes]:
    """The level from which on all points that interpolation along these axes fills can be tried, and these
    points; at the last one they may be more."""
    box, level = box_of_shape(shape), 0
    extents = tuple(box[axis] for axis in turned(box))
    while True:
        strides = tuple(COARSER**level if axis in axes else 1 for axis in range(len(extents)))
        counts = tuple(-(-n // stride) for n, stride in zip(extents, strides, strict=True))
        if prod(counts) <= MOST_WHOLE or max(counts[axis] for axis in axes) == 1:
            return level, SampledBoxes(((0,) * len(extents),), counts, strides)
        level += 1


def candidates(n_axes: int) -> tuple[Predictor, ...]:
    """All predictors that the choice may try on a box of so many axes."""
    last = [tuple(range(first, n_axes)) for first in range(max(n_axes - 1, 1))]
    sets = last + [(axis, *own) for own in last for axis in range(own[0] - 1)]
    orders = (*sets, *(axes[::-1] for axes in sets if len(axes) > 1))
    means = sets if n_axes > 1 else []
    along = dict.fromkeys((*sets, (n_axes - 1,)))
    tried = chain(product(KINDS[:2], orders), product(KINDS[2:4], means), product(KINDS[4:], along))
    return tuple(Predictor(kind, axes) for kind, axes in tried)


def most_predictable(steps: NDArray[np.float64]) -> float:
    """The largest value that a predictor may have, for the steps of an array's components."""
    return float(steps.min()) * (LARGEST_FINE >> SHIFT)


def chosen_predictor(header: Header, make_trials: MakeTrials) -> tuple[Predictor | None, float]:
    """The predictor of an array of which `header` says all but that, and the share of the bytes that its
    samples take with it; None and 1 where it does not pay, or too many fine numbers would be too
    large."""
    levels = sampled_boxes(header.shape)
    if not levels:
        return None, 1.0
    trials = make_trials(np.array([rule.step for rule in header.quantizers]))
    if trials.share_beyond() > MOST_BEYOND:
        return None, 1.0
    costs = _Costs(trials, header)
    best = costs.chosen()
    share = costs.of(best) / max(costs.plain, 1.0)
    return (None, 1.0) if share >= WORTH and costs.plain else (best, share)


@lru_cache(256)
def level_points(extents: Box, axes: tuple[int, ...]) -> tuple[int, ...]:
    """How many points a box has from each level on, where strides are along these axes."""
    n_levels = 2 + -(-(max(extents) - 1).bit_length() // 2)
    return tuple(
        prod(-(-n // COARSER**level) if k in axes else n for k, n in enumerate(extents))
        for level in range(n_levels)
    )


class _Costs:
    """What predictors would take of all points, in bits: the finest points of each level, times how many of
    all points are like them."""

    def __init__(self, trials: Trials, header: Header) -> None:
        box, self._trials, self._levels = box_of_shape(header.shape), trials, sampled_boxes(header.shape)
        self._extents = tuple(box[axis] for axis in turned(box))
        self._n, self._size = header.components, prod(self._extents)
        self.plain = self._bits_of(0, trials.plain()) * header.size
        self._shape, self._whole = header.shape, dict[Predictor, tuple[int, float]]()
        # Bits of a point of each level, from the finest on, as far as they have been tried.
        self._bits = defaultdict[Predictor, list[float]](list)

    def chosen(self) -> Predictor:
        """The best predictor; where it takes little, coarse points count, and it and means are tried on
        all of these."""
        best = self._chosen()
        if best.is_lorenzo or self.of(best) > FINAL_BITS * self._size * self._n:
            return best
        axes = tuple(sorted(best.axes))
        means = [Predictor(kind, axes) for kind in KINDS[2:4]] if len(axes) > 1 else []
        self._best([best, *means])
        tried = [one for one in self._bits if not one.is_lorenzo]
        best = min(tried, key=self.of)
        finalists = [best, *(one for one in means if one != best)]
        coarse = {one: coarse_lattice(self._shape, one.axes) for one in finalists}
        small = [one for one, (_, boxes) in coarse.items() if boxes.size <= MOST_WHOLE]
        for one, units in zip(small, self._trials.whole(small), strict=True):
            self._whole[one] = coarse[one][0], units / (1 << LOG2_BITS)
        return min(finalists, key=self.of)

    def _chosen(self) -> Predictor:
        """The best of some predictors: which axes from the last one on, which leading ones besides, how."""
        n, few = len(self._extents), self.plain < FEW_BITS * self._size * self._n
        kind, other = ("linear", "cubic") if few else ("cubic", "linear")
        last = [Predictor(kind, tuple(range(first, n))) for first in reversed(range(n))]
        best = last[min(n, 2) - 1]
        for longer in last[2:]:
            if self._best([best, longer]) is best:
                break
            best = longer
        more = [replace(best, axes=(axis, *best.axes)) for axis in range(best.axes[0] - 1)]
        best = self._best([best, *more])
        best = self._best([best, replace(best, kind=other)])
        if len(best.axes) > 1:
            turned_round = replace(best, axes=best.axes[::-1])
            best = self._best([best, replace(best, kind=f"{best.kind} mean"), turned_round])
        if self._bits[best][0] < LEAST_BITS * self._n:
            return best
        along = {tuple(range(n)), tuple(sorted(best.axes)), (n - 1,)}
        return self._best([best, *(Predictor("lorenzo", axes) for axes in sorted(along))])

    def _best(self, predictors: Sequence[Predictor]) -> Predictor:
        """The one that takes least, the first of equals."""
        left = [(one, self._bits[one]) for one in dict.fromkeys(predictors)]
        for level in range(len(self._levels)):
            if not any(len(bits) == level for _, bits in left):
                continue
            least = min((self.of(one) for one, bits in left if bits), default=inf)
            missing = [one for one, bits in left if len(bits) == level and self._matters(level, one, least)]
            for one, units in zip(missing, self._trials.predicted(level, missing), strict=True):
                self._bits[one].append(self._bits_of(level, units))
        return min(predictors, key=self.of)

    def _bits_of(self, level: int, units: int) -> float:
        """Bits of an element."""
        boxes = self._levels[level]
        return units / (len(boxes.starts) * min(boxes.size - 1, BOX) * (1 << LOG2_BITS))

    def of(self, predictor: Predictor) -> float:
        """What one takes, as far as its levels have been tried."""
        points, bits = level_points(self._extents, predictor.axes), self._bits[predictor]
        # The first points along all axes, of which nothing says how large they are.
        cost = self.plain / self._size * points[-1]
        if predictor.is_lorenzo:
            return cost + self._size * bits[0]
        last, whole = self._whole.get(predictor, (len(bits), None))
        for level in range(last):
            cost += (points[level] - points[level + 1]) * bits[min(level, len(bits) - 1)]
        cost = cost + points[last] * bits[-1] if whole is None else cost + whole
        return MEAN_COST * cost if predictor.is_mean else cost

    def _matters(self, level: int, predictor: Predictor, least: float) -> bool:
        """Whether the points of a level may be a part of what a predictor takes that counts, where the best
        one takes `least`."""
        if level == 0:
            return True
        points = level_points(self._extents, predictor.axes)
        if predictor.is_lorenzo or (points[0] - points[1]) * self._bits[predictor][0] > least:
            return False
        return COARSE_BITS * points[level] * self._n > COARSE_SHARE * self.of(predictor)


class HostTrials:
    """The trials of an array on the host, each when it is needed."""

    def __init__(
        self, shape: tuple[int, ...], take_points: TakePoints, take: TakeBoxes, steps: NDArray[np.float64]
    ) -> None:
        active = active_boxes(shape, take_points(probes(shape)[1]), most_predictable(steps))
        self._shape = shape
        self._levels, self._take, self._steps = (active, *sampled_boxes(shape)[1:]), take, steps
        self._trials: dict[int, _Trial] = {}

    def _at(self, level: int) -> _Trial:
        if level not in self._trials:
            self._trials[level] = _Trial(self._levels[level], self._take(self._levels[level]), self._steps)
        return self._trials[level]

    def share_beyond(self) -> float:
        """See `Trials`."""
        return self._at(0).share_beyond(most_predictable(self._steps))

    def plain(self) -> int:
        """See `Trials`."""
        return min(self._at(0).plain(turned) for turned in (False, True))

    def predicted(self, level: int, predictors: Sequence[Predictor]) -> list[int]:
        """See `Trials`."""
        return [self._at(level).predicted(predictor) for predictor in predictors]

    def whole(self, predictors: Sequence[Predictor]) -> list[int]:
        """See `Trials`."""
        return list(map(self._whole, predictors))

    def _whole(self, predictor: Predictor) -> int:
        boxes = coarse_lattice(self._shape, predictor.axes)[1]
        residuals = np.zeros((len(self._steps), tile_count(boxes.size) * TILE), np.int32)
        fine = _Trial(boxes, self._take(boxes), self._steps).fine()
        fill_passes(fine, boxes.counts, predictor, residuals, back=False)
        return counter(residuals)()


class _Trial:
    """What predictors make of some boxes of values (boxes, points, components)."""

    def __init__(self, boxes: SampledBoxes, values: NDArray[np.floating], steps: NDArray[np.float64]) -> None:
        self.box, self.values, self.steps = boxes.counts, values, steps
        # Of each box what is looked at, its last numbers, and zeros.
        self.count = min(boxes.size - 1, BOX)
        self.tiles, self.units = _counters.of_tiles(len(steps), len(boxes.starts) * BOX)
        self.residuals = np.empty((len(steps) * len(boxes.starts), boxes.size), np.int32)
        self.numbers: dict[int, NDArray[np.int32]] = {}

    def share_beyond(self, most: float) -> float:
        """The share of the values that are too large for fine numbers."""
        return int(np.count_nonzero(np.abs(self.values) > np.float64(most))) / self.values.size

    def plain(self, turned: bool) -> int:
        """What the numbers take as they are; `turned`: neighbours are in rounds instead of lanes."""
        first = self._numbers(1)[:, :BOX]
        self._fill(first)
        if turned:
            lanes = self.tiles.reshape(-1, rans.LANES, BOX // rans.LANES).swapaxes(1, 2)
            self.tiles[:] = lanes.reshape(self.tiles.shape)
        return self.units()

    def predicted(self, predictor: Predictor) -> int:
        """What the finest residuals take."""
        if predictor.is_lorenzo:
            last = self._differences(predictor.axes)
        else:
            fill_passes(self.fine(), self.box, predictor, self.residuals, back=False)
            last = self.residuals
        self._fill(last[:, -self.count :])
        return self.units()

    def _fill(self, numbers: NDArray[np.int32]) -> None:
        """Numbers (components * boxes, up to BOX) to tiles."""
        boxes, count = self.tiles.reshape(-1, BOX), numbers.shape[1]
        boxes[:, :count], boxes[:, count:] = numbers, 0

    def fine(self) -> NDArray[np.int32]:
        """The fine numbers, which a predictor may change (components * boxes, points)."""
        return self._numbers(1 << SHIFT).copy()

    def _differences(self, axes: tuple[int, ...]) -> NDArray[np.int32]:
        """Differences along axes, in strips; the first points along each axis have those of the second ones,
        since only the first ones of the whole array are not predicted."""
        delta = self._numbers(1).reshape(-1, *self.box).copy()
        for axis in axes:
            if self.box[axis] > 1:
                lines = np.moveaxis(delta, 1 + axis, 0)
                lines[1:] -= lines[:-1].copy()
                lines[0] = lines[1]
        strips = [delta[..., k : k + STRIP].reshape(len(delta), -1) for k in range(0, self.box[-1], STRIP)]
        return np.concatenate(strips, axis=1)

    def _numbers(self, per_step: int) -> NDArray[np.int32]:
        """The values in units of which so many make a step (components * boxes, points); 0 for what is too
        large, or no number."""
        if per_step not in self.numbers:
            with np.errstate(all="ignore"):
                scaled = np.rint(self.values.astype(np.float64) / (self.steps / per_step))
                if not np.abs(scaled).max() <= LARGEST_FINE:
                    scaled = np.where(np.abs(scaled) <= LARGEST_FINE, scaled, 0.0)
            whole = np.moveaxis(scaled, 2, 0).astype(np.int32, order="C")
            self.numbers[per_step] = whole.reshape(self.residuals.shape)
        return self.numbers[per_step]


def _boxes(extents: Box, strides: Box, n_boxes: int) -> SampledBoxes:
    """Boxes spread over an array along each axis in another order."""
    counts = _edges(extents)
    spread = _spread(tuple(n - m for n, m in zip(extents, counts, strict=True)), n_boxes)
    starts = spread * np.array(strides)
    return SampledBoxes(tuple(map(tuple, starts.tolist())), counts, strides)


def _spread(spans: Box, count: int) -> NDArray[np.int64]:
    """So many places (count, axes) from 0 to the spans, in another order along each axis."""
    odd = 2 * np.arange(count)[:, np.newaxis] + 1
    return np.array(spans) * (odd * TURNS[: len(spans)] % (2 * count)) // (2 * count)


@lru_cache(64)
def probes(shape: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places where boxes may be (places, axes), and the numbers in the array of the points (places, PROBES)
    that tell how much happens there."""
    box, counts = box_of_shape(shape), np.array(sampled_boxes(shape)[0].counts)
    turn = list(turned(box))
    places = _spread(tuple(np.array(box)[turn] - counts), N_PLACES)
    points = places[:, np.newaxis] + _spread(tuple(counts - 1), PROBES)
    return places, np.ravel_multi_index(np.moveaxis(points, -1, 0)[np.argsort(turn)].tolist(), box)


def active_boxes(shape: tuple[int, ...], probed: NDArray[np.floating], most: float) -> SampledBoxes:
    """The finest boxes, where the values of probes (places, PROBES, components), none above `most`, say that
    much happens, and where they say that less does."""
    numbers = np.where(np.abs(probed.astype(float)) <= most, probed.astype(float), 0.0) / 4
    activity = (numbers.max(axis=1) - numbers.min(axis=1)).sum(axis=-1)
    boxes = sampled_boxes(shape)[0]
    chosen = probes(shape)[0][np.argsort(-activity, kind="stable")[RANKS[:: N_BOXES // len(boxes.starts)]]]
    return replace(boxes, starts=tuple(map(tuple, chosen.tolist())))


def _edges(extents: Box) -> Box:
    """How many points a box has along each axis: BOX and few more in all, about as the roots of the extents.
    Odd numbers, so that points lie between others, or, of short axes, all: there the ends count."""
    # Of one axis this is where the loop ends.
    least = BOX + 1 if len(extents) == 1 else 3
    counts, short = [min(n, least) for n in extents], 1
    for axis, n in enumerate(extents):
        if n <= SHORT and short * n <= MOST_SHORT:
            counts[axis], short = n, short * n
    while (size := prod(counts)) <= BOX:
        longer = {
            axis: min(n, count + 2) for axis, (n, count) in enumerate(zip(extents, counts, strict=True))
            if count < n and size // count * min(n, count + 2) < MOST_POINTS
        }  # fmt: skip
        if not longer:
            break
        axis = min(longer, key=lambda axis: counts[axis] / extents[axis] ** 0.5)
        counts[axis] = longer[axis]
    return tuple(counts)


def counter(q: NDArray[np.int32]) -> Callable[[], int]:
    """What says what the coder `small` takes for the tiles (components, N_BOXES * 4096) that q has then, its
    tables left out, in units of 2^-LOG2_BITS bits: by whole logarithms of how often tokens occur."""
    from tnplan.compress.cpu import rans_encode_kernel as kernel

    arguments, units = rans.counting(q), np.empty(1, np.int64)
    _, histograms, *_, n_raw = arguments
    count = kernel.count.bound(*arguments)
    weigh = kernel.weigh.bound(histograms[0], n_raw, _logs(), units)

    def counted() -> int:
        count()
        weigh()
        return int(units[0])

    return counted


class _Counters(threading.local):
    """Tiles of each shape, and what counts them: of a thread, whose trials take turns."""

    def __init__(self) -> None:
        self._of_shape: dict[tuple[int, int], tuple[NDArray[np.int32], Callable[[], int]]] = {}

    def of_tiles(self, components: int, size: int) -> tuple[NDArray[np.int32], Callable[[], int]]:
        """Tiles (components, size), and their `counter`."""
        if (components, size) not in self._of_shape:
            tiles = np.zeros((components, size), np.int32)
            self._of_shape[components, size] = tiles, counter(tiles)
        return self._of_shape[components, size]


_counters = _Counters()


@cache
def _logs() -> NDArray[np.int64]:
    """n log2 n for as many numbers as the boxes of a level have."""
    return times_log2(max(N_BOXES * BOX, MOST_WHOLE))

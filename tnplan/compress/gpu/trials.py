"""What predictors make of sampled boxes of an array on a device (`cpu.predictor.Trials`).

All that a choice may ask of boxes is tried at once, and then all that it asks of coarse lattices: the host
waits once for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from operator import mul
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu.predictor import (
    BOX,
    MOST_POINTS,
    N_BOXES,
    N_PLACES,
    RANKS,
    SampledBoxes,
    candidates,
    coarse_lattice,
    most_predictable,
    probes,
    sampled_boxes,
)
from tnplan.compress.cpu.rans import count_shape
from tnplan.compress.format import stream
from tnplan.compress.format.bit_tiling import TILE, tile_count
from tnplan.compress.format.box import MOST_AXES, Box, Predictor, box_of_shape, passes, turned
from tnplan.compress.gpu import launches
from tnplan.compress.gpu.launches import WORD_BYTES, DeviceArray, KernelDevice

PLAIN = (0, 1)
"""Numbers as they are, and with neighbours in rounds."""
INTERPOLATION, DIFFERENCES = 2, 3
SHARE = 1 << 10
"""Points of a box that a block takes."""
Tried = tuple[int, int | Predictor]
"""The number of a level, and one of PLAIN or a predictor."""


class TrialTables(NamedTuple):
    """Levels, then trials and their passes, then places and probes, as kernels take them: where the second
    and third begin in `words`, and how many levels, trials, boxes of a level, points of a box and in all, and
    tiles of a trial there are, at most."""

    words: NDArray[np.uint64]
    trials_at: int
    places_at: int
    n_levels: int
    n_trials: int
    n_boxes: int
    most_points: int
    n_points: int
    most_tiles: int


@lru_cache(64)
def box_trials(shape: tuple[int, ...]) -> tuple[TrialTables, dict[Tried, int]]:
    """What a choice may ask of an array's boxes, and the number of each trial."""
    levels = sampled_boxes(shape)
    tried = list[Tried]((0, kind) for kind in PLAIN)
    for predictor in candidates(len(box_of_shape(shape))):
        tried += ((level, predictor) for level in range(1 if predictor.is_lorenzo else len(levels)))
    return _tables(shape, levels, tried, False), {predictor: number for number, predictor in enumerate(tried)}


@lru_cache(64)
def lattice_trials(shape: tuple[int, ...], predictors: tuple[Predictor, ...]) -> TrialTables:
    """Predictors on all points of their coarse lattices."""
    levels = [coarse_lattice(shape, predictor.axes)[1] for predictor in predictors]
    return _tables(shape, levels, list(enumerate(predictors)), True)


def _tables(
    shape: tuple[int, ...], levels: Sequence[SampledBoxes], tried: Sequence[Tried], whole: bool
) -> TrialTables:
    """`whole`: all residuals of one box count, instead of the last ones of boxes, of which the finest are
    where most happens."""
    box, n_boxes, n_points = box_of_shape(shape), len(levels[0].starts), 0
    strides = [prod(box[axis + 1 :]) for axis in turned(box)]
    packed, most_tiles = b"", 0
    for number, boxes in enumerate(levels):
        firsts = [sum(map(mul, first, strides)) for first in boxes.starts]
        skipped, n_tiles = boxes.size - min(boxes.size - 1, BOX), n_boxes * BOX // TILE
        if whole:
            skipped, n_tiles = 0, tile_count(boxes.size)
        elif number == 0:
            firsts = RANKS[:: N_BOXES // n_boxes]
        steps = list(map(mul, boxes.strides, strides))
        packed += launches.level(firsts, steps, boxes.counts, n_points, skipped, n_tiles)
        n_points, most_tiles = n_points + n_boxes * boxes.size, max(most_tiles, n_tiles)
    rows = np.array(_rows(levels, tried), np.uint32).tobytes()
    rows += bytes(-len(rows) % WORD_BYTES)
    places, probed = probes(shape)
    first = places @ np.array(strides)
    behind = np.append(first, probed[0] - first[0]).astype(np.uint64).tobytes()
    trials_at, places_at = len(packed) // WORD_BYTES, len(packed + rows) // WORD_BYTES
    most_points = max(boxes.size for boxes in levels)
    return TrialTables(
        np.frombuffer(packed + rows + behind, np.uint64), trials_at, places_at, len(levels), len(tried),
        n_boxes, most_points, n_points, most_tiles,
    )  # fmt: skip


def _rows(levels: Sequence[SampledBoxes], tried: Sequence[Tried]) -> list[int]:
    """Trials and, behind them, passes, which those of the same axes and extents share."""
    rows, lattices, known = list[int](), list[Box](), dict[Any, tuple[int, int]]()
    for level, trial in tried:
        counts = levels[level].counts
        if not isinstance(trial, Predictor):
            rows += level, trial, 0, 0, 0, 0
        elif trial.is_lorenzo:
            along = sum(1 << axis + MOST_AXES - len(counts) for axis in trial.axes)
            rows += level, DIFFERENCES, 0, along, 0, 0
        else:
            key = counts, trial.axes, trial.is_mean
            if key not in known:
                own = [point_pass.widened(MOST_AXES).lattice for point_pass in passes(counts, trial)]
                known[key] = len(lattices), len(own)
                lattices += own
            rows += level, INTERPOLATION, trial.is_cubic, 0, *known[key]
    return rows + [number for lattice in lattices for number in lattice]


class DeviceTrials:
    """A `cpu.predictor.Trials` of an array on a device, after `begin`."""

    def __init__(self, device: KernelDevice, values: DeviceArray, dtype: str, shape: tuple[int, ...]) -> None:
        self._device, self._values, self._dtype, self._shape = device, values, dtype, shape
        self._n, (self._tables, self._numbers) = stream.components(dtype), box_trials(shape)
        self._words = device.upload(self._tables.words)

    def begin(self, steps: NDArray[np.float64]) -> DeviceTrials:
        """Try all on boxes, for the steps of the array's components."""
        self._steps = launches.steps(steps, most_predictable(steps))
        self._units = self._tried(self._tables, self._words, N_PLACES, launches.SMALL_THREADS)
        return self

    def share_beyond(self) -> float:
        """See `Trials`."""
        level = sampled_boxes(self._shape)[0]
        return self._units[-1] / (self._tables.n_boxes * level.size * self._n)

    def plain(self) -> int:
        """See `Trials`."""
        return min(self._units[self._numbers[0, kind]] for kind in PLAIN)

    def predicted(self, level: int, predictors: Sequence[Predictor]) -> list[int]:
        """See `Trials`."""
        return [self._units[self._numbers[level, predictor]] for predictor in predictors]

    def whole(self, predictors: Sequence[Predictor]) -> list[int]:
        """See `Trials`."""
        if not predictors:
            return []
        tables = lattice_trials(self._shape, tuple(predictors))
        return self._tried(tables, self._device.upload(tables.words), 0, launches.TRIAL_THREADS)[:-1]

    def _tried(self, tables: TrialTables, words: DeviceArray, n_places: int, threads: int) -> list[int]:
        """What trials take, and behind it how many values of the first level are too large."""
        device, n, n_trials, n_boxes = self._device, self._n, tables.n_trials, np.uint32(tables.n_boxes)
        levels, trials = words[: tables.trials_at], words[tables.trials_at : tables.places_at]
        most_tiles, most_points = np.uint32(tables.most_tiles), np.uint32(tables.most_points)
        # Smaller boxes are in a block's own memory.
        n_work = n_trials * n * tables.most_points if tables.most_points > MOST_POINTS else 1
        work = device.empty(n_work, "int32")
        taken = device.empty(n * tables.n_points, stream.real_dtype(self._dtype).name)
        tiles = device.empty(n_trials * tables.most_tiles * n * TILE, "int32")
        counts = device.zeros(n_trials * prod(count_shape(n)), "uint32")
        units = device.zeros(n_trials + 1, "uint64")
        blocks = tables.n_boxes * -(-tables.most_points // SHARE)
        self._launch(
            "take_boxes", blocks, tables.n_levels, self._values, levels, words[tables.places_at :],
            np.uint32(n_places), n_boxes, self._steps, taken, units[n_trials:],
        )  # fmt: skip
        self._launch(
            "try_predictors", tables.n_boxes * n, n_trials, taken, levels, trials, n_boxes, self._steps, work,
            most_points, tiles, most_tiles, threads=threads,
        )  # fmt: skip
        blocks = -(-tables.most_tiles // launches.SMALL_WARPS)
        self._launch("count_trials", blocks, n_trials, levels, trials, tiles, most_tiles, counts, units)
        self._launch("weigh_trials", n_trials, 1, counts, units)
        found: list[int] = device.download(units).tolist()
        return found

    def _launch(
        self, entry: str, blocks: int, n_trials: int, *arguments: Any, threads: int = launches.SMALL_THREADS
    ) -> None:
        self._device.launch(launches.trial(entry, blocks, n_trials, threads), self._dtype, *arguments)

"""Whether an array gets a predictor, and which: by what a few sampled boxes would take.

The boxes are of the array's own points, or of every 4th, 16th, ... along each axis where the finest
points are all foretold: those are what coarser levels see. Knows no array; its boxes are given, from a
host or a device.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu import rans
from tnplan.compress.cpu.prediction.predicted import split
from tnplan.compress.format.bit_tiling import TILE
from tnplan.compress.format.box import LARGEST_FINE, PREDICTORS, SHIFT, Box, Predictor, box_of_shape
from tnplan.compress.format.stream import Header

N_BOXES = 4
LANES = 32
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

TakeBox = Callable[[Box, Box, int], NDArray[np.floating]]
"""Values (n0, n1, n2, components) of a box of points: its first one, how many along each axis, and their
stride."""


def chosen_predictor(header: Header, take_box: TakeBox) -> tuple[Predictor | None, float]:
    """The predictor of an array of which `header` says all but that, and the share of the bytes that its
    samples take with it; None and 1 where it does not pay, or too many fine numbers would be too
    large."""
    if header.size < LEAST_SIZE:
        return None, 1.0
    steps = [rule.step for rule in header.quantizers]
    sample = _boxes(header, take_box, 1)
    most = min(steps) * (LARGEST_FINE >> SHIFT)
    if np.mean([np.mean(np.abs(one) > most) for one in sample]) > MOST_BEYOND:
        return None, 1.0
    plain = min(_cost([_plain(one, steps, turned) for one in sample]) for turned in (False, True))
    best, least = FIRST_TRIED, _cost([_residuals(one, steps, FIRST_TRIED) for one in sample])
    if least >= WORTH * plain:
        return None, 1.0
    n_numbers, share, stride = len(sample) * TILE * len(steps), least / plain, 1
    while True:
        costs = [
            (_cost([_residuals(one, steps, tried) for one in sample]), tried.code, tried)
            for tried in PREDICTORS
        ]
        least, _, best = min(costs)
        stride *= COARSER
        if least > FORETOLD_BITS * n_numbers or prod(_extents(header, stride)) < LEAST_SIZE:
            return best, share
        sample = _boxes(header, take_box, stride)


def _extents(header: Header, stride: int) -> Box:
    n0, n1, n2 = box_of_shape(header.shape)
    return -(-n0 // stride), -(-n1 // stride), -(-n2 // stride)


def _boxes(header: Header, take_box: TakeBox, stride: int) -> list[NDArray[np.float64]]:
    """Sampled boxes in double precision, spread over the array along each axis in another order."""
    extents = _extents(header, stride)
    edge = EDGES[max(sum(n > 1 for n in extents), 1) - 1]
    counts = [min(n, edge) for n in extents]
    for axis in (2, 1, 0):
        others = prod(counts) // counts[axis]
        counts[axis] = min(extents[axis], max(counts[axis], -(-TILE // others) + 1))
    found = []
    for k in range(N_BOXES):
        parts = [(2 * k + 1) * odd % (2 * N_BOXES) for odd in (1, 3, 5)]
        starts = [
            (n - m) * part // (2 * N_BOXES) * stride
            for n, m, part in zip(extents, counts, parts, strict=True)
        ]
        taken = take_box((starts[0], starts[1], starts[2]), (counts[0], counts[1], counts[2]), stride)
        found.append(taken.astype(np.float64))
    return found


def _whole(values: NDArray[np.floating], unit: float) -> NDArray[np.int32]:
    """Whole numbers of so large a unit, 0 for what is too large, or no number."""
    with np.errstate(over="ignore"):
        scaled = np.rint(values / unit)
    return np.where(np.abs(scaled) <= LARGEST_FINE, scaled, 0).astype(np.int32)


def _plain(box: NDArray[np.floating], steps: list[float], turned: bool) -> NDArray[np.int32]:
    """A tile of numbers (components, 4096) as they are; `turned`: neighbours are in rounds instead of
    lanes."""
    tile = np.zeros((len(steps), TILE), np.int32)
    for c, step in enumerate(steps):
        flat = _whole(box[..., c].reshape(-1)[:TILE], step)
        tile[c, : flat.size] = flat
    if turned:
        return np.ascontiguousarray(tile.reshape(-1, LANES, TILE // LANES).transpose(0, 2, 1)).reshape(
            tile.shape
        )
    return tile


def _residuals(box: NDArray[np.floating], steps: list[float], predictor: Predictor) -> NDArray[np.int32]:
    """A tile of the finest residuals of a box."""
    tile = np.zeros((len(steps), TILE), np.int32)
    extents = box.shape[0], box.shape[1], box.shape[2]
    for c, step in enumerate(steps):
        fine = _whole(box[..., c].reshape(-1), step / (1 << SHIFT))
        residuals = np.empty_like(fine)
        split(fine, extents, predictor, residuals)
        last = residuals[1:][-TILE:]
        tile[c, : last.size] = last
    return tile


def _cost(tiles: list[NDArray[np.int32]]) -> float:
    """The bits that the coder `small` takes for tiles, its tables left out."""
    from tnplan.compress.cpu import rans_encode_kernel as kernel

    q = np.concatenate(tiles, axis=1)
    counts = np.zeros(rans.count_shape(q.shape[0]), np.int64)
    raw = int(kernel.count(q, counts, np.empty(q.shape, np.uint16), np.empty(q.shape, np.uint8)))
    totals = np.broadcast_to(counts.sum(axis=1, keepdims=True), counts.shape)
    used = counts > 0
    return raw + float((counts[used] * np.log2(totals[used] / counts[used])).sum())

"""What the host must know of an array on a device: extents, reflection, counts of neighbours; and what
predictors make of sampled boxes, where one may be chosen.

The host waits once for each of the two.
"""

from __future__ import annotations

from ctypes import Array, c_char
from functools import lru_cache
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu.predictor import (
    MOST_POINTS,
    N_BOXES,
    most_predictable,
    sampled_boxes,
)
from tnplan.compress.cpu.rans import count_shape
from tnplan.compress.format import stream
from tnplan.compress.format.bit_tiling import CLASSES, SAMPLE, TILE
from tnplan.compress.format.bounds import Extent
from tnplan.compress.format.box import REFLECTIONS, Predictor, box_of_shape, passes
ORDERS = ((2, 1, 0), (0, 1, 2))
from tnplan.compress.gpu import launches
from tnplan.compress.gpu.launches import WORD_BYTES, DeviceArray, KernelDevice

SURVEY_BLOCKS = 1 << 9
"""Blocks that survey an array together: as many as a GPU holds at once, since each ends with atomics."""
SAMPLE_BLOCKS = 64


def survey_blocks(size: int) -> int:
    """The blocks that survey so many pairs of elements."""
    return max(1, min(SURVEY_BLOCKS, size // TILE))


class SurveyKernels:
    """The kernels of survey.cu under way on an array of `size` elements, which write to `extents`, and for
    `n_axes` axes to `counts`. The host waits once, in `results`: the device itself computes the class of a
    number."""

    def __init__(
        self, device: KernelDevice, values: DeviceArray, dtype: str, size: int, bound: Any, n_axes: int
    ) -> None:
        self.device, self.dtype, self.size, self.bound, self.n_axes = device, dtype, size, bound, n_axes
        self.n, self.real = stream.components(dtype), stream.real_dtype(dtype)
        if not size:
            return
        n_extents, width = 4 * self.n + 3, self.real.itemsize
        words = n_extents + n_axes * CLASSES * CLASSES * 4 // width
        self.extents = device.zeros(words, f"uint{8 * width}")
        device.launch(
            launches.survey("survey", survey_blocks(size // 2)), dtype, values, np.uint64(size), self.extents
        )
        self.counts = self.extents[n_extents:]
        if n_axes:
            box, self._wait = device.mailbox(-(-words * width // WORD_BYTES))
            device.launch(
                launches.neighbours(SAMPLE_BLOCKS, n_axes), dtype, values, np.uint64(size), bound,
                np.uint32(SAMPLE), np.uint32(n_axes), self.extents, self.counts,
                np.uint32(words * width // 4), box,
            )  # fmt: skip

    def results(self) -> tuple[list[Extent], str, NDArray[np.uint32]]:
        """The extents of the parts of the array, which of `REFLECTIONS` it is, and how often pairs of classes
        occur along each axis (n_axes, CLASSES, CLASSES)."""
        n = self.n
        if not self.size:
            empty = [Extent(inf, -inf, inf, False, False)] * n
            return empty, REFLECTIONS[0], np.zeros((0, CLASSES, CLASSES), np.uint32)
        if self.n_axes:
            host = self._wait().view(self.extents.dtype)[: self.extents.size]
        else:
            host = self.device.download(self.extents)
        changed, flipped = host[4 * n : 4 * n + 2]
        kind = 1 if not changed else 2 if not flipped else 0
        reflection = REFLECTIONS[kind if self.size > 1 else 0]
        counts = host[4 * n + 3 :].view(np.uint32).reshape(self.n_axes, CLASSES, CLASSES)
        return [_extent(host[4 * c : 4 * c + 4], self.real) for c in range(n)], reflection, counts


def _extent(ranks: NDArray[Any], real: np.dtype[np.floating]) -> Extent:
    """From the results of survey.cu: complements and ranks of bits."""
    width = 8 * real.itemsize
    sign, all_ones = 1 << (width - 1), (1 << width) - 1
    least, greatest, normal, any_nonfinite = ranks.tolist()
    if not greatest:
        return Extent(inf, -inf, inf, False, bool(any_nonfinite))
    bits = [rank ^ sign if rank & sign else rank ^ all_ones for rank in (least ^ all_ones, greatest)]
    reach = np.array([*bits, normal ^ all_ones], ranks.dtype).view(real).tolist()
    return Extent(reach[0], reach[1], reach[2] if normal else inf, True, bool(any_nonfinite))


class Sampler:
    """An array whose boxes a device may sample: all trials of all levels are one launch."""

    def __init__(self, device: KernelDevice, values: DeviceArray, dtype: str, shape: tuple[int, ...]) -> None:
        self.device, self.values, self.dtype, self.shape = device, values, dtype, shape
        self.boxes, words = _boxes_and_passes(shape)
        self.passes = device.upload(words)

    def trials(self, steps: NDArray[np.float64]) -> DeviceTrials:
        """All trials, for the steps of the array's components."""
        levels, n = sampled_boxes(self.shape), stream.components(self.dtype)
        n_frames, n_spans = launches.TRIALS * len(levels), 2 * len(ORDERS) * len(levels)
        n_tables, n_tokens = count_shape(n)
        counts = self.device.zeros(n_frames * n_tables * n_tokens, "uint32")
        units = self.device.zeros(n_frames + 1, "uint64")
        tiles = self.device.empty(n_frames * N_BOXES * n * TILE, "int32")
        _, n1, n2 = box_of_shape(self.shape)
        self.device.launch(
            launches.try_predictors(N_BOXES * len(levels)), self.dtype, self.values, np.uint64(n1),
            np.uint64(n2), self.boxes, launches.steps(steps, most_predictable(steps)), self.passes[:n_spans],
            self.passes[n_spans:], tiles, counts, units,
        )  # fmt: skip
        self.device.launch(launches.weigh_trials(len(levels)), self.dtype, counts, units)
        return DeviceTrials(self.device.download(units), N_BOXES * levels[0].size * n)


class DeviceTrials:
    """A `cpu.predictor.Trials` of what a device has counted: units (levels, trials), and behind them how
    many values are too large."""

    def __init__(self, counted: NDArray[np.uint64], n_values: int) -> None:
        self._units = counted[:-1].reshape(-1, launches.TRIALS).tolist()
        self._beyond = int(counted[-1]) / n_values

    def share_beyond(self) -> float:
        """See `Trials`."""
        return self._beyond

    def plain(self) -> int:
        """See `Trials`."""
        return int(min(self._units[0][: launches.PLAIN_TRIALS]))

    def predicted(self, level: int, predictor: Predictor) -> int:
        """See `Trials`."""
        return int(self._units[level][launches.PLAIN_TRIALS + predictor.code - 1])


@lru_cache(64)
def _boxes_and_passes(shape: tuple[int, ...]) -> tuple[Array[c_char], NDArray[np.uint32]]:
    """The sampled boxes of an array of this shape as a kernel takes them; the first pass of each level and
    order of axes with their number, and behind these all passes."""
    _, n1, n2 = box_of_shape(shape)
    rows, spans, lattices = list[tuple[int, ...]](), list[int](), list[tuple[int, ...]]()
    for level in sampled_boxes(shape):
        assert level.size < MOST_POINTS
        rows += [((z * n1 + y) * n2 + x, level.stride, *level.counts) for z, y, x in level.starts]
        for order in range(len(ORDERS)):
            own = passes(level.counts, order)
            spans += [len(lattices), len(own)]
            lattices += [point_pass.lattice for point_pass in own]
    return launches.sampled_boxes(rows), np.array([*spans, *np.ravel(lattices)], np.uint32)

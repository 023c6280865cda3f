"""What the host must know of an array on a device: extents, reflection, counts of neighbours; and what
predictors make of sampled boxes, where one may be chosen.

The host waits once for the survey, and for each choice among predictors.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu.predictor import (
    BOX,
    MOST_POINTS,
    SampledBoxes,
    active_boxes,
    coarse_lattice,
    most_predictable,
    probes,
    sampled_boxes,
    whole_units,
)
from tnplan.compress.cpu.rans import count_shape
from tnplan.compress.format import stream
from tnplan.compress.format.bit_tiling import CLASSES, SAMPLE, TILE
from tnplan.compress.format.bounds import Extent
from tnplan.compress.format.box import MOST_AXES, REFLECTIONS, Predictor, box_of_shape, passes, turned
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


class DeviceTrials:
    """A `cpu.predictor.Trials` of an array on a device."""

    def __init__(
        self, device: KernelDevice, values: DeviceArray, dtype: str, shape: tuple[int, ...],
        steps: NDArray[np.float64],
    ) -> None:  # fmt: skip
        self._device, self._values, self._dtype, self._shape = device, values, dtype, shape
        self._n, self._most, (_, numbers) = stream.components(dtype), most_predictable(steps), probes(shape)
        self._steps, self._steps_of_parts = launches.steps(steps, self._most), steps
        probed = device.empty(numbers.size * self._n, stream.real_dtype(dtype).name)
        self._launch(
            "take_elements", 1, 1, values, device.upload(numbers.astype(np.uint64).reshape(-1)),
            np.uint32(numbers.size), probed,
        )  # fmt: skip
        active = active_boxes(shape, device.download(probed).reshape(*numbers.shape, self._n), self._most)
        self._levels = active, *sampled_boxes(shape)[1:]
        self._beyond = device.zeros(1, "uint64")
        self._samples: dict[int, DeviceArray] = {}

    def share_beyond(self) -> float:
        """See `Trials`."""
        self._sample(0)
        boxes = self._levels[0]
        return int(self._device.download(self._beyond)[0]) / (len(boxes.starts) * boxes.size * self._n)

    def plain(self) -> int:
        """See `Trials`."""
        return min(self._units(0, [(0, 0, 0, 0, 0), (1, 0, 0, 0, 0)], []))

    def predicted(self, level: int, predictors: Sequence[Predictor]) -> list[int]:
        """See `Trials`."""
        rows, lattices = list[tuple[int, ...]](), list[tuple[int, ...]]()
        counts = self._levels[level].counts
        for one in predictors:
            if one.is_lorenzo:
                along = sum(1 << axis + MOST_AXES - len(counts) for axis in one.axes)
                rows.append((3, 0, along, 0, 0))
                continue
            own = passes(counts, one)
            rows.append((2, one.is_cubic, 0, len(lattices), len(own)))
            lattices += [point_pass.widened(MOST_AXES).lattice for point_pass in own]
        return self._units(level, rows, lattices)

    def _units(self, level: int, trials: list[tuple[int, ...]], lattices: list[tuple[int, ...]]) -> list[int]:
        """What trials take, which are those of trial.cu."""
        (n_tables, n_tokens), n_boxes = count_shape(self._n), len(self._levels[level].starts)
        counts = self._device.zeros(len(trials) * n_tables * n_tokens, "uint32")
        units = self._device.zeros(len(trials), "uint64")
        tiles = self._device.empty(len(trials) * n_boxes * self._n * BOX, "int32")
        tables = np.ravel(trials).astype(np.uint32), np.ravel(lattices or [(0,)]).astype(np.uint32)
        words = map(self._device.upload, tables)
        box = launches.box(self._levels[level].counts, MOST_AXES)
        self._launch(
            "try_predictors", n_boxes // 2, len(trials), self._sample(level), box, self._steps, *words, tiles,
            counts, units,
        )  # fmt: skip
        self._launch("weigh_trials", len(trials), 1, counts, units)
        return [int(one) for one in self._device.download(units)]

    def whole(self, predictor: Predictor) -> int:
        """See `Trials`; counted on the host."""
        boxes = coarse_lattice(self._shape, predictor.axes)[1]
        points = self._device.download(self._take(boxes, self._device.zeros(1, "uint64")))
        return whole_units(points.reshape(-1, self._n), boxes.counts, predictor, self._steps_of_parts)

    def _sample(self, level: int) -> DeviceArray:
        """The values (boxes, points, components) of a level's boxes."""
        if level not in self._samples:
            assert self._levels[level].size < MOST_POINTS
            beyond = self._beyond if level == 0 else self._device.zeros(1, "uint64")
            self._samples[level] = self._take(self._levels[level], beyond)
        return self._samples[level]

    def _take(self, boxes: SampledBoxes, beyond: DeviceArray) -> DeviceArray:
        """The values of boxes; those that are too large are added to `beyond`."""
        whole = box_of_shape(self._shape)
        strides = [prod(whole[axis + 1 :]) for axis in turned(whole)]
        firsts = [sum(map(mul, first, strides)) for first in boxes.starts]
        taken = self._device.empty(len(firsts) * boxes.size * self._n, stream.real_dtype(self._dtype).name)
        places = launches.sampled_boxes(firsts, list(map(mul, boxes.strides, strides)), boxes.counts)
        shares = -(-boxes.size // TILE)
        self._launch("take_boxes", len(firsts), shares, self._values, places, self._steps, taken, beyond)
        return taken

    def _launch(self, entry: str, blocks: int, n_trials: int, *arguments: Any) -> None:
        self._device.launch(launches.trial(entry, blocks, n_trials), self._dtype, *arguments)

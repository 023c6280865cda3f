"""What a codec asks of an array on a device: extents, symmetry, a sample, sums.

The host waits once for a survey, and twice more where 'auto' chooses a coder by what samples take. Knows no
CuPy; the device is given (`tnplan.compress.gpu.device.KernelDevice`).
"""

from __future__ import annotations

from ctypes import Array, c_char
from dataclasses import replace
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu.codec import worst_size_bytes
from tnplan.compress.cpu.frame import filled
from tnplan.compress.cpu.prediction.predictor_choice import chosen_predictor, sampled_boxes
from tnplan.compress.format import stream
from tnplan.compress.format.box import box_of_shape, may_be_smooth
from tnplan.compress.format.choice import Limits, axis_count, chosen_header, trial_pieces
from tnplan.compress.format.options import CodingOptions
from tnplan.compress.format.reflection import REFLECTIONS
from tnplan.compress.format.stream import FRAME_HEADER_BYTES, Header
from tnplan.compress.gpu import launches
from tnplan.compress.gpu.device import DeviceArray, KernelDevice, block_count
from tnplan.compress.gpu.encode import encode
from tnplan.compress.gpu.look import Look

OVERLAP_BLOCKS = 16
OVERLAP_SUMS = 4 * OVERLAP_BLOCKS


class SampledValues:
    """Boxes of an array's values on their way to the host (`cpu.prediction.predictor_choice`).

    All are taken at once. The host waits for the finest ones, and once more for all coarser ones, if they are
    asked for.
    """

    def __init__(self, device: KernelDevice, values: DeviceArray, dtype: str, shape: tuple[int, ...]) -> None:
        self.device, self.n, self.levels = device, stream.components(dtype), sampled_boxes(shape)
        boxes, self.ends = _placed_boxes(shape)
        self.sample = device.empty(self.n * self.ends[-1], stream.real_dtype(dtype).name)
        launch = launches.take_boxes(
            sum(len(level.starts) for level in self.levels), max(level.size for level in self.levels)
        )
        extents = map(np.uint64, box_of_shape(shape)[1:])
        device.launch(launch, dtype, values, *extents, boxes, self.sample)
        self.coarser: NDArray[np.floating] | None = None

    def take(self, level: int) -> NDArray[np.floating]:
        """Values (boxes, points, components) of a level's boxes."""
        first = self.n * self.ends[0]
        if level == 0:
            found = self.device.download(self.sample[:first])
        else:
            if self.coarser is None:
                self.coarser = self.device.download(self.sample[first:])
            begin, end = (self.n * end - first for end in self.ends[level - 1 : level + 1])
            found = self.coarser[begin:end]
        return found.reshape(len(self.levels[level].starts), self.levels[level].size, self.n)


@lru_cache(64)
def _placed_boxes(shape: tuple[int, ...]) -> tuple[Array[c_char], tuple[int, ...]]:
    """The sampled boxes of an array of this shape as a kernel takes them, and where the levels end."""
    _, n1, n2 = box_of_shape(shape)
    rows, ends, at = list[tuple[int, ...]](), list[int](), 0
    for level in sampled_boxes(shape):
        for z, y, x in level.starts:
            rows.append(((z * n1 + y) * n2 + x, at, level.stride, *level.counts))
            at += level.size
        ends.append(at)
    return launches.sampled_boxes(rows), tuple(ends)


def _may_predict(shape: tuple[int, ...], options: CodingOptions) -> bool:
    """Whether samples may be asked for, as far as shape and options tell."""
    asked = options.predict and options.setting != "fast" and options.bound and options.mode != "pointwise"
    return bool(asked and may_be_smooth(shape) and sampled_boxes(shape))


class Survey:
    """An array that the device is looking at; `header` waits for what it finds."""

    def __init__(
        self, device: KernelDevice, values: DeviceArray, dtype: str, shape: tuple[int, ...],
        options: CodingOptions,
    ) -> None:  # fmt: skip
        self.device, self.values, self.dtype, self.shape = device, values, dtype, shape
        self.options, self.size = options, prod(shape)
        most_axes = axis_count(self.size, options.frame_log2) if options.bound else 0
        bound = launches.bound(options.bound, options.mode, dtype)
        self.look = Look(device, values, dtype, self.size, bound, most_axes)
        self.samples = SampledValues(device, values, dtype, shape) if _may_predict(shape, options) else None

    def header(self) -> tuple[Header, Limits]:
        """The header of the array's stream, and the largest errors of its parts."""
        reaches, reflection, counts = self.look.found_out()

        def trial_bytes(header: Header, limits: Limits) -> int:
            return _trial_bytes(self.device, self.values, header, limits)

        def count_classes(header: Header, limits: Limits, n_axes: int) -> NDArray[np.uint32]:
            return counts[:n_axes]

        found = reaches, reflection
        return chosen_header(
            self.dtype, self.shape, self.options, found, trial_bytes, count_classes,
            lambda header: chosen_predictor(header, self.samples.take) if self.samples else (None, 1.0),
        )  # fmt: skip


def survey(
    device: KernelDevice, values: DeviceArray, dtype: str, shape: tuple[int, ...], options: CodingOptions
) -> tuple[Header, Limits]:
    """The header of an array's stream, and the largest errors of its parts."""
    return Survey(device, values, dtype, shape, options).header()


def _trial_bytes(device: KernelDevice, values: DeviceArray, header: Header, limits: Limits) -> int:
    """The bytes that some pieces of the values take with the header's coder, as one frame."""
    n, pieces = header.components, trial_pieces(header.stored)
    count = sum(piece for _, piece in pieces)
    trial = replace(header, shape=(count,), reflection=REFLECTIONS[0], frame_log2=stream.FRAME_LOG2)
    sample, at = device.empty(n * count, header.real_dtype.name), 0
    for start, piece in pieces:
        sample[at : at + n * piece] = values[n * start : n * (start + piece)]
        at += n * piece
    out = device.empty(filled(worst_size_bytes(trial.shape, trial.dtype)), "uint8")
    beside = stream.header_size_bytes(1, n) + FRAME_HEADER_BYTES
    return encode(device, sample, trial, limits, out) - (beside if count else 0)


def squares(device: KernelDevice, reals: DeviceArray, dtype: str) -> DeviceArray:
    """Parts of the sum of squares of an array's flat real numbers, in double precision."""
    sums = device.empty(block_count(reals.size), "float64")
    device.launch(launches.survey("sum_squares", sums.size), dtype, reals, np.uint64(reals.size), sums)
    return sums


def add_overlaps(
    device: KernelDevice, dtype: str, sample: DeviceArray, values: DeviceArray, stride: int, sums: DeviceArray
) -> None:
    """Add to `sums` (OVERLAP_SUMS, float64) what a sample and every `stride`-th of the values give."""
    device.launch(
        launches.survey("add_overlaps", OVERLAP_BLOCKS), dtype, sample, values, np.uint64(sample.size),
        np.uint64(stride), sums,
    )  # fmt: skip


def overlap_sums(device: KernelDevice, sums: DeviceArray) -> Limits:
    """The sums of the real and imaginary parts of conj(x) y, of |x|^2 and of |y|^2, x sampled, y values."""
    return tuple(map(float, device.download(sums).reshape(OVERLAP_BLOCKS, -1).sum(axis=0)))

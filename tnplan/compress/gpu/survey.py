"""An array on a device to its stream: surveyed, and coded while the host waits for the results.

A survey gives what a codec needs: extents, symmetry, a sample, sums.
The host waits once for a survey, once or twice more where a predictor may be chosen, and twice more where
'auto' chooses a coder by what samples take. Knows no CuPy but `tnplan.compress.gpu.launches.KernelDevice`.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu.codec import worst_size_bytes
from tnplan.compress.cpu.frame import filled
from tnplan.compress.cpu.predictor import chosen_predictor, sampled_boxes
from tnplan.compress.format import stream
from tnplan.compress.format.box import REFLECTIONS
from tnplan.compress.format.choice import (
    RANKED_FROM,
    ArrayFacts,
    CodingOptions,
    Limits,
    axis_count,
    chosen_header,
    trial_pieces,
)
from tnplan.compress.format.stream import FRAME_HEADER_BYTES, Header
from tnplan.compress.gpu import launches
from tnplan.compress.gpu.encode import encode, go_on
from tnplan.compress.gpu.fixed_length import Ahead
from tnplan.compress.gpu.frames import check_capacity
from tnplan.compress.gpu.launches import DeviceArray, KernelDevice, block_count
from tnplan.compress.gpu.survey_kernels import SurveyKernels
from tnplan.compress.gpu.trials import DeviceTrials

OVERLAP_BLOCKS = 16
OVERLAP_SUMS = 4 * OVERLAP_BLOCKS


class Survey:
    """An array that the device examines; `header` waits for the results."""

    def __init__(
        self, device: KernelDevice, values: DeviceArray, dtype: str, shape: tuple[int, ...],
        options: CodingOptions,
    ) -> None:  # fmt: skip
        self.device, self.values, self.dtype, self.shape = device, values, dtype, shape
        self.options, self.size = options, prod(shape)
        most_axes = axis_count(self.size, options.frame_log2) if options.bound else 0
        bound = launches.bound(options.bound, options.mode, dtype)
        self.kernels = SurveyKernels(device, values, dtype, self.size, bound, most_axes)
        self.trials = None
        if options.bound and options.predict and options.setting != "fast" and sampled_boxes(shape):
            # What is uploaded comes while the array is looked at.
            self.trials = DeviceTrials(device, values, dtype, shape)

    def header(self) -> tuple[Header, Limits]:
        """The header of the array's stream, and the largest errors of its parts."""
        reaches, reflection, counts = self.kernels.results()

        def trial_bytes(header: Header, limits: Limits) -> int:
            return _trial_bytes(self.device, self.values, header, limits)

        def count_classes(header: Header, limits: Limits, n_axes: int) -> NDArray[np.uint32]:
            return counts[:n_axes]

        def trials(steps: NDArray[np.float64]) -> DeviceTrials:
            assert self.trials
            return self.trials.begin(steps)

        facts = ArrayFacts(self.dtype, self.shape, reaches, reflection)
        return chosen_header(
            self.options, facts, trial_bytes, count_classes,
            lambda header: chosen_predictor(header, trials),
        )  # fmt: skip


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


def write(
    device: KernelDevice, values: DeviceArray, dtype: str, shape: tuple[int, ...], options: CodingOptions,
    out: DeviceArray,
) -> tuple[Header, tuple[float, ...], int]:  # fmt: skip
    """The stream of an array's flat real numbers in `out` (bytes, from a multiple of 8 on): its header, the
    largest errors of the array's parts, and how many bytes were written.

    As `gpu.survey.Survey` and `gpu.encode.encode` one after the other, byte for byte, and with their errors.
    """
    survey, frame_log2 = Survey(device, values, dtype, shape, options), options.frame_log2
    ahead, has_rule = None, options.bound and options.mode != "pointwise"
    if options.setting == "fast" and has_rule and _is_regular(survey.size, frame_log2):
        start = stream.header_size_bytes(len(shape), stream.components(dtype))
        check_capacity(out, start)
        # Kernels choose the rule and code by it before the host knows what was found.
        ahead = Ahead(device, values, survey.kernels, frame_log2, out, start)
    try:
        header, limits = survey.header()
    finally:
        if ahead:
            # Invariant: no kernel writes into `out` any more when this function is left, also by an error.
            ahead.wait()
    if not ahead:
        return header, limits, encode(device, values, header, limits, out)
    # Where the host chooses another header, what was coded ahead is thrown away.
    if ahead.suits(header, limits):
        n_full = max(1, header.stored >> frame_log2)
        return header, limits, go_on(ahead.writer, values, header, limits, min(ahead.count, n_full))
    ahead.writer.wait_for_end()
    return header, limits, encode(device, values, header, limits, out)


def _is_regular(size: int, frame_log2: int) -> bool:
    """Whether axes are ranked and the first frames of equal size, be half of the array stored or all."""
    return size >= 2 * RANKED_FROM and (size & (size - 1) == 0 or size >= 2 << frame_log2)

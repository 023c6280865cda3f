"""What a codec asks of an array on a device: extents, symmetry, a sample, sums.

The host waits once for a survey, and twice more where 'auto' chooses a coder by what samples take. Knows no
CuPy; the device is given (`tnplan.compress.gpu.device.Device`).
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.cpu.codec import (
    WORTH,
    axis_count,
    nonfinite_refused,
    ranked_axis_count,
    trial_pieces,
    with_axes,
    worst_size_bytes,
)
from tnplan.compress.cpu.frame import filled
from tnplan.compress.format import stream
from tnplan.compress.format.bit_tiling import CLASSES, NATURAL, SAMPLE, TILE
from tnplan.compress.format.bounds import Extent, check_bound, error_limit, quantizer
from tnplan.compress.format.reflection import MIRRORS
from tnplan.compress.format.stream import FRAME_HEADER_BYTES, Header, Quantizer
from tnplan.compress.gpu import launches
from tnplan.compress.gpu.device import WORD_BYTES, Device, DeviceArray, block_count
from tnplan.compress.gpu.encode import encode

SURVEY_BLOCKS = 1 << 9
"""Blocks that survey an array together: as many as a GPU holds at once, since each ends with atomics."""
SAMPLE_BLOCKS = 64
OVERLAP_BLOCKS = 16
OVERLAP_SUMS = 4 * OVERLAP_BLOCKS


def survey_blocks(size: int) -> int:
    """The blocks that survey so many pairs of elements."""
    return max(1, min(SURVEY_BLOCKS, size // TILE))


class Survey:
    """An array that the device is looking at; `header` waits for what it finds. `coder` may be 'auto'."""

    def __init__(
        self, device: Device, values: DeviceArray, dtype: str, shape: tuple[int, ...], bound: float,
        mode: str, coder: str, frame_log2: int,
    ) -> None:  # fmt: skip
        self.bound = check_bound(bound, mode)
        self.device, self.values, self.dtype, self.shape = device, values, dtype, shape
        self.mode, self.coder, self.frame_log2 = mode, coder, frame_log2
        self.size = prod(shape)
        most_axes = axis_count(self.size, frame_log2) if self.bound else 0
        self.look = Look(device, values, dtype, self.size, launches.bound(self.bound, mode, dtype), most_axes)

    def header(self, nonfinite: str) -> tuple[Header, tuple[float, ...]]:
        """The header of the array's stream, and the largest errors of its parts."""
        reaches, mirror, counts = self.look.found_out()
        if nonfinite == "refuse" and any(one.any_nonfinite for one in reaches):
            raise nonfinite_refused()
        bound, mode, n = self.bound, self.mode, stream.components(self.dtype)
        real = stream.real_dtype(self.dtype)
        made = [quantizer(one, bound, mode, real) for one in reaches] if bound else [None]
        lossy = tuple(one for one in made if one is not None)
        if len(lossy) < len(made):
            none = (Quantizer(),) * n
            bare = Header(
                self.dtype, self.shape, "lossless", bound, "lossless", mirror, none, NATURAL, self.frame_log2
            )
            return bare, (0.0,) * n
        limits = tuple(0.0 if mode == "pointwise" else error_limit(one, bound, mode) for one in reaches)
        first = "fast" if self.coder == "auto" else self.coder
        header = Header(self.dtype, self.shape, mode, bound, first, mirror, lossy, NATURAL, self.frame_log2)
        if self.coder == "auto":
            fast, small = (
                _trial_bytes(self.device, self.values, replace(header, coder=name), limits)
                for name in ("fast", "small")
            )
            header = replace(header, coder="small" if small * WORTH < fast else "fast")
        n_axes = ranked_axis_count(header)
        return with_axes(header, counts[:n_axes]) if n_axes else header, limits


def survey(
    device: Device, values: DeviceArray, dtype: str, shape: tuple[int, ...], bound: float, mode: str,
    coder: str, frame_log2: int, *, nonfinite: str = "keep",
) -> tuple[Header, tuple[float, ...]]:  # fmt: skip
    """The header of an array's stream, and the largest errors of its parts. `coder` may be 'auto'."""
    return Survey(device, values, dtype, shape, bound, mode, coder, frame_log2).header(nonfinite)


def _trial_bytes(device: Device, values: DeviceArray, header: Header, limits: tuple[float, ...]) -> int:
    """The bytes that some pieces of the values take with the header's coder, as one frame."""
    n, pieces = header.components, trial_pieces(header.stored)
    count = sum(piece for _, piece in pieces)
    trial = replace(header, shape=(count,), mirror=MIRRORS[0], frame_log2=stream.FRAME_LOG2)
    sample, at = device.empty(n * count, header.real_dtype.name), 0
    for start, piece in pieces:
        sample[at : at + n * piece] = values[n * start : n * (start + piece)]
        at += n * piece
    out = device.empty(filled(worst_size_bytes(trial.shape, trial.dtype)), "uint8")
    beside = stream.header_size_bytes(1, n) + FRAME_HEADER_BYTES
    return encode(device, sample, trial, limits, out) - (beside if count else 0)


def extents(device: Device, values: DeviceArray, dtype: str, size: int) -> tuple[list[Extent], str]:
    """The extents of the parts of an array of so many elements, and which of `MIRRORS` it is."""
    return Look(device, values, dtype, size, launches.bound(0.0, "range", dtype), 0).found_out()[:2]


class Look:
    """The kernels of survey.cu under way on an array of `size` elements. found, counts: where they write, of
    as many axes as asked for. The host waits once, in `found_out`: what a number's class is, the device finds
    out for itself."""

    def __init__(
        self, device: Device, values: DeviceArray, dtype: str, size: int, bound: Any, n_axes: int
    ) -> None:
        self.device, self.size, self.bound, self.n_axes = device, size, bound, n_axes
        self.n, self.real = stream.components(dtype), stream.real_dtype(dtype)
        if not size:
            return
        n_found, width = 4 * self.n + 3, self.real.itemsize
        words = n_found + n_axes * CLASSES * CLASSES * 4 // width
        self.found = device.zeros(words, f"uint{8 * width}")
        device.launch(
            launches.survey("survey", survey_blocks(size // 2)), dtype, values, np.uint64(size), self.found
        )
        self.counts = self.found[n_found:]
        if n_axes:
            box, self.told = device.mailbox(-(-words * width // WORD_BYTES))
            device.launch(
                launches.neighbours(SAMPLE_BLOCKS, n_axes), dtype, values, np.uint64(size), bound,
                np.uint32(SAMPLE), np.uint32(n_axes), self.found, self.counts, np.uint32(words * width // 4),
                box,
            )  # fmt: skip

    def found_out(self) -> tuple[list[Extent], str, NDArray[np.uint32]]:
        """As `extents`, and how often pairs of classes occur along each axis (n_axes, CLASSES, CLASSES)."""
        n = self.n
        if not self.size:
            empty = [Extent(inf, -inf, inf, False, False)] * n
            return empty, MIRRORS[0], np.zeros((0, CLASSES, CLASSES), np.uint32)
        if self.n_axes:
            host = self.told().view(self.found.dtype)[: self.found.size]
        else:
            host = self.device.download(self.found)
        changed, flipped = host[4 * n : 4 * n + 2]
        kind = 1 if not changed else 2 if not flipped else 0
        mirror = MIRRORS[kind if self.size > 1 else 0]
        counts = host[4 * n + 3 :].view(np.uint32).reshape(self.n_axes, CLASSES, CLASSES)
        return [_extent(host[4 * c : 4 * c + 4], self.real) for c in range(n)], mirror, counts


def squares(device: Device, reals: DeviceArray, dtype: str) -> DeviceArray:
    """Parts of the sum of squares of an array's flat real numbers, in double precision."""
    sums = device.empty(block_count(reals.size), "float64")
    device.launch(launches.survey("sum_squares", sums.size), dtype, reals, np.uint64(reals.size), sums)
    return sums


def add_overlaps(
    device: Device, dtype: str, sample: DeviceArray, values: DeviceArray, stride: int, sums: DeviceArray
) -> None:
    """Add to `sums` (OVERLAP_SUMS, float64) what a sample and every `stride`-th of the values give."""
    device.launch(
        launches.survey("add_overlaps", OVERLAP_BLOCKS), dtype, sample, values, np.uint64(sample.size),
        np.uint64(stride), sums,
    )  # fmt: skip


def overlap_sums(device: Device, sums: DeviceArray) -> tuple[float, ...]:
    """The sums of the real and imaginary parts of conj(x) y, of |x|^2 and of |y|^2, x sampled, y values."""
    return tuple(map(float, device.download(sums).reshape(OVERLAP_BLOCKS, -1).sum(axis=0)))


def _extent(found: NDArray[Any], real: np.dtype[np.floating]) -> Extent:
    """From what survey.cu found: complements and ranks of bits."""
    width = 8 * real.itemsize
    sign, whole = 1 << (width - 1), (1 << width) - 1
    least, greatest, normal, any_nonfinite = found.tolist()
    if not greatest:
        return Extent(inf, -inf, inf, False, bool(any_nonfinite))
    bits = [rank ^ sign if rank & sign else rank ^ whole for rank in (least ^ whole, greatest)]
    reach = np.array([*bits, normal ^ whole], found.dtype).view(real).tolist()
    return Extent(reach[0], reach[1], reach[2] if normal else inf, True, bool(any_nonfinite))

"""What the host must know of an array on a device: extents, reflection, counts of neighbours.

The host waits once.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnplan.compress.format import stream
from tnplan.compress.format.bit_tiling import CLASSES, SAMPLE, TILE
from tnplan.compress.format.bounds import Extent
from tnplan.compress.format.box import REFLECTIONS
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

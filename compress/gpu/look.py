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
from tnplan.compress.format.reflection import REFLECTIONS
from tnplan.compress.gpu import launches
from tnplan.compress.gpu.device import WORD_BYTES, DeviceArray, KernelDevice

SURVEY_BLOCKS = 1 << 9
"""Blocks that survey an array together: as many as a GPU holds at once, since each ends with atomics."""
SAMPLE_BLOCKS = 64


def survey_blocks(size: int) -> int:
    """The blocks that survey so many pairs of elements."""
    return max(1, min(SURVEY_BLOCKS, size // TILE))


class Look:
    """The kernels of survey.cu under way on an array of `size` elements. found, counts: where they write, of
    as many axes as asked for. The host waits once, in `found_out`: what a number's class is, the device finds
    out for itself."""

    def __init__(
        self, device: KernelDevice, values: DeviceArray, dtype: str, size: int, bound: Any, n_axes: int
    ) -> None:
        self.device, self.dtype, self.size, self.bound, self.n_axes = device, dtype, size, bound, n_axes
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
            return empty, REFLECTIONS[0], np.zeros((0, CLASSES, CLASSES), np.uint32)
        if self.n_axes:
            host = self.told().view(self.found.dtype)[: self.found.size]
        else:
            host = self.device.download(self.found)
        changed, flipped = host[4 * n : 4 * n + 2]
        kind = 1 if not changed else 2 if not flipped else 0
        reflection = REFLECTIONS[kind if self.size > 1 else 0]
        counts = host[4 * n + 3 :].view(np.uint32).reshape(self.n_axes, CLASSES, CLASSES)
        return [_extent(host[4 * c : 4 * c + 4], self.real) for c in range(n)], reflection, counts


def extents(device: KernelDevice, values: DeviceArray, dtype: str, size: int) -> tuple[list[Extent], str]:
    """The extents of the parts of an array of so many elements, and which of `REFLECTIONS` it is."""
    return Look(device, values, dtype, size, launches.bound(0.0, "range", dtype), 0).found_out()[:2]


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

"""The coder `fast` on a device: a group's tiles coded in slots, from which they go to their places.

What kernels must know of an array is a plan in the device's memory: the host lays it out (`code_fast`), or
the device does from what a survey has found, before the host knows (`Ahead`).
"""

from __future__ import annotations

import numpy as np

from tnplan.compress.format import stream
from tnplan.compress.format.bit_tiling import TILE, usable_axes
from tnplan.compress.format.stream import Header
from tnplan.compress.gpu import launches
from tnplan.compress.gpu.frames import MOST_FRAMES, Coded, FrameGroup, StreamWriter, lay_out, part_arrays
from tnplan.compress.gpu.launches import WORD_BYTES, DeviceArray, KernelDevice
from tnplan.compress.gpu.survey_kernels import SurveyKernels

BATCH_BYTES = 7 << 27
"""Workspace for the coded tiles of the frames that are coded at once; one frame may need more."""


def slot_bytes(n_components: int) -> int:
    """The most bytes of a tile: its head, and each number as it is."""
    return launches.FAST_HEAD_BYTES + 4 * TILE * n_components


def code_fast(
    device: KernelDevice, values: DeviceArray, header: Header, limits: tuple[float, ...], group: FrameGroup
) -> Coded:
    """Code the tiles of a group, of which `values` are the real numbers."""
    plan = lay_out(device, values, header, group, launches.rules(header, limits))
    return _code(device, values, header.dtype, group.count, group.n_tiles, plan)


def _code(
    device: KernelDevice, values: DeviceArray, dtype: str, count: int, n_tiles: int, plan: DeviceArray
) -> Coded:
    """Code at most `count` frames of at most `n_tiles` tiles, as a plan says."""
    n = stream.components(dtype)
    sizes, exact, heads = part_arrays(device, n, count, n_tiles)
    slots = device.empty(count * n_tiles * slot_bytes(n) // 4, "uint32")
    device.launch(
        launches.fast_encode(count, n_tiles), dtype, values, plan, plan[launches.PLAN_BYTES // 4 :], slots,
        sizes, heads, exact,
    )  # fmt: skip

    def pack(starts: DeviceArray, frames: DeviceArray, out: DeviceArray) -> None:
        device.launch(launches.fast_pack(count, n_tiles), dtype, slots, sizes, starts, plan, frames, out)

    return Coded(count, n_tiles, plan, sizes, exact, heads, pack)


class Ahead:
    """A stream of an array that is looked at, of which the first frames, as many as there is workspace for,
    are coded with what a survey has found, before the host knows it.

    Its size is a power of two from 2^17 on, or two frames or more, so that the first frames are of equal size
    whether half of the array is stored or all. The stream's first frame begins at byte `start`.
    """

    def __init__(
        self, device: KernelDevice, values: DeviceArray, survey: SurveyKernels, frame_log2: int,
        out: DeviceArray, start: int,
    ) -> None:  # fmt: skip
        dtype, size = survey.dtype, survey.size
        n, n_tiles = stream.components(dtype), min(size, 1 << frame_log2) // TILE
        count = max(1, size >> frame_log2)
        self.count = min(count, MOST_FRAMES, max(1, BATCH_BYTES // (n_tiles * slot_bytes(n))))
        """Frames that are coded, if there are as many whole ones."""
        self._plan_bytes = n * launches.RULES[stream.real_dtype(dtype)].size + launches.ORDER.size
        n_words = 2 + -(-self._plan_bytes // WORD_BYTES)
        plan = device.empty(launches.PLAN_BYTES // 4 + n_tiles, "uint32")
        box, self._wait = device.mailbox(n_words)
        device.launch(
            launches.plan("choose_plan"), dtype, values, np.uint64(size), survey.bound, np.uint32(frame_log2),
            np.uint32(survey.n_axes), survey.extents, survey.counts, plan, plan[launches.PLAN_BYTES // 4 :],
            box, np.uint32(n_words + 1),
        )  # fmt: skip
        self.writer = StreamWriter(device, dtype, out, start, -(-size >> frame_log2))
        self.writer.append(values, 0, _code(device, values, dtype, self.count, n_tiles, plan))

    def wait(self) -> None:
        """Wait until the device has sent its plan, as it will whatever else fails."""
        self._plan = self._wait()

    def suits(self, header: Header, limits: tuple[float, ...]) -> bool:
        """Whether the device's plan is the header's: it is not where values have no linear rule."""
        elements = min(header.stored, 1 << header.frame_log2)
        order = launches.order(usable_axes(header.axes, elements))
        expected = bytes(launches.rules(header, limits)) + bytes(order)
        frames = self._plan[:2].tolist() == [elements, header.stored // elements]
        return frames and self._plan[2:].tobytes()[: self._plan_bytes] == expected

"""Frames that kernels take together, and the stream around what coders make of them. Knows no coder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tnplan.compress.cpu.frame import RAW, filled
from tnplan.compress.format import stream
from tnplan.compress.format.bit_tiling import TILE, tile_count, usable_axes
from tnplan.compress.format.errors import CodecError
from tnplan.compress.format.stream import Header
from tnplan.compress.gpu import launches
from tnplan.compress.gpu.launches import FRAME, MOST_BLOCKS, WORD_BYTES, DeviceArray, KernelDevice

MOST_FRAMES = 1 << 15
"""Frames of a launch that has them along y."""
FILL_BLOCKS = 32
"""The least blocks a frame that fill in what coders leave out."""
FRAME_WORDS = FRAME.itemsize // WORD_BYTES


@dataclass(frozen=True)
class FrameGroup:
    """Frames of equal size that are coded at once: number of the first, how many, their elements and tiles,
    the arguments of kernels that say where elements are, and whether tiles have residuals."""

    first: int
    count: int
    elements: int
    n_tiles: int
    arguments: tuple[Any, ...]
    residuals: bool

    def values_of(self, values: DeviceArray, header: Header) -> DeviceArray:
        """The group's part of the array's flat real numbers."""
        begin = self.first * header.frame_elements * header.components
        end = begin + self.count * self.elements * header.components
        return values if end - begin == values.size else values[begin:end]


def groups(header: Header, most: int, first: int = 0) -> tuple[FrameGroup, ...]:
    """The frames of a stream from the `first` on in groups of at most `most`, and at most `MOST_FRAMES`,
    nearly equal ones."""
    cut = header.stored, header.frame_elements, header.axes, header.predictor is not None
    return _groups(cut, min(most, MOST_FRAMES), first)


@lru_cache(256)
def _groups(cut: tuple[int, int, tuple[int, ...], bool], most: int, first: int) -> tuple[FrameGroup, ...]:
    """Of so many stored elements, elements of a frame, axes, and whether tiles have residuals."""
    stored, elements, axes, residuals = cut
    n_full, remainder = divmod(stored, elements)
    n_pending, step = max(0, n_full - first), max(1, most)
    step = -(-n_pending // max(1, -(-n_pending // step))) or 1
    frames = [(begin, min(step, n_full - begin), elements) for begin in range(first, n_full, step)]
    if remainder and first <= n_full:
        frames.append((n_full, 1, remainder))
    return tuple(_group(axes, residuals, *numbers) for numbers in frames)


def _group(axes: tuple[int, ...], residuals: bool, first: int, count: int, elements: int) -> FrameGroup:
    n_tiles = tile_count(elements)
    order = launches.order(usable_axes(axes, elements))
    return FrameGroup(
        first, count, elements, n_tiles, (np.uint64(elements), order, np.uint32(n_tiles)), residuals
    )


def frame_count(header: Header) -> int:
    """The frames of a stream."""
    return -(-header.stored // header.frame_elements)


@dataclass(frozen=True)
class Coded:
    """Frames of equal size whose parts, tiles or segments, a coder is making: `count` of at most `n_tiles`
    tiles, or fewer if their plan says so. The bytes of parts (frames, n_tiles; ~0: does not fit), how many
    values of each tile are stored exactly (frames, components, n_tiles), bytes before the parts (frames), and
    what copies these to the stream, from where each starts behind its frame's head, the frames, and the
    output buffer."""

    count: int
    n_tiles: int
    plan: DeviceArray
    sizes: DeviceArray
    exact: DeviceArray
    heads: DeviceArray
    pack: Callable[[DeviceArray, DeviceArray, DeviceArray], None]


def part_arrays(
    device: KernelDevice, n_components: int, count: int, n_tiles: int
) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    """sizes, exact and heads of `Coded`, for kernels to fill."""
    parts = count * n_tiles
    last = parts * (1 + n_components)
    words = device.empty(last + count, "uint32")
    return words[:parts], words[parts:last], words[last:]


def lay_out(
    device: KernelDevice, values: DeviceArray, header: Header, group: FrameGroup, rules: Any
) -> DeviceArray:
    """The plan of a group (plan.cuh), and behind it the first elements of its tiles."""
    ends = group.first + group.count == frame_count(header)
    plan = device.empty(launches.PLAN_BYTES // 4 + group.n_tiles, "uint32")
    device.launch(
        launches.plan("lay_out_plan"), header.dtype, values, *group.arguments, rules, np.uint32(group.count),
        np.uint32(ends), plan, plan[launches.PLAN_BYTES // 4 :],
    )  # fmt: skip
    return plan


class StreamWriter:
    """A stream in an output buffer, to which at most `count` frames are appended, from byte `start` on."""

    def __init__(self, device: KernelDevice, dtype: str, out: DeviceArray, start: int, count: int) -> None:
        self.device, self.dtype, self.out, self.start = device, dtype, out, start
        # The table of frames, and behind it where the stream ends so far.
        self.frames = device.empty(count * FRAME_WORDS + 1, "uint64")
        self.end = self.frames[count * FRAME_WORDS :]
        self.box, self.wait_for_end = device.mailbox(1)

    def append(self, values: DeviceArray, first: int, coded: Coded) -> None:
        """Append frames from number `first` on, of which `values` are the real numbers; their headers stay
        out. Where they end the stream, all that their plan has, the host gets its size."""
        starts = self.device.empty(coded.count * coded.n_tiles, "uint64")
        parts = (np.uint32(1), coded.sizes, coded.heads, coded.exact, coded.plan, starts)
        self._locate(parts, first, coded.count)
        coded.pack(starts, self._from(first), self.out)
        self._fill(values, first, coded.count, coded.n_tiles, coded.plan, coded.exact)

    def append_raw(self, values: DeviceArray, header: Header, group: FrameGroup) -> None:
        """The same, without loss."""
        frame_table = np.zeros(group.count, FRAME)
        values_bytes = group.elements * header.components * header.real_dtype.itemsize
        frame_table["kind"], frame_table["size"] = RAW, filled(WORD_BYTES + values_bytes)
        self._from(group.first)[: group.count * FRAME_WORDS] = self.device.upload(frame_table.view(np.uint64))
        rules = launches.rules(header, (0.0,) * header.components)
        plan = lay_out(self.device, values, header, group, rules)
        self._locate((np.uint32(0), *[plan] * 5), group.first, group.count)
        self._fill(values, group.first, group.count, group.n_tiles, plan, plan)

    def _from(self, first: int) -> DeviceArray:
        return self.frames[first * FRAME_WORDS :] if first else self.frames

    def _locate(self, parts: tuple[Any, ...], first: int, count: int) -> None:
        """Choose the offsets of frames; `parts`: whether they are coded, and then the arrays of `Coded`."""
        self.device.launch(
            launches.frames("place_frames", count), self.dtype, *parts, self._from(first),
            np.uint64(self.out.size), np.uint64(0 if first else self.start), self.end, self.box,
        )  # fmt: skip

    def _fill(
        self, values: DeviceArray, first: int, count: int, n_tiles: int, plan: DeviceArray, exact: Any
    ) -> None:
        blocks = min(n_tiles, max(FILL_BLOCKS, MOST_BLOCKS // count))
        self.device.launch(
            launches.frames("fill_frames", blocks, count), self.dtype, values, plan, exact,
            self._from(first), self.out,
        )  # fmt: skip

    def seal(self, header: Header) -> int:
        """Write the stream's header and those of its frames, checksums included: how large the stream is.
        Raises CodecError where the output buffer is smaller."""
        head, count = stream.pack_header(header), frame_count(header)
        words, n_words, seed = launches.header(head), len(head) // WORD_BYTES, stream.seed_of(head)
        summed = header.coder == "fast"
        most_blocks = MOST_BLOCKS // 4 if summed else MOST_BLOCKS
        for first in range(0, count, MOST_FRAMES):
            n_frames = min(MOST_FRAMES, count - first)
            blocks = max(1, min(most_blocks // n_frames, self.out.size // (WORD_BYTES * TILE)))
            self.device.launch(
                launches.frames("seal_frames", blocks, n_frames), self.dtype, words, np.uint32(n_words),
                self._from(first), np.uint64(first), np.uint64(seed), np.uint32(summed),
                self.out,
            )  # fmt: skip
        used = int(self.wait_for_end()[0])
        check_capacity(self.out, used)
        return used


def check_capacity(out: DeviceArray, size: int) -> None:
    """CodecError where the output buffer is smaller than the stream."""
    if size > out.size:
        raise CodecError("out", f"has {out.size} bytes, too few", "give worst_size_bytes(...)")
